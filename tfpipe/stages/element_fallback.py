"""Ops that run on a whole batch, and on each of its elements if the batch fails.

In: a batch. Out: the results of the ops. One damaged image makes an op fail on its
whole batch. `stages.map` then runs the ops on one element after the other, to find the
damaged one and to replace it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Batch = dict[str, tf.Tensor]


def apply(ops: Sequence[Callable[[Batch], Batch]], batch: Batch) -> Batch:
    """Applies ops to a batch, or to an example."""
    for op in ops:
        batch = op(batch)
    return batch


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
    is_done = tf.shape(next(iter(results.values())))[0] > 0
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
