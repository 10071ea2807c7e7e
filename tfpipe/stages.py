"""Stages: Dataset -> Dataset, in the order in which the data passes them.

In and out: a `tf.data.Dataset`. A stage is any callable of that form; those here are
frozen dataclasses, so that a pipeline prints as what it does. A knob that is None is
filled from the pipeline's `Tuning` by the stage's `tuned` method.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tfpipe.tuning import AUTOTUNE, Tuning

Example = dict[str, tf.Tensor]
Op = Callable[[Example], Example]


def _require_positive(stage: object, name: str) -> None:
    value = getattr(stage, name)
    if value is not None and value < 1:
        raise ValueError(f"{type(stage).__name__}.{name} must be >= 1, got {value}.")


def _require_positive_or_autotune(stage: object, name: str) -> None:
    value = getattr(stage, name)
    if value is not None and value != AUTOTUNE and value < 1:
        raise ValueError(
            f"{type(stage).__name__}.{name} must be >= 1 or AUTOTUNE, got {value}."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interleave:
    """Reads extents: several at a time, records in the order of the extents.

    Element: extent -> record.
        in   extent, see `source.TFRecordSource`
        out  record: string, a serialized tf.train.Example
             record_id: int64, its number in the split
             epoch_seed: int64

    Args:
        num_parallel_reads: Extents read at the same time.
        read_buffer_bytes: Buffer of each open shard.
    """

    num_parallel_reads: int | None = None
    read_buffer_bytes: int | None = None

    def __post_init__(self) -> None:
        _require_positive(self, "num_parallel_reads")
        _require_positive(self, "read_buffer_bytes")

    def tuned(self, tuning: Tuning) -> "Interleave":
        return dataclasses.replace(
            self,
            num_parallel_reads=self.num_parallel_reads or tuning.num_parallel_reads,
            read_buffer_bytes=self.read_buffer_bytes or tuning.read_buffer_bytes,
        )

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.interleave(
            self._read,
            cycle_length=self.num_parallel_reads,
            # Longer than any extent: each is read to its end before the next one's
            # turn, so the number of parallel reads does not change the order.
            block_length=1 << 20,
            num_parallel_calls=self.num_parallel_reads,
        )

    def _read(self, extent: Example) -> tf.data.Dataset:
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
                "record": records.take(count),  # reads no record past the extent
                "record_id": tf.data.Dataset.range(first, first + count),
                "epoch_seed": tf.data.Dataset.from_tensors(
                    extent["epoch_seed"]
                ).repeat(),
            }
        )


@dataclasses.dataclass(frozen=True)
class AssertCardinality:
    """Makes the number of elements known, and anything else an error at the end.

    Element: any. Equals tf.data.experimental.assert_cardinality.
    """

    num_elements: int

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.apply(tf.data.experimental.assert_cardinality(self.num_elements))


@dataclasses.dataclass(frozen=True, init=False)
class Map:
    """Applies ops to every element, one after the other in one call.

    Element: example -> example; see the ops.

    Args:
        ops: Callables example -> example, in order.
        num_parallel_calls: Elements processed at the same time; -1 is AUTOTUNE.
    """

    ops: tuple[Op, ...]
    num_parallel_calls: int | None

    def __init__(self, *ops: Op, num_parallel_calls: int | None = None) -> None:
        if not ops:
            raise ValueError("Map must have at least one op, got none.")
        object.__setattr__(self, "ops", ops)
        object.__setattr__(self, "num_parallel_calls", num_parallel_calls)
        _require_positive_or_autotune(self, "num_parallel_calls")

    def __repr__(self) -> str:
        parts = [*map(repr, self.ops), f"num_parallel_calls={self.num_parallel_calls}"]
        return f"Map({', '.join(parts)})"

    def tuned(self, tuning: Tuning) -> "Map":
        calls = self.num_parallel_calls or tuning.num_parallel_maps
        return Map(*self.ops, num_parallel_calls=calls)

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(self._apply, num_parallel_calls=self.num_parallel_calls)

    def _apply(self, example: Example) -> Example:
        for op in self.ops:
            example = op(example)
        return example


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

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        spec = dataset.element_spec
        flat = tf.nest.flatten(spec)
        variant = tf.raw_ops.ShuffleDatasetV3(
            input_dataset=tf.data.experimental.to_variant(dataset),
            buffer_size=tf.constant(self.buffer_size, tf.int64),
            # Two zeros would mean a random order.
            seed=tf.constant(_SHUFFLE_SEED, tf.int64),
            seed2=tf.bitcast(tf.constant(self.seed, tf.uint64), tf.int64),
            seed_generator=tf.raw_ops.DummySeedGenerator(),
            output_types=[item.dtype for item in flat],
            output_shapes=[item.shape for item in flat],
            reshuffle_each_iteration=False,
        )
        return tf.data.experimental.from_variant(variant, spec)


@dataclasses.dataclass(frozen=True)
class Cache:
    """Keeps every element in memory on the first pass and serves it from there after.

    Element: any. Costs the bytes of all elements. Belongs before the first random op:
    after it every epoch would repeat the same crops. Equals tf.data's cache.
    """

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.cache()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeat:
    """Replays what comes before it, in the same order; without end if count is None.

    Element: any. Where elements carry `epoch_seed`, each pass has another one, so
    random ops after it differ from pass to pass. For a new order each epoch use
    `Pipeline.build(num_epochs=...)` instead.
    """

    count: int | None = None

    def __post_init__(self) -> None:
        _require_positive(self, "count")

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        spec = dataset.element_spec
        if not isinstance(spec, dict) or "epoch_seed" not in spec:
            return dataset.repeat(self.count)
        last = tf.int64.max if self.count is None else self.count
        passes = tf.data.Dataset.range(last)

        def one_pass(number: tf.Tensor) -> tf.data.Dataset:
            return dataset.map(
                lambda e: e | {"epoch_seed": e["epoch_seed"] + number * _SEED_STEP}
            )

        return passes.flat_map(one_pass)


# What TensorFlow takes for a global seed that is not set.
_SHUFFLE_SEED = 87654321

# Odd and without pattern, from the golden ratio, as SplitMix64 has it.
_SEED_STEP = 0x1E3779B97F4A7C15


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

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.batch(self.batch_size, drop_remainder=self.drop_remainder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pad:
    """Adds `mask` (float32, 1) and appends zero examples with mask 0.

    Element: example -> example with `mask`. Batches then have one shape and
    every rank makes the same number of steps, while sums weighted by `mask` count each
    record once.

    Args:
        num_elements: Examples there are after padding.
        num_real: Examples that come in.
    """

    num_elements: int
    num_real: int

    def __post_init__(self) -> None:
        if not 0 <= self.num_real <= self.num_elements:
            raise ValueError(
                f"Pad.num_real must be 0 to num_elements = {self.num_elements}, "
                f"got {self.num_real}."
            )

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        real = dataset.map(lambda example: example | {"mask": tf.constant(1.0)})
        zeros = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), real.element_spec
        )
        padding = tf.data.Dataset.from_tensors(zeros)
        return real.concatenate(padding.repeat(self.num_elements - self.num_real))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prefetch:
    """Prepares the next elements while the consumer works on the present one.

    Element: any.

    Args:
        buffer_size: Elements kept ready; -1 is AUTOTUNE.
    """

    buffer_size: int | None = None

    def __post_init__(self) -> None:
        _require_positive_or_autotune(self, "buffer_size")

    def tuned(self, tuning: Tuning) -> "Prefetch":
        size = self.buffer_size or tuning.prefetch_buffer_size
        return Prefetch(buffer_size=size)

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
