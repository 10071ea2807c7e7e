"""Figures of a run, computed from the steps of every rank.

In: the `Trace` of each rank. Out: a flat dict with units in the names; a megabyte is
1e6 bytes. Figures are collective: the work of all ranks over the time of the slowest
one, never the figure of one rank multiplied by their number.
"""

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.reporting import mlperf_storage
from benchmarks.training.recorder import Epoch, Trace

_Z_95 = 1.96  # 95 % of a normal distribution lie within this many deviations
_PERCENTILES = (50, 90, 95, 99)


def summarize(
    traces: Sequence[Trace], *, record_bytes: float | None = None
) -> dict[str, Any]:
    """Returns the figures of a run whose ranks started their timed steps together.

    accelerator_utilization is compute / (compute + wait + sync), and stall_fraction is
    wait / (compute + wait + sync); both are means over ranks. The time of a step is
    wait, compute and sync together. A deviation is 1.96 standard deviations of the rate
    from step to step. A step of all ranks is over when its last rank is done.

    Args:
        traces: The measurements of every rank, in the order of ranks.
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
    """Returns the common time: from the start of all ranks to the end of the last."""
    return max(trace.seconds for trace in traces)


def _speed(traces: Sequence[Trace]) -> dict[str, Any]:
    """Returns the rate of all ranks over the common time, and each rank's own rate."""
    num_examples = sum(trace.num_examples for trace in traces)
    # Step k of all ranks is over when its last rank is done.
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
    """Returns the shares of wait, compute and sync in the time of the steps."""
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
    """Returns percentiles of the time of a step, linearly interpolated."""
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
    """Returns which rank the others wait for, and by how much it is slower.

    A rank's own time is wait and compute. times_last_per_rank counts the steps in which
    a rank was the last one, which is the rank that waited least for the others. It is
    None if no rank was seen to wait for another.
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
    """Returns the bytes of the records that were used, and the bytes from storage."""
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


def _megabytes_per_second(num_bytes: float | None, seconds: float) -> float | None:
    return None if num_bytes is None else num_bytes / seconds / 1e6


def learning(traces: Sequence[Trace]) -> dict[str, Any]:
    """Returns the loss of first and last step, and loss and accuracy of each epoch."""
    epochs = [_join(parts) for parts in zip(*(t.epochs for t in traces), strict=True)]
    return {
        "loss_first": float(np.mean([trace.losses[0] for trace in traces])),
        "loss_last": float(np.mean([trace.losses[-1] for trace in traces])),
        "accuracy": epochs[-1]["accuracy"],
        "epochs": epochs,
    }


def not_finite_loss(traces: Sequence[Trace]) -> dict[str, Any] | None:
    """Returns the first step with a loss that is not finite; None if all are.

    Returns:
        step: number of the step, from 1, warm-up included. ranks: the ranks whose loss
        it was. text: a sentence.
    """
    losses = np.array([trace.losses for trace in traces])
    wrong = ~np.isfinite(losses)
    if not wrong.any():
        return None
    step = int(wrong.any(axis=0).argmax())
    ranks = np.flatnonzero(wrong[:, step]).tolist()
    return {
        "step": step + 1,
        "ranks": ranks,
        "text": (
            f"The loss must stay finite, got {losses[ranks[0], step]} at step "
            f"{step + 1} on rank {', '.join(map(str, ranks))} of {len(traces)}. Lower "
            "--learning_rate, or train with --precision=float32; --allow_nan goes on."
        ),
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
    """Returns how often records were used, over all ranks; None if data is synthetic.

    Args:
        counts: For each rank int64 [num_records], how often it used each record.
    """
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
    """Returns the speed as text: the lines of Horovod's benchmarks, then the waits."""
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
