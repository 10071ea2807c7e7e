"""tfpipe.headspace by real clocks: a slow input and a slow step."""

import os
import time

import tensorflow as tf

import tfpipe


def make_pipeline(seconds_per_batch):
    """Batches that each take so long, one after the other."""

    def slow(state, num_epochs):
        def wait(number):
            time.sleep(seconds_per_batch)
            return number

        numbers = tf.data.Dataset.range(10**9)
        return numbers.map(lambda x: tf.numpy_function(wait, [x], tf.int64))

    return tfpipe.Pipeline(slow, [tfpipe.Prefetch(buffer_size=1)])


def make_step(seconds):
    def step(batch):
        time.sleep(seconds)
        return tf.cast(batch, tf.float32)

    return step


def test_a_slow_input_holds_a_fast_step_back():
    found = tfpipe.headspace(
        make_pipeline(0.05), make_step(0.001), seconds=0.3, num_rounds=1
    )

    assert found.ratio < 0.5
    assert len(found.rates) == 1
    assert "holds the step back" in found.sentence


def test_a_fast_input_does_not_hold_a_slow_step_back():
    before = os.sched_getaffinity(0)

    found = tfpipe.headspace(
        make_pipeline(0.001), make_step(0.05), seconds=0.3, num_rounds=1
    )

    assert found.ratio > 0.5
    assert found.times_faster > 2
    assert os.sched_getaffinity(0) == before
