"""Iterations: numbers that go on where the last iteration of a dataset ended.

In: how many numbers an iteration takes. Out: a `tf.data.Dataset` of them. A plain
dataset begins again at every iteration; Keras iterates once for every of its epochs.
"""

import itertools
from collections.abc import Callable

import tensorflow as tf

from tfpipe.stages.basic import as_it_is


def counters(first: int, later: int) -> tf.data.Dataset:
    """Returns the numbers 0, 1, 2, ..., a part of them in every iteration.

    Element: int64. An iteration takes its part when its first element is read, so two
    iterators open at once have different parts.

    Args:
        first: Number of elements of the first iteration, >= 0.
        later: Number of elements of every later iteration, >= 0.
    """
    return drawn(first, later).flat_map(as_it_is(tf.data.Dataset.range))


def drawn(first: int, later: int) -> tf.data.Dataset:
    """Returns the bounds of the next iteration's numbers, drawn when they are read.

    Element: a single (begin, end), int64.

    Args:
        first: As for `counters`.
        later: As for `counters`.
    """
    bounds = parts(first, later)

    def draw(_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        begin, end = tf.numpy_function(bounds, [], (tf.int64, tf.int64))
        return tf.ensure_shape(begin, []), tf.ensure_shape(end, [])

    return tf.data.Dataset.range(1).map(as_it_is(draw))


def parts(first: int, later: int) -> Callable[[], tuple[int, int]]:
    """Returns a function () -> (begin, end) of the next numbers, see `counters`."""
    iterations = itertools.count()  # its `next` is atomic

    def bounds() -> tuple[int, int]:
        iteration = next(iterations)
        begin = first + (iteration - 1) * later if iteration else 0
        return begin, begin + (later if iteration else first)

    return bounds
