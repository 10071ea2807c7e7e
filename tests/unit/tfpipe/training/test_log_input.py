"""tfpipe.LogInput: what fit waits for and what it computes, from inside of it.

The input or the step is slowed down by sleeping, by far more than a busy machine adds.
"""

import time
import types

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


def make_dataset(*, is_slow=False):
    batch = (tf.ones([BATCH_SIZE, 3]), tf.ones([BATCH_SIZE, 1]))
    dataset = tf.data.Dataset.from_tensors(batch).repeat(NUM_STEPS)
    if is_slow:
        dataset = dataset.map(lambda x, y: (_sleep(x), y), num_parallel_calls=1)
    return dataset.prefetch(2)


def make_model(*, is_slow=False, steps_per_execution=1):
    layers = [Slow()] if is_slow else []
    model = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)])
    model.compile(
        "sgd",
        "mse",
        steps_per_execution=steps_per_execution,
        jit_compile=False,  # XLA has no Python calls
    )
    return model


def fit(model, dataset, *, epochs=2, every=100, **options):
    """Fits with the callback; returns the figures of its windows."""
    windows = []
    log = tfpipe.LogInput(
        tfpipe.StepTimer(BATCH_SIZE, every=every, report=windows.append)
    )
    model.fit(log.watch(dataset), epochs=epochs, callbacks=[log], verbose=0, **options)
    return windows


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_slow_input_is_wait(steps_per_execution):
    dataset = make_dataset(is_slow=True)
    model = make_model(steps_per_execution=steps_per_execution)

    windows = fit(model, dataset)

    assert windows[-1].stall_fraction >= 0.8
    assert windows[-1].wait_seconds_per_step >= 0.8 * SLEEP_SECONDS
    assert windows[-1].bottleneck.startswith("input: ")


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_slow_step_is_compute(steps_per_execution):
    dataset = make_dataset().repeat()
    model = make_model(is_slow=True, steps_per_execution=steps_per_execution)

    windows = fit(model, dataset, steps_per_epoch=NUM_STEPS)

    assert windows[-1].stall_fraction <= 0.1
    assert windows[-1].compute_seconds_per_step >= SLEEP_SECONDS
    assert windows[-1].bottleneck.startswith("the training step: ")


@pytest.mark.parametrize("each", [1, 2, 4])
def test_every_step_is_counted_and_the_first_execution_in_no_window(each):
    """An epoch of 6 steps ends within an execution of 4."""
    model = make_model(steps_per_execution=each)

    windows = fit(model, make_dataset())

    counts = [(window.step, window.num_steps) for window in windows]
    assert counts == [(6, 6 - each), (12, 6)]
    assert int(model.optimizer.iterations) == 12


def test_time_between_epochs_is_in_no_step():
    class Pause(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            time.sleep(0.5)

    log = tfpipe.LogInput(tfpipe.StepTimer(BATCH_SIZE))
    make_model().fit(
        log.watch(make_dataset()),
        validation_data=make_dataset(is_slow=True),
        epochs=2,
        callbacks=[log, Pause()],
        verbose=0,
    )

    figures = log.timer.figures
    seconds = figures.wait_seconds_per_step + figures.compute_seconds_per_step
    assert figures.num_steps * seconds < 0.5


def test_tensorboard_gets_the_figures_of_each_window(tmp_path):
    pytest.importorskip("tensorboard")
    log = tfpipe.LogInput(tfpipe.StepTimer(BATCH_SIZE, every=3, log_dir=tmp_path))

    make_model().fit(log.watch(make_dataset()), callbacks=[log], verbose=0)

    (path,) = (tmp_path / "rank-0").iterdir()
    found = {
        (value.tag, event.step)
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    }
    assert {step for _, step in found} == {4, 6}
    assert ("input/stall_fraction", 6) in found
    assert ("input/bottleneck", 6) in found


def test_dataset_that_is_not_watched_is_refused():
    log = tfpipe.LogInput(tfpipe.StepTimer(BATCH_SIZE))
    log.watch(make_dataset())

    with pytest.raises(ValueError, match=r"Give fit log\.watch\(dataset\)"):
        make_model().fit(make_dataset(), callbacks=[log], verbose=0)


def test_strategy_that_reads_ahead_is_refused():
    log = tfpipe.LogInput(tfpipe.StepTimer(BATCH_SIZE))
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    log.set_model(types.SimpleNamespace(distribute_strategy=strategy))

    with pytest.raises(ValueError, match=r"of one replica, got .* strategy of 2"):
        log.on_train_begin()
