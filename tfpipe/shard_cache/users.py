"""The users of a store: when the readers of live processes use a piece next.

In: the next uses of this process's readers. Out: the next uses of all live processes,
for the choice of victims. The kernel ends the lock of a killed process, and then the
process does not count.
"""

import fcntl
import os
import pathlib
import uuid
from typing import Literal

import numpy as np

from tfpipe.shard_cache import next_use
from tfpipe.shards.records import Ints

# Readers of a process, beside a row for `OpenCache.bring`.
NUM_READERS = 8
_INACTIVE = -1


def allocate(descriptor: int, num_bytes: int) -> None:
    """Takes room on the disk for a file under a memory map.

    A write to a hole of a file, on a full disk, would kill the process.
    """
    os.posix_fallocate(descriptor, 0, num_bytes)


class Users:
    """The users of a store; all methods are called under the directory's lock.

    Args:
        folder: Folder with a file of every process.
        num_pieces: Number of pieces of the store.
    """

    def __init__(self, folder: pathlib.Path, num_pieces: int) -> None:
        self._folder, self._num_pieces = folder, num_pieces
        self._rows_of: dict[str, Ints] = {}

    def readers(self) -> list[Ints]:
        """Returns the next uses of every live reader, see `next_use.distances`."""
        return [row for rows in self._live() for row in rows if row[0] != _INACTIVE]

    def num_readers(self) -> int:
        """Returns the number of live readers of windows."""
        return sum(int((rows[1:, 0] != _INACTIVE).sum()) for rows in self._live())

    def _live(self) -> list[Ints]:
        """Returns the rows of live processes; removes the files of dead processes."""
        for path in self._folder.iterdir():
            if not _is_locked(path):
                path.unlink()
                self._rows_of.pop(path.name, None)
            elif path.name not in self._rows_of:
                self._rows_of[path.name] = _rows(path, self._num_pieces, "r")
        return list(self._rows_of.values())

    def do_need(self, piece: int) -> bool:
        """Whether a reader needs a piece now; `readers` was called before."""
        return any(
            bool((rows[:, 2 + piece] <= rows[:, 1]).any())
            for rows in self._rows_of.values()
        )

    def are_there(self) -> bool:
        """Whether a live process uses the store."""
        return any(map(_is_locked, self._folder.iterdir()))


def _is_locked(path: pathlib.Path) -> bool:
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _rows(path: pathlib.Path, num_pieces: int, mode: Literal["r", "r+"]) -> Ints:
    shape = (NUM_READERS + 1, 2 + num_pieces)
    return np.asarray(np.memmap(path, np.int64, mode, shape=shape))


class User:
    """The next uses of this process's readers, in a file for all processes.

    A user is made under the directory's lock.

    Args:
        folder: Folder with a file of every process.
        num_pieces: Number of pieces of the store.

    Raises:
        OSError: If the disk has no room for the file.
    """

    def __init__(self, folder: pathlib.Path, num_pieces: int) -> None:
        self._path = folder / uuid.uuid4().hex
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._lock = os.open(self._path, flags, 0o666)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            allocate(self._lock, (NUM_READERS + 1) * (2 + num_pieces) * 8)
        except OSError:
            self.close()
            raise
        self._rows = _rows(self._path, num_pieces, "r+")
        self._rows[:] = next_use.NEVER
        self._rows[:, :2] = _INACTIVE
        self._free = list(range(1, NUM_READERS + 1))
        # The row of pieces that are needed outside of any reader.
        self.outside = self._rows[0]
        self.outside[:2] = 0

    def take_row(self) -> tuple[int, Ints]:
        """Returns the number and the next uses of a new reader.

        Raises:
            ValueError: If the process has too many readers.
        """
        if not self._free:
            raise ValueError(
                f"A shard cache must have at most {NUM_READERS} readers at once in a "
                "process. Close one first."
            )
        key = self._free.pop()
        row = self._rows[key]
        row[2:], row[:2] = next_use.NEVER, 0
        return key, row

    def give_back(self, key: int) -> None:
        """Ends a reader."""
        self._rows[key, :2] = _INACTIVE
        self._rows[key, 2:] = next_use.NEVER
        self._free.append(key)

    def close(self) -> None:
        """Ends all readers."""
        if self._lock >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._lock)
        self._lock = -1
