"""ReadAhead: the stage that says where records are, or holds them without a copy.

In: a dataset of windows. Out: a dataset of the places of their records, in the order of
`stages.Interleave`, with the record itself where a shard cache may soon evict it.
`ops.Parse` checks and parses the records after `Batch`, with the native op.
"""

import dataclasses

import tensorflow as tf

from tfpipe import errors
from tfpipe.native import record_op
from tfpipe.stages.basic import Example, as_it_is
from tfpipe.stages.element_fallback import batch_or_empty
from tfpipe.stages.faults import FaultLog
from tfpipe.stages.interleave import Interleave
from tfpipe.stages.shuffle import shuffled
from tfpipe.stages.traced import traced
from tfpipe.tuning import Tuning

# Records that are read from a shard cache at once, and such groups that are read before
# they are needed.
_GROUP_LENGTH, _NUM_GROUPS_AHEAD = 32, 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadAhead:
    """Asks the kernel to read windows into memory, and passes on where records are.

    Element: window -> place of a record.
        in   window, see `source.TFRecordSource`
        out  path: string, the shard
             byte_offset: int64, where the record is in it
             num_bytes: int64, its size with header and footer; without a shard cache
             held: variant, the record itself, see `record_op.hold`; with a shard cache
             record_id: int64, number of the record in the split
             is_real: bool, False if the record only fills the last batch
             epoch_seed: int64, this epoch's half of the seed of random ops

    The kernel gets a window's extents as a whole, one window ahead: slow storage sees
    the same long reads as from `Interleave`. No window is copied into this process.
    A damaged record is found when it is parsed: `Map.faults` then counts it.

    A shard cache keeps a window on the disk only until the window after the next one is
    asked for. The records are therefore read here, a few at a time, and all records of
    a window before the next window is taken.

    Args:
        faults: Log of the pipeline, for stages that need `Interleave`; see
            `as_interleave`.
    """

    faults: FaultLog | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        errors.require_kind(self, "faults", self.faults, FaultLog, or_none=True)

    def num_out(self, num_in: int) -> int:
        """Returns the number of places that come out for `num_in` records."""
        return num_in

    def as_interleave(self) -> Interleave:
        """Returns the stage that reads the same records, in the same order."""
        return Interleave(faults=self.faults).with_tuning(Tuning())

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        if "origin" in dataset.element_spec:  # the window comes from a shard cache
            groups = dataset.flat_map(as_it_is(_held))
            return groups.prefetch(_NUM_GROUPS_AHEAD).unbatch()
        # The next window is asked for while the records of this one are read.
        return dataset.map(as_it_is(traced(_places))).prefetch(1).unbatch()


def _held(window: Example) -> tf.data.Dataset:
    """Returns the places of the records of a window with the records, in groups."""
    places = _places(window)

    def group(begin: tf.Tensor) -> Example:
        end = begin + _GROUP_LENGTH
        some = {name: value[begin:end] for name, value in places.items()}
        held = record_op.hold(some)
        del some["num_bytes"]
        return some | {"held": held}

    begins = tf.data.Dataset.range(0, window["take"], _GROUP_LENGTH)
    return begins.map(as_it_is(group))


def _places(window: Example) -> Example:
    """Returns the places of the records of a window, as they are passed on."""
    offsets, sizes = window["record_byte_offset"], window["record_num_bytes"]
    counts = window["num_records"]
    begin = window["byte_offset"]
    last = tf.cumsum(counts) - 1
    asked = record_op.read_ahead(
        window["path"], begin, tf.gather(offsets, last) + tf.gather(sizes, last)
    )
    num_records = tf.size(offsets, tf.int64)
    order = tf.data.Dataset.range(num_records)
    if "shuffle_seed" in window:
        order = shuffled(order, num_records, tf.unstack(window["shuffle_seed"]))
    order = batch_or_empty(order.batch(num_records))
    with tf.control_dependencies([asked]):
        order = tf.slice(order, [window["skip"]], [window["take"]])
    first = tf.repeat(window["first_record"] - (last + 1 - counts), counts)
    found = {
        "path": tf.repeat(window["path"], counts),
        "byte_offset": offsets,
        "num_bytes": sizes,
        "record_id": first + tf.range(num_records),
    }
    places = {name: tf.gather(value, order) for name, value in found.items()}
    real = tf.fill([window["take"]], window["is_real"])
    return places | {"is_real": real, "epoch_seed": window["epoch_seed"]}
