"""No iterator is read any more after the end of a process has begun."""

import time

import numpy as np
import tensorflow as tf

from tfpipe import at_exit


def test_no_iterator_goes_on() -> None:
    calls = []

    def count(number: np.int64) -> np.int64:
        calls.append(number)
        return number

    numbers = tf.data.Dataset.counter().map(
        lambda number: tf.numpy_function(count, [number], tf.int64)
    )
    batches = iter(numbers.prefetch(10**6))
    assert next(batches) == 0

    at_exit.end_iterators()

    before = len(calls)
    time.sleep(0.2)
    assert len(calls) == before
