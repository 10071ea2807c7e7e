"""Keeps the image bytes of a table in a single file: an image is a range of the file.

In: image bytes, from any thread. Out: the file, and the offsets of the images. The
folder lies beside the unfinished shards and is removed with them.
"""

import contextlib
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator

from converters.engines import locks

IMAGES_NAME = "images"
_PREFIX = ".table-"
_LOCK_NAME = "table.lock"
# After a block of 16 MB was freed, the C library keeps smaller blocks for reuse.
_KEPT_BYTES = 16 << 20


class Spool:
    """A file that grows by an image at a time.

    Attributes:
        error: The error of the operating system that ended writing, if any.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.num_bytes = 0
        self.error: OSError | None = None
        self._lock = threading.Lock()
        self._path = folder / IMAGES_NAME
        self._descriptor: int | None = None
        bytes(_KEPT_BYTES)

    def add(self, image: bytes) -> int:
        """Appends an image, and returns the offset.

        Raises:
            OSError: If the file cannot be written.
        """
        with self._lock:
            offset = self.num_bytes
            self.num_bytes += len(image)
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                self._descriptor = os.open(self._path, flags, 0o666)
            descriptor = self._descriptor
        try:
            position, rest = offset, memoryview(image)
            while rest:
                written = os.pwrite(descriptor, rest, position)
                position, rest = position + written, rest[written:]
        except OSError as error:
            self.error = OSError(error.errno, error.strerror, str(self._path))
            raise self.error from error
        return offset

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def folder_of(work_dir: pathlib.Path, key: str) -> pathlib.Path:
    """Returns the folder for a table.

    Args:
        work_dir: The working folder of the output.
        key: Digest of the table and of the reading options.
    """
    return work_dir / f"{_PREFIX}{key}"


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Makes a folder, and keeps other tasks from it until the end of the block."""
    descriptor = None
    while descriptor is None:
        folder.mkdir(parents=True, exist_ok=True)
        # FileNotFoundError: another task was done with the folder and removed it.
        with contextlib.suppress(FileNotFoundError):
            descriptor = locks.acquire(folder / _LOCK_NAME, wait=True)
    with locks.holding(descriptor):
        yield


def remove(work_dir: pathlib.Path) -> None:
    """Removes the folders of all tables that no process is reading."""
    for folder in work_dir.glob(f"{_PREFIX}*"):
        if not locks.is_held(folder / _LOCK_NAME):
            shutil.rmtree(folder, ignore_errors=True)
