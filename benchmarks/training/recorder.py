"""The steps of a rank, collected while the run goes on.

In: every `Step` at its end. Out: a `Trace`, the measurements of the rank. metrics.py
joins the traces of all ranks.
"""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.reporting.steady_state import ReadAhead
from benchmarks.system import probes
from benchmarks.training.critical_path import RankTimes, StepTimes

Array = npt.NDArray[np.float64]


class Step(NamedTuple):
    """A step of a rank.

    Attributes:
        num_examples: Examples in the batch of the rank, without padding.
        record_ids: int64 [num_examples], the records of the batch.
        windows_begun: Number of shuffle windows whose first records the batch holds.
    """

    times: StepTimes
    loss: float
    num_correct: int
    num_examples: int
    record_ids: npt.NDArray[np.int64]
    windows_begun: int = 0


class Epoch(NamedTuple):
    """Sums over the steps of an epoch on a rank; losses times examples."""

    epoch: int
    loss_sum: float
    num_correct: int
    num_examples: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """The measurements of a rank. Sequences have a value for every timed step.

    Attributes:
        times: The times of the steps, counted from the common start.
        cpu_seconds: User and system time of the process in the timed steps, over all
            threads.
        run_storage_bytes: Bytes read from storage, warm-up included; None if unknown.
        losses: Losses of all steps, warm-up included.
        epochs: Sums of all epochs, warm-up included; the last epoch may be incomplete.
        record_counts: int64 [num_records], uses of the records of the split, warm-up
            included.
    """

    times: RankTimes
    step_epochs: Sequence[int]
    windows_begun: Sequence[int]
    num_warmup_steps: int
    num_warmup_examples: int
    read_ahead: ReadAhead
    num_examples: int
    cpu_seconds: float
    storage_bytes: int | None
    run_storage_bytes: int | None
    losses: Sequence[float]
    epochs: Sequence[Epoch]
    record_counts: npt.NDArray[np.int64]
    step_examples: Sequence[int]

    @property
    def wait_seconds(self) -> Array:
        """Time blocked on the input."""
        return self._between(0, 1)

    @property
    def sync_seconds(self) -> Array:
        """Time waited for the average over ranks."""
        return self._between(2, 3)

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
        own = self._between(1, 4) - self.sync_seconds
        most = self.times.emulated_seconds
        return own if most is None else np.minimum(own, most)

    def _between(self, first: int, last: int) -> Array:
        return np.maximum(0.0, self.times.steps[:, last] - self.times.steps[:, first])

    def examples_of(self, epoch: int) -> int:
        """Returns the number of examples in the timed steps of an epoch."""
        steps = zip(self.step_epochs, self.step_examples, strict=True)
        return sum(count for step_epoch, count in steps if step_epoch == epoch)


class Recorder:
    """Collects the steps of a rank; `start_timing` starts the timing.

    Attributes:
        pulse: Finds the times in which the process does not run, inside its `with`.
    """

    def __init__(
        self,
        num_records: int,
        read_ahead: ReadAhead,
        emulated_seconds: float | None = None,
    ) -> None:
        self.pulse = Pulse()
        self._read_ahead = read_ahead
        self._emulated_seconds = emulated_seconds
        self._record_counts = np.zeros(num_records, np.int64)
        self._losses: list[float] = []
        self._epochs: list[Epoch] = []
        self._run_storage_bytes = probes.process_storage_bytes()
        self.start_timing()

    def start_timing(self) -> None:
        """Marks the steps so far as warm-up, and drops the times of these steps.

        Losses, epochs and record counts of warm-up steps stay.
        """
        self._timed: list[Step] = []
        self._times: list[list[float]] = []
        self._silences: list[list[float]] = []
        self._step_epochs: list[int] = []
        self._num_warmup_steps = len(self._losses)
        self._num_warmup_examples = sum(epoch.num_examples for epoch in self._epochs)
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
        self._times.append([when - self._start for when in step.times])
        self._take_silences()
        self._timed.append(step)
        self._step_epochs.append(epoch)
        self._losses.append(step.loss)
        np.add.at(self._record_counts, step.record_ids, 1)
        if not self._epochs or self._epochs[-1].epoch != epoch:
            self._epochs.append(Epoch(epoch, 0.0, 0, 0))
        sums = self._epochs[-1]
        self._epochs[-1] = Epoch(
            epoch,
            sums.loss_sum + step.loss * step.num_examples,
            sums.num_correct + step.num_correct,
            sums.num_examples + step.num_examples,
        )

    def _take_silences(self) -> None:
        for silence in self.pulse.take():
            self._silences.append([when - self._start for when in silence])

    def trace(self) -> Trace:
        now = probes.process_storage_bytes()
        return Trace(
            times=RankTimes(
                steps=np.reshape(self._times, (-1, 5)),
                silences=np.reshape(self._silences, (-1, 2)),
                origin=self._origin,
                emulated_seconds=self._emulated_seconds,
            ),
            step_epochs=list(self._step_epochs),
            windows_begun=[step.windows_begun for step in self._timed],
            num_warmup_steps=self._num_warmup_steps,
            num_warmup_examples=self._num_warmup_examples,
            read_ahead=self._read_ahead,
            num_examples=sum(step.num_examples for step in self._timed),
            cpu_seconds=time.process_time() - self._cpu_seconds,
            storage_bytes=_since(self._storage_bytes, now),
            run_storage_bytes=_since(self._run_storage_bytes, now),
            losses=list(self._losses),
            epochs=list(self._epochs),
            record_counts=self._record_counts,
            step_examples=[step.num_examples for step in self._timed],
        )


def _since(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


_INTERVAL_SECONDS = 0.02
LEAST_SECONDS = 0.1  # a busy host delays a thread by less


class Pulse:
    """Finds the silences of the process within a `with` block."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._last = clock(), cpu_clock()
        self._silences: list[tuple[float, float]] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def __enter__(self) -> "Pulse":
        self._last = self._clock(), self._cpu_clock()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def take(self) -> list[tuple[float, float]]:
        """Returns begin and end of the silences since the last call."""
        self.beat()
        with self._lock:
            taken, self._silences = self._silences, []
        return taken

    def beat(self) -> None:
        """Looks at the clocks; records a silence since the last look.

        Any thread may call the method.
        """
        with self._lock:
            (then, cpu), now = self._last, (self._clock(), self._cpu_clock())
            self._last = now
            seconds = now[0] - then - _INTERVAL_SECONDS
            if seconds >= LEAST_SECONDS and now[1] - cpu < seconds / 2:
                self._silences.append((now[0] - seconds, now[0]))

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            self.beat()
