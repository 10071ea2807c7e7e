"""A process ends although a dataset that calls Python is still being read."""

import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
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


@pytest.mark.slow
def test_a_process_ends_in_the_middle_of_an_epoch(data_dir: pathlib.Path) -> None:
    script = f"""
import tfpipe
pipeline = tfpipe.imagenet_train({str(data_dir)!r}, image_size=32, batch_size=4,
    shuffle="none", cache=tfpipe.Cache("ram"))
batches = iter(pipeline.build(num_epochs=None))
next(batches)
"""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", script]

    # Without `at_exit` every third one hung.
    for _ in range(4):
        subprocess.run(command, check=True, timeout=120, env=environment)
