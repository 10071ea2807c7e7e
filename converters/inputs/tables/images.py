"""Finds the file of an image that a table names: below a root, or at a URL.

In: a path or URL as a table has it, and the root. Out: the file's place and size. A
path cannot lead out of the root.
"""

import dataclasses
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location, shown, written_scheme

# The threads wait for a disk or a server most of the time.
_NUM_THREADS = 16


class Found(NamedTuple):
    """A file that a table names.

    Attributes:
        name: Its path relative to the root, or its URL.
        file: Its absolute path or its URL.
        num_bytes: Its size; -1 if there is no such file.
    """

    name: str
    file: str
    num_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Root:
    """Folder or URL that paths are relative to.

    Attributes:
        location: The folder.
        is_given: Whether the user named it; then every URL must be below it too.
    """

    location: Location
    is_given: bool

    def find(self, paths: Sequence[tuple[int, str]]) -> list[Found]:
        """Returns the files of rows: pairs of the number of a row and its path.

        Raises:
            ValueError: If a path leads out of the root or names no regular file.
            RemoteError: If a server cannot be asked.
        """
        located = [self._locate(row, path) for row, path in paths]
        with ThreadPoolExecutor(_NUM_THREADS) as pool:
            sizes = list(pool.map(_size, (file for _, file in located)))
        for (row, path), num_bytes in zip(paths, sizes, strict=True):
            if num_bytes == _NO_FILE:
                raise ValueError(
                    f"Row {row} must name a regular file, got {path}: a folder, a pipe "
                    "or a device."
                )
        return [
            Found(name, file, num_bytes)
            for (name, file), num_bytes in zip(located, sizes, strict=True)
        ]

    def _locate(self, row: int, path: str) -> tuple[str, str]:
        if "\0" in path:
            raise ValueError(
                f"Row {row} must name a file, got a name with a zero byte."
            )
        if written_scheme(path):
            image = Location.from_user(f"The image of row {row}", path)
            if not image.split()[1]:
                raise ValueError(f"Row {row} must name a file, got {image.shown}.")
            is_outside = self.is_given and not image.is_in(self.location)
            if is_outside or "/../" in f"{image.text}/":
                raise self._outside(row, path)
            return image.text.removeprefix(f"{self.location.text}/"), image.text
        if not self.location.is_local:
            name = os.path.normpath(path)
            if name.startswith(("/", "../")) or name in ("..", "."):
                raise self._outside(row, path)
            return name, (self.location / name).text
        root = os.path.join(os.path.abspath(self.location.text), "")
        file = os.path.normpath(os.path.join(root, path))
        if not file.startswith(root):
            raise self._outside(row, path)
        return file.removeprefix(root), file

    def _outside(self, row: int, path: str) -> ValueError:
        return ValueError(
            f"Row {row} names {shown(path)}, which must be below --root="
            f"{self.location.shown}. Correct the row, or name the folder that holds "
            "all images."
        )


_MISSING, _NO_FILE = -1, -2


def _size(file: str) -> int:
    """Returns the bytes of a file; _MISSING or _NO_FILE if it is none."""
    location = Location(file)
    if not location.is_local:
        folder, name = location.split()
        try:
            return Files(folder).size(name)
        except errors.MissingFileError:
            return _MISSING
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return _MISSING
    return found.st_size if stat.S_ISREG(found.st_mode) else _NO_FILE
