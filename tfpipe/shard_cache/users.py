"""The users of a store: when the readers of live processes use a piece next.

In: the next uses of this process's readers. Out: the next uses of all live processes,
for the choice of victims. The kernel ends the lock of a killed process, and then the
process does not count. A row of 4 bytes a piece is on the disk for each reader that
reads at once, and keeps its room for the next reader.

The file of a process:

| part | content |
|---|---|
| int64 [NUM_READERS, 4] | the header of each reader, see `next_use.ReaderRow` |
| int64 [1 + MAX_OUTSIDE] | pieces in use outside of any reader; first their number |
| int32 [NUM_READERS, ...] | the next uses of each reader, each from a new block on |
"""

import contextlib
import fcntl
import os
import pathlib
import threading
import uuid
from collections.abc import Iterator

import numpy as np

from tfpipe.shard_cache import next_use
from tfpipe.shard_cache.disk import BLOCK_BYTES, allocate, is_locked
from tfpipe.shard_cache.next_use import ReaderRow, Uses
from tfpipe.shards.records import Ints

# Readers of a process.
NUM_READERS = 8
# Pieces that a process may use at once outside of its readers.
MAX_OUTSIDE = 1 << 14

_NUM_HEADER_INTS = 4
_FIRST_INTS = NUM_READERS * _NUM_HEADER_INTS + 1 + MAX_OUTSIDE
_FIRST_BYTES = -(-_FIRST_INTS * 8 // BLOCK_BYTES) * BLOCK_BYTES


class _UserFile:
    """A file of a process, mapped into memory."""

    def __init__(self, path: pathlib.Path, num_pieces: int, mode: str) -> None:
        self.num_pieces = num_pieces
        self.row_bytes = -(-max(num_pieces, 1) * 4 // BLOCK_BYTES) * BLOCK_BYTES
        self.num_bytes = _FIRST_BYTES + NUM_READERS * self.row_bytes
        if mode == "r+":
            os.truncate(path, self.num_bytes)
        # Plain arrays: indexing a memmap makes a new memmap.
        whole = np.asarray(np.memmap(path, np.uint8, mode, shape=(self.num_bytes,)))  # type: ignore[call-overload]
        first: Ints = whole[: _FIRST_INTS * 8].view(np.int64)
        num_ints = NUM_READERS * _NUM_HEADER_INTS
        self.headers = first[:num_ints].reshape(NUM_READERS, _NUM_HEADER_INTS)
        self.outside = first[num_ints:]
        rows: Uses = whole[_FIRST_BYTES:].view(np.int32)
        self._rows = rows.reshape(NUM_READERS, -1)

    def row(self, reader: int) -> ReaderRow:
        return ReaderRow(self.headers[reader], self._rows[reader, : self.num_pieces])

    def readers(self) -> list[ReaderRow]:
        active = np.flatnonzero(self.headers[:, 0]).tolist()
        return [self.row(reader) for reader in active]

    def pinned(self) -> Ints:
        # A copy: the process changes its file meanwhile.
        return self.outside[1 : 1 + int(self.outside[0])].copy()


class Users:
    """The users of a store; all methods are called under the directory's lock.

    Args:
        folder: Folder with a file of every process.
        num_pieces: Number of pieces of the store.
    """

    def __init__(self, folder: pathlib.Path, num_pieces: int) -> None:
        self._folder, self._num_pieces = folder, num_pieces
        self._files: dict[str, _UserFile] = {}

    def look(self) -> None:
        """Finds the live processes, and removes the files of dead processes."""
        alive = {}
        for name in os.listdir(self._folder):
            path = self._folder / name
            if not is_locked(path):
                path.unlink()
            elif name in self._files:
                alive[name] = self._files[name]
            else:
                alive[name] = _UserFile(path, self._num_pieces, "r")
        self._files = alive

    def has_found(self) -> bool:
        """Whether `look` found a live process."""
        return bool(self._files)

    def readers(self) -> list[ReaderRow]:
        """Returns the next uses of the readers that `look` found."""
        return [row for file in self._files.values() for row in file.readers()]

    def distances(self, pieces: Ints) -> Ints:
        """Returns `next_use.distances` for the processes that `look` found."""
        outside = [file.pinned() for file in self._files.values()]
        return next_use.distances(self.readers(), outside, pieces)

    def are_using(self, piece: int) -> bool:
        """Returns whether a process that `look` found has a piece in use."""
        return int(self.distances(np.array([piece]))[0]) == next_use.PINNED

    def are_there(self) -> bool:
        """Whether a live process uses the store."""
        return any(is_locked(self._folder / name) for name in os.listdir(self._folder))


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
        self._folder, self._num_pieces = folder, num_pieces
        # Rows with room on the disk and without a reader. The room stays: a reader of
        # a later epoch can begin on a disk that is full or read-only by then.
        self._free = [0]
        self._plans: dict[int, ReaderUse] = {}
        self._outside: dict[int, Ints] = {}
        self._changing = threading.Lock()
        self._lock, self.is_closed = -1, False
        self._open()

    def _open(self) -> None:
        path = self._folder / uuid.uuid4().hex
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        lock = os.open(path, flags, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            allocate(lock, 0, _FIRST_BYTES)
            file = _UserFile(path, self._num_pieces, "r+")
            for reader in [*self._free, *self._plans]:
                allocate(lock, *self._part(file, reader))
        except OSError:
            path.unlink(missing_ok=True)
            os.close(lock)
            raise
        if self._lock >= 0:
            os.close(self._lock)
        self._path, self._lock, self._file = path, lock, file

    def is_there(self) -> bool:
        """Whether the file of this process is there, or the user is closed."""
        return self.is_closed or self._path.exists()

    def renew(self) -> None:
        """Makes the file again after the file was removed, with the same readers."""
        with self._changing:
            self._open()
            for reader, kept in self._plans.items():
                kept.move(self._file.row(reader))
            self._write_outside()

    def take_row(self) -> tuple[int, "ReaderUse"]:
        """Returns the number and the next uses of a new reader.

        Raises:
            ValueError: If the process has too many readers.
            OSError: If the disk has no room for the row.
        """
        with self._changing:
            if len(self._plans) == NUM_READERS:
                raise ValueError(
                    f"A shard cache must have at most {NUM_READERS} readers at once in "
                    "a process. Close one first."
                )
            if not self._free:
                allocate(self._lock, *self._part(self._file, len(self._plans)))
                self._free.append(len(self._plans))
            reader = self._free.pop()
            self._plans[reader] = ReaderUse(self._file.row(reader))
            return reader, self._plans[reader]

    def give_back(self, reader: int) -> None:
        """Ends a reader; its row is for the next reader."""
        with self._changing:
            if self.is_closed:
                return
            self._plans.pop(reader).end()
            self._free.append(reader)

    def _part(self, file: _UserFile, reader: int) -> tuple[int, int]:
        return _FIRST_BYTES + reader * file.row_bytes, file.row_bytes

    def pin(self, key: int, pieces: Ints) -> None:
        """Keeps pieces in the cache that are needed outside of any reader.

        Args:
            key: Number of the need; its pieces replace those of an earlier call.
            pieces: The pieces; none ends the need.

        Raises:
            ValueError: If more than MAX_OUTSIDE pieces are needed at once.
        """
        with self._changing:
            others = [kept for other, kept in self._outside.items() if other != key]
            if sum(map(len, others)) + len(pieces) > MAX_OUTSIDE:
                raise ValueError(
                    f"At most {MAX_OUTSIDE} pieces must be needed at once outside of "
                    f"the order of reading, got {len(pieces)}. Ask for fewer records."
                )
            self._outside[key] = pieces
            if not self.is_closed:
                self._write_outside()

    @contextlib.contextmanager
    def pinned(self, pieces: Ints) -> Iterator[None]:
        """Keeps pieces in the cache until the end of the block."""
        key = id(pieces)
        self.pin(key, pieces)
        try:
            yield
        finally:
            self.pin(key, pieces[:0])
            self._outside.pop(key, None)

    def _write_outside(self) -> None:
        pieces = np.concatenate([np.zeros(0, np.int64), *self._outside.values()])
        self._file.outside[1 : 1 + len(pieces)] = pieces
        self._file.outside[0] = len(pieces)

    def close(self) -> None:
        """Ends all readers."""
        with self._changing:
            if not self.is_closed:
                self.is_closed = True
                with contextlib.suppress(OSError):  # the next user removes it then
                    self._path.unlink()
                os.close(self._lock)


class ReaderUse:
    """The row of a reader, and its plan.

    Args:
        row: The row; `move` changes to another row.

    Attributes:
        plan: The future windows.
    """

    def __init__(self, row: ReaderRow) -> None:
        self._row = row
        self.start()

    def start(self) -> None:
        """Plans anew; nothing is in use."""
        self._row.header[:] = 0
        self.plan = next_use.UsePlan(self._row.use)
        self._row.header[:] = 1, 0, 0, 1

    def need_all(self) -> None:
        """Sets all pieces to be used equally soon: none makes room for another."""
        self._row.use[:] = 1

    def hand_out(self, window: int, pinned_until: int, num_records: int) -> None:
        """Sets the current window, and the last window that is pinned."""
        header = self._row.header
        header[3] = max(int(header[3]), num_records)
        # Pieces of a window are pinned before the window is the current one.
        header[2] = pinned_until
        header[1] = window

    def move(self, row: ReaderRow) -> None:
        """Copies the content to another row, and goes on there."""
        row.use[:] = self._row.use
        row.header[:] = self._row.header
        self._row = row
        self.plan.use = row.use

    def end(self) -> None:
        """Takes the reader as not active."""
        self._row.header[0] = 0
