"""tfpipe.StateCallback in Keras: an interrupted fit goes on with the next record."""

import contextlib

import keras
import pytest
import tensorflow as tf

import tfpipe
from tests.support.processes.stopping import Stop

BATCH_SIZE = 4
STEPS = 6  # of an epoch of the 24 training records


class Recording(keras.Model):
    """Notes the record numbers that it is trained on, batch by batch."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.seen = []

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        def note(record_ids):
            self.seen.append(record_ids.numpy().tolist())

        tf.py_function(note, [data[1]], [])
        return super().train_step(data)


def make_model(steps_per_execution=1):
    model = Recording()
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    model.jit_compile = False  # XLA has no Python calls
    return model


@pytest.fixture
def pipeline(data_dir):
    def numbers(record):
        number = record["record_id"]
        return tf.cast(number, tf.float32)[tf.newaxis], number

    source = tfpipe.TFRecordSource(data_dir, "train", seed=1, batch_size=BATCH_SIZE)
    return tfpipe.Pipeline(
        source,
        [
            tfpipe.Interleave(),
            tfpipe.AssertCardinality(),
            tfpipe.Map(numbers),
            tfpipe.Batch(BATCH_SIZE),
            tfpipe.Prefetch(buffer_size=4),
        ],
    )


def expected_batches(pipeline, num_epochs):
    return [ids.tolist() for _, ids in pipeline.to_numpy(num_epochs=num_epochs)]


def fit(pipeline, saved, *callbacks, steps_per_execution=1, epochs=3, **options):
    """Fits from a state on; returns the batches that the model saw."""
    model = make_model(steps_per_execution)
    save = tfpipe.StateCallback(pipeline, saved, **options)
    with contextlib.suppress(KeyboardInterrupt):
        model.fit(
            pipeline.build(state=saved.state, num_epochs=None),
            steps_per_epoch=STEPS,
            initial_epoch=saved.state.epoch,
            epochs=epochs,
            callbacks=[save, *callbacks],
            verbose=0,
        )
    return model.seen


@pytest.mark.parametrize(
    ("steps_per_execution", "stop_after"), [(1, 6), (1, 8), (3, 9)]
)
def test_interrupted_fit_goes_on_with_the_next_record(
    pipeline, steps_per_execution, stop_after
):
    expected = expected_batches(pipeline, 3)
    saved = tfpipe.CheckpointState()
    options = {"steps_per_execution": steps_per_execution}

    before = fit(pipeline, saved, Stop(stop_after), **options)
    state = saved.state
    after = fit(pipeline, saved, Stop(3 * STEPS - stop_after), **options)

    assert (state.epoch, state.step) == divmod(stop_after, STEPS)
    assert before == expected[:stop_after]
    assert after == expected[stop_after:]
    assert (saved.state.epoch, saved.state.step) == (3, 0)


def test_fit_of_the_rest_of_an_epoch_ends_with_it(pipeline):
    expected = expected_batches(pipeline, 2)
    saved = tfpipe.CheckpointState()
    fit(pipeline, saved, Stop(8))
    model = make_model()

    model.fit(
        pipeline.build(state=saved.state),
        initial_epoch=1,
        epochs=2,
        callbacks=[tfpipe.StateCallback(pipeline, saved)],
        verbose=0,
    )

    assert model.seen == expected[8:]
    assert (saved.state.epoch, saved.state.step) == (2, 0)


def test_state_is_written_beside_the_checkpoint_of_each_epoch(pipeline, tmp_path):
    saved = tfpipe.CheckpointState()

    fit(pipeline, saved, epochs=2, path=tmp_path / "run-{epoch}.json")

    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(files) == ["run-1.json", "run-2.json"]
    states = [tfpipe.State.from_json(text) for _, text in sorted(files.items())]
    assert [(state.epoch, state.step) for state in states] == [(1, 0), (2, 0)]
    assert states[1] == saved.state
    assert states[0].digest == pipeline.source.digest


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_state_is_written_where_keras_writes_its_checkpoints(
    pipeline, tmp_path, steps_per_execution
):
    checkpoint = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "run-{epoch}-{batch}.weights.h5"),
        save_weights_only=True,
        save_freq=4,
    )

    fit(
        pipeline,
        tfpipe.CheckpointState(),
        checkpoint,
        epochs=2,
        path=str(tmp_path / "run-{epoch}-{batch}.json"),
        save_freq=4,
        steps_per_execution=steps_per_execution,
    )

    states = {
        path.stem: tfpipe.State.from_json(path.read_text())
        for path in tmp_path.glob("*.json")
    }
    weights = tmp_path.glob("*.h5")
    assert sorted(states) == sorted(path.name.split(".")[0] for path in weights)
    assert [
        (name, state.epoch, state.step) for name, state in sorted(states.items())
    ] == [("run-1-4", 0, 4), ("run-2-2", 1, 2), ("run-2-6", 2, 0)]


def test_model_and_state_are_in_one_checkpoint(pipeline, tmp_path):
    saved = tfpipe.CheckpointState()
    fit(pipeline, saved, Stop(8))
    path = tf.train.Checkpoint(data=saved).save(str(tmp_path / "checkpoint"))
    restored = tfpipe.CheckpointState()

    tf.train.Checkpoint(data=restored).restore(path)

    assert restored.state == saved.state
    assert (restored.state.epoch, restored.state.step) == (1, 2)


def test_steps_that_cannot_be_counted_are_refused(pipeline):
    model = make_model(steps_per_execution=4)
    saved = tfpipe.CheckpointState()

    with pytest.raises(ValueError, match=r"multiple of .* steps_per_execution, got 6 "):
        model.fit(
            pipeline.build(),
            callbacks=[tfpipe.StateCallback(pipeline, saved)],
            verbose=0,
        )

    assert model.seen == []
