"""tfpipe.StateCallback: counts steps and writes the state, called as Keras calls it."""

import types

import pytest
import tensorflow as tf

import tfpipe

BATCH_SIZE = 4
STEPS = 6  # of an epoch of the 24 training records


@pytest.fixture(scope="module")
def pipeline(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", seed=1, batch_size=BATCH_SIZE)
    return tfpipe.Pipeline(source, [tfpipe.Interleave(), tfpipe.Batch(BATCH_SIZE)])


def train(callback, *, epochs=2, steps_per_execution=1):
    """Calls a callback as `fit` does."""
    callback.set_params({"steps": STEPS})
    callback.set_model(types.SimpleNamespace(steps_per_execution=steps_per_execution))
    callback.on_train_begin()
    for epoch in range(epochs):
        callback.on_epoch_begin(epoch)
        for batch in range(0, STEPS, steps_per_execution):
            callback.on_train_batch_end(batch + steps_per_execution - 1)
        callback.on_epoch_end(epoch)


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_every_step_of_an_execution_is_counted(pipeline, steps_per_execution):
    saved = tfpipe.CheckpointState()

    train(
        tfpipe.StateCallback(pipeline, saved),
        epochs=3,
        steps_per_execution=steps_per_execution,
    )

    assert (saved.state.epoch, saved.state.step) == (3, 0)
    assert saved.state.digest == pipeline.source.digest


@pytest.mark.parametrize(
    ("name", "save_freq", "expected"),
    [
        ("run-{epoch}.json", "epoch", {"run-1": (1, 0), "run-2": (2, 0)}),
        (
            "run-{epoch}-{batch}.json",
            4,
            {"run-1-4": (0, 4), "run-2-2": (1, 2), "run-2-6": (2, 0)},
        ),
    ],
)
def test_state_is_written_at_each_epoch_or_after_so_many_batches(
    pipeline, tmp_path, name, save_freq, expected
):
    saved = tfpipe.CheckpointState()

    train(
        tfpipe.StateCallback(pipeline, saved, path=tmp_path / name, save_freq=save_freq)
    )

    states = {
        path.stem: tfpipe.State.from_json(path.read_text())
        for path in tmp_path.iterdir()
    }
    assert {name: (s.epoch, s.step) for name, s in states.items()} == expected
    assert states[max(states)] == saved.state


@pytest.mark.parametrize("steps", [None, STEPS])
def test_steps_that_cannot_be_counted_are_refused(pipeline, steps):
    callback = tfpipe.StateCallback(pipeline, tfpipe.CheckpointState())
    callback.set_params({"steps": steps})
    callback.set_model(types.SimpleNamespace(steps_per_execution=4))

    with pytest.raises(
        ValueError, match=rf"multiple of .* steps_per_execution, got {steps} "
    ):
        callback.on_train_begin()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"save_freq": 0}, "a whole number >= 1 or 'epoch', got 0"),
        ({"save_freq": "step"}, "a whole number >= 1 or 'epoch', got 'step'"),
        ({"path": "a-{loss}"}, r"no names but \{epoch\} .* got a-\{loss\}"),
        ({"path": "a-{batch}"}, r"unless save_freq is 'epoch', \{batch\}; got"),
    ],
)
def test_wrong_arguments_are_refused(pipeline, options, message):
    with pytest.raises(ValueError, match=message):
        tfpipe.StateCallback(pipeline, tfpipe.CheckpointState(), **options)


def test_source_without_a_state_is_refused():
    def source(state, num_epochs):
        return tf.data.Dataset.range(3)

    with pytest.raises(TypeError, match="must have a pipeline whose source says where"):
        tfpipe.StateCallback(tfpipe.Pipeline(source, []), tfpipe.CheckpointState())
