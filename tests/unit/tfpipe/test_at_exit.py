"""A process ends although a dataset that calls Python is still being read."""

import os
import pathlib
import subprocess
import sys
import threading
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


def test_a_thread_gets_its_element_before_the_process_goes_on_ending() -> None:
    asked, answer = threading.Event(), threading.Event()
    seen, raised = [], []

    def wait(number: np.int64) -> np.int64:
        asked.set()
        answer.wait()
        return number

    numbers = tf.data.Dataset.range(100).map(
        lambda number: tf.numpy_function(wait, [number], tf.int64)
    )

    def read() -> None:
        try:
            for number in numbers:
                seen.append(int(number))
            seen.append("the end")
        except BaseException as error:
            raised.append(error)

    reader = threading.Thread(target=read, daemon=True)
    ending = threading.Thread(target=at_exit.end_iterators)
    reader.start()
    asked.wait()
    ending.start()
    ending.join(timeout=0.3)
    was_ending = ending.is_alive()
    answer.set()
    ending.join()
    reader.join()

    assert was_ending
    assert seen == [0]  # the rest is not read, nor is it taken for the end
    assert [type(error) for error in raised] == [SystemExit]


@pytest.mark.slow
def test_a_process_ends_while_a_daemon_thread_waits(data_dir: pathlib.Path) -> None:
    script = f"""
import threading, tensorflow as tf, tfpipe
made = tfpipe.imagenet_train({str(data_dir)!r}, image_size=32, batch_size=4,
    cache=tfpipe.Cache("ram"))
def slow(example):
    matrix = tf.fill([1500, 1500], tf.cast(example["label"], tf.float32))
    return {{"product": tf.reduce_sum(matrix @ matrix @ matrix)}}
source, reading, cache = made.source, made.stages[0], made.stages[1]
pipeline = tfpipe.Pipeline(source, [reading, cache, made.stages[3], tfpipe.Map(slow)])
started = threading.Event()
def read():
    for _ in pipeline.build(num_epochs=None):
        started.set()
threading.Thread(target=read, daemon=True).start()
started.wait()
"""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", script]

    # Without waiting every fifth one was killed by a signal.
    for _ in range(3):
        done = subprocess.run(
            command, timeout=120, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr


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
