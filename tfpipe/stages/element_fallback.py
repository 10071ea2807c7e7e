"""Ops on a whole batch at once, and on each of its elements where that fails.

In: a batch. Out: the ops' results. One damaged image makes an op fail on the batch that
it is in; who it is and what stands in for it, `stages.Map` finds out one by one.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Batch = dict[str, tf.Tensor]


def element_fallback(
    apply: Callable[[Batch], Batch], one_by_one: Callable[[Batch], Batch], batch: Batch
) -> Batch:
    """What `apply` makes of a batch, or `one_by_one` if an op of `apply` fails."""
    # A dataset of one element, as only datasets can go on after an error.
    whole = tf.data.Dataset.from_tensors(batch).map(apply)
    results = batch_or_empty(whole.ignore_errors())
    is_done = tf.shape(next(iter(results.values())))[0] > 0
    results = tf.cond(is_done, lambda: results, lambda: one_by_one(batch))
    return {
        name: tf.ensure_shape(value, whole.element_spec[name].shape)
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
