"""Interleave: the stage that reads windows of records, several extents at a time.

In: a dataset of windows. Out: a dataset of their records, with sound records in the
places of damaged records.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from tfpipe import errors
from tfpipe.native.run import run
from tfpipe.stages.basic import (
    Example,
    as_it_is,
    batch_or_empty,
    keeps_count,
    mapped_again,
)
from tfpipe.stages.faults import FaultLog
from tfpipe.stages.shuffle import shuffled
from tfpipe.stages.stand_in import ReadAgain, Spare, read_damaged
from tfpipe.stages.traced import traced
from tfpipe.tuning import Tuning

if TYPE_CHECKING:
    from tfpipe.reading.building import RunFacts

# Elements of `Interleave`.
RECORD_SPEC = {
    "record": tf.TensorSpec([], tf.string),
    "record_id": tf.TensorSpec([], tf.int64),
    "is_real": tf.TensorSpec([], tf.bool),
    "epoch_seed": tf.TensorSpec([], tf.int64),
}

# Twice the mean size of an ImageNet record; a larger record is read in several pieces.
_BUFFER_BYTES_A_RECORD = 1 << 18


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interleave:
    """Reads windows of records, several extents at a time.

    The next window is read while the current window is used.

    Element: window -> record.
        in   window, see `source.TFRecordSource`
        out  record: string, a serialized tf.train.Example
             record_id: int64, number of the record in the split
             is_real: bool, False if the record only fills the last batch or stands in
                 for a damaged record
             epoch_seed: int64, the epoch's half of the seed of random ops

    A damaged record costs a single record. TensorFlow's reader gives up the rest of the
    file, so the window is then read again record by record. `faults` decides whether
    another record stands in for the damaged record, or an error is raised. After an
    error, the next call reads the same window again; after 100 errors, the next window.
    `Batch` then drops what it has of a batch, so no record is lost if batches do not
    span windows.

    Example:
        >>> source = tfpipe.TFRecordSource("DIR", "train", shuffle="none")
        >>> stage = tfpipe.Interleave(num_parallel_reads=2)
        >>> records = tfpipe.Pipeline(source, [stage]).build()
        >>> [int(record["record_id"]) for record in records.take(3)]
        [0, 1, 2]

    Args:
        num_parallel_reads: Number of extents to read at the same time; None is filled
            from the tuning.
        read_buffer_bytes: Bytes of the buffer of an open shard; None is filled from the
            tuning.
        faults: Log that counts damaged records, up to its budget; other records then
            stand in for them. None raises at the first damaged record.

    Raises, while the dataset is read:
        tf.errors.UnknownError: If a record is damaged and `faults` does not allow it;
            the message names its shard and byte offset.
    """

    num_parallel_reads: int | None = None
    read_buffer_bytes: int | None = None
    faults: FaultLog | None = dataclasses.field(default=None, compare=False)
    _spare: Spare | None = dataclasses.field(default=None, compare=False, repr=False)
    _read_again: ReadAgain = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        knobs = ["num_parallel_reads", "read_buffer_bytes"]
        errors.settle_ints(self, knobs, least=1, also=[None])
        errors.require_kind(self, "faults", self.faults, FaultLog, or_none=True)

    def with_tuning(self, tuning: Tuning) -> "Interleave":
        return dataclasses.replace(
            self,
            num_parallel_reads=self.num_parallel_reads or tuning.num_parallel_reads,
            read_buffer_bytes=self.read_buffer_bytes or tuning.read_buffer_bytes,
        )

    def without_tuning(self) -> "Interleave":
        return Interleave(faults=self.faults)

    num_out = keeps_count

    def at_start(self, run: "RunFacts") -> "Interleave":
        """Returns the stage with the sound windows, for a window without any."""
        again = getattr(run.source, "read_again", None)
        return dataclasses.replace(self, _spare=Spare(run.sound), _read_again=again)

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        # Two windows are in memory: a window is passed on while the next is read.
        spare = self._spare or Spare(lambda: dataset)
        stage = dataclasses.replace(self, _spare=spare)
        return mapped_again(*stage._parts(dataset)).prefetch(1).unbatch()

    def sound(self, dataset: tf.data.Dataset, log: FaultLog | None) -> tf.data.Dataset:
        """Returns the sound records; only `log` counts damaged records."""
        stage = dataclasses.replace(self, faults=log, _spare=None)
        read, completed = stage._parts(dataset)
        records = read.map(as_it_is(completed)).prefetch(1).unbatch()
        return records.filter(as_it_is(lambda record: record["is_real"]))

    def _parts(
        self, dataset: tf.data.Dataset
    ) -> tuple[tf.data.Dataset, Callable[[Example], Example]]:
        """Returns windows with the records that were read, and a function.

        The function returns the records to pass on. Only the function fails, and calls
        Python: its graph is small, because a graph that is made for each pipeline and
        iterator costs CPU time.
        """
        read = traced(read_extents, self.num_parallel_reads, self.read_buffer_bytes)
        windows = dataset.map(
            as_it_is(lambda window: {"window": window, "records": run(read, window)})
        )
        log, again = self.faults, self._read_again
        if log is None and "origin" not in dataset.element_spec:
            # A damaged record raises, so nothing of this pipeline is in the graph.
            return windows, functools.partial(run, traced(_completed, None, None, None))
        if log and log.read_again:
            again = log.read_again
        return windows, functools.partial(_completed, log, self._spare, again)


def _completed(
    faults: FaultLog | None, spare: Spare | None, read_again: ReadAgain, parts: Example
) -> Example:
    """Returns the records to pass on from a window, as `Interleave` says."""
    window, records = parts["window"], parts["records"]
    num_records = tf.size(window["record_byte_offset"], tf.int64)
    records = tf.cond(
        tf.size(records["record"], tf.int64) == num_records,
        lambda: records | {"is_real": tf.fill([num_records], window["is_real"])},
        lambda: read_damaged(window, faults, spare, read_again),
    )
    # tf.slice is a single op; value[start:stop] with tensors is ten.
    begin, size = tf.stack([window["skip"]]), tf.stack([window["take"]])
    passed_on = {n: tf.slice(value, begin, size) for n, value in records.items()}
    return passed_on | {"epoch_seed": window["epoch_seed"]}


def read_extents(
    num_parallel_reads: int | None, read_buffer_bytes: int | None, window: Example
) -> Example:
    """Reads the extents of a window.

    Returns:
        record, record_id: [w], in the order in which they are passed on; [m] with m < w
        if a record is damaged.
    """
    names = ("path", "byte_offset", "num_records", "first_record")
    extents = tf.data.Dataset.from_tensor_slices({name: window[name] for name in names})
    # A wrong length may be huge: TensorFlow's reader would allocate as much memory, and
    # end the process.
    extents = extents.take(tf.where(window["has_right_lengths"], tf.int64.max, 0))
    records = extents.interleave(
        functools.partial(_extent, read_buffer_bytes or Tuning.read_buffer_bytes),
        cycle_length=num_parallel_reads,
        # Longer than any extent: an extent is read to its end before the next extent,
        # so the number of parallel reads does not change the order.
        block_length=1 << 20,
        num_parallel_calls=num_parallel_reads,
        # Costs nothing, as the whole window is waited for anyway.
        deterministic=None if num_parallel_reads is None else True,
    )
    num_records = tf.reduce_sum(window["num_records"])
    if "shuffle_seed" in window:
        records = shuffled(records, num_records, tf.unstack(window["shuffle_seed"]))
    batch: Example = batch_or_empty(records.batch(num_records))
    return batch


def _extent(read_buffer_bytes: int, extent: Example) -> tf.data.Dataset:
    # A full buffer is read for an extent of a single record, too. With a buffer of a
    # quarter, the records of a subset or a full shuffle take a quarter less CPU time.
    buffer_bytes = tf.minimum(
        tf.constant(read_buffer_bytes, tf.int64),
        extent["num_records"] * _BUFFER_BYTES_A_RECORD,
    )
    # The only op that starts at a byte offset; tf.data.TFRecordDataset has none.
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=tf.reshape(extent["path"], [1]),
        compression_type="",
        buffer_size=buffer_bytes,
        byte_offsets=tf.reshape(extent["byte_offset"], [1]),
    )
    records = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    first, count = extent["first_record"], extent["num_records"]
    return tf.data.Dataset.zip(
        {
            # `take` stops at the end of the extent.
            "record": records.take(count),
            "record_id": tf.data.Dataset.range(first, first + count),
        }
        # Ends early at a damaged record. It is around both datasets: a missing shard
        # gives endless errors, but the numbers end.
    ).ignore_errors()
