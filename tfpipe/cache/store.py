"""Stores: the features of each record of a split, in RAM or in a folder on disk.

In: the numbers of records and their features, in any order and from several processes
at once. Out: the features of any stored records. A store does not know epochs, orders
and ranks, and changes none. Imports no TensorFlow.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.location.system_reads import pread, pread_into
from tfpipe.shard_cache import disk

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Values of `have`: the record is not stored, is stored, or was damaged when read. The
# lost part of a cut file reads as zeros, so a lost value is MISSING.
MISSING, KEPT, DAMAGED = range(3)

COMPLETE_NAME = "complete"
_HAVE_NAME, _CRCS_NAME = "have", "crcs"
# A place is the number of a segment and a byte offset in the segment. Both are in a
# single int64 for a write in one step: two processes may store a record at once.
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

    The cause (`__cause__`) is the error of the system if a file cannot be read.

    Attributes:
        rows: int64, the rows.
    """

    def __init__(self, rows: Ints) -> None:
        super().__init__(f"{len(rows)} rows of a cache are damaged.")
        self.rows = rows


def num_bytes(
    features: Sequence[StoredFeature], num_records: int, string_bytes: int
) -> int:
    """Returns the bytes of a full store; each string feature has `string_bytes`."""
    rows = 1 + 4 + sum(feature.num_bytes for feature in features)
    return num_records * rows + string_bytes * sum(f.is_string for f in features)


class RamStore:
    """A store in the memory of the process; any number of threads may use it.

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
        """uint8 [num_records], the values of all records; see `MISSING`."""
        return self._have

    def begin(self, records: Ints) -> Bools:
        """Returns bool [n], the missing records: the caller makes these records."""
        return np.asarray(self._have[records] != KEPT)

    def are_sound(self, records: Ints) -> Bools:
        """Returns bool [n], after `begin` and `put`: the records to be had."""
        return np.asarray(self._have[records] == KEPT)

    def put(self, records: Ints, columns: Sequence[Array]) -> None:
        """Stores records: one column [n, ...] a feature."""
        for kept, column in zip(self._columns, columns, strict=True):
            kept[records] = column
        self._have[records] = KEPT

    def put_damaged(self, records: Ints) -> None:
        """Marks records as damaged: the store is complete without them."""
        # Another thread may have stored the record meanwhile.
        self._have[records[self._have[records] != KEPT]] = DAMAGED

    def get(self, records: Ints) -> list[Array]:
        """Returns a column [n, ...] a feature, of stored records."""
        return [kept[records] for kept in self._columns]

    def forget(self, records: Ints) -> None:
        """Takes stored records as MISSING, to be stored again."""
        self._have[records] = MISSING

    def describe(self) -> str:
        """Returns the number of stored records and the place of the store."""
        return f"{_how_full(self.have)}, in RAM"

    def close(self) -> None:
        """Frees the memory and files; reading a record then fails."""
        self._have, self._columns = np.zeros(0, np.uint8), []


class DiskStore:
    """A store in a folder, which several processes of a host fill and read.

    The methods are those of `RamStore`.

    Numbers are in arrays of all records; strings are in segments, one segment a
    process. `have` says which records are stored. `have` is set last, so a process may
    be killed at any time. `crcs` has the CRC of each row: a disk may damage a row in
    silence. No file is under a memory map: a cut file would kill the process.
    `folders.open_store` makes a store.

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
        self._have = _Rows(folder / _HAVE_NAME, np.uint8)
        self._crcs = _Rows(folder / _CRCS_NAME, np.uint32)
        self._last_missing = 0
        # Records stored or seen by the own process; others may remove them later.
        self._was_kept = np.zeros(num_records, np.bool_)
        self._in_use = lock
        self._putting = threading.Lock()
        num_strings = sum(feature.is_string for feature in features)
        self._segments = _Segments(folder, max_bytes=string_bytes * num_strings)
        self._columns = [
            _Strings(folder, number, self._segments)
            if feature.is_string
            else _Rows(folder / f"{number}.numbers", feature.dtype, feature.shape)
            for number, feature in enumerate(features)
        ]
        self._complete = self.is_complete

    @property
    def have(self) -> Array:
        return self._have.all()

    def begin(self, records: Ints) -> Bools:
        are_missing: Bools = self._have.get(records) != KEPT
        self._was_kept[records[~are_missing]] = True
        return are_missing

    def are_sound(self, records: Ints) -> Bools:
        # A stored record counts even if others removed the record.
        are_sound: Bools = (self._have.get(records) == KEPT) | self._was_kept[records]
        return are_sound

    def _set(self, records: Ints, value: int, *, unless: Sequence[int] = ()) -> None:
        records = np.unique(records)
        records = records[~np.isin(self._have.get(records), unless)]
        self._have.put(records, np.full(len(records), value, np.uint8))

    @property
    def is_complete(self) -> bool:
        """Whether every record is stored, and safely on the disk."""
        return (self.folder / COMPLETE_NAME).exists()

    def put(self, records: Ints, columns: Sequence[Array]) -> None:
        """Stores records.

        Raises:
            OSError: If the disk is full; the stored records stay as they are.
        """
        with disk.advised(self.folder):
            self._put(records, columns)
            self._finish_if_full()

    def _put(self, records: Ints, columns: Sequence[Array]) -> None:
        # A lock: two threads may put the same record, and a record is stored once.
        with self._putting:
            _, first = np.unique(records, return_index=True)
            new = first[self._have.get(records[first]) != KEPT]
            columns, rows = [column[new] for column in columns], records[new]
            with self._segments.all_or_nothing(self._first_bytes(rows, columns)):
                for kept, column in zip(self._columns, columns, strict=True):
                    kept.put(rows, column)
            self._crcs.put(rows, _crcs(rows, columns))
            if self._complete and len(new) and self._is_there():
                self._sync()  # After a crash `have` of a complete store is trusted.
            self._set(rows, KEPT)
            self._was_kept[records] = True

    def _first_bytes(self, rows: Ints, columns: Sequence[Array]) -> int:
        """Returns the bytes of all strings in rows stored for the first time."""
        is_first = ~self._was_kept[rows]
        strings = [column for column in columns if column.dtype == np.dtype(object)]
        return sum(len(value) for column in strings for value in column[is_first])

    def put_damaged(self, records: Ints) -> None:
        with disk.advised(self.folder):
            with self._putting:  # another process may have stored the record meanwhile
                self._set(records, DAMAGED, unless=[KEPT])
            self._finish_if_full()

    def get(self, records: Ints) -> list[Array]:
        """Returns the columns of stored records.

        Raises:
            DamagedRowsError: If rows have other bytes than were stored.
            OSError: If a file cannot be read.
        """
        self._segments.failure = None
        columns = [kept.get(records) for kept in self._columns]
        if (wrong := _crcs(records, columns) != self._crcs.get(records)).any():
            raise DamagedRowsError(records[wrong]) from self._segments.failure
        return columns

    def forget(self, records: Ints) -> None:
        self._set(records, MISSING)

    def describe(self) -> str:
        return f"{_how_full(self.have)}, in {self.folder}"

    def close(self) -> None:
        for rows in (self._have, self._crcs, *self._columns):
            rows.close()
        self._columns = []
        self._segments.close()
        self._in_use.close()

    def _finish_if_full(self) -> None:
        if self._complete:
            return
        looked_at = np.array([self._last_missing])
        if not np.isin(self._have.get(looked_at), (KEPT, DAMAGED)).all():
            return  # a look at all records, call by call, would cost more than filling
        missing = np.flatnonzero(~np.isin(self.have, (KEPT, DAMAGED)))
        if len(missing):
            self._last_missing = int(missing[-1])
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


RecordStore = RamStore | DiskStore


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
    """Returns uint32 [n], the CRCs of rows: of their numbers and features."""
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


def _how_full(have: Array) -> str:
    text = f"{np.count_nonzero(have == KEPT)} of {len(have)} records there"
    damaged = np.count_nonzero(have == DAMAGED)
    return f"{text}, {damaged} damaged" if damaged else text


def _say_removed(folder: pathlib.Path) -> None:
    errors.say_once(
        f"cache: {folder} was removed while it was in use. This run keeps its records "
        "to its end; the next run makes the cache again."
    )


class _Rows:
    """Rows of numbers in a file, at their numbers; the file has its full size.

    Args:
        path: The file.
        dtype: dtype of the numbers.
        shape: Shape of a row.
    """

    def __init__(
        self, path: pathlib.Path, dtype: npt.DTypeLike, shape: tuple[int, ...] = ()
    ) -> None:
        self._dtype, self._shape = np.dtype(dtype), shape
        self._row_bytes = self._dtype.itemsize * math.prod(shape)
        self._file = path.open("r+b", buffering=0)
        num_bytes = os.fstat(self._file.fileno()).st_size
        self._num_rows = num_bytes // self._row_bytes if self._row_bytes else 0

    def all(self) -> Array:
        """Returns all rows, see `get`."""
        return self.get(np.arange(self._num_rows))

    def get(self, rows: Ints) -> Array:
        """Returns rows [n, ...]; a row beyond the end of a cut file is zeros."""
        content = np.zeros((len(rows), self._row_bytes), np.uint8)
        for start, stop, offset in self._runs(rows):
            flat = content[start:stop].reshape(-1).data
            pread_into(self._file.fileno(), flat, offset)
        return content.view(self._dtype).reshape(len(rows), *self._shape)

    def put(self, rows: Ints, column: Array) -> None:
        """Writes rows [n, ...].

        Raises:
            OSError: If the disk is full.
        """
        content = np.ascontiguousarray(column, self._dtype)
        for start, stop, offset in self._runs(rows):
            flat = content[start:stop].reshape(-1).view(np.uint8).data
            disk.write(self._file.fileno(), flat, offset)

    def _runs(self, rows: Ints) -> Iterator[tuple[int, int, int]]:
        """Yields the bounds of runs of consecutive rows, and their byte offsets."""
        bounds = np.flatnonzero(np.diff(rows) != 1) + 1
        ends = [0, *bounds.tolist(), len(rows)]
        for start, stop in itertools.pairwise(ends):
            if stop > start and self._row_bytes:
                yield start, stop, int(rows[start]) * self._row_bytes

    def is_at(self, path: pathlib.Path) -> bool:
        """Whether the file still has its path."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class _Strings:
    def __init__(
        self,
        folder: pathlib.Path,
        number: int,
        segments: "_Segments",
    ) -> None:
        self._places = _Rows(folder / f"{number}.places", np.int64)
        self._lengths = _Rows(folder / f"{number}.lengths", np.int64)
        self._segments = segments

    def close(self) -> None:
        self._places.close()
        self._lengths.close()

    def put(self, records: Ints, column: Array) -> None:
        lengths = np.array([len(value) for value in column], np.int64)
        first = self._segments.append(b"".join(column))
        # Other processes write the same length, and the same bytes at another place.
        self._lengths.put(records, lengths)
        self._places.put(records, first + np.cumsum(lengths) - lengths)

    def get(self, records: Ints) -> Array:
        places = self._places.get(records).tolist()
        lengths = self._lengths.get(records).tolist()
        result = np.empty(len(records), object)
        result[:] = [
            self._segments.read(place, length)
            for place, length in zip(places, lengths, strict=True)
        ]
        return result


class _Segments:
    """The files of strings: this process appends to a file of its own."""

    def __init__(self, folder: pathlib.Path, *, max_bytes: int) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._num_bytes = 0  # without strings stored again
        self._lock = threading.Lock()
        self._own = self._number = self._owner = -1
        self._end = 0
        self._readers: dict[int, int] = {}
        self.failure: OSError | None = None  # why an existing file cannot be read

    @contextlib.contextmanager
    def all_or_nothing(self, num_bytes: int) -> Iterator[None]:
        """Takes back what is appended within the block, if an error ends the block.

        Args:
            num_bytes: Bytes of strings in rows stored for the first time.

        Raises:
            OSError: If the strings are larger than the shards.
        """
        if self._num_bytes + num_bytes > self._max_bytes:
            raise OSError(
                f"The strings of {self._folder} must have at most {self._max_bytes} "
                f"bytes, as many as the shards, got {self._num_bytes + num_bytes}. "
                "Move Cache before the op that makes larger ones."
            )
        owner, end = self._owner, self._end
        try:
            yield
        except BaseException:
            self._end = end if owner == self._owner else 0
            raise
        self._num_bytes += num_bytes

    def append(self, data: bytes) -> int:
        """Appends bytes and returns the place of the first; one thread at a time.

        Raises:
            OSError: If the disk is full.
        """
        if self._owner != os.getpid():
            self._number, self._own = self._create()
            self._owner, self._end = os.getpid(), 0
        offset = self._end
        disk.write(self._own, memoryview(data), offset)
        self._end += len(data)
        return self._number << _OFFSET_BITS | offset

    def read(self, place: int, length: int) -> bytes:
        """Returns the bytes at a place, or fewer if a file is missing or unreadable.

        The CRC of the row tells; `failure` is the error of an unreadable file.

        Raises:
            OSError: If this host cannot open or read any file now.
        """
        number, offset = place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1)
        path = self._path(number)
        try:
            with self._lock:
                if number not in self._readers:
                    self._readers[number] = os.open(path, os.O_RDONLY)
            with atomic.naming(path):
                size = os.fstat(self._readers[number]).st_size
                length = max(0, min(length, size - offset))
                return pread(self._readers[number], length, offset)
        except FileNotFoundError:  # others removed the file
            return b""
        except OSError as error:
            if error.errno in disk.SHORTAGE:
                raise
            self.failure = error
            return b""

    def close(self) -> None:
        """Closes all files."""
        with self._lock:
            for descriptor in self._readers.values():
                os.close(descriptor)
            self._readers, self._own, self._owner = {}, -1, -1

    def __del__(self) -> None:
        self.close()

    def _create(self) -> tuple[int, int]:
        if not self._folder.exists():
            _say_removed(self._folder)
            self._folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self._folder.glob("*.segment")))
        number = max([number, *(used + 1 for used in list(self._readers))])
        while True:
            with contextlib.suppress(FileExistsError):
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                own = os.open(self._path(number), flags, 0o666)
                # This process can read its file even after others removed the path.
                self._readers[number] = own
                return number, own
            number += 1

    def _path(self, number: int) -> pathlib.Path:
        return self._folder / f"{number}.segment"
