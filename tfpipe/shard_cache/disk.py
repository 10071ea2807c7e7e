"""The disk under a shard cache: room, holes, locks of bytes, and what must last.

In: open files of a local file system. Out: files with allocated or freed parts, locked
bytes, content that survives a power loss, and words for errors. Imports no TensorFlow.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import pathlib
import struct
from collections.abc import Iterator, Sequence

from tfpipe.location import atomic

# Disks are allocated in blocks, so a piece may take parts of two blocks more.
BLOCK_BYTES = 4096

_PUNCH_HOLE_KEEP_SIZE = 1 | 2
_libc = ctypes.CDLL(None, use_errno=True)

# From so many files on, one sync of the file system takes less time than their own.
_MANY_FILES = 4

_FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors of a host that cannot open or read any file now.
SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# Errors of a disk to which nothing can be written now. Reading goes on in memory.
NOT_WRITABLE = (*_FULL, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM)


def is_full(error: OSError) -> bool:
    """Returns whether the disk, or the quota of the user, is full."""
    return error.errno in _FULL


def remedy(code: int | None) -> str:
    """Returns what a person can do about an error of the disk."""
    if code in _FULL:
        return "Free some room there, or give a folder on another disk."
    if code == errno.EROFS:
        return "Its disk is read-only: mount the disk for writing, or give another."
    if code in (errno.EACCES, errno.EPERM):
        return "Give a folder that this user can write to, one for each user."
    if code == errno.EIO:
        return "Its disk fails: look at the disk, or give a folder on another one."
    if code in (errno.EEXIST, errno.ENOTDIR):
        return "Give a folder, not a file."
    if code in (errno.ENOTCONN, errno.ESTALE, errno.ETIMEDOUT):
        return "Its mount fails: look at the file server, or mount the folder again."
    if code == errno.EBUSY:
        return "Give each host a folder of its own."
    if code in SHORTAGE:
        return "Run again when the folder can be used."
    if code in (errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL):
        return (
            "Its file system cannot lock files or free a part of a file. Give a folder "
            "on a local disk (ext4, xfs, btrfs or tmpfs)."
        )
    return "Give a folder that this user can write to."


@contextlib.contextmanager
def used_as_cache(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns an error of the system into an error of an unfit folder.

    Raises:
        ValueError: If the folder cannot be used; the text has a remedy.
    """
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"ShardCache.directory must be usable as a cache, got {os.fspath(path)}: "
            f"{error.strerror or error}. {remedy(error.errno)}"
        ) from None


@contextlib.contextmanager
def advised(path: str | os.PathLike[str]) -> Iterator[None]:
    """Adds a file, if an error of the system names none, and a remedy.

    Raises:
        OSError: The error, with its text alone.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # an error with own words
            raise
        name = os.fspath(error.filename or path)
        raise OSError(f"{error.strerror}: {name}. {remedy(error.errno)}") from None


def allocate(descriptor: int, start: int, num_bytes: int) -> None:
    """Takes room on the disk for a part of a file under a memory map.

    A write to a hole of a file, on a full disk, would kill the process.
    """
    if num_bytes:
        os.posix_fallocate(descriptor, start, num_bytes)


def punch(descriptor: int, start: int, stop: int) -> None:
    """Frees the whole blocks of a part of a file; the part then reads as zeros.

    Raises:
        OSError: If the file system cannot free a part of a file.
    """
    offset, length = ctypes.c_long(start), ctypes.c_long(stop - start)
    if _libc.fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, offset, length):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def bring_to_disk(paths: Sequence[pathlib.Path]) -> None:
    """Brings the content of files of a folder to the disk; others may remove a file.

    A sync of the whole file system waits once for many files, and an fsync each time.

    Raises:
        OSError: If the disk fails.
    """
    if len(paths) < _MANY_FILES:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                atomic.sync(path)
        return
    descriptor = os.open(paths[0].parent, os.O_RDONLY)
    try:
        if _libc.syncfs(descriptor):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), os.fspath(paths[0].parent))
    finally:
        os.close(descriptor)


def lock_byte(descriptor: int, offset: int, kind: int) -> bool:
    """Locks or unlocks a byte of a file; the kernel ends locks of killed processes.

    Args:
        descriptor: The file, opened for writing.
        offset: Offset of the byte.
        kind: fcntl.F_WRLCK or F_UNLCK.

    Returns:
        False if another process holds the lock.
    """
    lock = struct.pack("hhqqi4x", kind, os.SEEK_SET, offset, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError):
        return False
    return True


def is_locked(path: pathlib.Path) -> bool:
    """Returns whether another open file has the lock of a whole file."""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
