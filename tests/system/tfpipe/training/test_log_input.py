"""tfpipe.LogInput in Keras: each step is counted, and nothing between the epochs."""

import keras
import pytest
import tensorflow as tf

import tfpipe
from tests.support.faults.clock import Clock

BATCH_SIZE = 4
NUM_STEPS = 6


def make_dataset():
    batch = (tf.ones([BATCH_SIZE, 3]), tf.ones([BATCH_SIZE, 1]))
    return tf.data.Dataset.from_tensors(batch).repeat(NUM_STEPS).prefetch(2)


def make_model(*, steps_per_execution=1):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(
        "sgd", "mse", steps_per_execution=steps_per_execution, jit_compile=False
    )
    return model


@pytest.mark.parametrize("each", [1, 2, 4])
def test_every_step_is_counted_and_the_first_execution_in_no_group(each):
    """An epoch of 6 steps ends within an execution of 4."""
    model = make_model(steps_per_execution=each)
    groups = []
    log = tfpipe.LogInput(tfpipe.StepTimer(BATCH_SIZE, report=groups.append))

    model.fit(log.watch(make_dataset()), epochs=2, callbacks=[log], verbose=0)

    counts = [(figures.step, figures.num_steps) for figures in groups]
    assert counts == [(6, 6 - each), (12, 6)]
    assert int(model.optimizer.iterations) == 12


def test_time_between_epochs_is_in_no_step():
    """Validation and other callbacks move the clock, the steps do not."""
    clock = Clock()

    class Pause(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            clock.move(1000)

        def on_epoch_end(self, epoch, logs=None):
            clock.move(1000)

    log = tfpipe.LogInput(tfpipe.StepTimer(BATCH_SIZE, clock=clock))

    make_model().fit(
        log.watch(make_dataset()),
        validation_data=make_dataset(),
        epochs=2,
        callbacks=[log, Pause()],
        verbose=0,
    )

    assert clock.now > 4000
    assert log.timer.figures.num_steps == NUM_STEPS
    # The clock does not go on, so a step has no time but what its probe measured.
    assert log.timer.figures.compute_seconds_per_step == 0.0
    assert log.timer.figures.first_batch_seconds < 1000


def test_tensorboard_gets_the_figures_of_each_group(tmp_path):
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
