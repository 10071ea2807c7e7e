"""Figures of a run, computed from the steps of every rank.

In: the traces of all ranks. Out: a flat dict with units in the names; a megabyte is 1e6
bytes. Figures are collective: the work of all ranks over the time of the slowest rank,
never the figure of a single rank multiplied by the number of ranks.

`utilization` and `reproducibility` are figures of MLPerf Storage, to compare with its
published results. Source: github.com/mlcommons/storage v2.0, Rules.md, and
statscounter.py of DLIO, the measuring program of MLPerf Storage.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.system.figures import joined
from benchmarks.training import critical_path, steady_state
from benchmarks.training.critical_path import CriticalPath
from benchmarks.training.recorder import Array, Trace

_Z_95 = 1.96  # deviations around 95 % of a normal distribution
_SPREAD_LIMIT = 0.05  # Rules.md: results must be reproducible within 5 %
_PERCENTILES = (50, 90, 95, 99)
_HISTOGRAM_BINS = 40
_BELOW = 1 - 1e-6  # the outer bins hold the least and the largest value whole
# Names of `critical_path.PARTS` for a rank, which also waits for other ranks.
_PARTS = ("wait", "compute", "sync", "late")


def summarize(
    traces: Sequence[Trace], *, record_bytes: float | None = None, remedy: str = ""
) -> dict[str, Any]:
    """Returns the figures of a run whose ranks started their timed steps together.

    stall_fraction and accelerator_utilization are shares of the critical path. A
    deviation is 1.96 standard deviations of the rate from step to step. The mean size
    of a record, `record_bytes`, is None without shards. `remedy`: of `steady_state`.
    """
    path = critical_path.trace([trace.times for trace in traces])
    counts = [trace.num_examples for trace in traces]
    seconds = max(trace.seconds for trace in traces)
    # Step k of all ranks is over when its last rank is done.
    ends = np.max([trace.end_seconds for trace in traces], axis=0)
    return {
        "examples_per_second": sum(counts) / seconds,
        "examples_per_second_deviation": _deviation(sum(counts), ends),
        "examples_per_second_per_rank": [t.num_examples / t.seconds for t in traces],
        "examples_per_second_deviation_per_rank": [
            _deviation(trace.num_examples, trace.end_seconds) for trace in traces
        ],
        **_split(traces, path),
        "critical_path": path.as_json(),
        **_step_times(traces),
        "steady_state": steady_state.describe(traces, remedy=remedy),
        "cpu_seconds_per_example": sum(t.cpu_seconds for t in traces) / sum(counts),
        "num_warmup_steps": traces[0].num_warmup_steps,
        "num_timed_steps": len(traces[0].timed),
        "timed_seconds": seconds,
        **_bytes(traces, record_bytes and record_bytes * sum(counts), seconds),
        "records": coverage([trace.record_counts for trace in traces]),
    }


def _deviation(num_examples: int, ends: Array) -> float:
    rates = num_examples / len(ends) / np.diff(ends, prepend=0.0)
    return float(_Z_95 * np.std(rates))


def _split(traces: Sequence[Trace], path: CriticalPath) -> dict[str, Any]:
    of_ranks = path.of_ranks.T
    seconds = dict(zip(_PARTS, of_ranks, strict=True))
    share = dict(zip(_PARTS, of_ranks / of_ranks.sum(axis=0), strict=True))
    return {
        **{f"{p}_seconds_per_step": float(v.mean()) for p, v in seconds.items()},
        **{f"{p}_seconds_per_step_per_rank": v.tolist() for p, v in seconds.items()},
        "stall_fraction": _checked(path.shares["input"]),
        "stall_fraction_per_rank": share["wait"].tolist(),
        "sync_fraction": _checked(float(share["sync"].mean())),
        "accelerator_utilization": _checked(path.shares["compute"]),
        "accelerator_utilization_per_rank": share["compute"].tolist(),
        "accelerator_utilization_mlperf_storage": utilization(traces),
    }


def utilization(traces: Sequence[Trace]) -> float | None:
    """Returns MLPerf Storage's utilization: the mean over ranks, then over epochs.

    The numerator is the compute time of the epoch without the first step. The
    denominator is the time of the epoch without wait and compute of the first step, but
    with the time between steps and the waits for other ranks. An epoch of a single step
    has no utilization. Without an epoch of two steps on every rank the figure is None.
    """
    shares = [_by_epoch(trace) for trace in traces]
    epochs = sorted(set(shares[0]).intersection(*shares))
    means = [statistics.fmean(share[epoch] for share in shares) for epoch in epochs]
    return statistics.fmean(means) if means else None


def _by_epoch(trace: Trace) -> dict[float, float]:
    # The first epoch begins at 0, every other epoch at the end of the epoch before.
    epochs, ends = trace.timed["epoch"], trace.end_seconds
    compute = trace.compute_seconds
    first = np.flatnonzero(np.diff(epochs, prepend=epochs[0] - 1))
    last = np.append(first[1:], len(epochs)) - 1
    own = trace.wait_seconds[first] + compute[first]
    seconds = np.diff(ends[last], prepend=0.0) - own
    computing = np.add.reduceat(compute, first) - compute[first]
    several = last > first
    shares = computing[several] / seconds[several]
    return dict(zip(epochs[first[several]].tolist(), shares.tolist(), strict=True))


def _checked(share: float) -> float:
    if not -1e-9 <= share <= 1 + 1e-9:
        raise ArithmeticError(f"A share of the time must be 0 to 1, got {share}.")
    return min(1.0, max(0.0, share))


def _step_times(traces: Sequence[Trace]) -> dict[str, Any]:
    """Returns percentiles of the time of a step, linearly interpolated.

    Steps with the first records of a shuffle window may wait for the storage; other
    steps get their records from memory.
    """
    seconds = np.concatenate([trace.step_seconds for trace in traces])
    wait = np.concatenate([trace.wait_seconds for trace in traces])
    begins = np.concatenate([trace.timed["windows_begun"] for trace in traces]) > 0
    edges = np.geomspace(
        seconds.min() * _BELOW, seconds.max() / _BELOW, _HISTOGRAM_BINS + 1
    )
    names = [f"step_seconds_p{percent}" for percent in _PERCENTILES]
    every = np.percentile(seconds, _PERCENTILES).tolist()
    per_rank = [np.percentile(trace.step_seconds, _PERCENTILES) for trace in traces]
    columns = np.transpose(per_rank).tolist()
    return {
        **dict(zip(names, every, strict=True)),
        **{f"{n}_per_rank": own for n, own in zip(names, columns, strict=True)},
        "window_steps": _waits(wait[begins]),
        "other_steps": _waits(wait[~begins]),
        "step_histogram": {
            "edges_seconds": edges.tolist(),
            "counts": np.histogram(seconds, edges)[0].tolist(),
        },
    }


def _waits(seconds: Array) -> dict[str, Any]:
    median, most = np.percentile(seconds, (50, 99)) if len(seconds) else (None, None)
    waits = {"wait_seconds_p50": median, "wait_seconds_p99": most}
    return {"num_steps": len(seconds), **waits}


def _bytes(
    traces: Sequence[Trace], consumed: float | None, seconds: float
) -> dict[str, Any]:
    storage = joined(sum, [trace.storage_bytes for trace in traces])
    speeds = [
        None if size is None else size / seconds / 1e6 for size in (consumed, storage)
    ]
    return {
        "consumed_bytes": consumed,
        "consumed_megabytes_per_second": speeds[0],
        "storage_bytes_read": storage,
        "storage_megabytes_per_second": speeds[1],
        "run_storage_bytes_read": joined(sum, [t.run_storage_bytes for t in traces]),
    }


def learning(traces: Sequence[Trace]) -> dict[str, Any]:
    """Returns the losses of first and last step, and loss and accuracy by epoch."""
    steps = np.stack([trace.steps for trace in traces])
    epochs = []
    for epoch in np.unique(steps["epoch"]).tolist():
        part = steps[steps["epoch"] == epoch]
        count = int(part["num_examples"].sum())
        epochs.append(
            {
                "epoch": epoch,
                "loss": float((part["loss"] * part["num_examples"]).sum()) / count,
                "accuracy": int(part["num_correct"].sum()) / count,
                "num_examples": count,
            }
        )
    losses = steps["loss"].mean(axis=0)
    return {
        "loss_first": float(losses[0]),
        "loss_last": float(losses[-1]),
        "accuracy": epochs[-1]["accuracy"],
        "epochs": epochs,
    }


def not_finite_loss(traces: Sequence[Trace]) -> dict[str, Any] | None:
    """Returns the first step with a loss that is not finite; None without such a step.

    The step counts from 1, warm-up included. `ranks` are all ranks with such a loss.
    """
    losses = np.stack([trace.steps["loss"] for trace in traces])
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


def coverage(counts: Sequence[npt.NDArray[np.int64]]) -> dict[str, int] | None:
    """Returns how often records were used, over all ranks; None if data is synthetic.

    The counts of a rank are int64 [num_records].
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


def reproducibility(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compares the rates of runs with equal settings, as MLPerf Storage does.

    spread is (max - min) / mean of the examples/s. The runs are reproducible if the
    spread is at most 5 %.
    """
    rates = [float(result["examples_per_second"]) for result in results]
    spread = (max(rates) - min(rates)) / statistics.fmean(rates)
    return {
        "num_runs": len(rates),
        "examples_per_second_per_run": rates,
        "spread": spread,
        "spread_limit": _SPREAD_LIMIT,
        "reproducible": spread <= _SPREAD_LIMIT,
    }


def reproducibility_line(figures: Mapping[str, Any]) -> str:
    """Returns the figures of `reproducibility` as a sentence."""
    rates = ", ".join(f"{rate:.1f}" for rate in figures["examples_per_second_per_run"])
    verdict = "within" if figures["reproducible"] else "NOT within"
    return (
        f"{figures['num_runs']} runs differ by {figures['spread']:.1%}, {verdict} the "
        f"{figures['spread_limit']:.0%} of a reproducible result: {rates} img/sec"
    )


def speed_lines(figures: dict[str, Any]) -> list[str]:
    """Returns the speed as text: the lines of Horovod's benchmarks, then the waits."""
    num_ranks = len(figures["examples_per_second_per_rank"])
    milliseconds = [
        f"p{p} {figures[f'step_seconds_p{p}'] * 1e3:.1f}" for p in _PERCENTILES
    ]
    lines = [
        f"Img/sec per rank: {_rate(figures, '_per_rank')}",
        f"Total img/sec on {num_ranks} rank(s): {_rate(figures, '')}",
        _wait_line(figures),
        f"Step: {', '.join(milliseconds)} ms",
        figures["critical_path"]["text"],
        figures["steady_state"]["text"],
    ]
    if num_ranks > 1:
        lines.append(figures["critical_path"]["slowest"]["text"])
    if figures["consumed_bytes"] is not None:
        rate = figures["storage_megabytes_per_second"]
        storage = "an unknown part" if rate is None else f"{rate:.1f} MB/s"
        lines.append(
            f"Consumed {figures['consumed_megabytes_per_second']:.1f} MB/s; storage "
            f"gave {storage} meanwhile"
        )
    return lines


def _rate(figures: dict[str, Any], group: str) -> str:
    """Returns a rate as text, without a deviation of one step or above the rate."""
    rate, deviation = (
        float(np.mean(figures[f"examples_per_second{name}{group}"]))
        for name in ("", "_deviation")
    )
    if deviation >= rate:
        return f"{rate:.1f}, steps of very different lengths"
    return f"{rate:.1f}" + (f" +-{deviation:.1f}" if deviation else "")


def _wait_line(figures: dict[str, Any]) -> str:
    stalls = figures["stall_fraction_per_rank"]
    rank = stalls.index(max(stalls))
    wait, compute, sync = (
        figures[f"{part}_seconds_per_step_per_rank"][rank] * 1e3
        for part in ("wait", "compute", "sync")
    )
    who = f"Rank {rank} waited" if len(stalls) > 1 else "Waited"
    others = f", {sync:.1f} ms for other ranks" if len(stalls) > 1 else ""
    return (
        f"{who} for input {stalls[rank]:.1%} of the time ({wait:.1f} ms wait, "
        f"{compute:.1f} ms compute{others} a step)"
    )
