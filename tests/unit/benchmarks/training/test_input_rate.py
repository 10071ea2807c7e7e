"""benchmarks.training.input_rate: what was read ahead is not the rate of the input."""

import itertools
from collections.abc import Iterator

import pytest

from benchmarks.reporting.steady_state import ReadAhead
from benchmarks.training import input_rate
from benchmarks.training.input_rate import InputRate

AHEAD = ReadAhead(num_examples=80, num_warmup_steps=8, num_timed_steps=40)


class Clock:
    """Stands in for the module time."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(input_rate, "time", clock)
    return clock


def _windows(clock: Clock) -> Iterator[int]:
    """Batches of windows of 4: the first two windows are there at once."""
    for number in itertools.count():
        if number >= 8 and number % 4 == 0:
            clock.now += 2.0
        yield number


def _rate(ends: list[float]) -> InputRate:
    return InputRate(
        ahead=AHEAD,
        batch_size=10,
        num_warmup=8,
        end_seconds=ends,
        cpu_seconds=4.0,
        first_seconds=0.5,
    )


def test_the_rate_is_that_of_the_storage(clock: Clock) -> None:
    """A window of 40 examples takes 2 s; batches within a window take no time."""
    num_warmup, ends = input_rate.time_batches(_windows(clock), AHEAD, seconds=0.1)

    assert (num_warmup, len(ends)) == (8, 40)
    rate = _rate(ends)
    assert rate.examples_per_second == pytest.approx(20.0)
    assert input_rate.steady_state_of([_rate(ends)])["reached"]
    figures = rate.throughput()
    assert figures["num_elements"] == 40
    assert figures["elements_per_second_most"] < 4


def test_a_measurement_without_time_is_not_steady(clock: Clock) -> None:
    _, ends = input_rate.time_batches(
        _windows(clock), AHEAD, seconds=0.1, most_seconds=3.0
    )

    assert len(ends) < 40
    steady = input_rate.steady_state_of([_rate(ends)])
    assert not steady["reached"]
    assert "Not in a steady state: give more --seconds." in steady["text"]


def test_a_fast_input_is_timed_for_the_wanted_seconds(clock: Clock) -> None:
    def batches() -> Iterator[int]:
        for number in itertools.count():
            clock.now += 0.01
            yield number

    _, ends = input_rate.time_batches(batches(), AHEAD, seconds=3.0)

    assert ends[-1] == pytest.approx(3.0, abs=0.02)
