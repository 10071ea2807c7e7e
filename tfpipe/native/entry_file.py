"""The side file with the entry points of a split: written, joined and found.

In: the table of each record, in the order of the index, or files of shards to join.
Out: the file `entry_points-<split>`, which index.json lists with its size and digest.
The op `ops.parse.EntryPoints` reads it; `native/src/entry_points.h` describes a table.

The file is: `tfpentry`; the number of records (uint64, little endian); for each record
and once more at the end, where its table begins after these numbers (uint64); the
tables. A record without entry points has an empty table.
"""

import itertools
import pathlib
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.shards.index import Index

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tfpipe.reading.split_index import DataSetStorage

PREFIX = "entry_points-"
REMEDY = "python -m converters.verify DIR --write_entry_points"
_MAGIC = b"tfpentry"
_HEAD = 16  # bytes before the places


def name_of(split: str) -> str:
    """Returns the name of the file of a split."""
    return f"{PREFIX}{split}"


def find(known: Index, storage: "DataSetStorage", split: str) -> str | None:
    """Returns the path of the file of a split on this host; fetched if it is elsewhere.

    If the index lists the file, and it is missing, damaged or cannot be fetched, a line
    on stderr says so.

    Args:
        known: The index of the data set.
        storage: The files of the data set.
        split: The split.

    Returns:
        The path; None without the file.
    """
    name = name_of(split)
    if name not in (known.files or {}):
        return None
    try:
        return str(storage.bring(known, name))
    except errors.BadIndexError as error:
        reason = f"{error} Make it again in the folder of the data set: {REMEDY}"
    except (errors.RemoteError, OSError) as error:
        reason = str(error)
    errors.say_once(f"tfpipe: images are decoded without entry points. {reason}")
    return None


def encode(tables: Sequence[bytes]) -> bytes:
    """Returns the content of a file with these tables."""
    import numpy as np

    places = np.zeros(len(tables) + 1, "<u8")
    np.cumsum([len(table) for table in tables], out=places[1:])
    return b"".join([_head(len(tables)), places.tobytes(), *tables])


def decode(content: bytes) -> list[bytes]:
    """Returns the tables in a file: the inverse of `encode`.

    Raises:
        ValueError: If the content is not such a file; says why.
    """
    places = _places(content, len(content))
    start = _HEAD + places.nbytes
    return [
        content[start + begin : start + end]
        for begin, end in itertools.pairwise(places.tolist())
    ]


def select(path: pathlib.Path, first: int, records: Sequence[int]) -> list[bytes]:
    """Returns the tables of some records, without reading the whole file.

    Args:
        path: The file of a split.
        first: Number in the split of the record that `records` are counted from.
        records: Numbers of the records, from `first` on.

    Raises:
        ValueError: If the file is not such a file, or has not these records; names it.
        OSError: If the file cannot be read.
    """
    if not records:
        return []
    import numpy as np

    low, high = first + min(records), first + max(records)
    with open(path, "rb") as file:
        head = file.read(_HEAD)
        count = int.from_bytes(head[8:], "little")
        if head[:8] != _MAGIC or high >= count:
            raise ValueError(f"{path} must have the entry points of record {high}")
        file.seek(_HEAD + 8 * low)
        places = np.frombuffer(file.read(8 * (high - low + 2)), "<u8").tolist()
        file.seek(_HEAD + 8 * (count + 1) + places[0])
        tables = file.read(places[-1] - places[0])
    if len(tables) != places[-1] - places[0] or places != sorted(places):
        raise ValueError(f"{path} must hold its tables in order up to its end")
    spans = itertools.pairwise(place - places[0] for place in places)
    found = [tables[begin:end] for begin, end in spans]
    return [found[first + record - low] for record in records]


def join(parts: Sequence[pathlib.Path], path: pathlib.Path, *, fsync: bool) -> None:
    """Writes the file of a split from those of its shards, in order.

    The tables are copied piece by piece: those of ImageNet have 0.8 GB.

    Raises:
        ValueError: If a part is not such a file; names it.
        OSError: If a file cannot be read or written.
    """
    import numpy as np

    joined, end = [np.zeros(1, "<u8")], 0
    for part in parts:
        places = _read_places(part)
        joined.append(places[1:] + np.uint64(end))
        end += int(places[-1])
    places = np.concatenate(joined)
    with open(path, "wb") as file:
        file.write(_head(len(places) - 1))
        file.write(places.tobytes())
        for part in parts:
            with open(part, "rb") as tables:
                tables.seek(_HEAD + _read_places(part).nbytes)
                shutil.copyfileobj(tables, file, 1 << 20)
    if fsync:
        atomic.sync(path)


def _head(num_records: int) -> bytes:
    return _MAGIC + num_records.to_bytes(8, "little")


def _read_places(path: pathlib.Path) -> "npt.NDArray[np.uint64]":
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(_HEAD)
        # At most as many places as have room.
        count = min(int.from_bytes(head[8:_HEAD], "little") + 1, size // 8)
        rest = file.read(8 * count)
    try:
        return _places(head + rest, size)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _places(content: bytes, size: int) -> "npt.NDArray[np.uint64]":
    """Returns where the tables begin, and the end of the last one.

    Args:
        content: The file, or its first bytes up to the places.
        size: Bytes of the whole file.
    """
    import numpy as np

    if content[:8] != _MAGIC or len(content) < _HEAD:
        raise ValueError(f"the file must begin with {_MAGIC!r}, got {content[:8]!r}")
    count = int.from_bytes(content[8:_HEAD], "little") + 1
    if (size - _HEAD) // 8 < count:
        raise ValueError(f"{count} places must have room in the file of {size} bytes")
    places = np.frombuffer(content, "<u8", count, _HEAD)
    rises = bool(np.all(places[1:] >= places[:-1])) and places[0] == 0
    room = size - _HEAD - places.nbytes
    if not rises or int(places[-1]) != room:
        raise ValueError(
            f"the tables must fill the {room} bytes after their places in order, got "
            f"an end at {int(places[-1])}"
        )
    return places
