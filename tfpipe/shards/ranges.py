"""Ranges of consecutive records: a small form of an order of records.

In: numbers of records, or ranges of them. Out: ranges, cut at a position, joined, or
cut at the ends of shards.
"""

import dataclasses
import functools

import numpy as np

from tfpipe.shards.records import Ints


@dataclasses.dataclass(frozen=True, eq=False)
class RecordRanges:
    """Records in some order, as ranges of consecutive records.

    Attributes:
        first: int64 [num_ranges], number of the first record of every range.
        length: int64 [num_ranges], records in every range, all > 0.
    """

    first: Ints
    length: Ints

    @functools.cached_property
    def ends(self) -> Ints:
        """int64 [num_ranges], the position in the order after every range."""
        return np.cumsum(self.length)

    @property
    def num_records(self) -> int:
        """Number of records in all ranges."""
        if self._are_single:
            return len(self.first)
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def _are_single(self) -> bool:
        """Whether one 1 stands for all lengths, as in a full shuffle: no ends then."""
        return self.length.strides == (0,) and bool(np.all(self.length[:1] == 1))

    def cut(self, start: int, stop: int) -> "RecordRanges":
        """Returns the records at positions start to stop - 1, in the same order."""
        if self._are_single:
            first = self.first[start : max(start, stop)].astype(np.int64)
            return RecordRanges(first, np.ones_like(first))
        if start >= stop:
            return RecordRanges(np.empty(0, np.int64), np.empty(0, np.int64))
        low = int(np.searchsorted(self.ends, start, side="right"))
        high = int(np.searchsorted(self.ends, stop, side="left")) + 1
        first, length = self.first[low:high].copy(), self.length[low:high].copy()
        length[-1] -= self.ends[high - 1] - stop
        skipped = start - (int(self.ends[low]) - int(self.length[low]))
        first[0] += skipped
        length[0] -= skipped
        return RecordRanges(first, length)

    def records(self) -> Ints:
        """Returns int64 [num_records]: the numbers of the records, in order."""
        starts = self.first - (self.ends - self.length)
        records: Ints = np.repeat(starts, self.length) + np.arange(self.num_records)
        return records


def join(records: Ints) -> RecordRanges:
    """Returns record numbers as ranges; consecutive numbers share a range."""
    if not len(records):
        return RecordRanges(records, records)
    inner = np.flatnonzero(records[1:] - records[:-1] != 1) + 1
    bounds = np.concatenate(([0], inner, [len(records)]))
    return RecordRanges(records[bounds[:-1]], bounds[1:] - bounds[:-1])


def by_shard(ranges: RecordRanges, shard_sizes: Ints) -> tuple[Ints, RecordRanges]:
    """Cuts ranges at the ends of shards.

    Args:
        ranges: Ranges, also across shards.
        shard_sizes: int64 [num_shards], records in every shard.

    Returns:
        shard: int64 [num_ranges], the shard of every range.
        ranges: The ranges, cut at shard ends.
    """
    ends = np.cumsum(shard_sizes)
    last = np.searchsorted(ends, ranges.first + ranges.length - 1, side="right")
    shard = np.searchsorted(ends, ranges.first, side="right")
    count = last - shard + 1
    source = np.repeat(np.arange(len(count)), count)
    shard = np.repeat(shard, count)
    shard += np.arange(len(shard)) - np.repeat(np.cumsum(count) - count, count)
    begin = np.maximum(ranges.first[source], (ends - shard_sizes)[shard])
    end = np.minimum((ranges.first + ranges.length)[source], ends[shard])
    kept = end > begin  # a shard without records gives an empty range
    return shard[kept], RecordRanges(begin[kept], (end - begin)[kept])
