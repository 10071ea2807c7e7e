"""Places the image bytes of a table: in a file of the table, or in the spool.

In: image bytes, from any thread. Out: offsets of the images. The bytes stay in an
uncompressed Parquet file. Other bytes go to the spool. The folder of the spool lies
beside the unfinished shards and is removed with the shards.
"""

import collections
import contextlib
import io
import os
import pathlib
import shutil
import struct
import threading
from collections.abc import Iterator

from converters.engines import locks
from converters.inputs.reader import Workspace
from tfpipe.location import atomic

IMAGES_NAME = "images"
# The values of the rows: the file says that the folder is whole, so it comes last and
# goes first.
ROWS_NAME = "rows.parquet"
PREFIX = ".table-"
_LOCK_NAME = "table.lock"
# After a block of 16 MB was freed, the C library keeps smaller blocks for reuse.
_KEPT_BYTES = 16 << 20
# First bytes of a value that are compared with the file. The size of the value stands
# before the value, and headers stand between pages.
HEAD_BYTES = 12
_SIZE = struct.Struct("<I")
_SEARCHED = (HEAD_BYTES + _SIZE.size, 64 << 10, 1 << 20, 16 << 20)


class Spool:
    """A file that grows by an image at a time, from any thread.

    Attributes:
        error: The error of the operating system that ended the work, if any.
        is_lost: Whether a find was wrong: all finds are void then.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.error: OSError | None = None
        self._lock = threading.Lock()
        self._path = folder / IMAGES_NAME
        self._stack = contextlib.ExitStack()
        self._spool: io.BufferedWriter | None = None
        self.restart()
        bytes(_KEPT_BYTES)

    def restart(self) -> None:
        """Forgets the images that were found."""
        self.is_lost = False
        # File of the last image, and the end of the image; None: the file lacks images.
        self._own: io.FileIO | None = None
        self._end: int | None = None
        self._unproven: collections.deque[int | None] = collections.deque()

    def add(self, image: bytes) -> int:
        """Adds an image, and returns ~offset, which is below 0."""
        with self._lock, self._noted(), atomic.naming(self._path):
            if self._spool is None:
                self._spool = io.BufferedWriter(io.FileIO(self._path, "w"))
                self._stack.enter_context(self._spool)
            self._spool.write(image)
            return len(image) - self._spool.tell() - 1

    def find(
        self, file: str | None, num_bytes: int | None, head: bytes | None
    ) -> int | None:
        """Returns the offset of an image in an uncompressed Parquet file.

        Parquet has the size of a value in four bytes before the value, and one value
        behind the other, but headers between pages. The images of a file come in their
        order. A call without `head`, the first bytes of the image, finds an image right
        behind the image before; a later call with `head` proves other finds.

        Returns:
            The offset; None if a value is None, or if this image or an earlier one is
            not behind the image before. After a wrong find `is_lost` is set.
        """
        if file is None or num_bytes is None:
            return None
        with self._noted():
            if self._own is None or self._own.name != file:
                self._own = self._stack.enter_context(io.FileIO(file))
                self._end = 0
            if head is None:
                start, offset = self._end, self._search(num_bytes, b"")
                if start and offset == start + _SIZE.size:
                    return offset
                self._unproven.append(offset)
                return None
            if not self._unproven:
                return self._search(num_bytes, head)
            offset = self._unproven.popleft()
            if offset is not None:
                self.is_lost |= os.pread(self._own.fileno(), len(head), offset) != head
            return offset

    def _search(self, num_bytes: int, head: bytes) -> int | None:
        if (start := self._end) is None or self._own is None:
            return None
        value = _SIZE.pack(num_bytes) + head
        for count in _SEARCHED:
            data = os.pread(self._own.fileno(), count, start)
            if (index := data.find(value)) >= 0:
                self._end = start + index + _SIZE.size + num_bytes
                return self._end - num_bytes
        self._end = None
        return None

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = error
            raise


@contextlib.contextmanager
def opened(folder: pathlib.Path) -> Iterator[Spool]:
    """Yields a spool; the error of a full disk stands in place of DuckDB's error."""
    spool = Spool(folder)
    try:
        with atomic.naming(spool._path), spool._stack:
            yield spool
    except Exception as error:
        if spool.error is not None:
            raise spool.error from error
        raise


def folder_in(workspace: Workspace, key: str) -> pathlib.Path:
    """Returns the folder of a key, locked for this task until the plan is made."""
    folder = workspace.folder / f"{PREFIX}{key}"
    if folder not in workspace.held:
        workspace.held.add(folder)
        workspace.stack.enter_context(locks.in_folder(folder, _LOCK_NAME))
    return folder


def remove(work_dir: pathlib.Path) -> None:
    """Removes the folders of all tables without a reader."""
    for folder in work_dir.glob(f"{PREFIX}*"):
        if not locks.is_held(folder / _LOCK_NAME):
            with contextlib.suppress(OSError):
                (folder / ROWS_NAME).unlink()
            shutil.rmtree(folder, ignore_errors=True)
