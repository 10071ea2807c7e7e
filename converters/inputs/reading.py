"""Reads parts of the files of an input, on a disk or by URL.

In: an input folder and the name of a file in it, or the URL of a file. Out: bytes, or
a function that reads at any offset. By URL, a request of that function gets a larger
piece than was asked for. The piece grows while a file is read through, and shrinks when
the parts are far apart. Connections of a folder are kept for the next file.
"""

import concurrent.futures
import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from converters.inputs import files
from tfpipe.location.files import Files
from tfpipe.location.location import Location

# Folders whose connections are kept; images of one input are mostly in one.
_MAX_FOLDERS = 64
_SEPARATOR = "://"


def is_remote(input_dir: Location, file: str) -> bool:
    """Whether a file is read by URL: the file or the input folder is a URL."""
    return _SEPARATOR in file or not input_dir.is_local


def read(input_dir: Location, file: str, start: int, num_bytes: int) -> bytes:
    """Reads a part of a file by its URL, or by its name in a folder at a URL."""
    is_own = _SEPARATOR in file
    folder, name = Location(file).split() if is_own else (input_dir, file)
    return _files(folder).read_range(name, start, start + num_bytes)


# A file of many images at a URL is looked at again after this time, not for each shard.
_SECONDS_BETWEEN_LOOKS = 60


class State(NamedTuple):
    """The state of a file; another content has another state.

    Attributes:
        num_bytes: Its size.
        mtime_ns: Time of the last change of the content.
        inode: Number of the file in its file system.
        version: Text of its store for a file at a URL, see `Files.version`.
    """

    num_bytes: int
    mtime_ns: int = 0
    inode: int = 0
    version: str = ""


def state_of(location: Location, *, num_bytes: int = 0) -> State:
    """Returns the state of a file; a file at a URL is known to have these bytes."""
    if location.is_local:
        status = os.stat(location.text)
        return State(status.st_size, status.st_mtime_ns, status.st_ino)
    folder, name = location.split()
    return State(num_bytes, version=_files(folder).version(name))


def require_same(location: Location, before: State) -> None:
    """Checks a file against its state when it was listed."""
    if location.is_local:
        is_same = state_of(location) == before
    else:
        period = int(time.monotonic() // _SECONDS_BETWEEN_LOOKS)
        is_same = _recent_version(location, period) == before.version
    if not is_same:
        raise ValueError(
            f"{location.shown} must stay the same until it is converted, but it has "
            "changed since it was listed. Run the command again."
        )


@functools.lru_cache(maxsize=4096)
def _recent_version(location: Location, period: int) -> str:
    """Returns the version of a file, of which the cache forgets older periods."""
    folder, name = location.split()
    return _files(folder).version(name)


@functools.lru_cache(maxsize=_MAX_FOLDERS)
def _files(folder: Location) -> Files:
    return Files(folder)


NUM_REQUESTS = 16
_SLOW_SECONDS = 0.002  # of a job
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


def in_threads(
    function: Callable[[_Job], _Result], jobs: Sequence[_Job]
) -> Iterator[_Result]:
    """Yields the results of jobs that may wait for a disk or a store, in their order.

    Jobs run here as long as the jobs are quick: threads cost more than a quick job.
    """
    remaining = iter(jobs)
    for job in remaining:
        start = time.perf_counter()
        result = function(job)
        is_slow = time.perf_counter() - start > _SLOW_SECONDS
        yield result
        if is_slow:
            break
    if not (waiting := list(remaining)):
        return
    with concurrent.futures.ThreadPoolExecutor(NUM_REQUESTS) as pool:
        # Groups limit how far the threads read ahead, and end soon after an error.
        for first in range(0, len(waiting), NUM_REQUESTS):
            yield from pool.map(function, waiting[first : first + NUM_REQUESTS])


ReadAt = Callable[[int, int], bytes]

_LEAST_BYTES, _MOST_BYTES = 16 << 10, 4 << 20


@contextlib.contextmanager
def opened(folder: Location, file: str, num_bytes: int) -> Iterator[ReadAt]:
    """Yields a function of an offset and a number of bytes.

    The function returns fewer bytes only at the end of the file, which has `num_bytes`.
    """
    if is_remote(folder, file):
        fetch = functools.partial(read, folder, file)
        yield Pieces(fetch, num_bytes).read
        return
    path = folder.path / file
    descriptor = files.open_file(path)

    def pread(offset: int, count: int) -> bytes:
        try:
            return os.pread(descriptor, count, offset)
        except OSError as error:
            raise files.with_path(error, path) from error

    try:
        # The parts are far apart: the kernel's reading ahead would read images too.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        yield pread
    finally:
        os.close(descriptor)


class Pieces:
    """Reads small parts of a file by requests for larger pieces.

    `fetch` returns exactly a number of bytes from an offset on.
    """

    def __init__(self, fetch: ReadAt, size: int) -> None:
        self._fetch, self._size = fetch, size
        self._start, self._piece = 0, b""
        self._next_bytes = _LEAST_BYTES

    def read(self, offset: int, count: int) -> bytes:
        """Returns bytes from an offset on; fewer only at the end of the file."""
        count = max(min(count, self._size - offset), 0)
        if not count:
            return b""
        end = self._start + len(self._piece)
        if not (self._start <= offset and offset + count <= end):
            near = self._start <= offset <= end + len(self._piece)
            factor = 2 if near else 0.5
            wanted = int(self._next_bytes * factor)
            self._next_bytes = min(max(wanted, _LEAST_BYTES), _MOST_BYTES)
            num_bytes = min(max(count, self._next_bytes), self._size - offset)
            self._start, self._piece = offset, self._fetch(offset, num_bytes)
        first = offset - self._start
        return self._piece[first : first + count]
