"""Watched elements: those of a dataset that may block, with a check while they do.

In: a dataset, and functions that run beside it. Out: the same elements, or the error of
a check. TensorFlow cannot interrupt a dataset that waits for a server, but it can take
the error of another dataset which is read at the same time.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfpipe.stages.basic import as_it_is

# Time between two checks. An epoch may end this much later.
_PULSE_SECONDS = 0.05

_Optional = tf.experimental.Optional


def watched(
    elements: tf.data.Dataset,
    *,
    end: Callable[[], tf.Tensor],
    goes_on: Callable[[], tf.Tensor],
) -> tf.data.Dataset:
    """Returns the elements of a dataset in their order; a check may end them.

    While no element is ready and one is asked for, `goes_on` is called every 50 ms. No
    tensor is copied.

    Args:
        elements: A dataset.
        end: Returns the bool scalar False; called when the dataset has ended.
        goes_on: Returns a bool scalar, whether to check again. It must be False after
            `end` was called. An error that it raises is that of the dataset.
    """
    spec = elements.element_spec
    ended = tf.data.Dataset.range(1).filter(as_it_is(lambda _: end()))
    pulses = _pulses().take_while(as_it_is(lambda _: goes_on()))
    nothing = as_it_is(lambda _: _Optional.empty(spec))
    found = elements.map(as_it_is(_some)).concatenate(ended.map(nothing))

    def branch(number: tf.Tensor) -> tf.data.Dataset:
        first = tf.data.Dataset.range(1 - number).flat_map(as_it_is(lambda _: found))
        second = tf.data.Dataset.range(number).flat_map(as_it_is(lambda _: pulses))
        return first.concatenate(second.map(nothing))

    both = tf.data.Dataset.range(2).interleave(
        as_it_is(branch), cycle_length=2, num_parallel_calls=2, deterministic=False
    )
    some = both.filter(as_it_is(lambda element: element.has_value()))
    return some.map(as_it_is(lambda element: element.get_value()))


def _some(element: Any) -> Any:
    return _Optional.from_value(element)


def _pulses() -> tf.data.Dataset:
    """Returns int64 without end, one each `_PULSE_SECONDS`."""
    counted = tf.data.Dataset.range(tf.int64.max)
    slow = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(counted),
        sleep_microseconds=tf.constant(int(_PULSE_SECONDS * 1e6), tf.int64),
        output_types=[tf.int64],
        output_shapes=[[]],
    )
    return tf.data.experimental.from_variant(slow, tf.TensorSpec([], tf.int64))
