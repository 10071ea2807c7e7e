"""Where the files of a data set are, and how its shards are read from there.

In: a folder or a URL, and how to read it. Out: the folder with the index and the
catalog, the files, and the shard cache, if there is one. Nothing is read but the index
and the catalog of a URL, which are copied to this machine.
"""

import dataclasses
import functools
import os
import pathlib
import sys
from typing import Any, Literal

from tfpipe import errors
from tfpipe.remote import direct, metadata, urls
from tfpipe.remote.files import Files
from tfpipe.shard_cache.settings import INDEX_FOLDER, ShardCache
from tfpipe.shards import index

Choice = ShardCache | Literal["auto", "direct"]

DIRECTORY_VARIABLE = "TFPIPE_SHARD_CACHE"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Storage:
    """The place of a data set.

    Attributes:
        place: A local folder or a URL.
        folder: A local folder with the index and the catalog.
        files: The files at the place; None if the system reads them in place.
        cache: The cache through which the shards are read; None reads them directly.
    """

    place: str
    folder: str
    files: Files | None = None
    cache: ShardCache | None = None

    def bring(self, known: index.Index, name: str) -> pathlib.Path:
        """Returns the path of a side file on this host; fetched if it is elsewhere.

        The files of a folder with a cache, such as a shared mount, are elsewhere too.

        Args:
            known: The index of the data set.
            name: Name of a file that the index lists.

        Raises:
            BadIndexError: If the file is missing, or is not the one in the index.
            RemoteError: If a URL cannot be read.
            OSError: If the file cannot be looked at, or the cache cannot be written.
        """
        if self.files is not None:
            return metadata.bring_side_file(self.files, known, name, self._near())
        path, wanted = pathlib.Path(self.folder).absolute() / name, known.files or {}
        size = path.stat().st_size if path.exists() else None
        if name not in wanted or size != wanted[name].num_bytes:
            got = "no such file" if size is None else f"{size} bytes"
            raise errors.BadIndexError(
                f"{path} must have the size that {index.INDEX_NAME} says, got {got}."
            )
        return path

    def _near(self) -> pathlib.Path:
        """Returns the folder of this host for files of the data set."""
        if self.cache is None or urls.is_url(self.place):
            return pathlib.Path(self.folder)
        text = (pathlib.Path(self.folder) / index.INDEX_NAME).read_bytes()
        folder = pathlib.Path(self.cache.directory) / INDEX_FOLDER
        return (folder / index.describe(text).digest).absolute()


def require_choice(owner: object, name: str, value: Any) -> None:
    """Checks that a value is a ShardCache, "auto" or "direct".

    Raises:
        TypeError: If it is anything else.
    """
    if not isinstance(value, ShardCache) and value not in ("auto", "direct"):
        raise TypeError(
            f"{type(owner).__name__}.{name} must be a ShardCache, 'auto' or 'direct', "
            f"got {value!r}."
        )


def find(data_dir: str | os.PathLike[str], choice: Choice) -> Storage:
    """Finds the files of a data set.

    Args:
        data_dir: A local folder, or a URL, see `urls.require_place`.
        choice: As `shard_cache` of `source.TFRecordSource`.

    Raises:
        BadIndexError: If the place of a URL has no index or catalog.
        RemoteError: If a URL cannot be read.
        ValueError: If the URL cannot be read directly on this machine.
    """
    place = os.fspath(data_dir)
    given = choice if isinstance(choice, ShardCache) else None
    if not urls.is_url(place):
        files = None if given is None else Files(place, given.time_limit)
        return Storage(place=place, folder=place, files=files, cache=given)
    if choice == "direct":
        direct.prepare(place)
    directory = _default_directory() if given is None else given.directory
    cache = ShardCache(directory) if choice == "auto" else given
    files = Files(place, *([] if cache is None else [cache.time_limit]))
    folder = metadata.bring(files, pathlib.Path(directory) / INDEX_FOLDER)
    if choice == "auto":
        _say_once(os.fspath(directory))
    return Storage(place=place, folder=os.fspath(folder), files=files, cache=cache)


def _default_directory() -> str:
    default = pathlib.Path("~/.cache/tfpipe/shards").expanduser()
    return os.environ.get(DIRECTORY_VARIABLE) or os.fspath(default)


@functools.cache
def _say_once(directory: str) -> None:
    print(
        f"Shards are read by URL through the cache in {directory}, on the local disk. "
        f"{DIRECTORY_VARIABLE} or shard_cache=tfpipe.ShardCache(...) chooses another.",
        file=sys.stderr,
    )
