"""Output of results, the same for every command: a file, and the last line of stdout.

In: the JSON object of a result. Out: the object indented in a file, and on one line.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any


def write(result: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes a result to a file, which is complete as soon as it has its name.

    Raises:
        OSError: If the file cannot be written.
    """
    path = pathlib.Path(path)
    part = path.with_name(f".{path.name}.part")
    with open(part, "w", encoding="utf-8") as file:
        file.write(json.dumps(result, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def print_line(result: Mapping[str, Any]) -> None:
    """Prints a result as the last line of a command."""
    print(json.dumps(result, separators=(",", ":")), flush=True)
