"""benchmarks.training.input_rate: what was read ahead is not the rate of the input."""

import itertools
from collections.abc import Iterator

import pytest

from benchmarks.training import input_rate, recorder, steady_state
from benchmarks.training.recorder import Trace
from benchmarks.training.steady_state import ReadAhead

AHEAD = ReadAhead(num_examples=80, num_warmup_steps=8, num_timed_steps=40)


class Clock:
    """Stands in for the module time."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now / 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (input_rate, recorder):
        monkeypatch.setattr(module, "time", clock)
    return clock


def _windows(clock: Clock) -> Iterator[int]:
    """Batches of windows of 4: the first two windows are there at once."""
    for number in itertools.count():
        if number >= 8 and number % 4 == 0:
            clock.now += 2.0
        yield number


def _time(batches: Iterator[int], seconds: float, **limit: float) -> Trace:
    trace, _ = input_rate.time_batches(
        batches, AHEAD, batch_size=10, steps_per_epoch=4, seconds=seconds, **limit
    )
    return trace


def test_the_rate_is_that_of_the_storage(clock: Clock) -> None:
    """A window of 40 examples takes 2 s; batches within a window take no time."""
    trace = _time(_windows(clock), 0.1)

    assert (trace.num_warmup_steps, len(trace.timed)) == (8, 40)
    assert steady_state.describe([trace])["reached"]
    assert [trace.examples_of(epoch) for epoch in (1, 2, 11, 12)] == [0, 40, 40, 0]
    figures = input_rate.throughput(trace, 0.5)
    assert figures["examples_per_second"] == pytest.approx(20.0)
    assert figures["num_elements"] == 40
    assert figures["elements_per_second_most"] < 4
    assert figures["cpu_seconds_per_element"] == pytest.approx(0.25)
    assert input_rate.text(figures).startswith("20.0 examples/s (")


def test_a_measurement_without_time_is_not_steady(clock: Clock) -> None:
    trace = _time(_windows(clock), 0.1, most_seconds=3.0)

    assert len(trace.timed) < 40
    steady = steady_state.describe([trace], remedy="give more --seconds")
    assert not steady["reached"]
    assert "Not in a steady state: give more --seconds." in steady["text"]


def test_a_fast_input_is_timed_for_the_wanted_seconds(clock: Clock) -> None:
    def batches() -> Iterator[int]:
        for number in itertools.count():
            clock.now += 0.01
            yield number

    assert _time(batches(), 3.0).seconds == pytest.approx(3.0, abs=0.02)
