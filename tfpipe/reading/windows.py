"""Windows of a split as a dataset: what a rank reads next, and how to pass it on.

In: the order of the records, their files and byte offsets, and where to begin. Out: a
`tf.data.Dataset` of windows for `stages.Interleave`.
"""

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe.reading.iterations import counters
from tfpipe.reading.order import Order, Place, epoch_seed
from tfpipe.shards import lengths
from tfpipe.shards.ranges import RecordRanges, by_shard
from tfpipe.shards.records import Ints


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Windows:
    """The windows of one rank; see `source.TFRecordSource` for an element.

    Attributes:
        order: The order of the records.
        rank: The rank that reads these windows.
        paths: Path of each shard.
        byte_offsets: int64 [num_records], byte offset of each record in its shard.
        shard_bytes: int64 [num_shards], size of each shard.
        is_checked: bool [num_records], whether the record's length was found right;
            updated while windows are made.
    """

    order: Order
    rank: int
    paths: Sequence[str]
    byte_offsets: Ints
    shard_bytes: Ints
    is_checked: npt.NDArray[np.bool_]

    def dataset(
        self, place: Place, num_epochs: int | None, *, is_continued: bool = False
    ) -> tf.data.Dataset:
        """Returns the windows from a place on in `num_epochs`; None is endless.

        If `is_continued`, each iteration of the dataset has the next `num_epochs`, and
        the first iteration alone begins at `place`.
        """
        first = self.order.windows(self.rank, place)
        num_later = len(self.order.windows(self.rank, Place()))
        spec = self._spec()

        def read(counter: npt.NDArray[np.int64]) -> list[Any]:
            if counter < len(first):
                window = self._window(place, first[int(counter)])
            else:
                later, number = divmod(int(counter) - len(first), num_later)
                window = self._window(Place(place.epoch + 1 + later), number)
            return [window[name] for name in spec]

        def make(counter: tf.Tensor) -> dict[str, tf.Tensor]:
            # One Python call a window costs nothing next to reading its records.
            types = [item.dtype for item in spec.values()]
            items = tf.numpy_function(read, [counter], types, stateful=False)
            for item, known in zip(items, spec.values(), strict=True):
                item.set_shape(known.shape)
            return dict(zip(spec, items, strict=True))

        if num_epochs is None:
            numbers = tf.data.Dataset.range(tf.int64.max)
        else:
            count = len(first) + (num_epochs - 1) * num_later if num_epochs else 0
            numbers = tf.data.Dataset.range(count)
            if is_continued:
                numbers = counters(count, num_epochs * num_later)
        make = tf.autograph.experimental.do_not_convert(make)
        # The lengths of the next window are checked while this one is read.
        return numbers.map(make).prefetch(1)

    def _spec(self) -> dict[str, tf.TensorSpec]:
        extents = ("byte_offset", "num_records", "first_record")
        lists = (*extents, "record_byte_offset", "epoch_seed")
        spec = {"path": tf.TensorSpec([None], tf.string)}
        spec |= {name: tf.TensorSpec([None], tf.int64) for name in lists}
        spec |= {name: tf.TensorSpec([], tf.int64) for name in ("skip", "take")}
        for name in ("is_real", "has_right_lengths"):
            spec[name] = tf.TensorSpec([], tf.bool)
        if self.order.shuffle != "none":
            spec["shuffle_seed"] = tf.TensorSpec([2], tf.int64)
        return spec

    def _window(self, place: Place, number: int) -> dict[str, Any]:
        window = self.order.window(self.rank, place, number)
        shard, ranges = by_shard(window.ranges, self.order.shard_sizes)
        records = ranges.records()
        offsets = self.byte_offsets[records]
        copies = window.copies_passed_on()
        seeds = epoch_seed(seed=self.order.seed, epoch=place.epoch, copy=copies)
        return {
            "path": self._paths[shard],
            "byte_offset": self.byte_offsets[ranges.first],
            "num_records": ranges.length,
            "first_record": ranges.first,
            "record_byte_offset": offsets,
            "has_right_lengths": np.bool_(self.has_right_lengths(shard, ranges)),
            "skip": np.int64(window.skip),
            "take": np.int64(window.take),
            "epoch_seed": seeds,
            "is_real": np.bool_(window.real),
            "shuffle_seed": np.array(window.seed or (0, 0), np.int64),
        }

    def has_right_lengths(self, shard: Ints, ranges: RecordRanges) -> bool:
        """Returns whether all lengths are right; checks extents not checked before.

        Args:
            shard: int64 [num_ranges], the shard of each range.
            ranges: Ranges of records, each of one shard.
        """
        bounds = np.cumsum(ranges.length)[:-1]
        for number, records in zip(
            shard, np.split(ranges.records(), bounds), strict=True
        ):
            if self.is_checked[records].all():
                continue
            places = self.byte_offsets[records], self._num_bytes[records]
            if not lengths.is_right(self.paths[number], *places):
                return False
            self.is_checked[records] = True
        return True

    @functools.cached_property
    def _num_bytes(self) -> Ints:
        """int64 [num_records], size of each record with its header and footer."""
        ends = np.append(self.byte_offsets[1:], 0)
        sizes = self.order.shard_sizes
        filled = sizes > 0
        ends[np.cumsum(sizes)[filled] - 1] = self.shard_bytes[filled]
        return ends - self.byte_offsets

    @functools.cached_property
    def _paths(self) -> npt.NDArray[np.object_]:
        return np.array([os.fsencode(path) for path in self.paths], object)
