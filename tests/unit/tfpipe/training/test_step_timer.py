"""tfpipe.StepTimer: wait against compute of a loop, by a clock that the tests move."""

import importlib.util
import types

import pytest
import tensorflow as tf

import tfpipe
from tests.support.faults.clock import Clock


@pytest.fixture
def clock():
    return Clock()


def slow_source(clock, waits, *, opening=0.0):
    """An iterable of 0, 1 ... whose elements take some seconds each."""
    clock.now += opening
    for number, seconds in enumerate(waits):
        clock.now += seconds
        yield number


def events(folder):
    """tag -> {step: value} of the event files in a folder."""
    found = {}
    for path in sorted(folder.glob("events*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                content = tf.make_ndarray(value.tensor).item()
                found.setdefault(value.tag, {})[event.step] = content
    return found


def run(timer, clock, *, waits, computes):
    """A loop whose batches and steps take the given seconds."""
    for number in timer.batches(slow_source(clock, waits)):
        clock.now += computes[number]


def test_wait_and_compute_are_told_apart(clock):
    groups = []
    timer = tfpipe.StepTimer(8, every=2, report=groups.append, clock=clock)

    run(timer, clock, waits=[9, 1, 3, 0, 0], computes=[7, 4, 2, 1, 3])

    assert [figures.step for figures in groups] == [3, 5]
    first, second = groups
    assert first.num_steps == 2
    assert first.wait_seconds_per_step == 2.0
    assert first.compute_seconds_per_step == 3.0
    assert first.stall_fraction == 0.4
    assert first.examples_per_second == 1.6
    assert first.step_seconds_p50 == 5.0
    assert first.first_batch_seconds == 9.0
    assert first.bottleneck == "input: 40 % of the time waiting"
    assert second.stall_fraction == 0.0
    assert (second.step_seconds_p50, second.step_seconds_p90) == (2.0, 2.8)
    assert second.step_seconds_p99 == pytest.approx(2.98)
    assert timer.figures == second


def test_end_of_the_dataset_ends_a_group(clock):
    groups = []
    timer = tfpipe.StepTimer(8, every=100, report=groups.append, clock=clock)

    run(timer, clock, waits=[1, 1, 1], computes=[1, 2, 3])

    assert [(group.step, group.num_steps) for group in groups] == [(3, 2)]
    assert groups[0].compute_seconds_per_step == 2.5


def test_opening_the_dataset_again_is_wait(clock):
    timer = tfpipe.StepTimer(8, clock=clock)
    run(timer, clock, waits=[5, 1], computes=[1, 1])

    for _ in timer.batches(slow_source(clock, [2, 0], opening=4)):
        clock.now += 1

    assert timer.figures.first_batch_seconds == 6.0
    assert timer.figures.wait_seconds_per_step == 3.0
    assert timer.figures.step == 4


def test_what_follows_the_end_of_a_step_is_not_counted(clock):
    timer = tfpipe.StepTimer(8, clock=clock)
    ended = []

    for _ in timer.batches(slow_source(clock, [1, 2, 3])):
        clock.now += 1
        ended.append(timer.end_step())
        clock.now += 100  # a checkpoint

    assert ended == [(1, 1), (2, 1), (3, 1)]
    assert timer.figures.wait_seconds_per_step == 2.5
    assert timer.figures.compute_seconds_per_step == 1.0


def test_step_left_by_break_is_not_counted(clock):
    timer = tfpipe.StepTimer(8, clock=clock)

    for number in timer.batches(slow_source(clock, [1, 1, 1, 1])):
        clock.now += 1
        if number == 2:
            break

    assert (timer.figures.step, timer.figures.num_steps) == (2, 1)
    with pytest.raises(RuntimeError, match="no step is under way"):
        timer.end_step()


def test_steps_of_one_execution_count_as_their_mean():
    timer = tfpipe.StepTimer(8, every=4)
    timer.add(1, 1)

    timer.add(4, 12, num_steps=4)

    assert timer.figures.num_steps == 4
    assert timer.figures.wait_seconds_per_step == 1.0
    assert timer.figures.step_seconds_p50 == timer.figures.step_seconds_p99 == 4.0


@pytest.mark.parametrize(
    ("stall_fraction", "sentence"),
    [
        (0.0, "the training step: < 1 % of the time waiting for input"),
        (0.031, "the training step: 3 % of the time waiting for input"),
        (0.38, "input: 38 % of the time waiting; decode takes 71 % of the CPU"),
    ],
)
def test_bottleneck_is_named_and_quotes_what_binds_in_the_input(
    stall_fraction, sentence
):
    bottleneck = types.SimpleNamespace(sentence="decode takes 71 % of the CPU")
    profile = types.SimpleNamespace(bottleneck=bottleneck)
    timer = tfpipe.StepTimer(8, every=1, profile=profile)
    timer.add(1, 1)

    timer.add(stall_fraction, 1 - stall_fraction)

    assert timer.figures.bottleneck == sentence


def test_tensorboard_gets_every_figure_at_its_step(clock, tmp_path):
    pytest.importorskip("tensorboard")
    timer = tfpipe.StepTimer(8, every=2, log_dir=tmp_path, first_step=100, clock=clock)

    run(timer, clock, waits=[9, 1, 3, 0, 0], computes=[7, 4, 2, 1, 3])

    assert [path.name for path in tmp_path.iterdir()] == ["rank-0"]
    found = events(tmp_path / "rank-0")
    assert found.pop("input/bottleneck") == {
        103: b"input: 40 % of the time waiting",
        105: b"the training step: < 1 % of the time waiting for input",
    }
    assert sorted(found) == [
        "input/compute_seconds_per_step",
        "input/examples_per_second",
        "input/first_batch_seconds",
        "input/stall_fraction",
        "input/step_seconds_p50",
        "input/step_seconds_p90",
        "input/step_seconds_p99",
        "input/wait_seconds_per_step",
    ]
    assert found["input/wait_seconds_per_step"] == {103: 2.0, 105: 0.0}
    assert found["input/compute_seconds_per_step"] == {103: 3.0, 105: 2.0}
    assert found["input/examples_per_second"] == pytest.approx({103: 1.6, 105: 4.0})


@pytest.mark.parametrize(
    ("rank", "all_ranks", "folders"),
    [(0, False, ["rank-0"]), (1, False, []), (1, True, ["rank-1"])],
)
def test_ranks_that_write(tmp_path, rank, all_ranks, folders):
    pytest.importorskip("tensorboard")
    timer = tfpipe.StepTimer(8, log_dir=tmp_path, rank=rank, all_ranks=all_ranks)
    timer.add(1, 1)
    timer.add(1, 1)

    timer.flush()

    assert [path.name for path in tmp_path.iterdir()] == folders
    assert timer.figures.stall_fraction == 0.5


def test_chosen_parallelism_of_the_iterator_is_written(tmp_path):
    pytest.importorskip("tensorboard")
    timer = tfpipe.StepTimer(
        8,
        every=2,
        log_dir=tmp_path,
        parallelism=lambda iterator: f"elements of {iterator.element_spec.dtype.name}",
    )

    for _ in timer.batches(tf.data.Dataset.range(4)):
        pass

    found = events(tmp_path / "rank-0")["input/parallelism"]
    assert found == {3: b"elements of int64", 4: b"elements of int64"}


def test_parallelism_that_cannot_be_told_is_said_so(tmp_path):
    pytest.importorskip("tensorboard")

    def parallelism(iterator):
        raise NotImplementedError("TensorFlow 2.16 does not tell.")

    timer = tfpipe.StepTimer(8, log_dir=tmp_path, parallelism=parallelism)

    for _ in timer.batches(range(2)):
        pass

    found = events(tmp_path / "rank-0")["input/parallelism"]
    assert found == {2: b"TensorFlow 2.16 does not tell."}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
        ({"every": 0}, "every must be a whole number >= 1, got 0"),
        ({"rank": -1}, "rank must be a whole number >= 0, got -1"),
        ({"first_step": -1}, "first_step must be a whole number >= 0, got -1"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        tfpipe.StepTimer(**{"batch_size": 8, **options})


def test_missing_tensorboard_is_said_before_training(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    tfpipe.StepTimer(8, log_dir=tmp_path, rank=1)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        tfpipe.StepTimer(8, log_dir=tmp_path)
