"""benchmarks.training.steps without a model: the emulated accelerator, and errors."""

import dataclasses
import time

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.training import caches, steps
from benchmarks.training.caches import Batch
from tests.support.data.tiny_training import first_batch, tiny_setting


def test_channels_first_on_a_cpu_without_xla_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"--data_format=NCHW must have a GPU or --xla"
    ):
        steps.build_model(tiny_setting(data_format="NCHW"))


class Clock:
    """Stands in for the module time: a sleep ends late, and a look takes 10 us."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        self.now += 1e-5
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds + 4e-4


@pytest.mark.parametrize(
    ("step_seconds", "copy_seconds", "expected"),
    [
        (0.050, 0.010, 0.050),  # the copy is within the step
        (0.050, 0.080, 0.080),  # unless it alone takes longer
        (0.0005, 0.0, 0.0005),  # too short to sleep
        (0.0, 0.0, 0.0),
    ],
)
def test_emulated_step_takes_its_time(
    monkeypatch: pytest.MonkeyPatch,
    step_seconds: float,
    copy_seconds: float,
    expected: float,
) -> None:
    setting = tiny_setting(step_time_ms=1.0)
    batch = first_batch(setting)
    clock = Clock()
    monkeypatch.setattr(steps, "time", clock)
    copied = []

    def copy(batch: Batch, places: object) -> None:
        copied.append(sorted(batch))
        clock.now += copy_seconds

    monkeypatch.setattr(steps, "_copy", copy)
    step = steps.make_emulated_step(setting, Ranks(), step_seconds)
    began = clock.now

    outcome = step(batch)

    assert clock.now - began == pytest.approx(expected, abs=1e-4)
    assert copied == [["image", "label"]]
    assert (outcome.num_examples, outcome.averaging) == (4, None)


def test_emulated_step_copies_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = []
    real = np.copyto
    monkeypatch.setattr(
        np, "copyto", lambda to, value: copied.append((to, value)) or real(to, value)
    )
    setting = tiny_setting(step_time_ms=0.0)
    step = steps.make_emulated_step(setting, Ranks(), 0.0)
    batch = first_batch(setting)

    for _ in range(2):
        step(batch | {"mask": tf.ones(4), "record_id": tf.range(4, dtype=tf.int64)})

    types = ["uint8", "int32", "float32", "int64"]
    assert [value.dtype for _, value in copied] == types * 2
    for to, value in copied:
        assert np.array_equal(to, value)
        assert not np.shares_memory(to, value)
    assert copied[0][0] is copied[4][0]  # no new memory


@pytest.mark.parametrize(("mode", "synced"), [("train", 0.25), ("infer", 0.0)])
def test_waiting_for_other_ranks_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, mode: str, synced: float
) -> None:
    """In inference, ranks do not wait for each other."""
    clock = Clock()
    monkeypatch.setattr(steps, "time", clock)

    class Late(Ranks):
        def average(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
            tf.py_function(lambda: setattr(clock, "now", clock.now + 0.25), [], [])
            return gradients

    setting = tiny_setting(step_time_ms=1.0)
    config = dataclasses.replace(setting.config, mode=mode)
    setting = dataclasses.replace(setting, config=config)
    step = steps.make_emulated_step(setting, Late(num_ranks=2), 0.01)

    outcome = step(first_batch(setting))

    waited = 0.0 if outcome.averaging is None else np.diff(outcome.averaging)
    assert waited == pytest.approx(synced, abs=1e-3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"image": tf.zeros([32, 32, 3])}, "needs batches with image"),
        ({"image": tf.zeros([32, 32, 1]), "label": 0}, "needs batches with image"),
        ({"image": tf.zeros([16, 16, 3]), "label": 0}, "must be >= 32.*got 16"),
    ],
)
def test_batches_without_images_and_labels_are_an_error(
    spec: dict[str, object], message: str
) -> None:
    dataset = tf.data.Dataset.from_tensors(spec).batch(1)
    pipeline = tfpipe.Pipeline(lambda state, num_epochs: dataset, [])

    with pytest.raises(ValueError, match=message):
        steps.make_step("resnet50", pipeline, seed=0)


def test_without_a_gpu_batches_are_not_copied() -> None:
    dataset = tf.data.Dataset.range(3)

    assert caches.to_device(dataset) is dataset


@pytest.mark.parametrize("eagerly", [True, False])
def test_times_of_a_host_that_is_up_for_long_are_exact(
    monkeypatch: pytest.MonkeyPatch, *, eagerly: bool
) -> None:
    """A float32 of such a time would be up to 8 ms wrong."""
    monkeypatch.setattr(time, "perf_counter", lambda: 100_000.123456)
    tensor, on_host = tf.zeros([2]), tf.Variable(tf.zeros([1]))

    def look() -> tf.Tensor:
        return steps._time_of([tensor], on_host)

    found = look() if eagerly else tf.function(look)()

    assert found.numpy() == 100_000.123456
