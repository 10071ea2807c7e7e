"""Stages: Dataset -> Dataset, in the order in which the data passes them.

In and out: a `tf.data.Dataset`. A stage is any callable of that form; those here are
frozen dataclasses, so that a pipeline prints as what it does. A knob that is None is
filled from the pipeline's `Tuning` by the stage's `tuned` method.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfpipe import arguments
from tfpipe.at_once import at_once, first_batch
from tfpipe.faults import FaultLog, read_damaged, stand_in
from tfpipe.tuning import AUTOTUNE, Tuning

Example = dict[str, tf.Tensor]
Op = Callable[[Example], Example]


# Functions without Python control flow on tensors: AutoGraph would take a second to
# find that out, at the start of every run.
as_it_is = tf.autograph.experimental.do_not_convert


def _require_positive(stage: object, name: str, *also: int | None) -> None:
    arguments.settle_ints(stage, [name], least=1, also=also)


# Of what `Interleave` gives.
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
    faults: FaultLog | None = None

    def __post_init__(self) -> None:
        _require_positive(self, "num_parallel_reads", None)
        _require_positive(self, "read_buffer_bytes", None)
        arguments.require_kind(self, "faults", self.faults, FaultLog, or_none=True)

    def tuned(self, tuning: Tuning) -> "Interleave":
        return dataclasses.replace(
            self,
            num_parallel_reads=self.num_parallel_reads or tuning.num_parallel_reads,
            read_buffer_bytes=self.read_buffer_bytes or tuning.read_buffer_bytes,
        )

    def opened(self) -> "Interleave":
        return Interleave(faults=self.faults)

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        # One window is passed on while the next one is read: two are in memory.
        return dataset.map(as_it_is(self._read)).prefetch(1).unbatch()

    def _read(self, window: Example) -> Example:
        num_records = tf.size(window["record_byte_offset"], tf.int64)
        records = self._records(window, num_records)
        complete = tf.size(records["record"], tf.int64) == num_records
        records = tf.cond(
            complete,
            lambda: records | {"is_real": tf.fill([num_records], window["is_real"])},
            lambda: read_damaged(window, self.faults),
        )
        start, stop = window["skip"], window["skip"] + window["take"]
        passed_on = {name: value[start:stop] for name, value in records.items()}
        seed = tf.fill([window["take"]], window["epoch_seed"])
        return passed_on | {"epoch_seed": seed}

    def _records(self, window: Example, num_records: tf.Tensor) -> Example:
        """The window's records and their numbers; fewer if one is damaged."""
        names = ("path", "byte_offset", "num_records", "first_record")
        extents = tf.data.Dataset.from_tensor_slices({n: window[n] for n in names})
        records = extents.interleave(
            as_it_is(self._extent),
            cycle_length=self.num_parallel_reads,
            # Longer than any extent: each is read to its end before the next one's
            # turn, so the number of parallel reads does not change the order.
            block_length=1 << 20,
            num_parallel_calls=self.num_parallel_reads,
            # The whole window is waited for anyway. One read has an order.
            deterministic=None if self.num_parallel_reads is None else True,
        )
        if "shuffle_seed" in window:
            records = _shuffle(records, num_records, tf.unstack(window["shuffle_seed"]))
        batch: Example = first_batch(records.batch(num_records))
        return batch

    def _extent(self, extent: Example) -> tf.data.Dataset:
        # The only op that starts at a byte offset; tf.data.TFRecordDataset has none.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=tf.reshape(extent["path"], [1]),
            compression_type="",
            buffer_size=tf.constant(
                self.read_buffer_bytes or Tuning.read_buffer_bytes, tf.int64
            ),
            byte_offsets=tf.reshape(extent["byte_offset"], [1]),
        )
        records = tf.data.experimental.from_variant(
            variant, tf.TensorSpec([], tf.string)
        )
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


@dataclasses.dataclass(frozen=True)
class AssertCardinality:
    """Makes the number of elements known, and anything else an error at the end.

    Element: any. Equals tf.data.experimental.assert_cardinality.

    Args:
        num_elements: How many; None is as many as the source has records.
    """

    num_elements: int | None = None

    def __post_init__(self) -> None:
        if not tf.is_tensor(self.num_elements):  # as `Map` gives it
            also = (None, tf.data.INFINITE_CARDINALITY)
            arguments.settle_ints(self, ["num_elements"], least=0, also=also)

    def sized(self, num_records: int | None) -> "AssertCardinality":
        if self.num_elements is not None:
            return self
        return AssertCardinality(
            tf.data.INFINITE_CARDINALITY if num_records is None else num_records
        )

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        if self.num_elements is None:
            return dataset
        return dataset.apply(tf.data.experimental.assert_cardinality(self.num_elements))


@dataclasses.dataclass(frozen=True, init=False)
class Map:
    """Applies ops to every element, one after the other in one call.

    Element: example -> example; see the ops.

    Without `faults` an op that fails, as on a JPEG that cannot be decoded, raises
    TensorFlow's error, which does not say of which record. With `faults` it costs that
    record only: the next one stands in for it with `mask` 0, and the log says which it
    was. That needs `record_id` in every element and elements of one shape, and costs
    about a twentieth of decoding, as the ops then run over chunks of elements. After
    `Batch` ops run on a whole batch, with `faults` on each element where that fails.

    Args:
        ops: Callables example -> example, in order.
        num_parallel_calls: Elements, or with `faults` chunks, processed at the same
            time; -1 is AUTOTUNE.
        faults: Counts records that an op fails on, up to its budget; must have
            `locate`.

    Raises, while it is read:
        tf.errors.UnknownError: With `faults`, the first record beyond the budget, with
            its shard and offset.
    """

    ops: tuple[Op, ...]
    num_parallel_calls: int | None
    faults: FaultLog | None

    def __init__(
        self,
        *ops: Op,
        num_parallel_calls: int | None = None,
        faults: FaultLog | None = None,
    ) -> None:
        if not ops:
            raise ValueError("Map must have at least one op, got none.")
        for number, op in enumerate(ops, start=1):
            arguments.require_callable(self, f"ops, number {number},", op)
        arguments.require_kind(self, "faults", faults, FaultLog, or_none=True)
        if faults is not None and faults.locate is None:
            raise ValueError(
                "Map.faults must know where records are: give it "
                "FaultLog(..., locate=source.locate)."
            )
        object.__setattr__(self, "ops", ops)
        object.__setattr__(self, "num_parallel_calls", num_parallel_calls)
        object.__setattr__(self, "faults", faults)
        _require_positive(self, "num_parallel_calls", None, AUTOTUNE)

    def __repr__(self) -> str:
        parts = [*map(repr, self.ops), f"num_parallel_calls={self.num_parallel_calls}"]
        if self.faults is not None:
            parts.append(f"faults={self.faults}")
        return f"Map({', '.join(parts)})"

    def tuned(self, tuning: Tuning) -> "Map":
        calls = self.num_parallel_calls or tuning.num_parallel_calls(0)
        return Map(*self.ops, num_parallel_calls=calls, faults=self.faults)

    def opened(self) -> "Map":
        return Map(*self.ops, faults=self.faults)

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        calls = self.num_parallel_calls
        ours = all(type(op).__module__.startswith("tfpipe.") for op in self.ops)
        convert = as_it_is if ours else lambda function: function
        if self.faults is None:
            return dataset.map(convert(self._apply), num_parallel_calls=calls)
        if dataset.element_spec["record_id"].shape.rank:
            whole = functools.partial(at_once, self._apply, self._apply_all)
            return dataset.map(convert(whole), num_parallel_calls=calls)
        chunks = dataset.batch(_CHUNK_LENGTH)
        mapped = chunks.map(convert(self._apply_all), num_parallel_calls=calls)
        mapped = mapped.unbatch()
        if dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY:
            return mapped
        return AssertCardinality(dataset.cardinality())(mapped)

    def _apply(self, example: Example) -> Example:
        for op in self.ops:
            example = op(example)
        return example

    def _apply_all(self, chunk: Example) -> Example:
        """The ops on each element of a chunk; other ones where they fail."""
        num_elements = tf.size(chunk["record_id"], tf.int64)
        examples = tf.data.Dataset.from_tensor_slices(chunk).enumerate()
        sound = examples.map(lambda position, x: (position, self._apply(x)))
        batches = sound.ignore_errors().batch(num_elements)
        positions, results = first_batch(batches)
        faults = self.faults
        assert faults is not None  # as `__call__` sees to
        complete: Example = tf.cond(
            tf.size(positions, tf.int64) == num_elements,
            lambda: results,
            lambda: stand_in(chunk, self._apply, positions, results, faults),
        )
        return complete


# Elements: so many that starting on a chunk costs little beside them.
_CHUNK_LENGTH = 32


@dataclasses.dataclass(frozen=True)
class Shuffle:
    """Draws each element at random from a buffer of the next `buffer_size` ones.

    Element: any. Belongs before decoding: the buffer then holds encoded images, about
    110 kB each for ImageNet. Draws as tf.data's shuffle does, but from the seed
    alone: `Dataset.shuffle` mixes in `tf.random.set_seed`, which Keras calls too.
    Elements are dicts of dense tensors.
    """

    buffer_size: int
    _: dataclasses.KW_ONLY
    seed: int = 0

    def __post_init__(self) -> None:
        _require_positive(self, "buffer_size")
        arguments.settle_ints(self, ["seed"], least=0, most=arguments.MOST_SEED)

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        seed = tf.bitcast(tf.constant(self.seed, tf.uint64), tf.int64)
        return _shuffle(dataset, self.buffer_size, (_SHUFFLE_SEED, seed))


def _shuffle(
    dataset: tf.data.Dataset, buffer_size: Any, seed: Sequence[Any]
) -> tf.data.Dataset:
    """Shuffles by two seeds alone, which may be tensors but not both 0."""
    spec = dataset.element_spec
    flat = tf.nest.flatten(spec)
    variant = tf.raw_ops.ShuffleDatasetV3(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=tf.cast(buffer_size, tf.int64),
        seed=tf.cast(seed[0], tf.int64),
        seed2=tf.cast(seed[1], tf.int64),
        seed_generator=tf.raw_ops.DummySeedGenerator(),
        output_types=[item.dtype for item in flat],
        output_shapes=[item.shape for item in flat],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, spec)


# What TensorFlow takes for a global seed that is not set.
_SHUFFLE_SEED = 87654321


@dataclasses.dataclass(frozen=True)
class Batch:
    """Stacks examples.

    Element: example -> batch. Every shape is static if `drop_remainder`.

    Args:
        batch_size: Examples in a batch.
        drop_remainder: Whether to leave out a last batch that is not full.
    """

    batch_size: int
    _: dataclasses.KW_ONLY
    drop_remainder: bool = True

    def __post_init__(self) -> None:
        _require_positive(self, "batch_size")
        arguments.settle_bools(self, "drop_remainder")

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.batch(self.batch_size, drop_remainder=self.drop_remainder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prefetch:
    """Prepares the next elements while the consumer works on the present one.

    Element: any.

    Args:
        buffer_size: Elements kept ready; -1 is AUTOTUNE.
    """

    buffer_size: int | None = None

    def __post_init__(self) -> None:
        _require_positive(self, "buffer_size", None, AUTOTUNE)

    def tuned(self, tuning: Tuning) -> "Prefetch":
        size = self.buffer_size or tuning.prefetch_buffer_size
        return Prefetch(buffer_size=size)

    def opened(self) -> "Prefetch":
        return Prefetch()

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.prefetch(self.buffer_size)


@dataclasses.dataclass(frozen=True)
class Take:
    """Passes the first `count` elements only. Element: any."""

    count: int

    def __post_init__(self) -> None:
        _require_positive(self, "count")

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.take(self.count)
