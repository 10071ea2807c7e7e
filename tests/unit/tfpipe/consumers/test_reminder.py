"""The reminder that nobody has normalized the pixels of a pipeline."""

import dataclasses

import pytest
import tensorflow as tf

import tfpipe
from tests.unit.quick import REMINDER_AMONG
from tfpipe.consumers.reminder import Reminder

REMINDER = "nothing has normalized them so far"


@pytest.fixture(autouse=True)
def _reminder(monkeypatch):
    monkeypatch.setattr(Reminder, "among", REMINDER_AMONG)


@pytest.fixture
def pipeline():
    source = tfpipe.SyntheticSource(batch_size=2, steps_per_epoch=9, image_size=4)
    return tfpipe.Pipeline(
        source,
        [tfpipe.Prefetch(buffer_size=1)],
        device_ops=[tfpipe.Normalize()],
    )


def read(dataset, num_batches=9):
    return len(list(dataset.take(num_batches)))


def test_pixels_that_nobody_normalizes_are_named_once(pipeline, capfd):
    dataset = pipeline.build()

    assert read(dataset, 3) == 3
    assert REMINDER not in capfd.readouterr().err
    assert read(dataset) == 9
    assert read(pipeline.build()) == 9

    assert capfd.readouterr().err.count(REMINDER) == 1
    assert dataset.cardinality() == 9


def test_reader_of_few_batches_is_reminded_in_the_next_iteration(pipeline, capfd):
    source = dataclasses.replace(pipeline.source, steps_per_epoch=2)
    dataset = dataclasses.replace(pipeline, source=source).build()

    assert read(dataset) == 2
    assert REMINDER not in capfd.readouterr().err
    assert read(dataset) == 2

    assert REMINDER in capfd.readouterr().err


def on_device(pipeline):
    tuned = dataclasses.replace(pipeline, tuning=tfpipe.Tuning(num_parallel_maps=2))
    batch = next(iter(tuned.build()))
    pipeline.on_device(batch)
    return tuned.build()


@pytest.mark.parametrize(
    "used",
    [
        on_device,
        lambda pipeline: pipeline.for_keras(device_ops="layer"),
        lambda pipeline: dataclasses.replace(pipeline, device_ops=()).build(),
        lambda pipeline: pipeline.to_numpy(apply_device_ops=False),
        lambda pipeline: pipeline.to_numpy(apply_device_ops=True),
    ],
    ids=[
        "on_device of the tuned pipeline",
        "for_keras",
        "no device_ops",
        "JAX",
        "done",
    ],
)
def test_who_applies_the_ops_is_not_reminded(pipeline, used, capfd):
    assert len(list(used(pipeline))) == 9

    assert capfd.readouterr().err == ""


def test_measuring_is_not_reminded(pipeline, capfd):
    tfpipe.throughput(pipeline.build(), num_elements=8, seconds=0.01, repeats=1)

    assert REMINDER not in capfd.readouterr().err


def test_a_function_of_tensorflow_may_build_a_pipeline(pipeline):
    @tf.function
    def num_batches():
        return pipeline.build().reduce(0, lambda count, _: count + 1)

    assert num_batches() == len(list(pipeline.build()))
