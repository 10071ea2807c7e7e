"""Windows of a split as a dataset: what a rank reads next, and how to pass it on.

In: the order, the files and byte offsets of its records, and where to begin. Out: a
`tf.data.Dataset` of windows for `stages.Interleave`.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe.order import Ints, Order, Place, by_shard, epoch_seed


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Windows:
    """The windows of one rank; see `source.TFRecordSource` for an element.

    Attributes:
        order: The order of the records.
        rank: Whose windows.
        paths: The shards.
        byte_offsets: int64 [num_records], where each record starts in its shard.
    """

    order: Order
    rank: int
    paths: Sequence[str]
    byte_offsets: Ints

    def dataset(self, place: Place, num_epochs: int | None) -> tf.data.Dataset:
        """Those from a place on, to the end of as many epochs; None without end."""
        first = self.order.windows(self.rank, place)
        num_later = len(self.order.windows(self.rank, Place()))
        paths = tf.constant(self.paths)

        def read(counter: npt.NDArray[np.int64]) -> tuple[Ints, ...]:
            if counter < len(first):
                return self._window(place, first[int(counter)])
            later, number = divmod(int(counter) - len(first), num_later)
            return self._window(Place(place.epoch + 1 + later), number)

        def make(counter: tf.Tensor) -> dict[str, tf.Tensor]:
            # One Python call a window: it costs nothing beside the records.
            types = (tf.int64, tf.int64, tf.int64)
            return self._element(
                paths, *tf.numpy_function(read, [counter], types, stateful=False)
            )

        count = tf.int64.max
        if num_epochs is not None:
            count = len(first) + (num_epochs - 1) * num_later if num_epochs else 0
        make = tf.autograph.experimental.do_not_convert(make)
        return tf.data.Dataset.range(count).map(make)

    def _element(
        self,
        paths: tf.Tensor,
        extents: tf.Tensor,
        offsets: tf.Tensor,
        numbers: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        extents = tf.ensure_shape(extents, [4, None])
        shard, byte_offset, num_records, first_record = tf.unstack(extents)
        numbers = tf.ensure_shape(numbers, [6])
        element = {
            "path": tf.gather(paths, shard),
            "byte_offset": byte_offset,
            "num_records": num_records,
            "first_record": first_record,
            "record_byte_offset": tf.ensure_shape(offsets, [None]),
            "skip": numbers[0],
            "take": numbers[1],
            "is_real": numbers[2] > 0,
            "epoch_seed": numbers[3],
        }
        if self.order.shuffle == "none":
            return element
        return element | {"shuffle_seed": numbers[4:]}

    def _window(self, place: Place, number: int) -> tuple[Ints, ...]:
        """int64 [4, x] extents, [w] record offsets, and [6] the numbers of a window."""
        window = self.order.window(self.rank, place, number)
        shard, runs = by_shard(window.runs, self.order.shard_sizes)
        offsets = self.byte_offsets
        extents = np.stack([shard, offsets[runs.first], runs.length, runs.first])
        seed = epoch_seed(seed=self.order.seed, epoch=place.epoch)
        numbers = [window.skip, window.take, int(window.real), seed]
        numbers += window.seed or (0, 0)
        return extents, offsets[runs.records()], np.array(numbers, np.int64)
