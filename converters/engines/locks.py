"""Locks between processes, on files in a folder that may be removed meanwhile.

In: the path of a lock file. Out: its descriptor while this process holds the lock. A
lock is free as soon as its process ends, however the process ends. A lock on a file
that was removed while this process waited for it excludes nobody; it is taken anew.
"""

import contextlib
import fcntl
import os
import pathlib
import sys
import time
from collections.abc import Iterator

_POLL_SECONDS = 0.01
_SILENT_SECONDS = 1.0


def acquire(path: pathlib.Path, *, wait: bool = False) -> int | None:
    """Takes a lock, whose file is made if it is not there.

    Args:
        path: The lock file.
        wait: Whether to wait for a process that has the lock; after a second this is
            said on stderr.

    Returns:
        What `release` takes; None if another process has the lock.

    Raises:
        OSError: If the file cannot be made; FileNotFoundError if its folder is gone.
    """
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o644)
        _descriptors.add(descriptor)
        try:
            taken = _lock(descriptor, path, wait=wait)
            # The process that had the lock may have removed the file.
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
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return True


def _is_at(descriptor: int, path: pathlib.Path) -> bool:
    """Whether an open file is the one that has this path."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), found)


def release(descriptor: int) -> None:
    """Gives a lock back."""
    _descriptors.discard(descriptor)
    os.close(descriptor)


@contextlib.contextmanager
def holding(descriptor: int) -> Iterator[None]:
    """Gives a lock back at the end of the block."""
    try:
        yield
    finally:
        release(descriptor)


def is_held(path: pathlib.Path) -> bool:
    """Whether another process has a lock."""
    if any(_is_at(own, path) for own in _descriptors):
        return False
    try:
        # A file system of a network may demand that a file to lock can be written.
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
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


# A lock is free when its last descriptor is closed: without this, a worker that was
# forked would hold it a moment longer than its killed parent.
_descriptors: set[int] = set()
os.register_at_fork(after_in_child=_close_all)
