"""The bytes of a split's records in their shards, read in parts as windows need them.

In: the records and bytes of each shard, and a function that reads byte offsets. Out:
the byte offset and the size of any records. A small split is read as a whole. In a
large split, the shards of a window come with their neighbors: few at first, so that a
first window comes soon, then as many as DuckDB decodes anyway. Other shards take no
time and no memory. Imports no TensorFlow.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tfpipe import errors
from tfpipe.shards import records
from tfpipe.shards.ranges import RecordRanges
from tfpipe.shards.records import Ints

# Rows of a row group of a catalog, the least that DuckDB decodes at a time.
_MOST_AT_ONCE = 122_880
_FRAME_BYTES = records.HEADER_BYTES + records.FOOTER_BYTES


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RecordSpans:
    """The byte offset and the size of each record of a split in its shard.

    A record whose shard was read takes 4 bytes of memory, or 8 if a shard has 4 GiB.

    Attributes:
        shard_sizes: int64 [num_shards], records in each shard.
        shard_bytes: int64 [num_shards], size of each shard.
        read: Function (int64 [n], numbers of shards, rising) -> int64, the byte offsets
            of their records, in order.
    """

    shard_sizes: Ints
    shard_bytes: Ints
    read: Callable[[Ints], Ints]

    def byte_offsets(self, record_ids: Ints) -> Ints:
        """Returns int64 [n], the byte offsets of int64 [n] records of the split.

        Raises:
            BadIndexError: If the byte offsets cannot be read or contradict the shards.
        """
        shards = np.searchsorted(self._ends, record_ids, side="right")
        if not (is_read := self._is_read)[shards].all():
            # A read brings at most as many neighbors of a shard as were read before;
            # that of a small split brings all.
            is_small = len(self._values) <= _MOST_AT_ONCE
            least = _MOST_AT_ONCE if is_small else 1
            length = np.clip(self.shard_sizes[is_read].sum(), least, _MOST_AT_ONCE)
            parts = (self._ends - self.shard_sizes) // length
            is_wanted = np.isin(parts, parts[shards[~is_read[shards]]])
            self._read(np.flatnonzero(is_wanted & ~is_read))
        return self._values[record_ids].astype(np.int64)

    def num_bytes(self, record_ids: Ints) -> Ints:
        """Returns int64 [n], the sizes of some records with header and footer."""
        starts = self.byte_offsets(record_ids)
        shard = np.searchsorted(self._ends, record_ids, side="right")
        is_last = record_ids + 1 == self._ends[shard]
        following = self._values[record_ids + ~is_last].astype(np.int64)
        sizes: Ints = np.where(is_last, self.shard_bytes[shard], following) - starts
        return sizes

    def all_byte_offsets(self) -> Ints:
        """Returns int64 [num_records], the byte offsets of all records."""
        if not self._is_read.all():
            self._read(np.flatnonzero(~self._is_read))
        return self._values.astype(np.int64)

    def _read(self, wanted: Ints) -> None:
        """Reads the byte offsets of the records of some shards, and checks them."""
        offsets = self.read(wanted)
        shards = wanted[self.shard_sizes[wanted] > 0]
        sizes = self.shard_sizes[shards]
        ends = np.cumsum(sizes)
        if is_sound := len(offsets) == sizes.sum():
            next_starts = np.append(offsets[1:], 0)
            next_starts[ends - 1] = self.shard_bytes[shards]
            least = np.full(len(offsets), _FRAME_BYTES)
            least[ends - 1] = 1  # a scan counts the rest of a cut shard as a record
            is_sound = bool(np.all(next_starts - offsets >= least))
            is_sound &= not np.any(offsets[ends - sizes])
        if not is_sound:
            raise errors.BadIndexError(
                f"The byte offsets of shards {shards[0]} to {shards[-1]} in "
                "catalog.parquet must rise within each shard, from 0 on, by at least "
                f"{_FRAME_BYTES} a record, and end before the size that index.json "
                "gives. Convert the data set again."
            )
        starts = self._ends[shards] - sizes
        self._values[RecordRanges(starts, sizes).records()] = offsets
        self._is_read[wanted] = True

    @functools.cached_property
    def _ends(self) -> Ints:
        return np.cumsum(self.shard_sizes)

    @functools.cached_property
    def _is_read(self) -> npt.NDArray[np.bool_]:
        return np.zeros(len(self.shard_sizes), np.bool_)

    @functools.cached_property
    def _values(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The byte offsets; the system gives memory as parts are written."""
        is_small = self.shard_bytes.max(initial=0) < 2**32
        kind = np.uint32 if is_small else np.uint64
        return np.empty(int(self.shard_sizes.sum()), kind)
