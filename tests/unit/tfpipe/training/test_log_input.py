"""tfpipe.LogInput: wait and compute of each step, by a clock that the tests move."""

import types

import pytest

import tfpipe
from tests.support.faults.clock import Clock

MODEL = types.SimpleNamespace(
    distribute_strategy=types.SimpleNamespace(num_replicas_in_sync=1)
)


class Waits:
    """Stands for a WaitProbe: gives made-up waits, `num_steps` batches at a time."""

    def __init__(self, clock, num_steps):
        self.clock = clock
        self.num_steps = num_steps
        self.waited = None

    def wait(self, seconds):
        self.clock.move(seconds)
        self.waited = (self.num_steps, seconds)

    def take(self):
        taken, self.waited = self.waited or (0, 0.0), None
        return taken


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def groups():
    return []


def make_log(clock, groups, *, num_steps=1):
    timer = tfpipe.StepTimer(8, report=groups.append, clock=clock)
    log = tfpipe.LogInput(timer)
    log._probe = Waits(clock, num_steps)
    log.set_model(MODEL)
    log.on_train_begin()
    return log


def train_epoch(log, clock, *, opening, waits, computes):
    """An epoch as in `fit`: opens the dataset, then waits and computes."""
    log.on_epoch_begin(0)
    clock.move(opening)
    for batch, (wait, compute) in enumerate(zip(waits, computes, strict=True)):
        log.on_train_batch_begin(batch)
        log._probe.wait(wait)
        clock.move(compute)
        log.on_train_batch_end(batch)
    clock.move(1000)  # validation
    log.on_epoch_end(0)
    clock.move(1000)


def test_wait_is_told_from_compute_and_opening_counts_as_wait(clock, groups):
    log = make_log(clock, groups)

    train_epoch(log, clock, opening=5, waits=[9, 1, 2], computes=[7, 3, 4])
    train_epoch(log, clock, opening=4, waits=[2, 0, 0], computes=[1, 1, 1])

    first, second = groups
    assert (first.step, first.num_steps) == (3, 2)  # without the first step of all
    assert first.first_batch_seconds == 5 + 9
    assert first.wait_seconds_per_step == 1.5
    assert first.compute_seconds_per_step == 3.5
    assert (second.step, second.num_steps) == (6, 3)
    assert second.wait_seconds_per_step == (4 + 2) / 3
    assert second.compute_seconds_per_step == 1


def test_steps_of_one_execution_count_as_their_mean(clock, groups):
    log = make_log(clock, groups, num_steps=2)

    train_epoch(log, clock, opening=0, waits=[1, 2, 4], computes=[1, 6, 8])

    (figures,) = groups
    assert (figures.step, figures.num_steps) == (6, 4)
    assert figures.wait_seconds_per_step == 1.5
    assert figures.compute_seconds_per_step == 3.5


def test_wait_by_another_clock_makes_no_negative_compute(clock, groups):
    log = make_log(clock, groups)

    train_epoch(log, clock, opening=0, waits=[1, 1], computes=[0, -1e-6])

    assert groups[0].compute_seconds_per_step == 0.0


def test_dataset_that_is_not_watched_is_refused(clock, groups):
    log = make_log(clock, groups)
    log.on_epoch_begin(0)
    log.on_train_batch_begin(0)

    with pytest.raises(ValueError, match=r"Give fit log\.watch\(dataset\)"):
        log.on_train_batch_end(0)


def test_strategy_that_reads_ahead_is_refused():
    log = tfpipe.LogInput(tfpipe.StepTimer(8))
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    log.set_model(types.SimpleNamespace(distribute_strategy=strategy))

    with pytest.raises(ValueError, match=r"of one replica, got .* strategy of 2"):
        log.on_train_begin()
