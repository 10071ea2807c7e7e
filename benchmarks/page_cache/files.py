"""Files in the page cache: how much of them is there, how to empty it, how to fill it.

In: paths. Out: bytes in memory, from mincore(2). Evicting files needs no root
(posix_fadvise); root also empties the caches of the whole machine. Only the cache of
the client is emptied: data in the memory of a file server stays there.
"""

import collections
import concurrent.futures
import ctypes
import errno
import mmap
import os
import pathlib
import shutil
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.system import mounts, probes
from benchmarks.system.probes import Probe

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
    takes no descriptor, and no memory while nobody touches it.

    Attributes:
        remark: The reason why their part of the page cache is unknown, or "".
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
        count.

        Args:
            most: Bytes of each file to look at, from its begin; None: all.
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


def evict(files: Sequence[str]) -> dict[str, Any]:
    """Takes files out of the page cache, but pages that a process has mapped stay.

    Raises:
        ValueError: If memory is the storage of a file, as with tmpfs.
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
    return {}


def evict_file(descriptor: int, num_bytes: int) -> None:
    """Evicts the first bytes of a file; 0 stands for all."""
    os.fsync(descriptor)  # first, because pages that are not on disk yet stay
    os.posix_fadvise(descriptor, 0, num_bytes, os.POSIX_FADV_DONTNEED)


def fill(files: Sequence[str]) -> dict[str, Any]:
    """Reads files from end to end, so that they are in the page cache."""
    with concurrent.futures.ThreadPoolExecutor(_NUM_READERS) as readers:
        collections.deque(readers.map(_fill_file, files), maxlen=0)
    return {}


def _fill_file(path: str) -> None:
    with open(path, "rb") as file, open(os.devnull, "wb") as nowhere:
        shutil.copyfileobj(file, nowhere, _CHUNK_BYTES)


def drop_caches(_: Sequence[str]) -> dict[str, Any]:
    """Empties the caches of the whole machine: pages, directory entries, inodes."""
    _DROP_CACHES.write_text("3")
    return {}


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
