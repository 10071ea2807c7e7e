"""The steps of a rank, collected while the run goes on.

In: every `Step` at its end. Out: a `Trace`, the measurements of the rank. metrics.py
joins the traces of all ranks.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.reporting.steady_state import ReadAhead
from benchmarks.system import probes


class Step(NamedTuple):
    """A step of a rank.

    Attributes:
        wait_seconds: Time blocked on the next batch.
        compute_seconds: Time from the batch to the result, without sync_seconds.
        loss: Mean loss of the rank's batch.
        num_correct: Correct predictions in the batch of the rank.
        num_examples: Examples in the batch of the rank, without padding.
        record_ids: int64 [num_examples], the records of the batch.
        sync_seconds: Time waited for the average over ranks after the rank's own work.
        windows_begun: Number of shuffle windows whose first records the batch holds.
    """

    wait_seconds: float
    compute_seconds: float
    loss: float
    num_correct: int
    num_examples: int
    record_ids: npt.NDArray[np.int64]
    sync_seconds: float = 0.0
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
        wait_seconds: Time blocked on the input.
        compute_seconds: Time in the step itself.
        sync_seconds: Time waited for the average over ranks.
        end_seconds: End of the step, counted from the common start.
        step_epochs: Epoch of the step.
        windows_begun: Number of shuffle windows that begin in the step.
        num_warmup_steps: Number of steps before the timed steps.
        num_warmup_examples: Number of examples in the warm-up steps.
        read_ahead: Examples that the rank reads in advance.
        num_examples: Number of examples in all timed steps.
        cpu_seconds: User and system time of the process in the timed steps, over all
            threads.
        storage_bytes: Bytes read from storage in the timed steps; None if unknown.
        run_storage_bytes: Bytes read from storage, warm-up included; None if unknown.
        losses: Losses of all steps, warm-up included.
        epochs: Sums of all epochs, warm-up included; the last epoch may be incomplete.
        record_counts: int64 [num_records], uses of the records of the split, warm-up
            included.
        step_examples: Number of examples of the step.
    """

    wait_seconds: Sequence[float]
    compute_seconds: Sequence[float]
    sync_seconds: Sequence[float]
    end_seconds: Sequence[float]
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
    def step_seconds(self) -> npt.NDArray[np.float64]:
        """Durations of the timed steps: wait, compute and sync together."""
        parts = (self.wait_seconds, self.compute_seconds, self.sync_seconds)
        seconds: npt.NDArray[np.float64] = np.sum(parts, axis=0, dtype=np.float64)
        return seconds

    @property
    def seconds(self) -> float:
        """Time from the common start to the end of the rank's last timed step."""
        return self.end_seconds[-1]

    def examples_of(self, epoch: int) -> int:
        """Returns the number of examples in the timed steps of an epoch."""
        steps = zip(self.step_epochs, self.step_examples, strict=True)
        return sum(count for step_epoch, count in steps if step_epoch == epoch)


class Recorder:
    """Collects the steps of a rank; `start_timing` starts the timing."""

    def __init__(self, num_records: int, read_ahead: ReadAhead) -> None:
        self._read_ahead = read_ahead
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
        self._ends: list[float] = []
        self._step_epochs: list[int] = []
        self._num_warmup_steps = len(self._losses)
        self._num_warmup_examples = sum(epoch.num_examples for epoch in self._epochs)
        self._cpu_seconds = time.process_time()
        self._storage_bytes = probes.process_storage_bytes()
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def untimed(self) -> Iterator[None]:
        """Leaves the time of the block out of the measurement, as for a checkpoint.

        All ranks must enter and leave the block together. Otherwise a rank counts the
        wait for the ranks within the block.
        """
        before = time.perf_counter()
        yield
        self._start += time.perf_counter() - before

    def add(self, step: Step, epoch: int) -> None:
        """Records a step; to be called as soon as the step is over."""
        self._ends.append(time.perf_counter() - self._start)
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

    def trace(self) -> Trace:
        """Returns all measurements up to now."""
        now = probes.process_storage_bytes()
        return Trace(
            wait_seconds=[step.wait_seconds for step in self._timed],
            compute_seconds=[step.compute_seconds for step in self._timed],
            sync_seconds=[step.sync_seconds for step in self._timed],
            end_seconds=list(self._ends),
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
