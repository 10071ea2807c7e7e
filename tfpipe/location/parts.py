"""Parts of files, on a disk or by URL, and the state of a file.

In: a folder and the name of a file in it, or the URL of a file. Out: bytes, or a
function that reads at any offset. By URL, a request of that function gets a larger
piece than was asked for. The piece grows while a file is read through, and shrinks when
the parts are far apart. Connections of a folder are kept for the next file.
"""

import concurrent.futures
import contextlib
import functools
import os
import pathlib
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tfpipe.location import atomic, limits
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.location.system_reads import pread

# Folders whose connections are kept; images of one input are mostly in one.
_MAX_FOLDERS = 64
_SEPARATOR = "://"


def is_remote(folder: Location, file: str) -> bool:
    """Whether a file is read by URL: the file or the input folder is a URL."""
    return _SEPARATOR in file or not folder.is_local


def read(folder: Location, file: str, start: int, num_bytes: int) -> bytes:
    """Reads a part of a file by its URL, or by its name in a folder."""
    if is_remote(folder, file):
        is_own = _SEPARATOR in file
        above, name = Location(file).split() if is_own else (folder, file)
        return _files(above).read_range(name, start, start + num_bytes)
    # Plain system calls, because pathlib and file objects double the time of a read
    # from the page cache.
    path = f"{folder.text}/{file}"
    # O_NONBLOCK: if a pipe has replaced the file, opening it would wait forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with atomic.naming(path):
            data = pread(descriptor, num_bytes, start)
    finally:
        os.close(descriptor)
    if len(data) != num_bytes:
        raise OSError(
            f"{path} must have {num_bytes} bytes from byte {start} on, got {len(data)}:"
            " it has changed since it was listed."
        )
    return data


def open_file(path: str | pathlib.Path, *, pipe: bool = False) -> int:
    """Opens a regular file and returns its descriptor, which the caller closes.

    With `pipe` the file may be a pipe too; opening then waits for its writer.
    """
    # O_NONBLOCK: opening a pipe without a writer would wait forever.
    descriptor = os.open(path, os.O_RDONLY | (0 if pipe else os.O_NONBLOCK))
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or (pipe and stat.S_ISFIFO(mode))):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise ValueError(f"{path} must be a file, got {kind}.")
    return descriptor


# Far above the size of a list of a million classes or images.
MAX_LIST_BYTES = 64 << 20


def read_bytes(
    path: pathlib.Path, *, max_bytes: int = MAX_LIST_BYTES, pipe: bool = False
) -> bytes:
    """Reads a regular file, or with `pipe` a pipe."""
    with open(open_file(path, pipe=pipe), "rb") as file:
        num_bytes = os.fstat(file.fileno()).st_size
        if num_bytes > max_bytes:
            raise ValueError(
                f"{path} must have at most {max_bytes:,} bytes, got {num_bytes:,}."
            )
        with atomic.naming(path):
            # A read takes memory for all that it may return; a pipe has no size.
            return file.read(num_bytes or max_bytes)


def decode_text(data: bytes, where: str, *, errors: str = "strict") -> str:
    """Decodes UTF-8 bytes without their byte order mark, like `bytes.decode`.

    Errors call the bytes `where`.
    """
    try:
        return data.decode("utf-8-sig", errors=errors)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where} must be text in UTF-8, got the byte 0x{data[error.start]:02x} at "
            f"byte {error.start:,}. Save it as UTF-8."
        ) from error


# A file of many images at a URL is looked at again after this time, not for each shard.
_SECONDS_BETWEEN_LOOKS = 60


def state_of(location: Location) -> str:
    """Returns a text that another content of a file changes.

    The text has size, time and inode of a file on a disk; otherwise the store gives it.
    """
    if location.is_local:
        status = os.stat(location.text)
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
    folder, name = location.split()
    return _files(folder).version(name)


def require_same(location: Location, before: str) -> None:
    """Checks a file against its state when it was listed."""
    period = int(time.monotonic() // _SECONDS_BETWEEN_LOOKS)
    state = state_of(location) if location.is_local else _recent(location, period)
    if state != before:
        raise ValueError(
            f"{location.shown} must stay the same until it is converted, but it has "
            "changed since it was listed. Run the command again."
        )


@functools.lru_cache(maxsize=4096)
def _recent(location: Location, period: int) -> str:
    return state_of(location)


@functools.lru_cache(maxsize=_MAX_FOLDERS)
def _files(folder: Location) -> Files:
    return Files(folder)


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
    num_requests = limits.connections()
    with concurrent.futures.ThreadPoolExecutor(num_requests) as pool:
        # Groups limit how far the threads read ahead, and end soon after an error.
        for first in range(0, len(waiting), num_requests):
            yield from pool.map(function, waiting[first : first + num_requests])


ReadAt = Callable[[int, int], bytes]

_LEAST_BYTES, _MOST_BYTES = 16 << 10, 4 << 20


@contextlib.contextmanager
def opened(folder: Location, file: str, num_bytes: int) -> Iterator[ReadAt]:
    """Yields a function of an offset and a number of bytes.

    The function returns fewer bytes only at the end of the file, which has `num_bytes`.
    """
    if is_remote(folder, file):
        fetch = functools.partial(read, folder, file)
        yield GrowingPieces(fetch, num_bytes).read
        return
    path = folder.path / file
    descriptor = open_file(path)

    def read_at(offset: int, count: int) -> bytes:
        with atomic.naming(path):
            return pread(descriptor, count, offset)

    try:
        # The parts are far apart: the kernel's reading ahead would read images too.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        yield read_at
    finally:
        os.close(descriptor)


class GrowingPieces:
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
