"""tfpipe.LogInput by real clocks: slow input is wait, a slow step is compute.

The input or the step is slowed down by sleeping, by far more than the rest takes.
"""

import time

import keras
import pytest
import tensorflow as tf

import tfpipe

SLEEP_SECONDS = 0.05
BATCH_SIZE = 4
NUM_STEPS = 6


def _sleep(value):
    def sleep(value):
        time.sleep(SLEEP_SECONDS)
        return value

    slept = tf.py_function(sleep, [value], value.dtype)
    return tf.ensure_shape(slept, value.shape)


class Slow(keras.layers.Layer):
    """Passes on what it is given, after a while."""

    def call(self, x):
        return _sleep(x)


def figures(*, slow, steps_per_execution=1):
    """Fits with the callback; returns the figures of the second epoch."""
    batch = (tf.ones([BATCH_SIZE, 3]), tf.ones([BATCH_SIZE, 1]))
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    if slow == "input":
        dataset = dataset.map(lambda x, y: (_sleep(x), y), num_parallel_calls=1)
    layers = [Slow()] if slow == "step" else []
    model = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)])
    model.compile(
        "sgd",
        "mse",
        steps_per_execution=steps_per_execution,
        jit_compile=False,  # XLA has no Python calls
    )
    log = tfpipe.LogInput(tfpipe.StepTimer(BATCH_SIZE))
    model.fit(
        log.watch(dataset.prefetch(2)),
        steps_per_epoch=NUM_STEPS,
        epochs=2,
        callbacks=[log],
        verbose=0,
    )
    return log.timer.figures


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_slow_input_is_wait(steps_per_execution):
    found = figures(slow="input", steps_per_execution=steps_per_execution)

    assert found.stall_fraction > 0.5
    assert found.wait_seconds_per_step > 0.5 * SLEEP_SECONDS
    assert found.bottleneck.startswith("input: ")


def test_slow_step_is_compute():
    found = figures(slow="step")

    assert found.stall_fraction < 0.5
    assert found.compute_seconds_per_step >= SLEEP_SECONDS
