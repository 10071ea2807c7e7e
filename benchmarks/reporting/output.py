"""Output of results, the same for every command: a file, and the last line of stdout.

In: the JSON object of a result, and its table for people. Out: the object indented in a
file, the table, and the object on one line.
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


def finish(
    result: Mapping[str, Any],
    table: str,
    *,
    path: str | os.PathLike[str] | None = None,
) -> None:
    """Prints the table of a study, writes its result, and prints the last line.

    The table comes first, so that the figures of a long study are seen even if the file
    cannot be written.

    Args:
        result: The result, as JSON.
        table: The figures for people.
        path: File for the result; None or empty for no file.

    Raises:
        OSError: If the file cannot be written.
    """
    print(table, flush=True)
    if path:
        write(result, path)
    print_line(result)
