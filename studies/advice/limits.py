"""Limits on a process: its cores, and the rate at which it reads a disk.

In: a command and its limits. Out: what it printed. The rate is limited by a cgroup of
version 1 (blkio.throttle.read_bps_device), for which the process must be root.
"""

import contextlib
import os
import pathlib
import threading
import time
from collections.abc import Iterator, Sequence

from benchmarks.system import page_cache, programs

_BLKIO = pathlib.Path("/sys/fs/cgroup/blkio")
_LIMIT = "blkio.throttle.read_bps_device"
_WAIT_SECONDS = 5.0
_EVICT_EVERY_SECONDS = 0.5


def why_not(folder: pathlib.Path) -> str | None:
    """Returns why reads of a folder cannot be limited on this host; None if they can.

    Args:
        folder: Folder of the files.
    """
    if not (_BLKIO / _LIMIT).exists():
        return f"{_BLKIO} must be a cgroup of version 1 with {_LIMIT}; there is none."
    if not os.access(_BLKIO, os.W_OK):
        return f"Limits need the right to write {_BLKIO}: run this as root."
    try:
        _disk(folder)
    except OSError as error:
        return str(error)
    return None


@contextlib.contextmanager
def limited(folder: pathlib.Path, bytes_per_second: int | None) -> Iterator[str | None]:
    """Makes a cgroup whose processes read a folder's disk at most at a rate.

    Args:
        folder: Folder of the files.
        bytes_per_second: The rate; None makes no cgroup.

    Yields:
        The file that takes the ids of processes; None without a rate.

    Raises:
        OSError: If the cgroup cannot be made, or its processes do not end.
    """
    if bytes_per_second is None:
        yield None
        return
    disk = _disk(folder)
    group = _BLKIO / f"tfpipe-study-{os.getpid()}"
    group.mkdir(exist_ok=True)
    try:
        (group / _LIMIT).write_text(f"{disk} {bytes_per_second}\n")
        yield str(group / "cgroup.procs")
    finally:
        _remove(group)


def run(
    command: Sequence[str],
    *,
    cores: Sequence[int],
    group: str | None,
    time_limit: float,
) -> str:
    """Returns what a command printed on stdout.

    Args:
        command: Program and arguments.
        cores: Numbers of the cores that it may use.
        group: The file that takes its id, from `limited`; None for no limit.
        time_limit: Seconds until it is killed, with all that it started.

    Raises:
        OSError: If it fails or takes too long; the message has the end of its stderr.
    """
    enter = 'if [ -n "$0" ]; then echo $$ > "$0" || exit 1; fi; exec "$@"'
    pinned = ["taskset", "-c", ",".join(map(str, cores)), *command]
    return programs.output_of(
        ["sh", "-c", enter, group or "", *pinned],
        name=" ".join(command),
        time_limit=time_limit,
        max_said=500,
    )


@contextlib.contextmanager
def kept_cold(files: Sequence[str]) -> Iterator[None]:
    """Takes files out of the page cache again and again, as if nothing kept them."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(_EVICT_EVERY_SECONDS):
            page_cache.evict(files)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _disk(folder: pathlib.Path) -> str:
    """Returns "major:minor" of the whole disk that a folder is on.

    Raises:
        OSError: If the folder is not on a disk.
    """
    device = os.stat(folder).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    place = pathlib.Path("/sys/dev/block", name)
    if not place.exists():
        raise OSError(f"{folder} must be on a disk; its device {name} is none.")
    place = place.resolve()
    if (place / "partition").exists():
        place = place.parent
    return (place / "dev").read_text().strip()


def _remove(group: pathlib.Path) -> None:
    """Removes a cgroup as soon as its last process has ended."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
