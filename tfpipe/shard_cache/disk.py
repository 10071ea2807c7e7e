"""The disk under a shard cache: room, holes, locks of bytes, and what must last.

In: open files of a local file system. Out: files with allocated or freed parts, locked
bytes, content that survives a power loss, and words for errors. Imports no TensorFlow.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import pathlib
import struct
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from tfpipe import errors
from tfpipe.location import atomic

# Disks are allocated in blocks, so a piece may take parts of two blocks more.
BLOCK_BYTES = 4096

_PUNCH_HOLE_KEEP_SIZE = 1 | 2
# Bytes of a write past the page cache, from a buffer of the thread: the disk needs
# memory at the start of a page. Fewer bytes are not worth the wait for the disk.
_DIRECT_BYTES = 1 << 20
_of_thread = threading.local()
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
    if code == errno.EMFILE:
        return errors.OPEN_FILES
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


def write(
    descriptor: int, content: memoryview, offset: int, *, is_direct: bool = False
) -> None:
    """Writes bytes at an offset of a file.

    Args:
        descriptor: The file.
        content: The bytes.
        offset: Offset of the bytes.
        is_direct: Whether whole blocks go past the page cache to the disk, where the
            file system can: this takes less CPU time, but a reader waits for the disk.
    """
    done = 0
    if is_direct and len(content) >= _DIRECT_BYTES:
        begin = -offset % BLOCK_BYTES
        blocks = content[begin:][: (len(content) - begin) // BLOCK_BYTES * BLOCK_BYTES]
        done = begin + _write_blocks(descriptor, blocks, offset + begin)
        _write_all(descriptor, content[:begin], offset)
    _write_all(descriptor, content[done:], offset + done)


def _write_all(descriptor: int, content: memoryview, offset: int) -> None:
    while content:
        count = os.pwrite(descriptor, content, offset)
        content, offset = content[count:], offset + count


def _write_blocks(descriptor: int, blocks: memoryview, offset: int) -> int:
    """Writes whole blocks past the page cache; returns the bytes that were written."""
    if not hasattr(_of_thread, "buffer"):
        _of_thread.buffer = mmap.mmap(-1, _DIRECT_BYTES)
    buffer = np.frombuffer(_of_thread.buffer, np.uint8)
    source, done = np.frombuffer(blocks, np.uint8), 0
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        while done < len(blocks):
            part = source[done:][: len(buffer)]
            buffer[: len(part)] = part  # other threads run meanwhile
            done += os.pwrite(descriptor, buffer[: len(part)].data, offset + done)
            done -= done % BLOCK_BYTES
    except OSError as error:
        if error.errno != errno.EINVAL:  # this file system, or disk, has no such writes
            raise
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return done


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
