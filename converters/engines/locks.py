"""Locks between processes, on files in a folder that may be removed meanwhile.

In: the path of a lock file. Out: its descriptor while this process holds the lock. A
lock is free as soon as its process ends, however the process ends. If the file was
removed while this process waited for the lock, the lock would exclude no other process;
it is then taken on a new file.
"""

import contextlib
import fcntl
import os
import pathlib
import sys
import time
from collections.abc import Iterator

from tfpipe.location import atomic

_POLL_SECONDS = 0.01
_SILENT_SECONDS = 1.0


def acquire(path: pathlib.Path, *, wait: bool = False) -> int | None:
    """Takes a lock, and makes its file if it does not exist.

    Args:
        path: The lock file.
        wait: Whether to wait for a process that holds the lock. After a second of
            waiting, a line on stderr names the file.

    Returns:
        The descriptor, for `release`; None if another process holds the lock.

    Raises:
        OSError: If the file cannot be made; FileNotFoundError if its folder is missing.
    """
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o644)
        _descriptors.add(descriptor)
        try:
            taken = _lock(descriptor, path, wait=wait)
            # The process that held the lock may have removed the file.
            current = taken and _is_at(descriptor, path)
        except BaseException:
            release(descriptor)
            raise
        if current:
            return descriptor
        release(descriptor)
        if not taken:
            return None


def _lock(descriptor: int, path: pathlib.Path, *, wait: bool) -> bool:
    start = time.monotonic()
    while True:
        try:
            with atomic.naming(path):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                return False
        else:
            return True
        if time.monotonic() - start > _SILENT_SECONDS:
            break
        time.sleep(_POLL_SECONDS)
    print(f"Waiting for the process that has locked {path}.", file=sys.stderr)
    with atomic.naming(path):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return True


def _is_at(descriptor: int, path: pathlib.Path) -> bool:
    """Checks whether an open file is the file at this path."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), found)


def release(descriptor: int) -> None:
    """Releases a lock."""
    _descriptors.discard(descriptor)
    os.close(descriptor)


@contextlib.contextmanager
def holding(descriptor: int) -> Iterator[None]:
    """Releases a lock at the end of the block."""
    try:
        yield
    finally:
        release(descriptor)


@contextlib.contextmanager
def in_folder(folder: pathlib.Path, name: str) -> Iterator[None]:
    """Makes a folder, and holds a lock in the folder for the block.

    Waits for another process that holds the lock, and may remove the folder.
    """
    descriptor = None
    while descriptor is None:
        folder.mkdir(parents=True, exist_ok=True)
        # FileNotFoundError: another task was done with the folder and removed it.
        with contextlib.suppress(FileNotFoundError):
            descriptor = acquire(folder / name, wait=True)
    with holding(descriptor):
        yield


def is_held(path: pathlib.Path) -> bool:
    """Checks whether another process holds a lock."""
    if any(_is_at(own, path) for own in _descriptors):
        return False
    try:
        # O_RDWR: network file systems may lock only files that are open for writing.
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        with atomic.naming(path):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _close_all() -> None:
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


# A lock is free when its last descriptor is closed. Without `_close_all`, a forked
# worker would hold the lock a moment longer than its killed parent.
_descriptors: set[int] = set()
os.register_at_fork(after_in_child=_close_all)
