"""The steps of a rank, collected while the run goes on.

In: every `Step` at its end. Out: a `Trace`, the measurements of the rank. metrics.py
joins the traces of all ranks.
"""

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.system import probes
from benchmarks.training.critical_path import RankTimes, StepTimes
from benchmarks.training.steady_state import ReadAhead

Array = npt.NDArray[np.float64]


class StepResult(NamedTuple):
    """The result of one step, on the host.

    Attributes:
        num_examples: Number of examples in the batch, without padding.
        loss: Mean loss of these examples; NaN if the step computes no loss.
        averaging: When the rank's own work was done, and when the average over ranks
            was there, by `time.perf_counter`; None if the ranks average nothing.
        is_sound: Whether the loss is finite on every rank, which all ranks learn in the
            same step; True if the step trains nothing.
        is_last: Whether SIGTERM has come to any rank before the step, which all ranks
            learn in the same step.
    """

    num_examples: int
    loss: float = math.nan
    num_correct: int = 0
    averaging: tuple[float, float] | None = None
    is_sound: bool = True
    is_last: bool = False


class Step(NamedTuple):
    """A step of a rank.

    Attributes:
        record_ids: int64 [num_examples], the records of the batch.
        windows_begun: Number of shuffle windows whose first records the batch holds.
    """

    times: StepTimes
    result: StepResult
    record_ids: npt.NDArray[np.int64]
    windows_begun: int = 0


# A step in a trace; its times count from the start of the timing.
ROW = np.dtype(
    [
        *(("times", np.float64, 5), ("epoch", np.int64), ("loss", np.float64)),
        *(("num_correct", np.int64), ("num_examples", np.int64)),
        ("windows_begun", np.int64),
    ]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """The measurements of a rank.

    Attributes:
        steps: A `ROW` for every step, the warm-up first.
        times: The times of the timed steps, counted from the common start.
        cpu_seconds: User and system time of the process in the timed steps, over all
            threads.
        run_storage_bytes: Bytes read from storage, warm-up included; None if unknown.
        record_counts: int64 [num_records], uses of the records of the split, warm-up
            included.
    """

    steps: npt.NDArray[Any]
    num_warmup_steps: int
    times: RankTimes
    read_ahead: ReadAhead
    cpu_seconds: float
    storage_bytes: int | None
    run_storage_bytes: int | None
    record_counts: npt.NDArray[np.int64]

    @property
    def timed(self) -> npt.NDArray[Any]:
        """The steps after the warm-up."""
        return self.steps[self.num_warmup_steps :]

    @property
    def num_examples(self) -> int:
        """Examples in the timed steps."""
        return int(self.timed["num_examples"].sum())

    @property
    def wait_seconds(self) -> Array:
        """Time blocked on the input in each timed step."""
        return self._between(0, 1)

    @property
    def step_seconds(self) -> Array:
        """Durations of the timed steps, without the time between steps."""
        return self._between(0, 4)

    @property
    def end_seconds(self) -> Array:
        """End of the step, counted from the common start."""
        return self.times.steps[:, 4]

    @property
    def seconds(self) -> float:
        """Time from the common start to the end of the rank's last timed step."""
        return float(self.end_seconds[-1])

    @property
    def compute_seconds(self) -> Array:
        """Time in the step itself; at most the configured time of an emulated step."""
        own = self._between(1, 2) + self._between(3, 4)
        most = self.times.emulated_seconds
        return own if most is None else np.minimum(own, most)

    def _between(self, first: int, last: int) -> Array:
        return np.maximum(0.0, self.times.steps[:, last] - self.times.steps[:, first])

    def examples_of(self, epoch: int) -> int:
        """Returns the number of examples in the timed steps of an epoch."""
        return int(self.timed["num_examples"][self.timed["epoch"] == epoch].sum())


class Recorder:
    """Collects the steps of a rank; `start_timing` starts the timing.

    Inside its `with`, `pulse` finds the times in which the process does not run.
    """

    def __init__(
        self,
        num_records: int,
        read_ahead: ReadAhead,
        emulated_seconds: float | None = None,
    ) -> None:
        self.pulse = Pulse()
        self._read_ahead, self._emulated_seconds = read_ahead, emulated_seconds
        self._record_counts = np.zeros(num_records, np.int64)
        self._rows: list[tuple[Any, ...]] = []
        self._run_storage_bytes = probes.process_storage_bytes()
        self.start_timing()

    def start_timing(self) -> None:
        """Marks the steps so far as warm-up, whose times do not count."""
        self._num_warmup_steps = len(self._rows)
        self._silences: list[list[float]] = []
        self._cpu_seconds = time.process_time()
        self._storage_bytes = probes.process_storage_bytes()
        self.pulse.take()
        self._start = self._origin = time.perf_counter()

    @contextlib.contextmanager
    def untimed(self) -> Iterator[None]:
        """Leaves the time of the block out of the measurement, as for a checkpoint.

        All ranks must enter and leave the block together. Otherwise a rank counts the
        wait for the ranks within the block.
        """
        self._take_silences()
        before = time.perf_counter()
        yield
        self.pulse.take()
        self._start += time.perf_counter() - before

    def add(self, step: Step, epoch: int) -> None:
        times = [when - self._start for when in step.times]
        self._take_silences()
        result = step.result
        counts = result.num_correct, result.num_examples, step.windows_begun
        self._rows.append((times, epoch, result.loss, *counts))
        np.add.at(self._record_counts, step.record_ids, 1)

    def _take_silences(self) -> None:
        for silence in self.pulse.take():
            self._silences.append([when - self._start for when in silence])

    def trace(self) -> Trace:
        now, steps = probes.process_storage_bytes(), np.array(self._rows, ROW)
        return Trace(
            steps=steps,
            num_warmup_steps=self._num_warmup_steps,
            times=RankTimes(
                steps=steps["times"][self._num_warmup_steps :],
                silences=np.reshape(self._silences, (-1, 2)),
                origin=self._origin,
                emulated_seconds=self._emulated_seconds,
            ),
            read_ahead=self._read_ahead,
            cpu_seconds=time.process_time() - self._cpu_seconds,
            storage_bytes=_since(self._storage_bytes, now),
            run_storage_bytes=_since(self._run_storage_bytes, now),
            record_counts=self._record_counts,
        )


def _since(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


_INTERVAL_SECONDS = 0.02
LEAST_SECONDS = 0.1  # a busy host delays a thread by less


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


class Pulse:
    """Finds the silences of the process within a `with` block."""

    def __init__(self) -> None:
        self._last = _now()
        self._silences: list[tuple[float, float]] = []
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def __enter__(self) -> "Pulse":
        self._last = _now()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def take(self) -> list[tuple[float, float]]:
        """Looks at the clocks; returns the silences since the last call."""
        self._beat()
        with self._lock:
            taken, self._silences = self._silences, []
        return taken

    def _beat(self) -> None:
        """Records a silence since the last look, from any thread."""
        with self._lock:
            (then, cpu), now = self._last, _now()
            self._last = now
            seconds = now[0] - then - _INTERVAL_SECONDS
            if seconds >= LEAST_SECONDS and now[1] - cpu < seconds / 2:
                self._silences.append((now[0] - seconds, now[0]))

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            self._beat()
