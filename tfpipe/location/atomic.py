"""Files that appear whole, and locks of files, for processes that share a folder.

In: a path and its new content. Out: the file with all of the new content; after an
error or a kill the old file, or no file. Imports nothing but Python's own modules.
"""

import contextlib
import fcntl
import glob
import os
import pathlib
from collections.abc import Iterator
from typing import IO

# Names of what the process has open, with its number.
_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_STREAMS |= {f"/dev/fd/{descriptor}": descriptor for descriptor in range(100)}


@contextlib.contextmanager
def new_file(
    path: pathlib.Path,
    *,
    part: pathlib.Path | None = None,
    fsync: bool = False,
    sweeps: bool = False,
) -> Iterator[pathlib.Path]:
    """Yields a temporary path, and renames the file there to `path` after the block.

    An error in the block removes the temporary file and leaves `path` as it was.

    Args:
        path: The file; an older file of this name is replaced.
        part: The temporary path, in the same file system. A fixed path leaves at most
            one file after a kill. None is a hidden path beside `path` with a random
            name: several processes may then write the same file at once.
        fsync: Whether the content must be on the disk before the rename. The rename
            itself survives a power loss only after a `sync` of the folder.
        sweeps: Whether to remove the hidden files of killed writers first. All writers
            of the file must say so, and must be on one host where the file system has
            no locks between hosts. The block shares the lock of the folder.

    Raises:
        OSError: If the file cannot be brought to the disk or renamed. An error about
            the temporary file names `path`.
    """
    with contextlib.ExitStack() as stack:
        if sweeps:
            stack.enter_context(_without_leftovers(path))
        part = part or _hidden(path)
        try:
            try:
                yield part
                if fsync:
                    sync(part)
                os.replace(part, path)
            finally:
                # A rename to another name of the same file leaves both names.
                part.unlink(missing_ok=True)
        except OSError as error:
            if error.filename == os.fspath(part):
                error.filename = os.fspath(path)
                del error.filename2  # None would be printed
            raise


def create(path: pathlib.Path, content: bytes) -> bool:
    """Writes a file whole and for good, unless a file of this name exists.

    Returns:
        Whether the call made the file. False: the existing file is as it was.

    Raises:
        OSError: If the file cannot be written, or the file system has no links.
    """
    part = _hidden(path)
    try:
        part.write_bytes(content)
        sync(part)
        os.link(part, path)  # fails if the name is there
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    sync(path.parent)
    return True


def _hidden(path: pathlib.Path) -> pathlib.Path:
    """Returns a new name for the unfinished file; `_without_leftovers` knows it."""
    return path.with_name(f".{path.name}.{os.urandom(16).hex()}.partial")


@contextlib.contextmanager
def _without_leftovers(path: pathlib.Path) -> Iterator[None]:
    """Removes the hidden files of killed writers of a file.

    A writer shares the lock of the folder until the end of the block. The system ends
    the lock of a killed writer: an exclusive lock proves all hidden files to be
    leftovers. A file system without locks of folders keeps the files.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError:  # the block raises the error that names the file
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            name, digits = glob.escape(path.name), "[0-9a-f]" * 32
            for leftover in path.parent.glob(f".{name}.{digits}.partial"):
                leftover.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_SH)
        yield
    finally:
        os.close(folder)


def write(path: pathlib.Path, content: bytes, *, fsync: bool = True) -> None:
    """Replaces a file in one step: a reader sees the old content or the new content.

    Args:
        path: The file.
        content: The new content.
        fsync: Whether to wait until content and name survive a power loss.

    Raises:
        OSError: If the file cannot be written.
    """
    _replace(path, content, part=path.with_name(f".{path.name}.tmp"), fsync=fsync)


def write_chosen(path: pathlib.Path, content: bytes, *, fsync: bool = True) -> None:
    """Writes a file whose path a user chose, as `write` does.

    A symbolic link stays, and the file behind it is replaced. A pipe or a device gets
    the content. /dev/stdout is what the process has open: the content follows what was
    printed, and what is printed later follows the content. Several processes may write
    the file at once.
    """
    name = os.fspath(path)
    if name in _STREAMS or (path.exists() and not path.is_file()):
        print(end="", flush=True)
        opened = _STREAMS.get(name, name)
        with naming(path), open(opened, "wb", closefd=opened == name) as file:
            file.write(content)
        return
    target = path.resolve() if path.is_symlink() else path
    _replace(target, content, part=None, fsync=fsync)


def _replace(
    path: pathlib.Path, content: bytes, *, part: pathlib.Path | None, fsync: bool
) -> None:
    with naming(path), new_file(path, part=part, fsync=fsync) as new:
        new.write_bytes(content)
    if fsync:
        sync(path.parent)


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Holds the lock of a file, after waiting for other processes and threads.

    The file is made if it is missing. The lock ends with the process.

    Yields:
        The open file.
    """
    with open(path, "ab") as file:
        with naming(path):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def sync(path: pathlib.Path) -> None:
    """Brings a file to the disk, or makes the renames inside a folder last.

    Raises:
        OSError: If the disk fails.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Names a file in errors of the system that name none: those of open files.

    Reading, writing, fsync(2) and flock(2) know a descriptor and no path.
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise
