"""Pieces: the runs of consecutive records in which shards are fetched and evicted.

In: the records of a split and their byte offsets. Out: pieces of 2 to 4 MB, the pieces
of any ranges of records, and the fault in the bytes of a piece. Opens no file.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfpipe import errors
from tfpipe.shards import records
from tfpipe.shards.ranges import RecordRanges, by_shard
from tfpipe.shards.records import Ints

# A request of this size uses a fast connection well, and a window has many.
_MOST_BYTES = 4 << 20
_FRAME_BYTES = records.HEADER_BYTES + records.FOOTER_BYTES


class Wanted(NamedTuple):
    """The pieces with some records. An extent is cut into parts at the ends of pieces.

    Attributes:
        shard: int64 [num_extents], the shard of every extent.
        extent: int64 [n], the extent of every part.
        piece: int64 [n], the piece of every part.
        num_bytes: int64 [n], the bytes of every part.
        pieces: int64, sorted: the pieces without repeats.
    """

    shard: Ints
    extent: Ints
    piece: Ints
    num_bytes: Ints
    pieces: Ints


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """All records of a split in pieces. A piece lies within a shard.

    Attributes:
        shard_sizes: int64 [num_shards], records in every shard.
        byte_offsets: int64 [num_records], byte offset of every record in its shard.
        shard_bytes: int64 [num_shards], size of every shard.
        first: int64 [num_pieces + 1], the first record of every piece; at the end the
            number of records.
        shard: int64 [num_pieces], the shard of every piece.
    """

    shard_sizes: Ints
    byte_offsets: Ints
    shard_bytes: Ints
    first: Ints
    shard: Ints

    def __len__(self) -> int:
        return len(self.shard)

    @functools.cached_property
    def start(self) -> Ints:
        """int64 [num_pieces], byte offset of every piece in its shard."""
        starts: Ints = self.byte_offsets[self.first[:-1]]
        return starts

    @functools.cached_property
    def stop(self) -> Ints:
        """int64 [num_pieces], byte offset after every piece."""
        return self._ends(self.first[1:], self.shard)

    @functools.cached_property
    def _shard_ends(self) -> Ints:
        return np.cumsum(self.shard_sizes)

    def _ends(self, stop: Ints, shard: Ints) -> Ints:
        """Returns the byte offsets after the records before `stop`."""
        following = self.byte_offsets[np.minimum(stop, len(self.byte_offsets) - 1)]
        is_last = stop == self._shard_ends[shard]
        ends: Ints = np.where(is_last, self.shard_bytes[shard], following)
        return ends

    def of(self, ranges: RecordRanges) -> Ints:
        """Returns int64, sorted: the pieces with some records, without repeats."""
        low = np.searchsorted(self.first, ranges.first, side="right") - 1
        last = ranges.first + ranges.length - 1
        count = np.searchsorted(self.first, last, side="right") - low
        starts = np.repeat(low - (np.cumsum(count) - count), count)
        pieces: Ints = np.unique(starts + np.arange(len(starts)))
        return pieces

    def wanted(self, ranges: RecordRanges) -> Wanted:
        """Returns the pieces of the extents of some records, see `ranges.by_shard`."""
        shard, extents = by_shard(ranges, self.shard_sizes)
        low = np.searchsorted(self.first, extents.first, side="right") - 1
        stop = extents.first + extents.length
        count = np.searchsorted(self.first, stop - 1, side="right") - low
        extent = np.repeat(np.arange(len(count)), count)
        piece = low[extent] + np.arange(len(extent))
        piece -= (np.cumsum(count) - count)[extent]
        begin = np.maximum(self.first[piece], extents.first[extent])
        end = np.minimum(self.first[piece + 1], stop[extent])
        num_bytes = self._ends(end, shard[extent]) - self.byte_offsets[begin]
        return Wanted(shard, extent, piece, num_bytes, np.unique(piece))

    def record_sizes(self, piece: int) -> list[int]:
        """Returns the sizes of a piece's records with header and footer."""
        offsets = self.byte_offsets[self.first[piece] : self.first[piece + 1]]
        sizes: list[int] = np.diff(offsets, append=self.stop[piece]).tolist()
        return sizes

    def first_in_shard(self, piece: int) -> int:
        """Returns the number of the piece's first record in its shard, from 0 on."""
        shard = int(self.shard[piece])
        begin = int(self._shard_ends[shard]) - int(self.shard_sizes[shard])
        return int(self.first[piece]) - begin


def cut(shard_sizes: Ints, byte_offsets: Ints, shard_bytes: Ints) -> Pieces:
    """Cuts the records of a split into pieces.

    A piece begins at a multiple of a power of two, as blocks of records do, or at the
    start of a shard. The power of two is the largest with pieces of at most 4 MiB on
    average.

    Args:
        shard_sizes, byte_offsets, shard_bytes: See `Pieces`.

    Raises:
        BadIndexError: If the arguments contradict each other.
    """
    num_records = len(byte_offsets)
    mean = int(shard_bytes.sum()) / max(num_records, 1)
    step = 1 << max(int(_MOST_BYTES / max(mean, 1)).bit_length() - 1, 0)
    ends = np.cumsum(shard_sizes)
    starts = ends - shard_sizes
    # Counted from the start of the shard, as blocks are.
    count = -(-shard_sizes // step)
    shard = np.repeat(np.arange(len(shard_sizes)), count)
    within = np.arange(len(shard)) - np.repeat(np.cumsum(count) - count, count)
    first = np.append(starts[shard] + within * step, num_records)
    pieces = Pieces(shard_sizes, byte_offsets, shard_bytes, first, shard)
    _check(pieces, starts)
    return pieces


def _check(pieces: Pieces, starts: Ints) -> None:
    offsets = pieces.byte_offsets
    if int(pieces.shard_sizes.sum()) == len(offsets):
        filled = pieces.shard_sizes > 0
        sizes = np.append(offsets[1:], 0) - offsets
        last = (starts + pieces.shard_sizes)[filled] - 1
        sizes[last] = pieces.shard_bytes[filled] - offsets[last]
        begins = offsets[starts[filled]]
        if np.all(sizes >= _FRAME_BYTES) and not np.any(begins):
            return
    raise errors.BadIndexError(
        "The byte offsets in catalog.parquet must rise within each shard, from 0 on, by"
        f" at least {_FRAME_BYTES} a record, and end before the size that index.json "
        "gives. Convert the data set again."
    )


def fault(content: memoryview, sizes: Sequence[int]) -> tuple[int, str] | None:
    """Finds the first wrong record in the bytes of a piece.

    Args:
        content: The bytes of the piece.
        sizes: Sizes of the records with header and footer, from the catalog.

    Returns:
        The number of the record in the piece, and its damage for people; None if the
        lengths, the CRCs of the headers and the CRCs of the data are right.
    """
    # Parts of an array share its bytes; parts of `bytes` are copies.
    array = np.frombuffer(content, np.uint8)
    offset = 0
    for record, size in enumerate(sizes):
        header = bytes(content[offset : offset + records.HEADER_BYTES])
        tail = bytes(content[offset + size - records.FOOTER_BYTES : offset + size])
        stated = records.record_bytes(header)
        if stated is None:
            return record, "the header (length and its CRC) is damaged"
        if stated != size:
            damage = f"the record must have {size} bytes, its header says {stated}"
            return record, damage
        data = array[offset + records.HEADER_BYTES : offset + size - len(tail)]
        if damage := records.data_fault(data, tail):
            return record, damage
        offset += size
    return None
