"""A result, the way every command gives it: to a file for keeping, and as a last line.

In: the JSON object of a result. Out: indented in a file, on one line on stdout.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any


def write(result: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes a result to a file, for people and tools to read.

    Raises:
        OSError: If the file cannot be written.
    """
    text = json.dumps(result, indent=1) + "\n"
    pathlib.Path(path).write_text(text, encoding="utf-8")


def print_line(result: Mapping[str, Any]) -> None:
    """Prints a result as the last line of a command."""
    print(json.dumps(result, separators=(",", ":")), flush=True)
