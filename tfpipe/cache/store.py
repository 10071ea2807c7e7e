"""Stores: the features of each record of a split, in RAM or in a folder on disk.

In: the numbers of records and their features, in any order and from several processes
at once. Out: the features of any stored records. A store does not know epochs, orders
and ranks, so it cannot change them. Imports no TensorFlow.
"""

import contextlib
import dataclasses
import errno
import functools
import os
import pathlib
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Any, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt

from tfpipe.location import atomic

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

# Values of `have`: the record is not stored, is stored, was damaged when read, or was
# stored and must be made again, because others changed the files.
MISSING, KEPT, DAMAGED, AGAIN = range(4)

COMPLETE_NAME = "complete"
_HAVE_NAME, _CRCS_NAME = "have", "crcs"
# A place is the number of a segment and a byte offset in it. Both are in one int64, so
# that they are written in one step: two processes may store a record at the same time.
_OFFSET_BITS = 44


@dataclasses.dataclass(frozen=True)
class StoredFeature:
    """A feature of every record.

    Attributes:
        name: Name of the feature.
        dtype: dtype of its numbers; object for a byte string a record.
        shape: Shape of the numbers of a record; () for a byte string.
    """

    name: str
    dtype: "np.dtype[Any]"
    shape: tuple[int, ...] = ()

    @property
    def is_string(self) -> bool:
        """Whether the feature is a byte string, of any length."""
        return self.dtype == np.dtype(object)

    @property
    def num_bytes(self) -> int:
        """Bytes of a record on disk, without the bytes of a string."""
        if self.is_string:
            return 2 * 8  # place and length
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


class DamagedRowsError(Exception):
    """Rows of a store have other bytes than were stored.

    Attributes:
        rows: int64, the rows.
    """

    def __init__(self, rows: Ints) -> None:
        super().__init__(f"{len(rows)} rows of a cache are damaged.")
        self.rows = rows


class RecordStore(Protocol):
    """The methods of both kinds of store; any number of threads may call them."""

    @property
    def have(self) -> Array:
        """uint8 [num_records], MISSING, KEPT or DAMAGED."""

    def put(self, records: Ints, columns: Sequence[Array]) -> None:
        """Stores records: one column [n, ...] a feature."""

    def put_damaged(self, records: Ints) -> None:
        """Marks records as damaged: the store is complete without them."""

    def get(self, records: Ints) -> list[Array]:
        """Returns a column [n, ...] a feature, of records that are stored.

        Raises:
            DamagedRowsError: If rows have other bytes than were stored.
        """

    def forget(self, records: Ints) -> None:
        """Takes stored records as AGAIN, so that they are stored again."""

    def describe(self) -> str:
        """Returns the number of stored records and the place of the store."""

    def close(self) -> None:
        """Frees the memory and files; reading a record then fails."""


def num_bytes(
    features: Sequence[StoredFeature], num_records: int, string_bytes: int
) -> int:
    """Returns the bytes of a full store; each string feature has `string_bytes`."""
    rows = 1 + 4 + sum(feature.num_bytes for feature in features)
    return num_records * rows + string_bytes * sum(f.is_string for f in features)


class RamStore:
    """A store in the memory of the process.

    Args:
        features: Features of a record.
        num_records: Number of records in the split.
    """

    def __init__(self, features: Sequence[StoredFeature], num_records: int) -> None:
        self._have: Array = np.zeros(num_records, np.uint8)
        self._columns: list[Array] = [
            np.empty((num_records, *feature.shape), feature.dtype)
            for feature in features
        ]

    @property
    def have(self) -> Array:
        """uint8 [num_records], MISSING, KEPT or DAMAGED."""
        return self._have

    def put(self, records: Ints, columns: Sequence[Array]) -> None:
        for kept, column in zip(self._columns, columns, strict=True):
            kept[records] = column
        self.have[records] = KEPT

    def put_damaged(self, records: Ints) -> None:
        _note_damaged(self.have, records)

    def get(self, records: Ints) -> list[Array]:
        return [kept[records] for kept in self._columns]

    def forget(self, records: Ints) -> None:
        self.have[records] = AGAIN

    def describe(self) -> str:
        return f"{_how_full(self.have)}, in RAM"

    def close(self) -> None:
        self._have, self._columns = np.zeros(0, np.uint8), []


class DiskStore:
    """A store in a folder, which several processes of a host fill and read.

    Numbers are in arrays of all records; strings are in segments, one segment a
    process. `have` says which records are stored. `have` is set last, so a process may
    be killed at any time. `crcs` has the CRC of each row: a disk may damage a row in
    silence. `folders.open_store` makes a store.

    Args:
        folder: Folder with the files of `layout`.
        features: Features of a record.
        num_records: Number of records in the split.
        string_bytes: Bytes that a process may write for each string feature.
        lock: Open file whose lock says that the folder is in use.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        features: Sequence[StoredFeature],
        num_records: int,
        *,
        string_bytes: int,
        lock: IO[bytes],
    ) -> None:
        self.folder = folder
        shape = (num_records,)
        self._have = _Rows(folder / _HAVE_NAME, np.uint8, shape, lost=AGAIN)
        self._crcs = _Rows(folder / _CRCS_NAME, np.uint32, shape)
        self._in_use = lock
        self._putting = threading.Lock()
        num_strings = sum(feature.is_string for feature in features)
        self._segments = _Segments(
            folder, self._have, max_bytes=string_bytes * num_strings
        )
        self._columns = [
            _Strings(folder, number, self._segments, num_records)
            if feature.is_string
            else _Numbers(folder / f"{number}.numbers", feature, num_records)
            for number, feature in enumerate(features)
        ]
        self._complete = self.is_complete

    @property
    def have(self) -> Array:
        """uint8 [num_records], MISSING, KEPT or DAMAGED."""
        return self._have.array()

    @property
    def is_complete(self) -> bool:
        """Whether every record is stored, and safely on the disk."""
        return (self.folder / COMPLETE_NAME).exists()

    def put(self, records: Ints, columns: Sequence[Array]) -> None:
        """See `RecordStore`.

        Raises:
            OSError: If the disk is full; the stored records stay as they are.
        """
        # A lock: two threads may put the same record, and a record is stored once.
        with self._putting:
            _, first = np.unique(records, return_index=True)
            new = first[self.have[records[first]] != KEPT]
            with self._segments.all_or_nothing():
                for kept, column in zip(self._columns, columns, strict=True):
                    kept.put(records[new], column[new])
            crcs = _crcs(records[new], [c[new] for c in columns])
            self._crcs.array()[records[new]] = crcs
            if self._complete and len(new) and self._is_there():
                self._sync()  # After a crash `have` of a complete store is trusted.
            self.have[records[new]] = KEPT
        self._finish_if_full()

    def put_damaged(self, records: Ints) -> None:
        with self._putting:
            _note_damaged(self.have, records)
        self._finish_if_full()

    def get(self, records: Ints) -> list[Array]:
        """See `RecordStore`.

        Raises:
            OSError: If a file cannot be read.
        """
        columns = [kept.get(records) for kept in self._columns]
        if (wrong := _crcs(records, columns) != self._crcs.array()[records]).any():
            raise DamagedRowsError(records[wrong])
        return columns

    def forget(self, records: Ints) -> None:
        self.have[records] = AGAIN

    def describe(self) -> str:
        return f"{_how_full(self.have)}, in {self.folder}"

    def close(self) -> None:
        for rows in (self._have, self._crcs, *self._columns):
            rows.close()
        self._columns = []
        self._segments.close()
        self._in_use.close()

    def _finish_if_full(self) -> None:
        if self._complete or not np.isin(self.have, (KEPT, DAMAGED)).all():
            return
        if not self._is_there():
            _say_removed(self.folder)
            return
        with atomic.locked(self.folder / "finish"):
            if not self.is_complete:
                self._sync()
                atomic.write(self.folder / COMPLETE_NAME, b"")
        self._complete = True

    def _is_there(self) -> bool:
        """Whether the folder is still the opened folder, and was not removed."""
        return self._have.is_at(self.folder / _HAVE_NAME)

    def _sync(self) -> None:
        for path in self.folder.iterdir():
            atomic.sync(path)


def layout(features: Sequence[StoredFeature], num_records: int) -> dict[str, int]:
    """Returns the bytes of every file of fixed size in a store's folder."""
    files = {_HAVE_NAME: num_records, _CRCS_NAME: 4 * num_records}
    for number, feature in enumerate(features):
        if feature.is_string:
            files |= {f"{number}.places": 8 * num_records}
            files |= {f"{number}.lengths": 8 * num_records}
        else:
            files[f"{number}.numbers"] = feature.num_bytes * num_records
    return files


def _crcs(records: Ints, columns: Sequence[Array]) -> Array:
    """Returns uint32 [n], the CRC of each row's number and features."""
    crcs = np.empty(len(records), np.uint32)
    rows = [_bytes_of_rows(column) for column in columns if column.size]
    for position, record in enumerate(records.tolist()):
        crc = google_crc32c.value(record.to_bytes(8, "little"))
        for row in rows:
            crc = google_crc32c.extend(crc, row[position])
        crcs[position] = crc
    return crcs


def _bytes_of_rows(column: Array) -> Array:
    """Returns the byte strings of a column, or uint8 [n, bytes] for numbers."""
    if column.dtype == np.dtype(object):
        return column
    flat = np.ascontiguousarray(column).reshape(len(column), -1)
    return flat.view(np.uint8)


def _note_damaged(have: Array, records: Ints) -> None:
    # Another thread or process may have stored the record meanwhile.
    have[records[have[records] == MISSING]] = DAMAGED


def _how_full(have: Array) -> str:
    text = f"{np.count_nonzero(have == KEPT)} of {len(have)} records there"
    damaged = np.count_nonzero(have == DAMAGED)
    return f"{text}, {damaged} damaged" if damaged else text


@functools.cache
def _say_removed(folder: pathlib.Path) -> None:
    print(
        f"cache: {folder} was removed while it was in use. This run keeps its records "
        "to its end; the next run makes the cache again.",
        file=sys.stderr,
    )


class _Rows:
    """An array in a file of a fixed size, under a memory map.

    A part of the file that others cut off can be written again.

    Args:
        path: The file.
        dtype: dtype of the array.
        shape: Shape of the array.
        lost: The value of bytes that others cut off.
    """

    def __init__(
        self,
        path: pathlib.Path,
        dtype: npt.DTypeLike,
        shape: tuple[int, ...],
        *,
        lost: int = 0,
    ) -> None:
        self._lost = lost
        self._file = path.open("r+b")
        self._array: Array = np.asarray(np.memmap(self._file, dtype, "r+", shape=shape))

    def array(self) -> Array:
        """Returns the array, whose file is whole now: a cut file kills the process."""
        if not self._file.closed:
            descriptor, num_bytes = self._file.fileno(), self._array.nbytes
            if (size := os.fstat(descriptor).st_size) < num_bytes:
                os.posix_fallocate(descriptor, 0, num_bytes)
                self._array.reshape(-1).view(np.uint8)[size:] = self._lost
        return self._array

    def is_at(self, path: pathlib.Path) -> bool:
        """Whether the file still has its path."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def close(self) -> None:
        """Closes the file; the array has no rows then."""
        self._array = self._array[:0].copy()
        self._file.close()


class _Numbers(_Rows):
    def __init__(
        self, path: pathlib.Path, feature: StoredFeature, num_records: int
    ) -> None:
        super().__init__(path, feature.dtype, (num_records, *feature.shape))

    def put(self, records: Ints, column: Array) -> None:
        self.array()[records] = column

    def get(self, records: Ints) -> Array:
        return np.asarray(self.array()[records])


class _Strings:
    def __init__(
        self,
        folder: pathlib.Path,
        number: int,
        segments: "_Segments",
        num_records: int,
    ) -> None:
        shape = (num_records,)
        self._places = _Rows(folder / f"{number}.places", np.int64, shape)
        self._lengths = _Rows(folder / f"{number}.lengths", np.int64, shape)
        self._segments = segments
        segments.lengths.append(self._lengths)

    def close(self) -> None:
        self._places.close()
        self._lengths.close()

    def put(self, records: Ints, column: Array) -> None:
        lengths = np.array([len(value) for value in column], np.int64)
        first = self._segments.append(b"".join(column))
        # Other processes write the same length, and the same bytes at another place.
        self._lengths.array()[records] = lengths
        self._places.array()[records] = first + np.cumsum(lengths) - lengths

    def get(self, records: Ints) -> Array:
        places = self._places.array()[records].tolist()
        lengths = self._lengths.array()[records].tolist()
        result = np.empty(len(records), object)
        result[:] = [
            self._segments.read(place, length)
            for place, length in zip(places, lengths, strict=True)
        ]
        return result


class _Segments:
    """The files of strings: this process appends to a file of its own."""

    def __init__(self, folder: pathlib.Path, have: _Rows, *, max_bytes: int) -> None:
        self._folder, self._have = folder, have
        # The lengths of the strings of each feature.
        self.lengths: list[_Rows] = []
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._own = self._number = self._owner = -1
        self._end = 0
        self._readers: dict[int, int] = {}

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Takes back what is appended within the block, if an error ends the block."""
        owner, end = self._owner, self._end
        try:
            yield
        except BaseException:
            self._end = end if owner == self._owner else 0
            raise

    def _kept_bytes(self) -> int:
        """Returns the bytes of all strings in use, without those made again."""
        is_kept = self._have.array() == KEPT
        return sum(int(rows.array()[is_kept].sum()) for rows in self.lengths)

    def append(self, data: bytes) -> int:
        """Appends bytes and returns the place of the first; one thread at a time.

        Raises:
            OSError: If the strings are larger than the shards, or the disk is full.
        """
        is_full = self._end + len(data) > self._max_bytes
        if is_full and self._kept_bytes() + len(data) <= self._max_bytes:
            self._owner = -1  # the rest goes to a new file
        if self._owner != os.getpid():
            self._number, self._own = self._create()
            self._owner, self._end = os.getpid(), 0
        offset = self._end
        if offset + len(data) > self._max_bytes:
            raise OSError(
                f"The strings of {self._folder} must have at most {self._max_bytes} "
                f"bytes, as many as the shards, got {offset + len(data)}. Move Cache "
                "before the op that makes larger ones."
            )
        left = memoryview(data)
        while left:
            left = left[os.pwrite(self._own, left, offset + len(data) - len(left)) :]
        self._end += len(data)
        return self._number << _OFFSET_BITS | offset

    def read(self, place: int, length: int) -> bytes:
        """Returns the bytes at a place, or fewer if a file is missing or damaged.

        The CRC of the row tells.

        Raises:
            OSError: If this host cannot open or read any file now.
        """
        number, offset = place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1)
        try:
            with self._lock:
                if number not in self._readers:
                    path = self._path(number)
                    self._readers[number] = os.open(path, os.O_RDONLY)
            size = os.fstat(self._readers[number]).st_size
            length = max(0, min(length, size - offset))
            return os.pread(self._readers[number], length, offset)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
            return b""

    def close(self) -> None:
        """Closes all files."""
        with self._lock:
            for descriptor in (*self._readers.values(), self._own):
                if descriptor >= 0:
                    os.close(descriptor)
            self._readers, self._own, self._owner = {}, -1, -1

    def __del__(self) -> None:
        self.close()

    def _create(self) -> tuple[int, int]:
        if not self._folder.exists():
            _say_removed(self._folder)
            self._folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self._folder.glob("*.segment")))
        while True:
            with contextlib.suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                return number, os.open(self._path(number), flags, 0o666)
            number += 1

    def _path(self, number: int) -> pathlib.Path:
        return self._folder / f"{number}.segment"
