"""Interleave: the stage that reads windows of records, several extents at a time.

In: a dataset of windows. Out: a dataset of their records, damaged ones stood in for.
"""

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from tfpipe import errors
from tfpipe.stages.basic import Example, as_it_is, require_positive
from tfpipe.stages.damaged import read_damaged
from tfpipe.stages.element_fallback import batch_or_empty
from tfpipe.stages.faults import FaultLog
from tfpipe.stages.shuffle import shuffled
from tfpipe.stages.stand_in import Spare
from tfpipe.stages.traced import traced
from tfpipe.tuning import Tuning

# What `Interleave` gives.
RECORD_SPEC = {
    "record": tf.TensorSpec([], tf.string),
    "record_id": tf.TensorSpec([], tf.int64),
    "is_real": tf.TensorSpec([], tf.bool),
    "epoch_seed": tf.TensorSpec([], tf.int64),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interleave:
    """Reads windows: several extents at a time, the next window while one is used.

    Element: window -> record.
        in   window, see `source.TFRecordSource`
        out  record: string, a serialized tf.train.Example
             record_id: int64, its number in the split
             is_real: bool, False if it only fills up the last batch or stands in for
                 a damaged one
             epoch_seed: int64

    A damaged record costs that record only: TensorFlow's reader gives up the rest of
    its file, so the window is then read again one by one. What happens to the damaged
    one is for `faults` to say.

    Args:
        num_parallel_reads: Extents read at the same time.
        read_buffer_bytes: Buffer of each open shard.
        faults: Counts damaged records and lets others stand in for them, up to its
            budget; None raises at the first.

    Raises, while it is read:
        tf.errors.UnknownError: A damaged record, with its shard and offset.
    """

    num_parallel_reads: int | None = None
    read_buffer_bytes: int | None = None
    faults: FaultLog | None = dataclasses.field(default=None, compare=False)
    _spare: Spare | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_positive(self, "num_parallel_reads", None)
        require_positive(self, "read_buffer_bytes", None)
        errors.require_kind(self, "faults", self.faults, FaultLog, or_none=True)

    def with_tuning(self, tuning: Tuning) -> "Interleave":
        return dataclasses.replace(
            self,
            num_parallel_reads=self.num_parallel_reads or tuning.num_parallel_reads,
            read_buffer_bytes=self.read_buffer_bytes or tuning.read_buffer_bytes,
        )

    def without_tuning(self) -> "Interleave":
        return Interleave(faults=self.faults)

    def num_out(self, num_in: int) -> int:
        """Records that it gives for the records of an epoch."""
        return num_in

    def with_spare(self, dataset: Callable[[], tf.data.Dataset]) -> "Interleave":
        """The stage that finds a sound record there, for windows that have none."""
        return dataclasses.replace(self, _spare=Spare(dataset))

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        # One window is passed on while the next one is read: two are in memory.
        stage = self if self._spare else self.with_spare(lambda: dataset)
        return dataset.map(as_it_is(stage._read)).prefetch(1).unbatch()

    def sound(self, dataset: tf.data.Dataset, log: FaultLog | None) -> tf.data.Dataset:
        """As `__call__`, but damaged records are left out; only that log has them."""
        stage = dataclasses.replace(self, faults=log, _spare=None)
        records = dataset.map(as_it_is(stage._read)).prefetch(1).unbatch()
        return records.filter(lambda record: record["is_real"])

    def _read(self, window: Example) -> Example:
        num_records = tf.size(window["record_byte_offset"], tf.int64)
        read = traced(_read_extents, self.num_parallel_reads, self.read_buffer_bytes)
        records = read(window)
        records = tf.cond(
            tf.size(records["record"], tf.int64) == num_records,
            lambda: records | {"is_real": tf.fill([num_records], window["is_real"])},
            lambda: read_damaged(window, self.faults, self._spare),
        )
        # One op a feature: value[start:stop] is ten.
        begin, size = tf.stack([window["skip"]]), tf.stack([window["take"]])
        passed_on = {n: tf.slice(value, begin, size) for n, value in records.items()}
        return passed_on | {"epoch_seed": tf.fill(size, window["epoch_seed"])}


def _read_extents(
    num_parallel_reads: int | None, read_buffer_bytes: int | None, window: Example
) -> Example:
    """The window's records and their numbers; fewer if one is damaged."""
    names = ("path", "byte_offset", "num_records", "first_record")
    extents = tf.data.Dataset.from_tensor_slices({name: window[name] for name in names})
    # A length that is not the record's may be of any size: TensorFlow's reader
    # would ask for as much memory, and end the process.
    extents = extents.take(tf.where(window["has_right_lengths"], tf.int64.max, 0))
    records = extents.interleave(
        functools.partial(_extent, read_buffer_bytes or Tuning.read_buffer_bytes),
        cycle_length=num_parallel_reads,
        # Longer than any extent: each is read to its end before the next one's turn, so
        # the number of parallel reads does not change the order.
        block_length=1 << 20,
        num_parallel_calls=num_parallel_reads,
        # The whole window is waited for anyway. One read has an order.
        deterministic=None if num_parallel_reads is None else True,
    )
    num_records = tf.size(window["record_byte_offset"], tf.int64)
    if "shuffle_seed" in window:
        records = shuffled(records, num_records, tf.unstack(window["shuffle_seed"]))
    batch: Example = batch_or_empty(records.batch(num_records))
    return batch


def _extent(read_buffer_bytes: int, extent: Example) -> tf.data.Dataset:
    # The only op that starts at a byte offset; tf.data.TFRecordDataset has none.
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=tf.reshape(extent["path"], [1]),
        compression_type="",
        buffer_size=tf.constant(read_buffer_bytes, tf.int64),
        byte_offsets=tf.reshape(extent["byte_offset"], [1]),
    )
    records = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    first, count = extent["first_record"], extent["num_records"]
    return tf.data.Dataset.zip(
        {
            # Takes no record past the extent.
            "record": records.take(count),
            "record_id": tf.data.Dataset.range(first, first + count),
        }
        # Ends early at a damaged one. Around both: a shard that cannot be opened
        # gives errors without end, but the numbers run out.
    ).ignore_errors()
