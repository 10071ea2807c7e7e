"""From the steps of every rank to the figures of a run.

In: `Step`s, collected by a `Recorder` on each rank. Out: a flat dict with units in the
names; a megabyte is 1e6 bytes. Figures are collective: over all ranks and the time of
the slowest, never one rank's times N.
"""

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.reporting import mlperf_storage
from benchmarks.system import telemetry

_Z_95 = 1.96  # of a normal distribution, 95 % lies within this many deviations
_PERCENTILES = (50, 90, 95, 99)


class Step(NamedTuple):
    """One step of one rank; loss and correct predictions are over its own batch.

    sync_seconds is how long the rank waited for the others once its own step was done:
    neither for its input nor in compute.
    """

    wait_seconds: float
    compute_seconds: float
    loss: float
    num_correct: int
    num_examples: int
    record_ids: npt.NDArray[np.int64]
    sync_seconds: float = 0.0


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
        sync_seconds: For each timed step, waiting for the other ranks after it.
        end_seconds: For each timed step, when it was over, since all ranks started.
        step_epochs: For each timed step, its epoch.
        num_examples: Examples in all timed steps.
        cpu_seconds: User and system time of the process meanwhile, all threads.
        storage_bytes: Bytes that storage delivered meanwhile; None if unknown.
        run_storage_bytes: The same, warm-up included.
        losses: Loss of each step, warm-up included.
        epochs: Of each epoch, the last possibly cut short.
        record_counts: How often each record of the split was used, warm-up included.
    """

    wait_seconds: Sequence[float]
    compute_seconds: Sequence[float]
    sync_seconds: Sequence[float]
    end_seconds: Sequence[float]
    step_epochs: Sequence[int]
    num_examples: int
    cpu_seconds: float
    storage_bytes: int | None
    run_storage_bytes: int | None
    losses: Sequence[float]
    epochs: Sequence[Epoch]
    record_counts: npt.NDArray[np.int64]

    @property
    def step_seconds(self) -> npt.NDArray[np.float64]:
        """What each timed step took."""
        parts = (self.wait_seconds, self.compute_seconds, self.sync_seconds)
        seconds: npt.NDArray[np.float64] = np.sum(parts, axis=0, dtype=np.float64)
        return seconds

    @property
    def seconds(self) -> float:
        """Time from the common start to the end of this rank's last timed step."""
        return self.end_seconds[-1]


class Recorder:
    """Collects the steps of one rank; timing starts when `start_timing` is called."""

    def __init__(self, num_records: int) -> None:
        self._record_counts = np.zeros(num_records, np.int64)
        self._losses: list[float] = []
        self._epochs: list[Epoch] = []
        self._run_storage_bytes = telemetry.process_storage_bytes()
        self.start_timing()

    def start_timing(self) -> None:
        """Forgets the steps so far as far as time goes: they were warm-up."""
        self._timed: list[Step] = []
        self._ends: list[float] = []
        self._step_epochs: list[int] = []
        self._cpu_seconds = time.process_time()
        self._storage_bytes = telemetry.process_storage_bytes()
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def untimed(self) -> Iterator[None]:
        """What is done within counts as no time: saving a checkpoint, say.

        All ranks must enter and leave it together, or the others' time still holds it.
        """
        before = time.perf_counter()
        yield
        self._start += time.perf_counter() - before

    def add(self, step: Step, epoch: int) -> None:
        """Takes one step in, as soon as it is over."""
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
        """All that was measured up to now."""
        now = telemetry.process_storage_bytes()
        return Trace(
            wait_seconds=[step.wait_seconds for step in self._timed],
            compute_seconds=[step.compute_seconds for step in self._timed],
            sync_seconds=[step.sync_seconds for step in self._timed],
            end_seconds=list(self._ends),
            step_epochs=list(self._step_epochs),
            num_examples=sum(step.num_examples for step in self._timed),
            cpu_seconds=time.process_time() - self._cpu_seconds,
            storage_bytes=_since(self._storage_bytes, now),
            run_storage_bytes=_since(self._run_storage_bytes, now),
            losses=list(self._losses),
            epochs=list(self._epochs),
            record_counts=self._record_counts,
        )


def summarize(
    traces: Sequence[Trace], *, record_bytes: float | None = None
) -> dict[str, Any]:
    """The figures of a run; all ranks started their timed steps together.

    accelerator_utilization is compute / (compute + wait + sync) and stall_fraction is
    wait over the same, both the mean over ranks. Step times hold wait, compute and
    sync. A deviation is 1.96 standard deviations from step to step; a step of all ranks
    together is over when the last of them is.

    Args:
        traces: Of every rank, in the order of ranks.
        record_bytes: Mean size of a record in its shard; None if there are no shards.
    """
    num_examples = sum(trace.num_examples for trace in traces)
    records = coverage([trace.record_counts for trace in traces])
    return {
        **_speed(traces),
        **_split(traces),
        **_step_times(traces),
        "stragglers": stragglers(traces),
        "cpu_seconds_per_example": sum(t.cpu_seconds for t in traces) / num_examples,
        "cpu_cores_used_per_rank": [t.cpu_seconds / t.seconds for t in traces],
        "num_timed_steps": len(traces[0].wait_seconds),
        "timed_seconds": _seconds(traces),
        **_bytes(traces, records, record_bytes),
        "records": records,
    }


def _seconds(traces: Sequence[Trace]) -> float:
    """The common window: from the start of all ranks to the end of the last."""
    return max(trace.seconds for trace in traces)


def _speed(traces: Sequence[Trace]) -> dict[str, Any]:
    """All ranks' examples over the common window, and each rank's over its own."""
    num_examples = sum(trace.num_examples for trace in traces)
    # Step k of all ranks together is over when its last rank is.
    ends = np.max([trace.end_seconds for trace in traces], axis=0)
    rates = num_examples / len(ends) / np.diff(ends, prepend=0.0)
    return {
        "examples_per_second": num_examples / _seconds(traces),
        "examples_per_second_deviation": _deviation(rates),
        "examples_per_second_per_rank": [t.num_examples / t.seconds for t in traces],
        "examples_per_second_deviation_per_rank": [
            _deviation(t.num_examples / len(t.step_seconds) / t.step_seconds)
            for t in traces
        ],
    }


def _deviation(rates: npt.NDArray[np.float64]) -> float:
    return float(_Z_95 * np.std(rates))


def _split(traces: Sequence[Trace]) -> dict[str, Any]:
    """What the time of the steps went into."""
    parts = {
        "wait": [trace.wait_seconds for trace in traces],
        "compute": [trace.compute_seconds for trace in traces],
        "sync": [trace.sync_seconds for trace in traces],
    }
    totals = [trace.step_seconds.sum() for trace in traces]
    shares = {
        part: float(np.mean([sum(v) / t for v, t in zip(values, totals, strict=True)]))
        for part, values in parts.items()
    }
    return {
        **{f"{part}_seconds_per_step": _mean(v) for part, v in parts.items()},
        "stall_fraction": shares["wait"],
        "sync_fraction": shares["sync"],
        "accelerator_utilization": shares["compute"],
        "accelerator_utilization_mlperf_storage": _mlperf_storage_utilization(traces),
    }


def _mean(series: Sequence[Sequence[float]]) -> float:
    return float(np.mean([np.mean(values) for values in series]))


def _mlperf_storage_utilization(traces: Sequence[Trace]) -> float | None:
    ranks = [
        mlperf_storage.utilization_of_epochs(
            epochs=trace.step_epochs,
            wait_seconds=trace.wait_seconds,
            compute_seconds=trace.compute_seconds,
            end_seconds=trace.end_seconds,
        )
        for trace in traces
    ]
    return mlperf_storage.utilization(ranks)


def _step_times(traces: Sequence[Trace]) -> dict[str, Any]:
    """Percentiles of what a step takes, between neighbors linearly."""
    of_ranks = [np.percentile(trace.step_seconds, _PERCENTILES) for trace in traces]
    everything = np.concatenate([trace.step_seconds for trace in traces])
    of_all = np.percentile(everything, _PERCENTILES).tolist()
    return {
        f"step_seconds_p{p}": value
        for p, value in zip(_PERCENTILES, of_all, strict=True)
    } | {
        f"step_seconds_p{p}_per_rank": [float(values[i]) for values in of_ranks]
        for i, p in enumerate(_PERCENTILES)
    }


def stragglers(traces: Sequence[Trace]) -> dict[str, Any]:
    """Which rank the others wait for, and how much.

    A rank's own time is wait and compute. times_last_per_rank counts the steps in which
    a rank was the last, that is waited least for the others; None where no rank was
    seen to wait for another.
    """
    own = [
        float(np.mean(np.add(trace.wait_seconds, trace.compute_seconds)))
        for trace in traces
    ]
    sync = np.array([trace.sync_seconds for trace in traces])
    times_last = np.bincount(sync.argmin(axis=0), minlength=len(traces)).tolist()
    return {
        "step_seconds_mean_per_rank": own,
        "slowest_rank": int(np.argmax(own)),
        "slowest_over_median": max(own) / statistics.median(own),
        "times_last_per_rank": times_last if len(traces) > 1 and sync.any() else None,
    }


def _bytes(
    traces: Sequence[Trace],
    records: dict[str, int] | None,
    record_bytes: float | None,
) -> dict[str, Any]:
    """Bytes that were consumed, and those that storage gave for it."""
    seconds = _seconds(traces)
    storage = _sum_known([trace.storage_bytes for trace in traces])
    consumed = distinct = None
    if record_bytes is not None and records is not None:
        consumed = sum(trace.num_examples for trace in traces) * record_bytes
        distinct = records["num_distinct"] * record_bytes
    return {
        "consumed_bytes": consumed,
        "consumed_megabytes_per_second": _megabytes_per_second(consumed, seconds),
        "storage_bytes_read": storage,
        "storage_megabytes_per_second": _megabytes_per_second(storage, seconds),
        "run_distinct_bytes": distinct,
        "run_storage_bytes_read": _sum_known([t.run_storage_bytes for t in traces]),
    }


def _sum_known(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _since(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


def _megabytes_per_second(num_bytes: float | None, seconds: float) -> float | None:
    return None if num_bytes is None else num_bytes / seconds / 1e6


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
    milliseconds = [
        f"p{p} {figures[f'step_seconds_p{p}'] * 1e3:.1f}" for p in _PERCENTILES
    ]
    lines = [
        f"Img/sec per rank: {np.mean(rates):.1f} +-{deviation:.1f}",
        f"Total img/sec on {len(rates)} rank(s): {figures['examples_per_second']:.1f} "
        f"+-{figures['examples_per_second_deviation']:.1f}",
        f"Waited for input {figures['stall_fraction']:.1%} of the time "
        f"({figures['wait_seconds_per_step'] * 1e3:.1f} ms wait and "
        f"{figures['compute_seconds_per_step'] * 1e3:.1f} ms compute a step)",
        f"Step: {', '.join(milliseconds)} ms",
    ]
    if len(rates) > 1:
        slow = figures["stragglers"]
        lines.append(
            f"Slowest: rank {slow['slowest_rank']}, a step takes it "
            f"{slow['slowest_over_median']:.2f} times the median"
        )
    if figures["consumed_bytes"] is not None:
        given = figures["storage_megabytes_per_second"]
        storage = "an unknown part" if given is None else f"{given:.1f} MB/s"
        lines.append(
            f"Consumed {figures['consumed_megabytes_per_second']:.1f} MB/s; storage "
            f"gave {storage} meanwhile"
        )
    return lines
