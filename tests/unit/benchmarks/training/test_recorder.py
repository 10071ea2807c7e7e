"""benchmarks.training.recorder: the steps of one rank."""

import time

import numpy as np
import pytest

from benchmarks.training import recorder as recorder_module
from benchmarks.training.critical_path import StepTimes
from benchmarks.training.recorder import Recorder, Step, StepResult
from benchmarks.training.steady_state import ReadAhead


def _times(ready: float, wait: float, compute: float, sync: float = 0.0) -> StepTimes:
    done = ready + wait + compute
    return StepTimes(ready, ready + wait, done, done + sync, done + sync)


def test_recorder_times_only_steps_after_the_warm_up() -> None:
    recorder = Recorder(3, ReadAhead(num_examples=2))
    now = time.perf_counter()
    warm_up = Step(_times(now, 5.0, 5.0), StepResult(2, 4.0), np.array([0, 1]))

    recorder.add(warm_up, epoch=0)
    recorder.start_timing()
    times = _times(time.perf_counter(), 1.0, 2.0)
    timed = Step(times, StepResult(2, 1.0, 2), np.array([2, 2]), windows_begun=1)
    recorder.add(timed, epoch=1)
    trace = recorder.trace()

    assert trace.wait_seconds == pytest.approx([1.0])
    assert trace.compute_seconds == pytest.approx([2.0])
    assert trace.num_examples == 2
    assert [trace.examples_of(epoch) for epoch in (0, 1)] == [0, 2]
    columns = ["epoch", "loss", "num_correct", "num_examples", "windows_begun"]
    assert trace.steps[columns].tolist() == [(0, 4.0, 0, 2, 0), (1, 1.0, 2, 2, 1)]
    assert trace.record_counts.tolist() == [1, 1, 2]
    assert trace.cpu_seconds >= 0
    assert trace.step_seconds == pytest.approx([3.0])
    assert trace.timed["epoch"].tolist() == [1]
    assert trace.read_ahead.num_examples == 2
    assert (trace.storage_bytes or 0) <= (trace.run_storage_bytes or 0)


class Clock:
    """Stands in for the module time."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now


def test_recorder_counts_from_the_start_without_untimed_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(recorder_module, "time", clock)
    recorder = Recorder(0, ReadAhead())

    def step() -> Step:
        times = _times(clock.now - 0.25, 0.0, 0.0, 0.25)
        return Step(times, StepResult(1, 1.0), np.empty(0, np.int64))

    clock.now += 7
    recorder.start_timing()
    clock.now += 1
    with recorder.untimed():
        clock.now += 50
    recorder.add(step(), epoch=0)
    clock.now += 2
    recorder.add(step(), epoch=0)
    trace = recorder.trace()

    assert trace.end_seconds.tolist() == [1.0, 3.0]
    assert trace.seconds == 3.0
    assert trace.step_seconds.tolist() == [0.25, 0.25]
    assert trace.compute_seconds.tolist() == [0.0, 0.0]
