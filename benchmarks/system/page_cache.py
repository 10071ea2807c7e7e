"""What of a file is in the page cache, and how to take it out or bring it in.

In: files, and what to do with them: evict, fill, measure or drop_caches. Out: a dict of
what was found. `run` does it in a child process that is left behind when it takes too
long: a dead file server, or a kernel that does not get done, is an error and no hang.
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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_WINDOW_BYTES = 1 << 30  # mapped at a time: its vector of pages is 256 KiB
_CHUNK_BYTES = 8 << 20
_TRIAL_BYTES = 1 << 20
_NUM_READERS = 8  # at a time: one alone does not fill a network
_NUM_TRIES = 3
_LAST_SECONDS = 1.0
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_DROP_CACHES = pathlib.Path("/proc/sys/vm/drop_caches")
_CAP_FOWNER = 3  # bit of the capability; kernel: capabilities(7)

_NOT_TOLD = (
    "The kernel tells what of a file is in memory only to those who own it or may "
    "write it."
)
_NOT_MAPPED = "The file system maps no files, so nothing can be told of its cache."


def run(action: str, files: Sequence[str], *, timeout_seconds: float) -> dict[str, Any]:
    """What one of `ACTIONS` returns, done by another process.

    {"error": why} if it fails or takes too long; never raises.
    """
    paths = [os.path.abspath(path) for path in files]
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.system.page_cache", action],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=pathlib.Path(__file__).parents[2],
        )
        out, err = child.communicate(json.dumps(paths), timeout_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        # Not waited for any longer: what hangs within the kernel cannot be killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=_LAST_SECONDS)
        return {"error": f"{action} took longer than {timeout_seconds:g} s."}
    except OSError as error:
        return {"error": f"{action} cannot be started: {error}."}
    if child.returncode:
        words = err.strip().splitlines() or [f"exit code {child.returncode}"]
        return {"error": f"{action} failed: {words[-1]}"}
    result: dict[str, Any] = json.loads(out)
    return result


def evict(files: Sequence[str]) -> dict[str, Any]:
    """Takes files out of the page cache, as far as no process has them mapped.

    Returns `counts_reads`.

    Raises:
        ValueError: If a file lies in memory, as on tmpfs.
        OSError: If a file cannot be opened.
    """
    for path in files:
        if (kind := filesystem(path)) in _IN_MEMORY:
            raise ValueError(
                f"{path} is on {kind}: memory is its storage, so it cannot be cold. "
                "Put the data on a disk or a file server."
            )
    for _ in range(_NUM_TRIES):
        for path in files:
            with open(path, "rb") as file:
                _evict_file(file.fileno())
        if not measure(files)["resident_bytes"]:
            break
    return {"counts_reads": counts_reads(files)}


def _evict_file(descriptor: int) -> None:
    os.fsync(descriptor)  # what is not on disk yet stays in memory
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def fill(files: Sequence[str]) -> dict[str, Any]:
    """Reads files from end to end, so that they are in the page cache.

    Returns `counts_reads`.

    Raises:
        OSError: If a file cannot be read.
    """
    counted = counts_reads(files)  # takes one of them out, so it comes first
    with concurrent.futures.ThreadPoolExecutor(_NUM_READERS) as readers:
        for _ in readers.map(_fill_file, files):
            pass
    return {"counts_reads": counted}


def _fill_file(path: str) -> None:
    buffer = bytearray(_CHUNK_BYTES)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def measure(files: Sequence[str]) -> dict[str, Any]:
    """num_bytes of the files, their resident_bytes or None, and a remark why None.

    Raises:
        OSError: If a file cannot be opened.
    """
    num_bytes = resident = 0
    remark = ""
    for path in files:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            num_bytes += size
            if not tells_residency(path):
                remark = _NOT_TOLD
                continue
            try:
                resident += resident_bytes(file.fileno(), size)
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
                remark = _NOT_MAPPED
    known = None if remark else resident
    return {"num_bytes": num_bytes, "resident_bytes": known, "remark": remark}


def tells_residency(path: str) -> bool:
    """Whether mincore tells this process the truth about a file.

    To others it says since Linux 5.2 that all pages are there (mm/mincore.c,
    can_do_mincore), so that nobody sees what others read.
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
    """How many of the first bytes of a file are in the page cache; whole pages.

    Raises:
        OSError: If the file cannot be mapped.
    """
    resident = 0
    for begin in range(0, num_bytes, _WINDOW_BYTES):
        length = min(_WINDOW_BYTES, num_bytes - begin)
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
    return vector & 1  # the other bits mean nothing


def counts_reads(files: Sequence[str]) -> bool | None:
    """Whether /proc/self/io counts what this process reads from where the files lie.

    Tried with the beginning of one of them, which leaves the page cache before and
    after. None if it does not leave, so that nothing can be told.
    """
    path = next((path for path in files if os.stat(path).st_size), None)
    if path is None or filesystem(path) in _IN_MEMORY:
        return None
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        num_bytes = min(_TRIAL_BYTES, os.fstat(descriptor).st_size)
        _evict_file(descriptor)
        is_out = tells_residency(path) and not resident_bytes(descriptor, num_bytes)
        before = _bytes_read()
        os.pread(descriptor, num_bytes, 0)
        counted = _bytes_read() - before >= num_bytes
        _evict_file(descriptor)
    return counted if counted or is_out else None


def _bytes_read() -> int:
    lines = pathlib.Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def drop_caches(_: Sequence[str]) -> dict[str, Any]:
    """Empties the caches of the whole host: pages, directory entries, inodes.

    Raises:
        OSError: If the kernel does not let this process.
    """
    _DROP_CACHES.write_text("3")
    return {}


def mount_point(path: str | os.PathLike[str]) -> str:
    """Where the file system is mounted that a path is on."""
    place = os.path.realpath(path)
    while not os.path.ismount(place):
        place = os.path.dirname(place)
    return place


def filesystem(path: str | os.PathLike[str]) -> str:
    """The type of the file system that a path is on, such as ext4; "" if unknown."""
    text = pathlib.Path("/proc/self/mounts").read_text(errors="surrogateescape")
    return parse_filesystem(text, mount_point(path))


def parse_filesystem(text: str, point: str) -> str:
    """The type of what is mounted at a place, from /proc/self/mounts (fstab(5))."""
    place = point.replace(" ", "\\040")  # as the kernel writes it
    found = ""
    for line in text.splitlines():
        words = line.split(" ")
        if words[1] == place:
            found = words[2]  # what was mounted last hides the others
    return found


ACTIONS: Mapping[str, Callable[[Sequence[str]], dict[str, Any]]] = {
    "measure": measure,
    "evict": evict,
    "fill": fill,
    "drop_caches": drop_caches,
}


def main() -> int:
    """Does the action of the command line with the files named on stdin."""
    try:
        result = ACTIONS[sys.argv[1]](json.load(sys.stdin))
    except (OSError, ValueError) as error:
        result = {"error": str(error)}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
