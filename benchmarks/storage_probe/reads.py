"""The reads and writes of processes: a job for some threads, with a time for each read.

In: a `Job` for each process. Out: bytes, latencies, and the begin and the end of the
reads. All processes begin together. Local files are read with preadv, a store by URL
with ranged reads of `tfpipe.Files`. Files are written as checkpoints are: whole, on the
disk (fsync), and then renamed.
"""

import contextlib
import ctypes
import dataclasses
import itertools
import mmap
import operator
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

import tfpipe
from benchmarks.system import probes
from benchmarks.system.child_process import Child
from benchmarks.system.figures import joined

Piece = tuple[str, int, int]  # path or name of a file, first byte, byte after the last
Read = Callable[[], int]  # returns the number of bytes

SEQUENTIAL, RANDOM, OPEN, STAT, WRITE = KINDS = (
    *("sequential", "random", "open", "stat", "write"),
)

_HUGE_PAGE_BYTES = 2 << 20  # of x86-64, and of ARM with pages of 4 kB
_ACTION_SECONDS = 120.0  # to evict or fill some GB


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The work of a process.

    Attributes:
        pieces: The bytes to read; a piece begins at a multiple of `block_bytes`. A job
            that writes has one piece: the folder, and the bytes of a file.
        seconds: Time after which the threads begin no read.
        url: The store of the pieces; None if their names are local paths.
        repeats: Whether to begin again after the last piece, until the time is over.
    """

    kind: str
    pieces: Sequence[Piece]
    seconds: float
    block_bytes: int = 1
    num_threads: int = 1
    url: str | None = None
    is_direct: bool = False
    repeats: bool = False
    seed: int = 0

    def again(self, pieces: Sequence[Piece]) -> Iterator[Piece]:
        """Returns pieces once, or without an end if the job repeats."""
        return itertools.cycle(pieces) if self.repeats else iter(pieces)


class Workers(contextlib.ExitStack):
    """Processes that read: started once, for many jobs, in a `with` statement.

    Beyond the seconds of a job, a process may take `patience` seconds.
    """

    def __init__(self, *, patience: float = 60.0) -> None:
        super().__init__()
        self._patience = patience
        self._children: list[Child] = []

    def run(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Runs jobs at the same time, each in a process of its own; see `timed`.

        A failed job, and a process that ends or does not answer in time, is an OSError.
        """
        turn = list(zip(self._started(len(jobs)), jobs, strict=True))
        for child, job in turn:
            child.send(timed, job)
        for child, _ in turn:
            child.answer(self._patience)
        for child, _ in turn:
            child.send(None)
        return [child.answer(job.seconds + self._patience) for child, job in turn]

    def act(self, action: Callable[..., Any], files: Sequence[str]) -> Any:
        """Does an action of `page_cache.states` in a process; returns its result."""
        (child,) = self._started(1)
        child.send(action, files)
        return child.answer(_ACTION_SECONDS + self._patience)

    def _started(self, count: int) -> list[Child]:
        while len(self._children) < count:
            self._children.append(self.enter_context(Child()))
        return self._children[:count]


def timed(job: Job) -> Iterator[dict[str, Any]]:
    """Prepares a job; then reads until the pieces or the time are over.

    Random reads are in order, and their files are open, before the time begins.

    Yields:
        Nothing when the job is ready. Then num_bytes; nanoseconds: int64 [num_reads],
        the latencies; start_ns, end_ns: times of the monotonic clock, common to all
        processes of the host; storage_bytes: bytes that the kernel fetched for the
        process, None if unknown.
    """
    with contextlib.ExitStack() as files:
        threads = _reads_of(job, files)
        yield {}
        before = probes.process_storage_bytes()
        with ThreadPoolExecutor(job.num_threads) as pool:
            start = time.perf_counter_ns()
            end = start + int(job.seconds * 1e9)
            read = partial(_read_until, end, threading.Event())
            done = list(pool.map(read, threads))
            now = time.perf_counter_ns()
        after = probes.process_storage_bytes()
    num_bytes, nanoseconds = zip(*done, strict=True)
    yield {
        "num_bytes": sum(num_bytes),
        "nanoseconds": np.concatenate([np.array(n, np.int64) for n in nanoseconds]),
        "start_ns": start,
        "end_ns": now,
        "storage_bytes": joined(lambda both: both[1] - both[0], [before, after]),
    }


def _read_until(
    end: int, failed: threading.Event, reads: Iterator[Read]
) -> tuple[int, list[int]]:
    """Does reads; returns their bytes, and the nanoseconds of each read.

    An error of a thread sets `failed`, which ends the reads of all threads.
    """
    clock, num_bytes, nanoseconds = time.perf_counter_ns, 0, list[int]()
    try:
        for read in reads:
            begin = clock()
            if begin >= end or failed.is_set():
                break
            num_bytes += read()
            nanoseconds.append(clock() - begin)
    except BaseException:
        failed.set()
        raise
    return num_bytes, nanoseconds


def _reads_of(job: Job, files: contextlib.ExitStack) -> list[Iterator[Read]]:
    """Returns the reads of each thread; `files` closes the files of random reads."""
    threads = range(job.num_threads)
    if job.kind == WRITE:
        # A block more than a file has, so that each file gets other bytes.
        num_bytes = job.pieces[0][2] + job.block_bytes
        content = memoryview(np.random.default_rng().bytes(num_bytes))
        return [_writes(job, thread, content) for thread in threads]
    # The threads share the pieces: nothing interrupts `next` of this iterator.
    pieces = job.again(job.pieces)
    store: Any = None if job.url is None else tfpipe.Files(job.url)
    if job.kind in (OPEN, STAT):
        look = _open if job.kind == OPEN else store.size if store else os.stat
        return [(partial(_look, look, name) for name, *_ in pieces) for _ in threads]
    if job.kind == RANDOM:
        blocks = [job.again(part) for part in _at_random(job)]
    else:
        blocks = [_in_order(pieces, job.block_bytes) for _ in threads]
    if store:
        get = partial(_get, store.read_view)
        return [(partial(get, block) for block in each) for each in blocks]
    if job.kind == SEQUENTIAL:
        return [_file_by_file(job, each) for each in blocks]
    opened = {}
    for name in dict.fromkeys(name for name, *_ in job.pieces):
        opened[name] = files.enter_context(_opened(name, is_direct=job.is_direct))
        os.posix_fadvise(opened[name], 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
    return [_at_open_files(job, each, opened) for each in blocks]


def _in_order(pieces: Iterable[Piece], size: int) -> Iterator[Piece]:
    """Yields the blocks of piece after piece."""
    for name, start, stop in pieces:
        for offset in range(start, stop, size):
            yield name, offset, min(offset + size, stop)


def _at_random(job: Job) -> list[list[Piece]]:
    """Returns the blocks of each thread, in random order; all blocks are whole."""
    size = job.block_bytes
    blocks = [b for b in _in_order(job.pieces, size) if b[2] - b[1] == size]
    order = np.random.default_rng(job.seed).permutation(len(blocks)).tolist()
    threads = range(job.num_threads)
    return [[blocks[n] for n in order[t :: job.num_threads]] for t in threads]


def _file_by_file(job: Job, blocks: Iterable[Piece]) -> Iterator[Read]:
    buffers = [whole_memory(job.block_bytes)]
    for name, own in itertools.groupby(blocks, operator.itemgetter(0)):
        with _opened(name, is_direct=job.is_direct) as file:
            for _, offset, _ in own:
                yield partial(os.preadv, file, buffers, offset)


def _at_open_files(
    job: Job, blocks: Iterable[Piece], opened: Mapping[str, int]
) -> Iterator[Read]:
    buffers = [whole_memory(job.block_bytes)]
    return (partial(os.preadv, opened[name], buffers, at) for name, at, _ in blocks)


def _writes(job: Job, thread: int, content: memoryview) -> Iterator[Read]:
    """Yields the writing of a file again and again, each time with other bytes."""
    folder, _, file_bytes = job.pieces[0]
    path = os.path.join(folder, f"checkpoint-{os.getpid()}-{thread}")
    starts = np.random.default_rng(job.seed + thread)
    while True:
        start = int(starts.integers(job.block_bytes))
        part = content[start : start + file_bytes]
        yield partial(_save, path, part, job.block_bytes)


def _save(path: str, content: memoryview, block_bytes: int) -> int:
    """Writes a file as a checkpoint: on the disk, and only then under its name."""
    part = f"{path}.part"
    with open(part, "wb", buffering=0) as file:
        for offset in range(0, len(content), block_bytes):
            block = content[offset : offset + block_bytes]
            while block:
                block = block[os.write(file.fileno(), block) :]
        os.fsync(file.fileno())
    os.replace(part, path)
    with _opened(os.path.dirname(path), is_direct=False) as folder:
        os.fsync(folder)  # the name
    return len(content)


@contextlib.contextmanager
def _opened(path: str, *, is_direct: bool) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | (os.O_DIRECT if is_direct else 0))
    try:
        yield file
    finally:
        os.close(file)


def whole_memory(size: int) -> memoryview:
    """Returns memory for O_DIRECT, in a single piece for the disk if possible.

    A disk needs an address for every piece of a buffer: pages next to each other are a
    piece. 1 MB in small pages is up to 256 pieces, depending on chance, and many pieces
    halve the rate of a virtual disk. So the memory is in a huge page, if the kernel has
    a huge page (madvise, Documentation/admin-guide/mm/transhuge.rst).
    """
    length = -(-size // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    memory = mmap.mmap(-1, length + _HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    start = -address % _HUGE_PAGE_BYTES
    buffer = memoryview(memory)[start : start + size]
    buffer[:] = bytes(size)  # the kernel gives the pages now
    return buffer


def _open(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def _look(look: Callable[[str], object], path: str) -> int:
    look(path)
    return 0


def _get(get: Callable[..., memoryview], piece: Piece) -> int:
    return len(get(*piece))


def can_read_direct(path: str, block_bytes: int) -> bool:
    """Checks whether a file can be read with O_DIRECT, by reading its first block."""
    try:
        with _opened(path, is_direct=True) as file:
            os.preadv(file, [whole_memory(block_bytes)], 0)
    except OSError:  # some file systems refuse in open, others in read
        return False
    return True
