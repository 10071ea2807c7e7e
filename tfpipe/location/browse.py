"""A folder level by level, on a disk and by URL.

In: a path or a URL. Out: a `Folder`: names and sizes of files and folders, in the same
order for a disk and a store, and the bytes of small files. A store has no folders: its
names hold slashes. All names of a store are listed once, when they are first needed.
"""

import collections
import contextlib
import dataclasses
import errno
import functools
import os
import pathlib
import stat
import tempfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tfpipe import errors
from tfpipe.location import parts
from tfpipe.location.files import Files
from tfpipe.location.location import Location

# Far above the packed annotations of ImageNet, of 21 MB.
_MAX_PACKED_BYTES = 1 << 30


class FolderEntry(NamedTuple):
    """A name in a folder.

    Attributes:
        name: The name.
        size: Bytes of a file.
        is_folder: True for a folder and for a link to a folder.
        is_link: True for a link.
        is_file: True for a file and for a link to a file, but not for a pipe.
        exists: False for a link to nowhere.
    """

    name: str
    size: int = 0
    is_folder: bool = False
    is_link: bool = False
    is_file: bool = False
    exists: bool = True


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder; names are relative to the folder, and "" is the folder itself.

    A folder of an object store has no links and no empty folders.
    """

    location: Location

    def _path(self, name: str) -> pathlib.Path | None:
        """Returns the path of a name on the disk; None in a store."""
        return self.location.path / name if self.location.is_local else None

    def entries(self, name: str) -> list[FolderEntry]:
        """Returns the names in a folder, sorted; none without such a folder."""
        if (path := self._path(name)) is None:
            return self._tree.get(name.rstrip("/"), [])
        with os.scandir(path) as entries:
            return sorted(map(_entry, entries))

    def is_folder(self, name: str) -> bool:
        """Whether a name is that of a folder, or of a link to one."""
        path = self._path(name)
        return name.rstrip("/") in self._tree if path is None else path.is_dir()

    def is_file(self, name: str) -> bool:
        """Whether a name is that of a file, or of a link to one."""
        path = self._path(name)
        return self.size(name) is not None if path is None else path.is_file()

    def exists(self, name: str) -> bool:
        """Whether there is something of this name, if only a dangling link."""
        if (path := self._path(name)) is None:
            return self.is_file(name) or self.is_folder(name)
        return os.path.lexists(path)

    def identity(self, name: str) -> tuple[int, int] | None:
        """Returns device and inode of a folder, which links may lead to again."""
        if (path := self._path(name)) is None:
            return None
        status = path.stat()
        return status.st_dev, status.st_ino

    def size(self, name: str) -> int | None:
        """Returns the bytes of a file; None if there is no such file."""
        if (path := self._path(name)) is not None:
            return path.stat().st_size if path.is_file() else None
        if not self.location.is_web_server:
            return self._names.get(name)
        try:
            return self._files.size(name)
        except errors.MissingFileError:
            return None

    def read(self, name: str, *, max_bytes: int = parts.MAX_LIST_BYTES) -> bytes:
        """Reads a file; a ValueError if the file is too large or not a file."""
        if (path := self._path(name)) is not None:
            return parts.read_bytes(path, max_bytes=max_bytes)
        if (size := self.size(name) or 0) > max_bytes:
            raise ValueError(
                f"{self.shown(name)} must have at most {max_bytes:,} bytes, got "
                f"{size:,}."
            )
        return self._files.read(name)

    @functools.cached_property
    def _files(self) -> Files:
        return Files(self.location)

    @functools.cached_property
    def _names(self) -> Mapping[str, int]:
        """Bytes of each file, by name; some tools mark a folder by an empty file."""
        sizes = self._files.names()
        return {name: sizes[name] for name in sizes if not name.endswith("/")}

    @functools.cached_property
    def _tree(self) -> Mapping[str, list[FolderEntry]]:
        """Names in each folder; a store may have a file and a folder of one name."""
        tree: dict[str, set[FolderEntry]] = collections.defaultdict(set)
        for name, size in self._names.items():
            above, _, base = name.rpartition("/")
            tree[above].add(FolderEntry(base, size, is_file=True))
            while above:
                above, _, base = above.rpartition("/")
                tree[above].add(FolderEntry(base, is_folder=True))
        return {above: sorted(entries) for above, entries in tree.items()}

    def shown(self, name: str) -> str:
        """Returns the path or URL of a file or folder, for messages."""
        return self.location.resolve(name).shown

    def read_text(self, name: str) -> str:
        """Reads a UTF-8 file; a ValueError if the file is not UTF-8."""
        return parts.decode_text(self.read(name), self.shown(name))

    def files_below(self, name: str, *, follow: bool = False) -> Iterator[str]:
        """Yields the paths of all files below a folder, relative to the folder.

        Links to folders are yielded, because links may form circles. With `follow`,
        links are followed, and each folder is read once.
        """
        prefix = f"{name}/" if name else ""
        pending, seen = [""], set()
        while pending:
            above = pending.pop()
            if follow:
                if (identity := self.identity(prefix + above)) in seen:
                    continue
                seen.add(identity or above)
            folders = []
            for entry in self.entries(prefix + above):
                if entry.is_folder and (follow or not entry.is_link):
                    folders.append(f"{above}{entry.name}/")
                else:
                    yield f"{above}{entry.name}"
            pending += reversed(folders)

    @contextlib.contextmanager
    def near(self, name: str) -> Iterator[pathlib.Path]:
        """Yields the path of a file on the disk, a copy if the file is in a store."""
        if (path := self._path(name)) is not None:
            yield path
            return
        with tempfile.NamedTemporaryFile() as copy:
            copy.write(self.read(name, max_bytes=_MAX_PACKED_BYTES))
            copy.flush()
            yield pathlib.Path(copy.name)


def _entry(entry: os.DirEntry[str]) -> FolderEntry:
    try:
        status = entry.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return FolderEntry(entry.name, exists=False)
    if stat.S_ISDIR(status.st_mode):
        return FolderEntry(entry.name, is_folder=True, is_link=entry.is_symlink())
    is_file = stat.S_ISREG(status.st_mode)
    return FolderEntry(entry.name, status.st_size, is_file=is_file)
