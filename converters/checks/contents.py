"""The files of a data set that is checked: in a folder, or at a URL.

In: the folder; for a URL, the files there, and a folder with copies of the index and
the catalog. Out: names, sizes and digests. The checks do not see the difference.
"""

import concurrent.futures
import dataclasses
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from converters.jobs import at_url
from tfpipe import errors
from tfpipe.remote import urls
from tfpipe.remote.files import Files
from tfpipe.shards import index

_NUM_CONNECTIONS = 16
_Out = TypeVar("_Out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSetFiles:
    """The files of a data set.

    Attributes:
        data_dir: Folder of the data set; for a URL, folder with copies of the index and
            the catalog.
        files: The files at the URL; None for a folder.
        sizes: Bytes of each file at the URL.
    """

    data_dir: pathlib.Path
    files: Files | None = None
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def size(self, path: str) -> int | None:
        """Returns the bytes of a file; None if there is no such file.

        Raises:
            OSError: If the file cannot be looked at.
        """
        if self.files is not None:
            return self.sizes.get(path)
        local = self.data_dir / path
        return local.stat().st_size if local.is_file() else None

    def names(self, folder: str = "") -> set[str]:
        """Returns the names in the data set, or in a folder of it that may be missing.

        Raises:
            OSError: If the folder cannot be looked at.
        """
        if self.files is not None:
            prefix = f"{folder}/" if folder else ""
            found = (path for path in self.sizes if path.startswith(prefix))
            return {path.removeprefix(prefix).partition("/")[0] for path in found}
        local = self.data_dir / folder
        return {entry.name for entry in local.iterdir()} if local.is_dir() else set()

    def describe(self, path: str) -> index.File:
        """Returns the size and the digest of a file, which is read in pieces.

        Raises:
            OSError: If a file of a folder cannot be read.
            RemoteError: If a file at a URL cannot be read.
        """
        if self.files is not None:
            return at_url.describe(self.files, path, self.sizes[path])
        return index.describe_file(self.data_dir / path)

    def each(
        self, function: Callable[[str], _Out], paths: Collection[str]
    ) -> Iterator[_Out]:
        """Calls a function on each path; at a URL on several paths at a time."""
        if self.files is None:
            yield from map(function, paths)
            return
        with concurrent.futures.ThreadPoolExecutor(_NUM_CONNECTIONS) as pool:
            yield from pool.map(function, paths)


def can_list(files: Files) -> bool:
    """Whether the files at a URL can be listed; those of a web server cannot."""
    return urls.scheme(files.place) not in ("http", "https")


def remote_sizes(files: Files, names: Collection[str]) -> dict[str, int]:
    """Returns the bytes of each file at a URL.

    Args:
        files: The files.
        names: Files to ask for one by one where the place cannot be listed.

    Raises:
        RemoteError: If a request fails.
    """
    if can_list(files):
        return files.names()

    def size(name: str) -> int | None:
        try:
            return files.size(name)
        except errors.MissingFileError:
            return None

    with concurrent.futures.ThreadPoolExecutor(_NUM_CONNECTIONS) as pool:
        found = zip(names, pool.map(size, names), strict=True)
        return {name: num_bytes for name, num_bytes in found if num_bytes is not None}
