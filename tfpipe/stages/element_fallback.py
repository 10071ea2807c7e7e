"""Ops that run on a whole batch, and on each of its elements where they must.

In: a batch. Out: the results of the ops. One damaged image makes an op fail on its
whole batch. `stages.map` then runs the ops on one element after the other, to find the
damaged one and to replace it. `EachExample` is for ops that take no batches.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from tfpipe import errors
from tfpipe.stages.basic import Example
from tfpipe.stages.traced import Op, as_they_are

Batch = dict[str, tf.Tensor]


def apply(ops: Sequence[Callable[[Batch], Batch]], batch: Batch) -> Batch:
    """Applies ops to a batch, or to an example."""
    for op in ops:
        batch = op(batch)
    return batch


@dataclasses.dataclass(frozen=True, init=False)
class EachExample:
    """Applies ops that take examples to each example of a batch.

    Element: batch -> batch, with the results of the ops for each example, stacked. An
    example gets what the ops do to it. The results of all examples must have one shape.

    Args:
        ops: Callables example -> example, in order.

    Raises, when the dataset is built:
        ValueError: If the element has no `seed`, which `Parse` adds.
    """

    takes_batches: ClassVar[bool] = True

    ops: tuple[Op, ...]

    def __init__(self, *ops: Op) -> None:
        require_ops(self, ops)
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
        each = tf.function(self._apply, autograph=False).get_concrete_function(specs)
        results: Example = tf.map_fn(
            each,
            element,
            fn_output_signature={
                name: tf.TensorSpec(value.shape, value.dtype)
                for name, value in each.structured_outputs.items()
            },
        )
        return results

    def _apply(self, example: Example) -> Example:
        made = apply(as_they_are(self.ops), example)
        # As a dataset does with what its function returns.
        return {
            name: value if tf.is_tensor(value) else tf.convert_to_tensor(value)
            for name, value in made.items()
        }


def takes_batches(op: Op) -> bool:
    """Checks whether an op takes batches as well as examples."""
    return bool(getattr(op, "takes_batches", False))


def ops_within(ops: Sequence[Op]) -> list[Op]:
    """Returns ops that take examples: those within `EachExample` in place of it."""
    return [
        one for op in ops for one in (op.ops if isinstance(op, EachExample) else (op,))
    ]


def require_ops(owner: object, ops: Sequence[Op]) -> None:
    """Checks that there is an op, and that each one can be called."""
    if not ops:
        name = type(owner).__name__
        raise ValueError(f"{name} must have at least one op, got none.")
    for number, op in enumerate(ops, start=1):
        errors.require_callable(owner, f"ops, number {number},", op)


def batch_results(ops: Sequence[Callable[[Batch], Batch]], batch: Batch) -> Batch:
    """Applies ops to a whole batch.

    Returns:
        Features after the ops: [n, ...] each, or [0, ...] each if an op failed.
    """
    # A dataset of one element: only a dataset can continue after an error.
    whole = tf.data.Dataset.from_tensors(batch).map(functools.partial(apply, ops))
    results: Batch = batch_or_empty(whole.ignore_errors())
    return results


def element_fallback(
    whole: Callable[[Batch], Batch], one_by_one: Callable[[Batch], Batch], batch: Batch
) -> Batch:
    """Returns the results of `whole`, or those of `one_by_one` if an op failed.

    Args:
        whole: `batch_results` with its ops set.
        one_by_one: Callable that applies the same ops to each element of the batch.
        batch: Features [n, ...], with `record_id`, int64 [n].
    """
    results = whole(batch)
    # tf.gather is one op, where an index in brackets is five.
    is_done = tf.gather(tf.shape(next(iter(results.values()))), 0) > 0
    results = tf.cond(is_done, lambda: results, lambda: one_by_one(batch))
    length = batch["record_id"].shape
    return {
        name: tf.ensure_shape(value, length.concatenate(value.shape[1:]))
        for name, value in results.items()
    }


def batch_or_empty(batches: tf.data.Dataset) -> Any:
    """Returns the first batch of a dataset, or a batch of no elements if it is empty.

    Args:
        batches: Dataset of any structure of tensors [n, ...].
    """
    none = tf.nest.map_structure(
        lambda item: tf.zeros([0, *(size or 0 for size in item.shape[1:])], item.dtype),
        batches.element_spec,
    )
    batches = batches.concatenate(tf.data.Dataset.from_tensors(none))
    return batches.take(1).get_single_element()
