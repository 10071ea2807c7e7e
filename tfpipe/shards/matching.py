"""Shards found by a pattern of their names, in place of an index.

In: a folder and a pattern. Out: the names of the files that match, in the order in
which their records are counted. Imports no TensorFlow.
"""

import pathlib
import re

from tfpipe import errors

_MAX_NAMES_SHOWN = 20


def matching_files(folder: pathlib.Path, files: str) -> list[str]:
    """Returns the files that match a pattern, sorted by name, 2 before 10.

    Args:
        folder: Folder of the shards.
        files: Pattern as of `pathlib.Path.glob`, relative to the folder; `**` stands
            for any folders. Files and folders that begin with a dot do not match.

    Returns:
        Paths relative to the folder.

    Raises:
        BadIndexError: If no file matches, or two names are links to one file.
    """
    found = [
        path.relative_to(folder).as_posix()
        for path in folder.glob(files)
        if path.is_file() and not _is_hidden(path.relative_to(folder))
    ]
    if not found:
        there = sorted(p.name + "/" * p.is_dir() for p in folder.glob("*"))
        more = ", ..." if len(there) > _MAX_NAMES_SHOWN else ""
        raise errors.BadIndexError(
            f"No file in {folder} matches files={files!r}. There are "
            f"{', '.join(there[:_MAX_NAMES_SHOWN]) or 'no files at all'}{more}."
        )
    names = sorted(found, key=natural)
    by_file: dict[tuple[int, int], str] = {}
    for name in names:
        status = (folder / name).stat()
        other = by_file.setdefault((status.st_dev, status.st_ino), name)
        if other != name:
            raise errors.BadIndexError(
                f"Each record must be read once, but {other} and {name} in {folder} "
                f"are the same file. Write a pattern that matches one of them, got "
                f"files={files!r}."
            )
    return names


def _is_hidden(path: pathlib.Path) -> bool:
    return any(part.startswith(".") and part != ".." for part in path.parts)


def natural(name: str) -> tuple[list[str | int], str]:
    """Returns a key that sorts numbers in names by value."""
    parts = re.split(r"([0-9]+)", name)
    return [
        int(part) if number % 2 else part for number, part in enumerate(parts)
    ], name
