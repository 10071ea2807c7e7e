"""The files of a folder, by its URL or its path.

In: a location, such as s3://bucket/imagenet. Out: bytes, sizes and names of its files.
Every failure is a `RemoteError` with the name of the file, the answer of the store, and
a remedy. No error holds credentials.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from tfpipe import errors
from tfpipe.location import folders, limits
from tfpipe.location.location import OBJECT_SCHEMES, Location

_WRITES = ("writing", "removing")
# The processes that have used a URL: this one, or those it was forked from.
_processes: set[int] = set()


@dataclasses.dataclass(frozen=True, init=False)
class Files:
    """The files of a folder, by a URL or a path of this machine.

    Several threads can use the object at once, and it can be pickled. A process that
    was made by `fork` after its parent used a URL cannot use URLs, because a fork does
    not copy the threads of the connections.

    A method raises a RemoteError if the file is missing (a `MissingFileError`), if the
    folder cannot be listed, or if the file cannot be read, written or removed.

    Example:
        >>> files = tfpipe.Files("DIR")
        >>> sorted(files.names("train"))[0]
        'train-00000-of-00003'
        >>> files.exists("index.json")
        True

    Args:
        location: URL or path of the folder. Nothing is read before a method is called.
        time_limit: Seconds that a request may take with all its retries, > 0, at most
            a day. A stalled connection counts. A large file is uploaded with one
            request a part. Paths have only the limits of their own systems, and for
            hdfs:// the name node must answer in time. Default:
            $TFPIPE_STORE_TIME_LIMIT, or 60 without it.
        is_pinned: Whether each file must stay as it is when `names` first lists it:
            reading a range of another version is an error. Only object stores with
            ETags tell.

    Raises:
        ValueError: If an argument is wrong, see `Location.from_user`.
        RemoteError: If a package or a setting for this location is missing.
    """

    location: Location
    time_limit: float
    is_pinned: bool
    _folder: Any = dataclasses.field(init=False, repr=False, compare=False)

    def __init__(
        self,
        location: str | os.PathLike[str] | Location,
        time_limit: float | None = None,
        *,
        is_pinned: bool = False,
    ) -> None:
        location = Location.from_user("location", location, owner=self)
        errors.settle(self, "location", location)
        if time_limit is None:
            time_limit = limits.seconds()
        errors.settle(self, "time_limit", time_limit)
        most = limits.MOST_SECONDS
        errors.settle_numbers(self, ["time_limit"], above=0, most=most)
        errors.settle(self, "is_pinned", is_pinned)
        errors.settle_bools(self, "is_pinned")
        errors.settle(self, "_folder", _open(location, self.time_limit, is_pinned))

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle then holds neither connections nor credentials.
        make = functools.partial(type(self), is_pinned=self.is_pinned)
        return (make, (self.location, self.time_limit))

    def read(self, name: str) -> bytes:
        """Returns the content of a file; all bytes come within the time limit."""
        with self._asked("reading", name):
            return bytes(self._folder.read(name))

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Returns the bytes of a file from `start` up to, not including, `stop`.

        Raises:
            RemoteError: Also if the file ends before `stop`.
        """
        return bytes(self.read_view(name, start, stop))

    def read_view(self, name: str, start: int, stop: int) -> memoryview:
        """Returns the same as `read_range`, without a copy."""
        if not 0 <= start <= stop:
            raise ValueError(f"A range must have 0 <= start <= stop: {start}, {stop}.")
        if start == stop:
            return memoryview(b"")
        what = f"reading bytes {start} to {stop} of"
        with self._asked(what, name):
            content = memoryview(self._folder.read_range(name, start, stop))
        if len(content) != stop - start:
            raise errors.RemoteError(
                f"{what.capitalize()} {self._shown(name)} must give {stop - start} "
                f"bytes, got {len(content)}: the file is too short. Copy it again."
            )
        return content

    def size(self, name: str) -> int:
        """Returns the bytes of a file."""
        with self._asked("asking for the size of", name):
            return int(self._folder.size(name))

    def version(self, name: str) -> str:
        """Returns a text, such as an ETag, with another value for another content."""
        with self._asked("asking for the version of", name):
            return str(self._folder.version(name))

    def tag(self, name: str) -> str:
        """Returns the ETag with which `names` first listed a file of a pinned folder.

        "" for a file that was not listed, and for stores without ETags.
        """
        return str(getattr(self._folder, "tags", {}).get(name, ""))

    def names(self, prefix: str = "") -> dict[str, int]:
        """Returns the bytes of the files whose names begin with a prefix, by name.

        Files in folders below count too; their names contain a slash. A folder of an
        object store that does not exist has no files. Web servers cannot list.
        """
        with self._asked("listing", ""):
            if self.location.is_web_server:
                raise errors.RefusedError(
                    f"{self.location.shown} is a web server, which cannot list its "
                    "files. Use a data set with index.json, or an object store."
                )
            sizes: dict[str, int] = self._folder.names()
        return {name: sizes[name] for name in sorted(sizes) if name.startswith(prefix)}

    def write(self, name: str, content: bytes) -> None:
        """Writes a file whole or not at all; an older file of this name is replaced."""
        with self._asked("writing", name):
            self._folder.write(name, content)

    def create(self, name: str, content: bytes) -> bool:
        """Writes a file whole, unless a file of this name exists.

        Returns:
            Whether the file has this content now. False: another writer was first, and
            its file is as it was.

        Raises:
            RemoteError: Also if the store has no such write.
        """
        with self._asked("writing", name):
            if self._folder.create(name, content):
                return True
            # A request whose answer was lost is sent again.
            return bytes(self._folder.read(name)) == content

    def upload(self, name: str, path: pathlib.Path) -> None:
        """Copies a local file to this name, whole or not at all.

        Raises:
            OSError: If the local file cannot be read.
        """
        with open(path, "rb"):  # an error of the local file is no error of the store
            pass
        with self._asked("writing", name):
            self._folder.upload(name, pathlib.Path(path))

    def delete(self, name: str) -> None:
        """Removes a file. Object stores do not say whether it was there."""
        with self._asked("removing", name):
            self._folder.delete(name)

    def exists(self, name: str) -> bool:
        """Returns whether a file is there."""
        try:
            self.size(name)
        except errors.MissingFileError:
            return False
        return True

    def _shown(self, name: str) -> str:
        return (self.location / name).shown

    @contextlib.contextmanager
    def _asked(self, what: str, name: str) -> Iterator[None]:
        """Turns every error of a request into a `RemoteError`."""
        asked = self.location / name  # refuses a name that leaves the folder
        if not self.location.is_local:
            _require_own_process()
        is_write = what in _WRITES
        if is_write and self.location.is_web_server:
            raise errors.RefusedError(
                f"{self.location.shown} is a web server, which is only read. Write "
                "to a folder or an object store."
            )
        start = time.monotonic()
        try:
            yield
        except errors.RemoteError:
            raise
        except Exception as error:
            kind, came_back, remedy = self._folder.explain(error, is_write=is_write)
            # The cause is left out: the cause may hold parts of the request.
            # A short time says nothing.
            seconds = time.monotonic() - start
            after = f" after {seconds:.1f} s" if seconds >= 1 else ""
            raise kind(
                f"{what.capitalize()} {asked.shown} failed{after}: {came_back}. "
                f"{remedy}".rstrip()
            ) from None


def _require_own_process() -> None:
    """Refuses a process whose threads of connections were lost in a fork.

    A request would wait forever.
    """
    if _processes and os.getpid() not in _processes:
        raise errors.RemoteError(
            "A process that was made by fork cannot read or write URLs after its "
            "parent did. Start it with the method spawn or forkserver of "
            "multiprocessing."
        )
    _processes.add(os.getpid())


def _open(location: Location, time_limit: float, is_pinned: bool) -> Any:
    if location.is_local:
        return folders.LocalFolder(location.path)
    if location.scheme in OBJECT_SCHEMES:
        from tfpipe.location import object_store  # of no use to a folder

        return object_store.ObjectStore(location, time_limit, is_pinned=is_pinned)
    from tfpipe.location import hdfs

    return hdfs.HdfsFolder(location, time_limit)
