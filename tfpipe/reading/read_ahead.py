"""ReadAhead: the stage from windows to the byte offsets of their records.

In: a dataset of windows. Out: the path, byte offset and size of their records, in the
order of `stages.Interleave`. A shard cache may soon evict a record: the stage then
holds the record in memory, without a copy. `ops.Parse` checks and parses the records
after `Batch`, with the native op.
"""

import dataclasses
import functools

import tensorflow as tf

from tfpipe import errors
from tfpipe.native import record_op
from tfpipe.native.run import run
from tfpipe.stages.basic import Example, as_it_is, batch_or_empty, keeps_count
from tfpipe.stages.faults import FaultLog
from tfpipe.stages.interleave import Interleave
from tfpipe.stages.shuffle import shuffled
from tfpipe.stages.traced import traced
from tfpipe.tuning import Tuning

# Records of a group, read from a shard cache at once; and groups read ahead.
_GROUP_LENGTH, _NUM_GROUPS_AHEAD = 32, 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadAhead:
    """Asks the kernel to read windows into memory, and passes on byte offsets.

    Element: window -> byte offset of a record.
        in   window, see `source.TFRecordSource`
        out  path: string, the shard
             byte_offset: int64, the byte offset of the record in the shard
             num_bytes: int64, its size with header and footer; without a shard cache
             held: variant, the record itself, see `record_op.hold`; with a shard cache
             record_id: int64, number of the record in the split
             is_real: bool, False if the record only fills the last batch
             epoch_seed: int64, the epoch's half of the seed of random ops

    The kernel gets a window's extents as a whole, a window ahead: slow storage sees the
    same long reads as from `Interleave`. No window is copied into the process. Parsing
    finds damaged records: `Map.faults` then counts them.

    A shard cache keeps a window on the disk only until the second window after it is
    asked for. Records from a cache are therefore read here, a few at a time, and all
    records of a window before the next window is taken.

    Args:
        faults: Log of the pipeline, for stages that need `Interleave`; see
            `as_interleave`.
    """

    faults: FaultLog | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        errors.require_kind(self, "faults", self.faults, FaultLog, or_none=True)

    num_out = keeps_count

    def as_interleave(self) -> Interleave:
        """Returns the stage that reads the same records, in the same order."""
        return Interleave(faults=self.faults).with_tuning(Tuning())

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        if "origin" in dataset.element_spec:  # the window comes from a shard cache
            groups = dataset.flat_map(as_it_is(_held))
            return groups.prefetch(_NUM_GROUPS_AHEAD).unbatch()
        # While the records of a window are read, the next window is asked for.
        return (
            dataset.map(as_it_is(functools.partial(run, traced(_offsets))))
            .prefetch(1)
            .unbatch()
        )


def _held(window: Example) -> tf.data.Dataset:
    """Returns the byte offsets of the records of a window with the records."""
    offsets = _offsets(window)

    def group(begin: tf.Tensor) -> Example:
        end = begin + _GROUP_LENGTH
        some = {name: value[begin:end] for name, value in offsets.items()}
        held = record_op.hold(some)
        del some["num_bytes"]
        return some | {"held": held}

    begins = tf.data.Dataset.range(0, window["take"], _GROUP_LENGTH)
    return begins.map(as_it_is(group))


def _offsets(window: Example) -> Example:
    """Returns paths, byte offsets and sizes of a window's records, in their order."""
    offsets, sizes = window["record_byte_offset"], window["record_num_bytes"]
    ends = tf.cumsum(window["num_records"])
    last = ends - 1
    asked = record_op.read_ahead(
        window["path"],
        window["byte_offset"],
        tf.gather(offsets, last) + tf.gather(sizes, last),
    )
    num_records = tf.size(offsets, tf.int64)
    order = tf.data.Dataset.range(num_records)
    if "shuffle_seed" in window:
        order = shuffled(order, num_records, tf.unstack(window["shuffle_seed"]))
    order = batch_or_empty(order.batch(num_records))
    with tf.control_dependencies([asked]):
        order = tf.slice(order, [window["skip"]], [window["take"]])
    extent = tf.searchsorted(ends, order, side="right")
    first = window["first_record"] - (ends - window["num_records"])
    return {
        "path": tf.gather(window["path"], extent),
        "byte_offset": tf.gather(offsets, order),
        "num_bytes": tf.gather(sizes, order),
        "record_id": tf.gather(first, extent) + order,
        "is_real": tf.fill([window["take"]], window["is_real"]),
        "epoch_seed": window["epoch_seed"],
    }
