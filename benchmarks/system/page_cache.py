"""The page cache: how much of a file it holds, how to empty it and how to fill it.

In: files and an action: evict, fill, measure or drop_caches. Out: a dict of figures.
`run` does the action in a child process and leaves that process behind if it takes too
long, so that a dead file server or a kernel that hangs is an error here and no hang.
"""

import concurrent.futures
import contextlib
import ctypes
import errno
import json
import mmap
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.system import child_process

_MAPPED_BYTES = 1 << 30  # mapped at a time; mincore's vector for it takes 256 KiB
_CHUNK_BYTES = 8 << 20
_TRIAL_BYTES = 1 << 20
_NUM_READERS = 8  # at a time: one reader cannot use the whole network
# A page that the kernel works on stays, so evicting is tried again after a pause.
_PAUSES = (0.0, 0.01, 0.05, 0.25, 0.5)
_LAST_SECONDS = 1.0
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_DROP_CACHES = pathlib.Path("/proc/sys/vm/drop_caches")
_CAP_FOWNER = 3  # number of the capability's bit, see capabilities(7)

_NOT_OWNED = (
    "The kernel tells how much of a file is in memory only to a process that owns it "
    "or may write it."
)
_NOT_MAPPED = (
    "Files of this file system cannot be mapped, so their part of the page cache is "
    "unknown."
)


def run(action: str, files: Sequence[str], *, timeout_seconds: float) -> dict[str, Any]:
    """Does one of `ACTIONS` in a child process and returns its result.

    Args:
        action: Name of the action.
        files: Paths of the files.
        timeout_seconds: Seconds after which the child is killed and left behind.

    Returns:
        The result of the action, or {"error": reason} if it fails or takes too long.
        An action that fails raises nothing.
    """
    paths = [os.path.abspath(path) for path in files]
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.system.page_cache", action],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=child_process.environment(),
        )
        out, err = child.communicate(json.dumps(paths), timeout_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        # A process that hangs within the kernel does not die, so the wait is short.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=_LAST_SECONDS)
        return {"error": f"{action} took longer than {timeout_seconds:g} s."}
    except OSError as error:
        return {"error": f"{action} cannot be started: {error}."}
    if child.returncode:
        lines = err.strip().splitlines() or [f"exit code {child.returncode}"]
        return {"error": f"{action} failed: {lines[-1]}"}
    result: dict[str, Any] = json.loads(out)
    return result


def evict(files: Sequence[str]) -> dict[str, Any]:
    """Takes files out of the page cache, but pages that a process has mapped stay.

    Returns:
        {}, as there is nothing to tell.

    Raises:
        ValueError: If a file is on a file system in memory, such as tmpfs.
        OSError: If a file cannot be opened.
    """
    for path in files:
        if (kind := filesystem(path)) in _IN_MEMORY:
            raise ValueError(
                f"{path} is on {kind}: memory is its storage, so it cannot be cold. "
                "Put the data on a disk or a file server."
            )
    for seconds in _PAUSES:
        time.sleep(seconds)
        for path in files:
            with open(path, "rb") as file:
                _evict_file(file.fileno())
        if not measure(files)["resident_bytes"]:
            break
    return {}


def _evict_file(descriptor: int, num_bytes: int = 0) -> None:
    """Evicts the first bytes of a file; 0 stands for all."""
    os.fsync(descriptor)  # first, because pages that are not on disk yet stay
    os.posix_fadvise(descriptor, 0, num_bytes, os.POSIX_FADV_DONTNEED)


def fill(files: Sequence[str]) -> dict[str, Any]:
    """Reads files from end to end, so that they are in the page cache.

    Returns:
        {}, as there is nothing to tell.

    Raises:
        OSError: If a file cannot be read.
    """
    with concurrent.futures.ThreadPoolExecutor(_NUM_READERS) as readers:
        for _ in readers.map(_fill_file, files):
            pass
    return {}


def _fill_file(path: str) -> None:
    buffer = bytearray(_CHUNK_BYTES)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def measure(files: Sequence[str]) -> dict[str, Any]:
    """Measures how much of the files is in the page cache.

    Returns:
        num_bytes: size of the files. resident_bytes: bytes of them in the page cache,
        or None if unknown. remark: the reason for None, or "".

    Raises:
        OSError: If a file cannot be opened.
    """
    num_bytes = resident = 0
    remark = ""
    for path in files:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            num_bytes += size
            if not may_see_residency(path):
                remark = _NOT_OWNED
                continue
            try:
                resident += resident_bytes(file.fileno(), size)
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
                remark = _NOT_MAPPED
    return {
        "num_bytes": num_bytes,
        "resident_bytes": None if remark else resident,
        "remark": remark,
    }


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


def resident_bytes(descriptor: int, num_bytes: int) -> int:
    """Returns how many of the first bytes of a file are in the page cache.

    Args:
        descriptor: The open file.
        num_bytes: Bytes to look at. The kernel knows whole pages; of the page at the
            end only the bytes within num_bytes count.

    Raises:
        OSError: If the file cannot be mapped.
    """
    resident = 0
    for begin in range(0, num_bytes, _MAPPED_BYTES):
        length = min(_MAPPED_BYTES, num_bytes - begin)
        with mmap.mmap(
            descriptor, length, access=mmap.ACCESS_READ, offset=begin
        ) as view:
            pages = _resident_pages(view)
        resident += int(pages.sum()) * mmap.PAGESIZE
        if pages[-1]:
            resident -= -length % mmap.PAGESIZE  # the last page is not full
    return resident


def _resident_pages(view: mmap.mmap) -> Any:
    address = np.frombuffer(view, np.uint8).ctypes.data
    vector = np.empty(-(-len(view) // mmap.PAGESIZE), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(
        ctypes.c_void_p(address),
        ctypes.c_size_t(len(view)),
        ctypes.c_void_p(vector.ctypes.data),
    ):
        raise OSError(ctypes.get_errno(), "mincore")
    return vector & 1  # mincore(2) leaves the other bits undefined


def counts_reads(files: Sequence[str]) -> bool | None:
    """Checks whether the kernel counts the bytes that this file system delivers.

    The check evicts the first megabyte of one of the files, reads it, and looks at the
    read_bytes of /proc/self/io. The megabyte is evicted again if it was not in memory
    before.

    Returns:
        None if the bytes may not have left the page cache, so that the answer is
        unknown.
    """
    path = next((path for path in files if os.stat(path).st_size), None)
    if path is None or filesystem(path) in _IN_MEMORY:
        return None
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        num_bytes = min(_TRIAL_BYTES, os.fstat(descriptor).st_size)
        # Without it the kernel reads beyond the megabyte.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        was_out = _is_out(path, descriptor, num_bytes)
        _evict_file(descriptor, num_bytes)
        is_out = _is_out(path, descriptor, num_bytes)
        before = _bytes_read()
        os.pread(descriptor, num_bytes, 0)
        counted = _bytes_read() - before >= num_bytes
        if was_out:
            _evict_file(descriptor, num_bytes)
    return counted if counted or is_out else None


def _is_out(path: str, descriptor: int, num_bytes: int) -> bool:
    """Checks whether the first bytes of a file are known not to be in memory."""
    try:
        return may_see_residency(path) and not resident_bytes(descriptor, num_bytes)
    except OSError:  # files of this file system cannot be mapped
        return False


def _measure_and_try(files: Sequence[str]) -> dict[str, Any]:
    return {**measure(files), "counts_reads": counts_reads(files)}


def _bytes_read() -> int:
    lines = pathlib.Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def drop_caches(_: Sequence[str]) -> dict[str, Any]:
    """Empties the caches of the whole host: pages, directory entries, inodes.

    Raises:
        OSError: If this process may not do so.
    """
    _DROP_CACHES.write_text("3")
    return {}


def mount_point(path: str | os.PathLike[str]) -> str:
    """Returns the folder at which the file system of a path is mounted."""
    folder = os.path.realpath(path)
    while not os.path.ismount(folder):
        folder = os.path.dirname(folder)
    return folder


def filesystem(path: str | os.PathLike[str]) -> str:
    """Returns the type of the file system of a path, such as "ext4"; "" if unknown."""
    text = pathlib.Path("/proc/self/mounts").read_text(errors="surrogateescape")
    return parse_filesystem(text, mount_point(path))


def parse_filesystem(text: str, point: str) -> str:
    """Returns the type of the file system that is mounted at a folder.

    Args:
        text: Contents of /proc/self/mounts, in the format of fstab(5).
        point: The folder.
    """
    escaped = point.replace(" ", "\\040")  # as the kernel writes spaces
    lines = [line.split(" ") for line in text.splitlines()]
    kinds = [kind for _, folder, kind, *_ in lines if folder == escaped]
    return kinds[-1] if kinds else ""  # the last mount at a folder hides the others


ACTIONS: Mapping[str, Callable[[Sequence[str]], dict[str, Any]]] = {
    "measure": _measure_and_try,
    "evict": evict,
    "fill": fill,
    "drop_caches": drop_caches,
}


def perform(action: str, files: Sequence[str]) -> dict[str, Any]:
    """Does one of `ACTIONS` in this process; an error is {"error": reason}."""
    try:
        return ACTIONS[action](files)
    except (OSError, ValueError) as error:
        return {"error": str(error)}


def main() -> int:
    """Does the action of the command line with the files named on stdin."""
    print(json.dumps(perform(sys.argv[1], json.load(sys.stdin))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
