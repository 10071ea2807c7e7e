"""An input folder on a disk.

In: a path. Out: what is in the folder and in the folders below it.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterator

from converters.inputs import listing


@dataclasses.dataclass(frozen=True)
class OnDisk:
    """A folder of this machine; names are relative to it, and "" is itself.

    Attributes:
        place: Path of the folder.
    """

    place: pathlib.Path

    def shown(self, name: str) -> str:
        """Returns the path of a file or folder, for messages."""
        return str(self.place / name)

    def is_folder(self, name: str) -> bool:
        """Whether a name is that of a folder, or of a link to one."""
        return (self.place / name).is_dir()

    def exists(self, name: str) -> bool:
        """Whether there is something of this name, if only a dangling link."""
        return os.path.lexists(self.place / name)

    def is_empty(self, name: str) -> bool:
        """Whether a folder has nothing in it."""
        return not any((self.place / name).iterdir())

    def scan(self, name: str, suffixes: tuple[str, ...]) -> listing.Listing:
        """Lists a folder, see `listing.scan`.

        Raises:
            OSError: If it cannot be read.
        """
        return listing.scan(self.place / name, suffixes)

    def files_below(self, name: str) -> Iterator[str]:
        """Yields the paths of all files below a folder, relative to that folder."""
        return listing.files_below(self.place / name)

    def identity(self, name: str) -> tuple[int, int] | None:
        """Returns device and inode of a folder, which links may lead to again."""
        status = (self.place / name).stat()
        return status.st_dev, status.st_ino

    def size(self, name: str) -> int | None:
        """Returns the bytes of a file; None if there is no such file."""
        path = self.place / name
        return path.stat().st_size if path.is_file() else None
