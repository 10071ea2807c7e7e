"""Ops on a whole batch at once, and on each of its elements where that fails.

In: a batch. Out: the ops' results. One damaged image makes an op fail on the batch that
it is in; who it is and what stands in for it, `stages.Map` finds out one by one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Batch = dict[str, tf.Tensor]


def batch_results(ops: Sequence[Callable[[Batch], Batch]], batch: Batch) -> Batch:
    """Applies ops to a whole batch.

    Returns:
        The results, [n, ...] each; [0, ...] each if an op failed.
    """

    def apply(batch: Batch) -> Batch:
        for op in ops:
            batch = op(batch)
        return batch

    # A dataset of one element, as only datasets can go on after an error.
    whole = tf.data.Dataset.from_tensors(batch).map(apply)
    results: Batch = batch_or_empty(whole.ignore_errors())
    return results


def element_fallback(
    whole: Callable[[Batch], Batch], one_by_one: Callable[[Batch], Batch], batch: Batch
) -> Batch:
    """Returns the results of `whole`, or those of `one_by_one` if that has none.

    Args:
        whole: As `batch_results` with its ops set.
        one_by_one: The same ops on each element of the batch.
        batch: With `record_id`, int64 [n].
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
    """The first batch of a dataset, or one of no elements if there is none.

    Args:
        batches: Of any structure, of tensors [n, ...].
    """
    none = tf.nest.map_structure(
        lambda item: tf.zeros([0, *(size or 0 for size in item.shape[1:])], item.dtype),
        batches.element_spec,
    )
    batches = batches.concatenate(tf.data.Dataset.from_tensors(none))
    return batches.take(1).get_single_element()
