"""Map: the stage that applies ops to every element.

In: a dataset of examples or batches. Out: the results of the ops. With a `FaultLog`, an
example on which an op fails is replaced by another one and counted.
"""

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfpipe import errors
from tfpipe.stages.basic import (
    AssertCardinality,
    Batch,
    Example,
    as_it_is,
    require_positive,
)
from tfpipe.stages.element_fallback import (
    apply as apply_ops,
    batch_or_empty,
    batch_results,
    element_fallback,
    ops_within,
    require_ops,
    takes_batches,
)
from tfpipe.stages.faults import FaultLog, Uncounted
from tfpipe.stages.stand_in import Spare, leave_out, stand_in
from tfpipe.stages.traced import Op, as_they_are, is_fixed, traced
from tfpipe.tuning import AUTOTUNE, Tuning

# Examples in a chunk: enough that starting a chunk costs little beside its examples.
_CHUNK_LENGTH = 32


@dataclasses.dataclass(frozen=True, init=False)
class Map:
    """Applies ops to every element, one op after the other.

    Element: example -> example, or batch -> batch after `Batch`; see the ops.

    An op may fail on an element, for example on a JPEG that cannot be decoded. Without
    `faults` the stage then raises TensorFlow's error, which does not name the record.
    With `faults` the failure costs only that record: the next record of its chunk of
    32 stands in for it with `mask` 0, and the log names the damaged one. Every element
    must then have `record_id`, and all must have one shape. The chunks add about a
    twentieth to the cost of decoding.

    After `Batch` the ops run on a whole batch. With `faults` they run on each element
    of a batch on which they failed.

    Args:
        ops: Callables example -> example, in order.
        num_parallel_calls: Number of elements, or with `faults` of chunks, that are
            processed at the same time; -1 is AUTOTUNE, None is filled from the tuning.
        faults: Log that counts the records on which an op fails, up to its budget. It
            must have `locate`.

    Raises, while the dataset is read:
        tf.errors.UnknownError: With `faults`, if more records fail than the budget
            allows; the message names the last one with its shard and byte offset.
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
        require_ops(self, ops)
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
        """Returns the stage with its knob set."""
        calls = self.num_parallel_calls or tuning.num_parallel_calls(0)
        return Map(*self.ops, num_parallel_calls=calls, faults=self.faults)

    def without_tuning(self) -> "Map":
        """Returns the stage with its knob open."""
        return Map(*self.ops, faults=self.faults)

    def num_out(self, num_in: int) -> int:
        """Returns the number of elements that come out for `num_in` elements."""
        return num_in

    def with_spare(self, dataset: Callable[[], tf.data.Dataset]) -> "Map":
        """Returns the stage with a dataset to find a sound element in.

        The stage looks there when the ops fail on a whole chunk.
        """
        stage = copy.copy(self)
        object.__setattr__(stage, "_spare", Spare(dataset))
        return stage

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        calls = self.num_parallel_calls
        if self.faults is None:
            once = _once(self.ops, apply_ops)
            return dataset.map(as_it_is(once), num_parallel_calls=calls)
        apply = functools.partial(apply_ops, as_they_are(self.ops))
        fill_up = functools.partial(
            stand_in,
            apply=apply,
            log=self.faults,
            spare=self._spare or Spare(lambda: dataset),
        )
        if dataset.element_spec["record_id"].shape.rank:
            # Runs only after a failure: nothing is gained by a look for another one.
            replace = functools.partial(self._apply_and_fill, fill_up=fill_up)
            whole = functools.partial(
                element_fallback, _once(self.ops, batch_results), replace
            )
            return dataset.map(as_it_is(whole), num_parallel_calls=calls)
        apply_all = functools.partial(self._apply_all, fill_up=fill_up)
        mapped = self._chunks(dataset, apply_all)
        if dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY:
            return mapped
        return AssertCardinality(dataset.cardinality())(mapped)

    def sound(self, dataset: tf.data.Dataset, log: FaultLog | None) -> tf.data.Dataset:
        """Returns the results as `__call__` does, without the elements that fail.

        Args:
            dataset: Examples; also batches if the log is None or an `Uncounted`.
            log: Counts the elements that are left out. With None a failure raises
                TensorFlow's error.
        """
        if log is None or isinstance(log, Uncounted):
            made = dataset.map(as_it_is(_once(self.ops, apply_ops)))
            return made if log is None else made.ignore_errors()
        apply = functools.partial(apply_ops, as_they_are(self.ops))
        fill_up = functools.partial(leave_out, apply=apply, log=log)
        apply_all = functools.partial(self._apply_all, fill_up=fill_up)
        return self._chunks(dataset, apply_all)

    def _chunks(
        self, dataset: tf.data.Dataset, apply_all: Callable[[Example], Example]
    ) -> tf.data.Dataset:
        chunks = dataset.batch(_CHUNK_LENGTH)
        calls = self.num_parallel_calls
        return chunks.map(as_it_is(apply_all), num_parallel_calls=calls).unbatch()

    def _apply_all(self, chunk: Example, fill_up: Callable[..., Example]) -> Example:
        """Applies the ops to each element of a chunk; `fill_up` replaces failures."""
        positions, results = _once(self.ops, _apply_to_each)(chunk)
        complete: Example = tf.cond(
            tf.size(positions) == tf.size(chunk["record_id"]),
            lambda: results,
            lambda: fill_up(chunk, positions=positions, results=results),
        )
        return complete

    def _apply_and_fill(
        self, batch: Example, fill_up: Callable[..., Example]
    ) -> Example:
        """Applies the ops to each element of a batch on which they failed."""
        positions, results = _once(self.ops, _apply_to_each)(batch)
        return fill_up(batch, positions=positions, results=results)


def by_examples(stages: Sequence[Any]) -> list[Any]:
    """Returns stages that run ops on single examples where they ran on whole batches.

    The elements stay the same. A `Cache` of the results of ops, which keeps one element
    for each record, can then stand between the ops.

    Args:
        stages: Stages of a pipeline. A `Batch` and a `Map` with faults right after it,
            all ops of which take batches, change places.
    """
    made = list(stages)
    for place, (batch, mapped) in enumerate(itertools.pairwise(stages)):
        if (
            isinstance(batch, Batch)
            and isinstance(mapped, Map)
            and mapped.faults is not None
            and all(map(takes_batches, mapped.ops))
        ):
            single = Map(*ops_within(mapped.ops), faults=mapped.faults)
            made[place : place + 2] = [single, batch]
    return made


def _once(ops: Sequence[Op], function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` with the ops set, traced once for all builds if it may."""
    if is_fixed(ops):
        return traced(function, ops)
    return functools.partial(function, as_they_are(ops))


def _apply_to_numbered(
    ops: Sequence[Op], position: tf.Tensor, example: Example
) -> tuple[tf.Tensor, Example]:
    return position, apply_ops(ops, example)


def _apply_to_each(ops: Sequence[Op], chunk: Example) -> tuple[tf.Tensor, Example]:
    """Applies ops to each element of a chunk by itself.

    Returns:
        positions: int64 [m], the elements of the chunk on which no op failed.
        results: Features of those elements after the ops, [m, ...] each.
    """
    num_elements = tf.size(chunk["record_id"], tf.int64)
    examples = tf.data.Dataset.from_tensor_slices(chunk).enumerate()
    sound = examples.map(functools.partial(_apply_to_numbered, ops))
    batches = sound.ignore_errors().batch(num_elements)
    positions, results = batch_or_empty(batches)
    return positions, results
