"""tfpipe.cli.progress: the lines of a run, by a made-up clock."""

import time

import pytest

from tfpipe.cli.progress import Progress


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_phase_without_steps_is_named(clock: Clock) -> None:
    progress = Progress(clock)
    progress.begin("building the model")
    clock.now += 20

    assert progress.line() == "[ 20 s] building the model"


def test_rates_are_since_the_line_before_and_the_rest_since_the_phase(
    clock: Clock,
) -> None:
    progress = Progress(clock)
    clock.now += 5
    progress.begin("timed", 100)
    for _ in range(10):  # 1 s a step, half of it waiting
        clock.now += 1
        progress.step(8, 0.5)
    first = progress.line()
    for _ in range(20):  # 0.5 s a step, no waiting
        clock.now += 0.5
        progress.step(8, 0.0)

    second = progress.line()

    assert first == (
        "[ 15 s] timed: step 10 of 100, 8.0 images/s, waited 50.0%, 90 s left"
    )
    assert second == (
        "[ 25 s] timed: step 30 of 100, 16.0 images/s, waited 0.0%, 47 s left"
    )


def test_lines_without_a_new_step_have_no_rate(clock: Clock) -> None:
    progress = Progress(clock)
    progress.begin("timed", 4)
    begun = progress.line()
    clock.now += 1
    progress.step(8, 0.0)
    progress.line()
    clock.now += 10

    assert begun == "[  0 s] timed: step 0 of 4"
    assert progress.line() == "[ 11 s] timed: step 1 of 4, 3 s left"


def test_a_new_phase_counts_from_zero(clock: Clock) -> None:
    progress = Progress(clock)
    progress.begin("warm-up", 2)
    clock.now += 1
    progress.step(8, 0.0)
    progress.begin("timed", 4)
    clock.now += 1
    progress.step(4, 0.25)

    assert progress.line().endswith(
        "timed: step 1 of 4, 4.0 images/s, waited 25.0%, 3 s left"
    )


@pytest.mark.parametrize("is_first", [True, False])
def test_only_rank_0_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_first: bool
) -> None:
    monkeypatch.setattr("tfpipe.cli.progress._INTERVAL_SECONDS", 0.001)
    progress = Progress()
    with progress.shown(is_first=is_first):
        printed = ""
        for _ in range(1000 if is_first else 5):
            progress.line()
            printed += capsys.readouterr().err
            if printed:
                break
            time.sleep(0.005)

    assert ("s] starting\n" in printed) == is_first
