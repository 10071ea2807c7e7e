"""Files in the page cache: their part there, and the state before a run or an epoch.

In: files, and the state to start from: cold, warm or as it is. Out: bytes in memory,
from mincore(2); for every page cache the actions done, the resident part of the files,
and the knowledge that its file system allows. Evicting files needs no root
(posix_fadvise); root also empties the caches of the whole machine. Only the cache of
the client is emptied: data in the memory of a file server stays there.
"""

from __future__ import annotations

import collections
import concurrent.futures
import ctypes
import dataclasses
import errno
import mmap
import os
import pathlib
import shutil
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from benchmarks.system import child_process, mounts, probes
from benchmarks.system.machine import Machine
from benchmarks.system.probes import Probe
from tfpipe import errors

if TYPE_CHECKING:  # imports TensorFlow, and commands read STATES first
    from benchmarks.distributed.ranks import Ranks

COLD_LIMIT = 0.01  # largest part of the files in memory before a cold run
_ACTION_SECONDS = 600.0
_PIECE_BYTES = 1 << 30  # asked for at a time; the vector for it takes 256 KiB
_CHUNK_BYTES = 8 << 20
_NUM_READERS = 8  # at a time: one reader cannot use the whole network
_TRIAL_BYTES = 1 << 20
_MAX_BYTES = 16e9  # of a sample, measured in 0.24 s, so every 24 s
# A page that the kernel works on stays, so evicting is tried again after a pause.
_PAUSES = (0.0, 0.01, 0.05, 0.25, 0.5)
_DROP_CACHES = pathlib.Path("/proc/sys/vm/drop_caches")
_CAP_FOWNER = 3  # number of the capability's bit, see capabilities(7)
_MAP_FAILED = ctypes.c_void_p(-1).value

_NOT_OWNED = (
    "The kernel tells how much of a file is in memory only to a process that owns it "
    "or may write it."
)
_NOT_MAPPED = (
    "Files of this file system cannot be mapped, so their part of the page cache is "
    "unknown."
)

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int),
    *(ctypes.c_int, ctypes.c_long),
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class OpenFiles:
    """Files for several looks at their part of the page cache.

    The files are mapped once and stay mapped, so that looking opens nothing: FUSE drops
    the pages of a file at each opening, unless the mount keeps its cache. A mapping
    takes no descriptor, and no memory while nobody touches it. The `remark` is the
    reason why their part of the page cache is unknown, or "".
    """

    def __init__(self, files: Sequence[str]) -> None:
        self.num_bytes = 0
        self.remark = ""
        self._views: list[tuple[int, int]] = []  # address and size
        weakref.finalize(self, _unmap, self._views)
        for path in files:
            with open(path, "rb") as file:
                self._add(path, file.fileno())

    def _add(self, path: str, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        self.num_bytes += size
        if not may_see_residency(path):
            self.remark = _NOT_OWNED
        elif size:
            how = mmap.PROT_READ, mmap.MAP_SHARED
            address = _LIBC.mmap(None, size, *how, descriptor, 0)
            if address != _MAP_FAILED:
                self._views.append((address, size))
            elif ctypes.get_errno() == errno.ENODEV:
                self.remark = _NOT_MAPPED
            else:
                raise OSError(ctypes.get_errno(), "mmap", path)

    def resident_bytes(self, most: int | None = None) -> int | None:
        """Returns how much of the files is in the page cache; None if unknown.

        The kernel knows whole pages; of the page at an end only the bytes of the file
        count. `most` is the bytes of each file to look at, from its begin; None: all.
        """
        if self.remark:
            return None
        return sum(
            _resident(address + begin, min(_PIECE_BYTES, size - begin))
            for address, whole in self._views
            for size in [whole if most is None else min(whole, most)]
            for begin in range(0, size, _PIECE_BYTES)
        )


def _unmap(views: Sequence[tuple[int, int]]) -> None:
    for address, size in views:
        _LIBC.munmap(address, size)


def _resident(address: int, num_bytes: int) -> int:
    vector = np.empty(-(-num_bytes // mmap.PAGESIZE), np.uint8)
    if _LIBC.mincore(address, num_bytes, vector.ctypes.data):
        raise OSError(ctypes.get_errno(), "mincore")
    pages = vector & 1  # mincore(2) leaves the other bits undefined
    missing = -num_bytes % mmap.PAGESIZE if pages[-1] else 0  # of the last page
    return int(pages.sum()) * mmap.PAGESIZE - missing


def may_see_residency(path: str) -> bool:
    """Checks whether mincore tells this process the truth about a file.

    Since Linux 5.2 a process needs to own the file, to be allowed to write it, or to
    have CAP_FOWNER. To other processes mincore reports all pages as resident
    (mm/mincore.c, can_do_mincore), so that nobody can see what others read.
    """
    if os.stat(path).st_uid == os.geteuid() or os.access(
        path, os.W_OK, effective_ids=True
    ):
        return True
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_FOWNER & 1)
    return False


def measure(files: Sequence[str]) -> dict[str, Any]:
    """Returns the fields of `states.CacheStatus` that describe files."""
    opened = OpenFiles(files)
    return {
        "num_bytes": opened.num_bytes,
        "resident_bytes": opened.resident_bytes(),
        "remark": opened.remark,
        **trial(files),
    }


def trial(files: Sequence[str]) -> dict[str, Any]:
    """Evicts the first megabyte of one of the files, reads it and opens the file anew.

    The megabyte is evicted again if it was not in memory before.

    Returns:
        counts_reads, keeps_pages, beneath, is_memory: see `states.CacheStatus`. A file
        system of memory has no trial, and files without a byte have no figures.
    """
    path = next((path for path in files if os.stat(path).st_size), None)
    if path is None:
        return {}
    below = mounts.beneath(path)
    below_it = {"beneath": below.text, "is_memory": below.is_memory}
    if below.is_memory:
        return below_it
    held = OpenFiles([path])
    num_bytes = min(_TRIAL_BYTES, held.num_bytes)
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        # Without it the kernel reads beyond the megabyte.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        was_out = held.resident_bytes(num_bytes) == 0
        evict_file(descriptor, num_bytes)
        is_out = held.resident_bytes(num_bytes) == 0
        before = probes.own_storage_bytes()
        os.pread(descriptor, num_bytes, 0)
        counted = probes.own_storage_bytes() - before >= num_bytes
        kept = held.resident_bytes(num_bytes)
        os.close(os.open(path, os.O_RDONLY))
        again = held.resident_bytes(num_bytes)
        if was_out:
            evict_file(descriptor, num_bytes)
    return {
        **below_it,
        # Nobody knows if the bytes may not have left the page cache.
        "counts_reads": counted if counted or is_out else None,
        "keeps_pages": None if kept is None else kept == again == num_bytes,
    }


def evict(files: Sequence[str]) -> None:
    """Takes files out of the page cache, but pages that a process has mapped stay.

    Memory as the storage of a file, as with tmpfs, is a ValueError.
    """
    for path in {os.path.dirname(path): path for path in files}.values():
        if (below := mounts.beneath(path)).is_memory:
            raise ValueError(
                f"{path} is on {below.text}: memory is its storage, so it cannot be "
                "cold. Put the data on a disk or a file server."
            )
    for seconds in _PAUSES:
        time.sleep(seconds)
        for path in files:
            with open(path, "rb") as file:
                evict_file(file.fileno(), 0)
        if not OpenFiles(files).resident_bytes():
            break


def evict_file(descriptor: int, num_bytes: int) -> None:
    """Evicts the first bytes of a file; 0 stands for all."""
    os.fsync(descriptor)  # first, because pages that are not on disk yet stay
    os.posix_fadvise(descriptor, 0, num_bytes, os.POSIX_FADV_DONTNEED)


def fill(files: Sequence[str]) -> None:
    """Reads files from end to end, so that they are in the page cache."""
    with concurrent.futures.ThreadPoolExecutor(_NUM_READERS) as readers:
        collections.deque(readers.map(_fill_file, files), maxlen=0)


def _fill_file(path: str) -> None:
    with open(path, "rb") as file, open(os.devnull, "wb") as nowhere:
        shutil.copyfileobj(file, nowhere, _CHUNK_BYTES)


def drop_caches(_: Sequence[str]) -> None:
    """Empties the caches of the whole machine: pages, directory entries, inodes."""
    _DROP_CACHES.write_text("3")


def resident_probe(files: Sequence[str], num_bytes: float) -> Probe:
    """Yields the part of files in memory, for `Sampler`.

    1 GB takes 15 ms of CPU time (mincore on all pages), so a large data set is measured
    by an even sample of the files. The files stay mapped: a file server that does not
    answer blocks no measurement.
    """
    opened = OpenFiles(files[:: max(1, round(num_bytes / _MAX_BYTES))])
    if opened.remark:
        raise OSError(opened.remark)
    while True:
        share = (opened.resident_bytes() or 0) / max(1, opened.num_bytes)
        yield {"resident_fraction": share}


Action = Callable[[Sequence[str]], Any]
_ACTIONS: Mapping[str, Sequence[Action]] = {
    "as_is": (),
    "warm": (fill,),
    "cold": (evict,),
}
STATES = tuple(_ACTIONS)


@dataclasses.dataclass(frozen=True)
class PageCache:
    """The page cache of a machine for the files of one mount, or of one device."""

    machine: Machine
    device: int = 0

    @classmethod
    def of_files(cls, files: Sequence[str]) -> PageCache:
        """Returns the page cache of this process for files; the first file decides."""
        try:
            device = os.stat(files[0]).st_dev if files else 0
        except OSError:  # the error is found again, where all ranks learn of it
            device = 0
        return cls(Machine.here(), device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheStatus:
    """Actions on the files of a page cache, and its state after them.

    Attributes:
        rank: Rank of the actions, the first rank to read through the cache.
        actions: Name of an action -> "done", or the reason why the action failed.
        counts_reads: Whether the kernel counts the bytes of a read from the file
            system (not from every FUSE mount); None if unknown.
        keeps_pages: Whether pages stay in the page cache when the file is opened anew
            (not on every FUSE mount); None if unknown.
        beneath, is_memory: The storage beneath the page cache, see `mounts.Beneath`.
        remark: The reason why resident_bytes is unknown, or "".
        error: The reason why the files are not in the requested state, or "".
    """

    rank: int
    cache: PageCache
    actions: dict[str, str]
    seconds: float = 0.0
    ram_bytes: int = 0
    num_bytes: int = 0
    resident_bytes: int | None = None
    counts_reads: bool | None = None
    keeps_pages: bool | None = None
    beneath: str = ""
    is_memory: bool = False
    remark: str = ""
    error: str = ""

    @property
    def resident_fraction(self) -> float | None:
        """Part of the files in the page cache, 0 to 1; None if unknown."""
        if self.resident_bytes is None:
            return None
        return self.resident_bytes / max(1, self.num_bytes)

    @property
    def caveat(self) -> str:
        """A sentence on memory beneath the page cache, or ""."""
        return mounts.Beneath(self.is_memory, self.beneath).caveat

    def as_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        del fields["cache"]
        return fields | {"resident_fraction": self.resident_fraction}


def prepare(
    state: str, files: Sequence[str], ranks: Ranks, *, drops_all: bool = True
) -> tuple[CacheStatus, ...]:
    """Brings the files of every page cache into a state, and measures them.

    Every rank must call this function; the first rank of each page cache does the work.
    With "as_is" nothing changes, so the function also measures the state after a run.
    With `drops_all` root empties the caches of whole machines too.

    Returns:
        The status of each page cache, in the order of ranks.

    Raises:
        ValueError: On every rank, if a page cache cannot be brought into the state.
    """
    errors.require_choice("", "state", state, STATES)
    status = None
    if (cache := led_by(ranks, files)) is not None:
        todo = [*_ACTIONS[state]]
        if state == "cold" and drops_all and os.geteuid() == 0:
            todo.append(drop_caches)
        status = _act(todo, files, ranks.rank, cache)
    statuses = tuple(s for s in ranks.gather(status) if s is not None)
    for status in statuses:
        if why := _why_not(state, status):
            raise ValueError(
                f"--cache={state}: host {status.cache.machine} (rank {status.rank}) is "
                f"not in that state: {why}"
            )
    return statuses


def led_by(ranks: Ranks, files: Sequence[str]) -> PageCache | None:
    """Returns the page cache of this rank; None if another rank looks after it.

    All ranks call it together. Names of hosts decide nothing.
    """
    mine = PageCache.of_files(files)
    everyone = ranks.gather(mine)
    return mine if everyone.index(mine) == ranks.rank else None


def _why_not(state: str, status: CacheStatus) -> str:
    if state == "as_is":
        return ""
    share = status.resident_fraction
    if status.error or share is None:
        return status.error
    if state == "cold" and share > COLD_LIMIT:
        return (
            f"{share:.1%} of the files are still in memory. Another process reads them "
            "or has them mapped: end it."
        )
    if state == "warm" and share <= COLD_LIMIT and status.num_bytes:
        return (
            f"all files were read, and {share:.1%} of them are in memory. This file "
            "system drops the pages of a file that is opened (a FUSE mount without "
            "kernel_cache), or memory is too small. Use --ram_cache=records."
        )
    return ""


def _act(
    todo: Sequence[Action], files: Sequence[str], rank: int, cache: PageCache
) -> CacheStatus:
    """Does each action, then measures. Errors are returned: the other ranks wait.

    A child process acts: a dead file server is an error, and no hang.
    """
    start = time.perf_counter()
    paths = [os.path.abspath(path) for path in files]
    figures: dict[str, Any] = {}
    done = {}
    for action in (*todo, measure):
        try:
            told = child_process.call(action, paths, seconds=_ACTION_SECONDS)
            figures |= told or {}
        except OSError as error:
            done[action.__name__] = str(error)
            # Evicting the files is enough, and emptying all caches may be forbidden.
            if action is not drop_caches:
                figures["error"] = str(error)
                break
        else:
            done[action.__name__] = "done"
    return CacheStatus(
        rank=rank,
        cache=cache,
        actions=done,
        seconds=time.perf_counter() - start,
        ram_bytes=psutil.virtual_memory().total,
        **figures,
    )
