"""Stages: Dataset -> Dataset, in the order in which the data passes them.

In and out: a `tf.data.Dataset`. A stage is any callable of that form; those here are
frozen dataclasses, so that a pipeline prints as what it does. A knob that is None is
filled from the pipeline's `Tuning` by the stage's `tuned` method.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfpipe import errors
from tfpipe.stages.element_fallback import (
    batch_or_empty,
    batch_results,
    element_fallback,
)
from tfpipe.stages.faults import FaultLog, Uncounted
from tfpipe.stages.stand_in import Spare, leave_out, stand_in
from tfpipe.stages.traced import traced
from tfpipe.tuning import AUTOTUNE, Tuning

Example = dict[str, tf.Tensor]
Op = Callable[[Example], Example]


# Functions without Python control flow on tensors: AutoGraph would take a second to
# find that out, at the start of every run.
as_it_is = tf.autograph.experimental.do_not_convert


def require_positive(stage: object, name: str, *also: int | None) -> None:
    """Checks that a knob is a whole number >= 1, or one of some other values."""
    errors.settle_ints(stage, [name], least=1, also=also)


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
            errors.settle_ints(self, ["num_elements"], least=0, also=also)

    def with_cardinality(self, num_records: int | None) -> "AssertCardinality":
        if self.num_elements is not None:
            return self
        return AssertCardinality(
            tf.data.INFINITE_CARDINALITY if num_records is None else num_records
        )

    def num_out(self, num_in: int) -> int:
        """Elements that it gives for those of an epoch."""
        return num_in

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
    faults: FaultLog | None = dataclasses.field(compare=False)
    _spare: Spare | None = dataclasses.field(compare=False, repr=False)

    def __init__(
        self,
        *ops: Op,
        num_parallel_calls: int | None = None,
        faults: FaultLog | None = None,
    ) -> None:
        if not ops:
            raise ValueError("Map must have at least one op, got none.")
        for number, op in enumerate(ops, start=1):
            errors.require_callable(self, f"ops, number {number},", op)
        errors.require_kind(self, "faults", faults, FaultLog, or_none=True)
        if faults is not None and faults.locate is None:
            raise ValueError(
                "Map.faults must know where records are: give it "
                "FaultLog(..., locate=source.locate)."
            )
        object.__setattr__(self, "ops", ops)
        object.__setattr__(self, "num_parallel_calls", num_parallel_calls)
        object.__setattr__(self, "faults", faults)
        object.__setattr__(self, "_spare", None)
        require_positive(self, "num_parallel_calls", None, AUTOTUNE)

    def __repr__(self) -> str:
        parts = [*map(repr, self.ops), f"num_parallel_calls={self.num_parallel_calls}"]
        if self.faults is not None:
            parts.append(f"faults={self.faults}")
        return f"Map({', '.join(parts)})"

    def with_tuning(self, tuning: Tuning) -> "Map":
        calls = self.num_parallel_calls or tuning.num_parallel_calls(0)
        return Map(*self.ops, num_parallel_calls=calls, faults=self.faults)

    def without_tuning(self) -> "Map":
        return Map(*self.ops, faults=self.faults)

    def num_out(self, num_in: int) -> int:
        """Elements that it gives for those of an epoch."""
        return num_in

    def with_spare(self, dataset: Callable[[], tf.data.Dataset]) -> "Map":
        """The stage that finds a sound element there, where a whole chunk fails."""
        stage = copy.copy(self)
        object.__setattr__(stage, "_spare", Spare(dataset))
        return stage

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        calls = self.num_parallel_calls
        apply = functools.partial(_apply, self.ops)
        if self.faults is None:
            return dataset.map(self._convert(apply), num_parallel_calls=calls)
        fill_up = functools.partial(
            stand_in,
            apply=apply,
            log=self.faults,
            spare=self._spare or Spare(lambda: dataset),
        )
        apply_all = functools.partial(self._apply_all, fill_up=fill_up)
        if dataset.element_spec["record_id"].shape.rank:
            whole = functools.partial(
                element_fallback, self._once(batch_results), apply_all
            )
            return dataset.map(self._convert(whole), num_parallel_calls=calls)
        mapped = self._chunks(dataset, apply_all)
        if dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY:
            return mapped
        return AssertCardinality(dataset.cardinality())(mapped)

    def sound(self, dataset: tf.data.Dataset, log: FaultLog | None) -> tf.data.Dataset:
        """As `__call__`, but leaves out what the ops fail on, and tells that log.

        Args:
            dataset: Of examples; of batches too if the log is None, or does not count.
            log: Counts what is left out. None raises TensorFlow's error.
        """
        apply = functools.partial(_apply, self.ops)
        if log is None or isinstance(log, Uncounted):
            made = dataset.map(self._convert(apply))
            return made if log is None else made.ignore_errors()
        fill_up = functools.partial(leave_out, apply=apply, log=log)
        apply_all = functools.partial(self._apply_all, fill_up=fill_up)
        return self._chunks(dataset, apply_all)

    def _convert(self, function: Callable[..., Any]) -> Callable[..., Any]:
        ours = all(type(op).__module__.startswith("tfpipe.") for op in self.ops)
        converted: Callable[..., Any] = as_it_is(function) if ours else function
        return converted

    def _chunks(
        self, dataset: tf.data.Dataset, apply_all: Callable[[Example], Example]
    ) -> tf.data.Dataset:
        chunks = dataset.batch(_CHUNK_LENGTH)
        calls = self.num_parallel_calls
        return chunks.map(self._convert(apply_all), num_parallel_calls=calls).unbatch()

    def _apply_all(self, chunk: Example, fill_up: Callable[..., Example]) -> Example:
        """The ops on each element of a chunk; `fill_up` where they fail on some."""
        positions, results = self._once(_each)(chunk)
        complete: Example = tf.cond(
            tf.size(positions) == tf.size(chunk["record_id"]),
            lambda: results,
            lambda: fill_up(chunk, positions=positions, results=results),
        )
        return complete

    def _once(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the ops and of tensors, traced once where it may be."""
        if _is_fixed(self.ops):
            return traced(function, self.ops)
        return functools.partial(function, self.ops)


def _is_fixed(ops: Iterable[object]) -> bool:
    """Whether equal ops do the same: ops of users may change between two builds."""
    return all(
        type(op).__module__.startswith("tfpipe.")
        and _is_fixed(value for value in vars(op).values() if callable(value))
        for op in ops
    )


def _apply(ops: Sequence[Op], example: Example) -> Example:
    for op in ops:
        example = op(example)
    return example


def _each(ops: Sequence[Op], chunk: Example) -> tuple[tf.Tensor, Example]:
    """The ops on each element of a chunk by itself.

    Returns:
        positions: int64 [m], of the elements that the ops did not fail on.
        results: What the ops made of those, [m, ...] each.
    """
    num_elements = tf.size(chunk["record_id"], tf.int64)
    examples = tf.data.Dataset.from_tensor_slices(chunk).enumerate()
    sound = examples.map(lambda position, x: (position, _apply(ops, x)))
    batches = sound.ignore_errors().batch(num_elements)
    positions, results = batch_or_empty(batches)
    return positions, results


# Elements: so many that starting on a chunk costs little beside them.
_CHUNK_LENGTH = 32


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
        require_positive(self, "batch_size")
        errors.settle_bools(self, "drop_remainder")

    def num_out(self, num_in: int) -> int:
        """Elements that it gives for those of an epoch."""
        full, rest = divmod(num_in, self.batch_size)
        return full if self.drop_remainder or not rest else full + 1

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
        require_positive(self, "buffer_size", None, AUTOTUNE)

    def with_tuning(self, tuning: Tuning) -> "Prefetch":
        size = self.buffer_size or tuning.prefetch_buffer_size
        return Prefetch(buffer_size=size)

    def without_tuning(self) -> "Prefetch":
        return Prefetch()

    def num_out(self, num_in: int) -> int:
        """Elements that it gives for those of an epoch."""
        return num_in

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.prefetch(self.buffer_size)


@dataclasses.dataclass(frozen=True)
class Take:
    """Passes the first `count` elements only. Element: any."""

    count: int

    def __post_init__(self) -> None:
        require_positive(self, "count")

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.take(self.count)
