"""The reads and writes of a process: a job for some threads, with a time for each.

In: a `Job`. Out: bytes, latencies, and the begin and the end of the reads.
Local files are read with preadv, a store by URL with ranged reads of `tfpipe.Files`.
Files are written as checkpoints are: whole, on the disk (fsync), and then renamed.
"""

import contextlib
import ctypes
import dataclasses
import functools
import itertools
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.system import probes

Piece = tuple[str, int, int]  # path or name of a file, first byte, byte after the last
Read = Callable[[], int]  # returns the number of bytes

SEQUENTIAL, RANDOM, OPEN, STAT, WRITE = KINDS = (
    *("sequential", "random", "open", "stat", "write"),
)

_NS = 1_000_000_000
_HUGE_PAGE_BYTES = 2 << 20  # of x86-64, and of ARM with pages of 4 kB


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


class TimedReads:
    """A job ready to start: random reads are in order, and their files are open."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._end = 0
        self._nanoseconds: list[list[int]] = [[] for _ in range(job.num_threads)]
        self._num_bytes = [0] * job.num_threads
        self._errors: list[BaseException] = []
        self._files = contextlib.ExitStack()
        self._remote = _remote(job.url)
        if job.kind == WRITE:
            len(self._content)  # made before the time begins
        pieces = itertools.cycle(job.pieces) if job.repeats else iter(job.pieces)
        self._pieces = _Shared(pieces)
        self._reads = [self._reads_of(thread) for thread in range(job.num_threads)]

    def run(self) -> dict[str, Any]:
        """Reads until the pieces or the time are over.

        Returns:
            num_bytes, num_reads; counts: the latencies, for `percentiles`;
            start_ns, end_ns: times of the monotonic clock, common to all processes of
            the host; storage_bytes: bytes that the kernel fetched for the process, None
            if unknown.
        """
        threads = [
            threading.Thread(target=self._run, args=(thread,), daemon=True)
            for thread in range(self._job.num_threads)
        ]
        before = probes.process_storage_bytes()
        start = time.perf_counter_ns()
        self._end = start + int(self._job.seconds * _NS)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end = time.perf_counter_ns()
        after = probes.process_storage_bytes()
        self._files.close()
        if self._errors:
            raise self._errors[0]
        every = list(itertools.chain(*self._nanoseconds))
        return {
            "num_bytes": sum(self._num_bytes),
            "num_reads": len(every),
            "counts": count_latencies(every).tolist(),
            "start_ns": start,
            "end_ns": end,
            "storage_bytes": None
            if after is None or before is None
            else after - before,
        }

    def _run(self, thread: int) -> None:
        clock, end, told = time.perf_counter_ns, self._end, self._nanoseconds[thread]
        num_bytes = 0
        try:
            for read in self._reads[thread]:
                begin = clock()
                if begin >= end or self._errors:
                    break
                num_bytes += read()
                told.append(clock() - begin)
        except BaseException as error:  # `run` raises the error
            self._errors.append(error)
        self._num_bytes[thread] = num_bytes

    def _reads_of(self, thread: int) -> Iterator[Read]:
        job = self._job
        if job.kind == OPEN:
            return (functools.partial(_open, path) for path, _, _ in self._pieces)
        if job.kind == STAT:
            stat = self._remote.size if self._remote else os.stat
            return (functools.partial(_stat, stat, path) for path, _, _ in self._pieces)
        if job.kind == WRITE:
            return self._writes(thread)
        if job.kind == RANDOM:
            return self._random(self._blocks(thread))
        return self._sequential()

    def _sequential(self) -> Iterator[Read]:
        """Yields the reads of piece after piece; the threads share the pieces."""
        job, size = self._job, self._job.block_bytes
        if self._remote:
            yield from self._ranged(
                (name, offset, min(offset + size, stop))
                for name, start, stop in self._pieces
                for offset in range(start, stop, size)
            )
            return
        buffers = [whole_memory(size)]
        for name, start, stop in self._pieces:
            with _opened(name, is_direct=job.is_direct) as file:
                for offset in range(start, stop, size):
                    yield functools.partial(os.preadv, file, buffers, offset)

    def _writes(self, thread: int) -> Iterator[Read]:
        """Yields the writing of a file again and again, each time with other bytes."""
        folder, _, file_bytes = self._job.pieces[0]
        path = os.path.join(folder, f"checkpoint-{os.getpid()}-{thread}")
        starts = np.random.default_rng(self._job.seed + thread)
        while True:
            start = int(starts.integers(self._job.block_bytes))
            content = self._content[start : start + file_bytes]
            yield functools.partial(_save, path, content, self._job.block_bytes)

    @functools.cached_property
    def _content(self) -> memoryview:
        """Random bytes, a block more than a file has."""
        num_bytes = self._job.pieces[0][2] + self._job.block_bytes
        return memoryview(np.random.default_rng().bytes(num_bytes))

    def _blocks(self, thread: int) -> list[tuple[str, int]]:
        """Returns the blocks of a thread, in random order; all blocks are whole."""
        size = self._job.block_bytes
        ends = [(stop - start) // size for _, start, stop in self._job.pieces]
        order = np.random.default_rng(self._job.seed).permutation(sum(ends))
        first = np.cumsum([0, *ends])
        mine = order[thread :: self._job.num_threads]
        indices = np.searchsorted(first, mine, side="right") - 1
        pairs = zip(indices.tolist(), mine - first[indices], strict=True)
        return [
            (self._job.pieces[i][0], self._job.pieces[i][1] + int(block) * size)
            for i, block in pairs
        ]

    def _random(self, blocks: Sequence[tuple[str, int]]) -> Iterator[Read]:
        size = self._job.block_bytes
        if self._remote:
            return self._ranged(
                (name, at, at + size) for name, at in self._again(blocks)
            )
        files = {
            name: self._files.enter_context(
                _opened(name, is_direct=self._job.is_direct)
            )
            for name in dict.fromkeys(name for name, _, _ in self._job.pieces)
        }
        for file in files.values():
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
        buffers = [whole_memory(size)]
        return (
            functools.partial(os.preadv, files[name], buffers, at)
            for name, at in self._again(blocks)
        )

    def _again(self, blocks: Sequence[Any]) -> Iterable[Any]:
        return itertools.cycle(blocks) if self._job.repeats else blocks

    def _ranged(self, ranges: Iterable[Piece]) -> Iterator[Read]:
        get = self._remote.read_view
        return (functools.partial(_get, get, piece) for piece in ranges)


def _save(path: str, content: memoryview, block_bytes: int) -> int:
    """Writes a file as a checkpoint: on the disk, and only then under its name."""
    partial = f"{path}.part"
    with open(partial, "wb", buffering=0) as file:
        for offset in range(0, len(content), block_bytes):
            block = content[offset : offset + block_bytes]
            while block:
                block = block[os.write(file.fileno(), block) :]
        os.fsync(file.fileno())
    os.replace(partial, path)
    with _opened(os.path.dirname(path), is_direct=False) as folder:
        os.fsync(folder)  # the name
    return len(content)


class _Shared:
    def __init__(self, items: Iterator[Piece]) -> None:
        self._items = items
        self._lock = threading.Lock()

    def __iter__(self) -> "_Shared":
        return self

    def __next__(self) -> Piece:
        with self._lock:
            return next(self._items)


def _remote(url: str | None) -> Any:
    if url is None:
        return None
    import tfpipe

    return tfpipe.Files(url)


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


def _open(path: str) -> int:
    os.close(os.open(path, os.O_RDONLY))
    return 0


def _stat(stat: Callable[[str], object], path: str) -> int:
    stat(path)
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


Counts = npt.NDArray[np.int64]

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}

_BUCKETS_PER_E = 100  # buckets for each factor of 2.718
_NUM_BUCKETS = 2800  # up to exp(28) ns = 24 minutes


def count_latencies(nanoseconds: Sequence[int] | npt.NDArray[np.int64]) -> Counts:
    """Counts latencies in buckets.

    Args:
        nanoseconds: int64 [num_reads], cut to 1 ns at least and 24 minutes at most.

    Returns:
        int64 [2800], the number of latencies by bucket.
    """
    logs = np.log(np.maximum(np.asarray(nanoseconds, np.int64), 1))
    buckets = np.rint(logs * _BUCKETS_PER_E).astype(np.int64)
    return np.bincount(np.minimum(buckets, _NUM_BUCKETS - 1), minlength=_NUM_BUCKETS)


def percentiles(counts: Counts) -> dict[str, float | None]:
    """Returns the percentiles in seconds, by the names of `PERCENTILES`.

    A percentile without a read beyond is None: p99_9 needs 1000 reads.
    """
    total = int(counts.sum())
    up_to = np.cumsum(counts)
    seconds: dict[str, float | None] = {}
    for name, share in PERCENTILES.items():
        if total * (1 - share) < 1 - 1e-9:
            seconds[name] = None
            continue
        bucket = int(np.searchsorted(up_to, np.ceil(share * total - 1e-9)))
        seconds[name] = float(np.exp(bucket / _BUCKETS_PER_E)) / 1e9
    return seconds
