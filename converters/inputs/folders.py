"""Input folders, on a disk and by URL.

In: a path or a URL. Out: an `OnDisk` or an `AtUrl` with the same methods: names and
sizes of files and folders, in the same order for both; and a folder on the disk with
copies of small files. A store has no folders: its names hold slashes. All names of a
store are listed once, when they are first needed.
"""

import collections
import contextlib
import dataclasses
import functools
import os
import pathlib
import posixpath
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from converters.inputs import listing
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location


@dataclasses.dataclass(frozen=True)
class OnDisk:
    """A folder of this machine; names are relative to it, and "" is itself.

    Attributes:
        location: The folder.
    """

    location: Location

    @functools.cached_property
    def path(self) -> pathlib.Path:
        """Path of the folder."""
        return self.location.path

    def shown(self, name: str) -> str:
        """Returns the path of a file or folder, for messages."""
        return self.location.resolve(name).shown

    def is_folder(self, name: str) -> bool:
        """Whether a name is that of a folder, or of a link to one."""
        return (self.path / name).is_dir()

    def exists(self, name: str) -> bool:
        """Whether there is something of this name, if only a dangling link."""
        return os.path.lexists(self.path / name)

    def is_empty(self, name: str) -> bool:
        """Whether a folder has nothing in it."""
        return not any((self.path / name).iterdir())

    def scan(self, name: str, suffixes: tuple[str, ...]) -> listing.Listing:
        """Lists a folder, see `listing.scan`.

        Raises:
            OSError: If it cannot be read.
        """
        return listing.scan(self.path / name, suffixes)

    def files_below(self, name: str) -> Iterator[str]:
        """Yields the paths of all files below a folder, relative to that folder."""
        return listing.files_below(self.path / name)

    def identity(self, name: str) -> tuple[int, int] | None:
        """Returns device and inode of a folder, which links may lead to again."""
        status = (self.path / name).stat()
        return status.st_dev, status.st_ino

    def size(self, name: str) -> int | None:
        """Returns the bytes of a file; None if there is no such file."""
        path = self.path / name
        return path.stat().st_size if path.is_file() else None


# Far above the packed annotations of ImageNet, of 21 MB.
_MAX_LIST_BYTES = 1 << 30
_UNSAFE_PARTS = {"", ".", ".."}


@dataclasses.dataclass(frozen=True)
class AtUrl:
    """A folder of an object store; names are relative to it, and "" is itself.

    Attributes:
        location: URL of the folder.
    """

    location: Location

    def shown(self, name: str) -> str:
        """Returns the URL of a file or folder, for messages."""
        return self.location.resolve(name).shown

    def is_folder(self, name: str) -> bool:
        """Whether there are files below a name."""
        return name.rstrip("/") in self._entries

    def exists(self, name: str) -> bool:
        """Whether there is a file or a folder of this name."""
        above, base = posixpath.split(name)
        return self.is_folder(name) or base in self._entries.get(above, {})

    def is_empty(self, name: str) -> bool:
        """Whether a folder has nothing in it; folders of a store never have nothing."""
        return not self.is_folder(name)

    def scan(self, name: str, suffixes: tuple[str, ...]) -> listing.Listing:
        """Lists a folder, see `listing.scan`.

        Raises:
            RemoteError: If the store cannot be listed.
        """
        entries = self._entries.get(name.rstrip("/"), {})
        found, folders, names = [], [], []
        left_out: list[listing.LeftOut] = []
        for entry in sorted(entries, key=lambda entry: entry.rstrip("/")):
            base, size = entry.rstrip("/"), entries[entry]
            named = listing.has_suffix(base, suffixes)
            if named:
                names.append(base)
            if base in _UNSAFE_PARTS or (listing.is_hidden(base) and not named):
                left_out.append(listing.LeftOut(base, listing.OTHER_NAME))
            elif size is None and named:
                left_out.append(listing.LeftOut(f"{base}/", listing.NOT_A_FILE))
            elif size is None:
                folders.append(base)
            elif named:
                found.append((base, size))
            else:
                left_out.append(listing.LeftOut(base, listing.OTHER_NAME))
        return listing.Listing(found, folders, names, left_out)

    def files_below(self, name: str) -> Iterator[str]:
        """Yields the names of all files below a folder, relative to that folder."""
        prefix = name.rstrip("/") + "/"
        for below in self._names:
            if below.startswith(prefix):
                yield below.removeprefix(prefix)

    def identity(self, name: str) -> None:
        """Returns nothing: there are no links in a store."""

    def size(self, name: str) -> int | None:
        """Returns the bytes of a file; None if there is no such file.

        Raises:
            RemoteError: If the request fails.
        """
        try:
            return self._files.size(name)
        except errors.MissingFileError:
            return None

    def fetch(self, names: Sequence[str], folder: pathlib.Path) -> None:
        """Copies small files to a folder, those of the names that are there.

        Raises:
            ValueError: If one of them is too large.
            RemoteError: If the store cannot be read.
        """
        for name in names:
            size = self._names.get(name)
            if size is None:
                continue
            if size > _MAX_LIST_BYTES:
                raise ValueError(
                    f"{self.shown(name)} must have at most {_MAX_LIST_BYTES:,} bytes, "
                    f"got {size:,}."
                )
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._files.read(name))

    @functools.cached_property
    def _files(self) -> Files:
        return Files(self.location)

    @functools.cached_property
    def _names(self) -> Mapping[str, int]:
        """Bytes of each file, by name; some tools mark a folder by an empty file."""
        sizes = self._files.names()
        return {name: sizes[name] for name in sizes if not name.endswith("/")}

    @functools.cached_property
    def _entries(self) -> Mapping[str, Mapping[str, int | None]]:
        """Names in each folder, with the bytes of a file and None for a folder.

        The name of a folder ends in a slash: a store may have a file of the same name.
        """
        found: dict[str, dict[str, int | None]] = collections.defaultdict(dict)
        for name, size in self._names.items():
            above, _, base = name.rpartition("/")
            found[above][base] = size
            while above:
                above, _, base = above.rpartition("/")
                if f"{base}/" in found[above]:
                    break
                found[above][f"{base}/"] = None
        return dict(found)


Folder = OnDisk | AtUrl


def open_folder(location: Location) -> Folder:
    """Returns the folder at a path or URL; nothing is read yet."""
    return OnDisk(location) if location.is_local else AtUrl(location)


def require(folder: Folder) -> None:
    """Checks that an input folder is there.

    Raises:
        ValueError: If it is not.
        RemoteError: If the store cannot be listed.
    """
    if not folder.is_folder(""):
        kind = "folder" if folder.location.is_local else "file below this URL"
        raise ValueError(
            f"--input_dir must be a folder, got {folder.shown('')}: no such {kind}."
        )


@contextlib.contextmanager
def near(folder: Folder, names: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yields a folder on the disk that holds these files of an input folder.

    A folder on a disk is its own. Files of a store are copied to a temporary folder. An
    error inside the block names the URL instead of that folder.

    Args:
        folder: The input folder.
        names: Files that may be there, all of them small.

    Raises:
        ValueError: If a file is too large, or from the block.
        RemoteError: If the store cannot be read.
    """
    if isinstance(folder, OnDisk):
        yield folder.path
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder.fetch(names, pathlib.Path(temporary))
        try:
            yield pathlib.Path(temporary)
        except ValueError as error:
            text = str(error).replace(temporary, folder.shown(""))
            raise ValueError(text) from None
