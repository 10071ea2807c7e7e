"""Map: the stage that applies ops to every element.

In: a dataset of examples or batches. Out: the results of the ops. With a `FaultLog`, a
sound example replaces an example on which an op fails, and the log counts it. A damaged
image makes an op fail on its whole batch: the ops then run on the elements of the batch
one after the other. `EachExample` is for ops that take no batches.
"""

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import tensorflow as tf

from tfpipe import errors
from tfpipe.native.run import can_run, graph, run
from tfpipe.stages.basic import (
    Batch,
    Example,
    as_it_is,
    batch_or_empty,
    counted_as,
    keeps_count,
)
from tfpipe.stages.faults import FaultLog, Uncounted
from tfpipe.stages.stand_in import Spare, stand_in
from tfpipe.stages.traced import Op, as_they_are, is_fixed, traced
from tfpipe.tuning import AUTOTUNE, Tuning

if TYPE_CHECKING:
    from tfpipe.reading.building import RunFacts

# Examples in a chunk: enough that starting a chunk costs little beside its examples.
_CHUNK_LENGTH = 32


def apply_ops(ops: Sequence[Op], element: Example) -> Example:
    """Applies ops to an example or a batch."""
    for op in ops:
        element = op(element)
    return element


@dataclasses.dataclass(frozen=True, init=False)
class EachExample:
    """Applies ops for examples to all examples of a batch, one after the other.

    Element: batch -> batch, with the results of the ops for the examples, stacked; or
    example -> example. The results of all examples must have the same shape.

    Example:
        >>> def invert(example):
        ...     return example | {"image": 255 - example["image"]}
        >>> tfpipe.Map(tfpipe.EachExample(invert), tfpipe.Normalize()).ops[1].bgr
        False

    Args:
        ops: Callables example -> example, in order.

    Raises, when the dataset is built:
        ValueError: If the element has no `seed`, which `Parse` adds.
    """

    takes_batches: ClassVar[bool] = True

    ops: tuple[Op, ...]

    def __init__(self, *ops: Op) -> None:
        _require_ops(self, ops)
        object.__setattr__(self, "ops", ops)

    def __repr__(self) -> str:
        return f"EachExample({', '.join(map(repr, self.ops))})"

    def __call__(self, element: Example) -> Example:
        if "seed" not in element:
            raise ValueError(
                f"{self!r} must get seed, got {', '.join(element)}: put it after Parse."
            )
        if element["seed"].shape.rank == 1:
            return self._apply(element)
        specs = {
            name: tf.TensorSpec(value.shape[1:], value.dtype)
            for name, value in element.items()
        }
        traced_apply = tf.function(self._apply, autograph=False)
        concrete = traced_apply.get_concrete_function(specs)
        results: Example = tf.map_fn(
            concrete,
            element,
            fn_output_signature={
                name: tf.TensorSpec(value.shape, value.dtype)
                for name, value in concrete.structured_outputs.items()
            },
        )
        return results

    def _apply(self, example: Example) -> Example:
        results = apply_ops(as_they_are(self.ops), example)
        # As a dataset does with the results of its function.
        return {
            name: value if tf.is_tensor(value) else tf.convert_to_tensor(value)
            for name, value in results.items()
        }


@dataclasses.dataclass(frozen=True, init=False)
class Map:
    """Applies ops to every element, one op after the other.

    Element: example -> example, or batch -> batch after `Batch`; see the ops.

    An op may fail on an element, for example on a JPEG that cannot be decoded. Without
    `faults` the stage then raises TensorFlow's error, without the name of the record.
    With `faults` the failure costs only the damaged record: the next record of its
    chunk of 32 stands in with `mask` 0, and the log names the damaged record. Every
    element must then have `record_id`, and all must have the same shape. The chunks add
    about a twentieth to the cost of decoding.

    After `Batch` the ops run on a whole batch. With `faults` a batch with a failure is
    done again, element by element.

    Example:
        >>> source = tfpipe.TFRecordSource("DIR", "train", shuffle="none")
        >>> ops = [tfpipe.Parse(label_base=1), tfpipe.Select("record_id")]
        >>> stages = [tfpipe.Interleave(), tfpipe.Map(*ops)]
        >>> int(next(iter(tfpipe.Pipeline(source, stages).build()))["record_id"])
        0

    Args:
        ops: Callables example -> example, in order.
        num_parallel_calls: Number of elements, or with `faults` of chunks, in work at
            the same time; -1 is AUTOTUNE, None is filled from the tuning.
        faults: Log that counts the records on which an op fails, up to its budget. It
            must have `locate`.

    Raises, while the dataset is read:
        tf.errors.UnknownError: With `faults`, if more records fail than the budget
            allows; the message names the last with its shard and byte offset.
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
        _require_ops(self, ops)
        errors.require_kind(self, "faults", faults, FaultLog, or_none=True)
        if faults is not None and faults.locate is None:
            raise ValueError(
                "Map.faults must know where records are: give it "
                "FaultLog(..., locate=source.locate)."
            )
        fields = {"ops": ops, "num_parallel_calls": num_parallel_calls}
        for name, value in (fields | {"faults": faults, "_spare": None}).items():
            errors.settle(self, name, value)
        also = (None, AUTOTUNE)
        errors.settle_ints(self, ["num_parallel_calls"], least=1, also=also)

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

    num_out = keeps_count

    def at_start(self, run: "RunFacts") -> "Map":
        """Returns the stage with sound elements, for a chunk without any."""
        stage = copy.copy(self)
        errors.settle(stage, "_spare", Spare(run.sound))
        return stage

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        calls = self.num_parallel_calls
        if self.faults is None:
            once = _once(self.ops, apply_ops)
            return dataset.map(as_it_is(once), num_parallel_calls=calls)
        fill_up = self._fill_up(self.faults, self._spare or Spare(lambda: dataset))
        if dataset.element_spec["record_id"].shape.rank:
            each = tf.function(_once(self.ops, _apply_to_each), autograph=False)

            def replace(batch: Example) -> Example:
                positions, results = each(batch)
                return fill_up(batch, positions=positions, results=results)

            whole = functools.partial(_with_fallback, self.ops, replace)
            return dataset.map(as_it_is(whole), num_parallel_calls=calls)
        return counted_as(dataset, self._chunks(dataset, fill_up))

    def sound(self, dataset: tf.data.Dataset, log: FaultLog | None) -> tf.data.Dataset:
        """Returns the results as `__call__` does, without the elements that fail.

        Args:
            dataset: Examples; also batches if the log is None or an `Uncounted`.
            log: Counts the failed elements, which are left out. With None a failure
                raises TensorFlow's error.
        """
        if log is None or isinstance(log, Uncounted):
            results = dataset.map(as_it_is(_once(self.ops, apply_ops)))
            return results if log is None else results.ignore_errors()
        return self._chunks(dataset, self._fill_up(log, None))

    def _fill_up(self, log: FaultLog, spare: Spare | None) -> Callable[..., Example]:
        """Returns `stand_in` for the ops."""
        apply = functools.partial(apply_ops, as_they_are(self.ops))
        return functools.partial(stand_in, apply=apply, log=log, spare=spare)

    def _chunks(
        self, dataset: tf.data.Dataset, fill_up: Callable[..., Example]
    ) -> tf.data.Dataset:
        chunks, calls = dataset.batch(_CHUNK_LENGTH), self.num_parallel_calls
        apply_all = as_it_is(functools.partial(self._apply_all, fill_up=fill_up))
        return chunks.map(apply_all, num_parallel_calls=calls).unbatch()

    def _apply_all(self, chunk: Example, fill_up: Callable[..., Example]) -> Example:
        """Applies the ops to the elements of a chunk; `fill_up` replaces failures."""
        positions, results = _once(self.ops, _apply_to_each)(chunk)
        complete: Example = tf.cond(
            tf.size(positions) == tf.size(chunk["record_id"]),
            lambda: results,
            lambda: fill_up(chunk, positions=positions, results=results),
        )
        return complete


def takes_batches(op: Op) -> bool:
    """Checks whether an op takes batches as well as examples."""
    return bool(getattr(op, "takes_batches", False))


def ops_within(ops: Sequence[Op]) -> list[Op]:
    """Returns ops for examples: the ops within an `EachExample` in its place."""
    return [
        inner
        for op in ops
        for inner in (op.ops if isinstance(op, EachExample) else (op,))
    ]


def by_examples(stages: Sequence[Any]) -> list[Any]:
    """Returns stages that run ops on single examples in place of whole batches.

    The elements stay the same. A `Cache` of the results of ops, which keeps an element
    for every record, can then stand between the ops.

    Args:
        stages: Stages of a pipeline. A `Batch` and a `Map` with faults right after it,
            all ops of which take batches, change places.
    """
    changed = list(stages)
    for position, (batch, mapped) in enumerate(itertools.pairwise(stages)):
        if (
            isinstance(batch, Batch)
            and isinstance(mapped, Map)
            and mapped.faults is not None
            and all(map(takes_batches, mapped.ops))
        ):
            single = Map(*ops_within(mapped.ops), faults=mapped.faults)
            changed[position : position + 2] = [single, batch]
    return changed


def _once(ops: Sequence[Op], function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` with the ops set, traced once for all builds if it may."""
    if is_fixed(ops):
        return traced(function, ops)
    once: Callable[..., Any] = graph(functools.partial(function, as_they_are(ops)))
    return once


def _apply_to_numbered(
    ops: Sequence[Op], position: tf.Tensor, example: Example
) -> tuple[tf.Tensor, Example]:
    return position, apply_ops(ops, example)


def _apply_to_each(ops: Sequence[Op], chunk: Example) -> tuple[tf.Tensor, Example]:
    """Applies ops to the elements of a chunk by themselves.

    Returns:
        positions: int64 [m], the elements of the chunk without a failure.
        results: Features of the sound elements after the ops, [m, ...].
    """
    num_elements = tf.size(chunk["record_id"], tf.int64)
    examples = tf.data.Dataset.from_tensor_slices(chunk).enumerate()
    sound = examples.map(functools.partial(_apply_to_numbered, ops))
    batches = sound.ignore_errors().batch(num_elements)
    positions, results = batch_or_empty(batches)
    return positions, results


def _in_python(function: Op, batch: Example, results: Example) -> Example:
    """Returns the results of a function that Python calls for TensorFlow.

    The function is traced at its first call. A build would trace it for nothing: most
    data have no damaged image.

    Args:
        function: Callable batch -> features [n, ...].
        batch: Features [n, ...].
        results: Tensors or specs with the names, types and shapes of the results.
    """
    names, kinds = sorted(batch), sorted(results)

    @as_it_is  # type: ignore[untyped-decorator]
    def call(*values: tf.Tensor) -> list[tf.Tensor]:
        features = function(dict(zip(names, values, strict=True)))
        return [features[name] for name in kinds]

    values = tf.py_function(
        call, [batch[name] for name in names], [results[name].dtype for name in kinds]
    )
    length = batch["record_id"].shape
    return {
        name: tf.ensure_shape(value, length.concatenate(results[name].shape[1:]))
        for name, value in zip(kinds, values, strict=True)
    }


def _with_fallback(ops: Sequence[Op], one_by_one: Op, batch: Example) -> Example:
    """Returns the results of ops for a whole batch, or of `one_by_one` if an op fails.

    Args:
        ops: The ops.
        one_by_one: Applies the same ops to the elements of the batch by themselves.
        batch: Features [n, ...], with `record_id`, int64 [n].
    """
    fallback = functools.partial(_in_python, one_by_one)
    once = _once(ops, apply_ops)
    if can_run():
        results: Example = run(once, batch, otherwise=fallback)
        return results
    # A dataset of one element: only a dataset can continue after an error.
    whole = tf.data.Dataset.from_tensors(batch).map(as_it_is(once))
    results = batch_or_empty(whole.ignore_errors())
    # tf.gather is a single op, an index in brackets is five.
    is_done = tf.gather(tf.shape(next(iter(results.values()))), 0) > 0
    results = tf.cond(is_done, lambda: results, lambda: fallback(batch, results))
    length = batch["record_id"].shape
    return {
        name: tf.ensure_shape(value, length.concatenate(value.shape[1:]))
        for name, value in results.items()
    }


def _require_ops(owner: object, ops: Sequence[Op]) -> None:
    """Checks that there is an op, and that all ops can be called."""
    if not ops:
        name = type(owner).__name__
        raise ValueError(f"{name} must have at least one op, got none.")
    for position, op in enumerate(ops, start=1):
        errors.require_op(owner, f"ops, number {position},", op)
