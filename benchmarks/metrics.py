"""From the steps of every rank to the figures of a run.

In: `Step`s, collected by a `Recorder` on each rank. Out: a flat dict with units in the
names. Figures are collective: over all ranks and the time of the slowest, never one
rank's times N.
"""

import dataclasses
import resource
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_Z_95 = 1.96  # of a normal distribution, 95 % lies within this many deviations


class Step(NamedTuple):
    """One step of one rank; loss and correct predictions are over its own batch."""

    wait_seconds: float
    compute_seconds: float
    loss: float
    num_correct: int
    num_examples: int
    record_ids: npt.NDArray[np.int64]


class Epoch(NamedTuple):
    """Sums over the steps of one epoch of one rank; loss weighted by examples."""

    epoch: int
    loss_sum: float
    num_correct: int
    num_examples: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """What one rank measured.

    Attributes:
        wait_seconds: For each timed step, blocked on the input.
        compute_seconds: For each timed step, in the step itself.
        num_examples: Examples in all timed steps.
        cpu_seconds: User and system time of the process meanwhile, all threads.
        storage_bytes: Bytes that storage delivered meanwhile; None if unknown.
        losses: Loss of each step, warm-up included.
        epochs: Of each epoch, the last possibly cut short.
        record_counts: How often each record of the split was used, warm-up included.
    """

    wait_seconds: Sequence[float]
    compute_seconds: Sequence[float]
    num_examples: int
    cpu_seconds: float
    storage_bytes: int | None
    losses: Sequence[float]
    epochs: Sequence[Epoch]
    record_counts: npt.NDArray[np.int64]

    @property
    def seconds(self) -> float:
        """Time of all timed steps."""
        return sum(self.wait_seconds) + sum(self.compute_seconds)


class Recorder:
    """Collects the steps of one rank; timing starts when `start_timing` is called."""

    def __init__(self, num_records: int) -> None:
        self._record_counts = np.zeros(num_records, np.int64)
        self._losses: list[float] = []
        self._epochs: list[Epoch] = []
        self.start_timing()

    def start_timing(self) -> None:
        """Forgets the steps so far as far as time goes: they were warm-up."""
        self._timed: list[Step] = []
        self._cpu_seconds = _cpu_seconds()
        self._storage_bytes = _storage_bytes()

    def add(self, step: Step, epoch: int) -> None:
        """Takes one step in."""
        self._timed.append(step)
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
        """All that was measured up to now."""
        before, now = self._storage_bytes, _storage_bytes()
        known = before is not None and now is not None
        return Trace(
            wait_seconds=[step.wait_seconds for step in self._timed],
            compute_seconds=[step.compute_seconds for step in self._timed],
            num_examples=sum(step.num_examples for step in self._timed),
            cpu_seconds=_cpu_seconds() - self._cpu_seconds,
            storage_bytes=now - before if known else None,
            losses=list(self._losses),
            epochs=list(self._epochs),
            record_counts=self._record_counts,
        )


def summarize(traces: Sequence[Trace]) -> dict[str, Any]:
    """The figures of a run; all ranks started their timed steps together.

    accelerator_utilization is compute / (compute + wait), the mean over ranks;
    stall_fraction is the rest.
    """
    num_examples = sum(trace.num_examples for trace in traces)
    busy = [sum(trace.compute_seconds) / trace.seconds for trace in traces]
    utilization = float(np.mean(busy))
    storage = [trace.storage_bytes for trace in traces]
    return {
        "examples_per_second": num_examples / max(trace.seconds for trace in traces),
        "examples_per_second_per_rank": [t.num_examples / t.seconds for t in traces],
        "examples_per_second_deviation_per_rank": [_deviation(t) for t in traces],
        "wait_seconds_per_step": _mean([t.wait_seconds for t in traces]),
        "compute_seconds_per_step": _mean([t.compute_seconds for t in traces]),
        "stall_fraction": 1 - utilization,
        "accelerator_utilization": utilization,
        "cpu_seconds_per_example": sum(t.cpu_seconds for t in traces) / num_examples,
        "storage_bytes_read": None if None in storage else sum(storage),
        "num_timed_steps": len(traces[0].wait_seconds),
        "timed_seconds": max(trace.seconds for trace in traces),
        "records": coverage([trace.record_counts for trace in traces]),
    }


def learning(traces: Sequence[Trace]) -> dict[str, Any]:
    """Loss of the first and the last step, and loss and accuracy of each epoch."""
    epochs = [_join(parts) for parts in zip(*(t.epochs for t in traces), strict=True)]
    return {
        "loss_first": float(np.mean([trace.losses[0] for trace in traces])),
        "loss_last": float(np.mean([trace.losses[-1] for trace in traces])),
        "accuracy": epochs[-1]["accuracy"],
        "epochs": epochs,
    }


def _join(parts: Sequence[Epoch]) -> dict[str, Any]:
    num_examples = sum(part.num_examples for part in parts)
    return {
        "epoch": parts[0].epoch,
        "loss": sum(part.loss_sum for part in parts) / num_examples,
        "accuracy": sum(part.num_correct for part in parts) / num_examples,
        "num_examples": num_examples,
    }


def coverage(counts: Sequence[npt.NDArray[np.int64]]) -> dict[str, int] | None:
    """How often records were used, from each rank's counts; None if synthetic."""
    total = np.sum(counts, axis=0)
    if len(total) == 0:
        return None
    ranks_of_record = np.sum([count > 0 for count in counts], axis=0)
    return {
        "num_in_split": len(total),
        "num_used": int(total.sum()),
        "num_distinct": int((total > 0).sum()),
        "times_used_min": int(total.min()),
        "times_used_max": int(total.max()),
        "num_on_several_ranks": int((ranks_of_record > 1).sum()),
    }


def speed_lines(figures: dict[str, Any]) -> list[str]:
    """The lines known from Horovod's benchmarks, and what held the run back."""
    rates = figures["examples_per_second_per_rank"]
    deviation = float(np.mean(figures["examples_per_second_deviation_per_rank"]))
    total = figures["examples_per_second"]
    return [
        f"Img/sec per rank: {np.mean(rates):.1f} +-{deviation:.1f}",
        f"Total img/sec on {len(rates)} rank(s): {total:.1f} "
        f"+-{len(rates) * deviation:.1f}",
        f"Waited for input {figures['stall_fraction']:.1%} of the time "
        f"({figures['wait_seconds_per_step'] * 1e3:.1f} ms wait and "
        f"{figures['compute_seconds_per_step'] * 1e3:.1f} ms compute a step)",
    ]


def _deviation(trace: Trace) -> float:
    """1.96 standard deviations of a rank's examples/s from step to step."""
    seconds = np.add(trace.wait_seconds, trace.compute_seconds)
    return float(_Z_95 * np.std(trace.num_examples / len(seconds) / seconds))


def _mean(series: Sequence[Sequence[float]]) -> float:
    return float(np.mean([np.mean(values) for values in series]))


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _storage_bytes() -> int | None:
    """Bytes that storage delivered to this process so far, page-cache hits excluded."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            lines = dict(line.split(": ") for line in file)
    except OSError:
        return None
    return int(lines["read_bytes"])
