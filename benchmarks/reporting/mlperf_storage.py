"""MLPerf Storage's figures: accelerator utilization and reproducibility.

In: the steps of the ranks, or the results of several runs. Out: figures to compare with
published results of MLPerf Storage. Source: github.com/mlcommons/storage v2.0,
Rules.md, and statscounter.py of DLIO, the measuring program of MLPerf Storage.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_SPREAD_LIMIT = 0.05  # Rules.md: results must be reproducible within 5 %


def utilization(ranks: Sequence[tuple[Array, Array, Array, Array]]) -> float | None:
    """Returns the utilization of a run: the mean over ranks, then over epochs.

    The numerator is the compute time of the epoch without the first step. The
    denominator is the time of the epoch without wait and compute of the first step, but
    with the time between steps and the waits for other ranks. An epoch of a single step
    has no utilization.

    Args:
        ranks: Of every rank, epoch, wait, compute time and end of the steps in seconds.
            The steps of an epoch are consecutive. The first epoch begins at 0, every
            other epoch at the end of the epoch before.

    Returns:
        0 to 1; None if no epoch has at least two steps on every rank.
    """
    shares = [_by_epoch(*rank) for rank in ranks]
    epochs = sorted(set(shares[0]).intersection(*shares))
    means = [statistics.fmean(share[epoch] for share in shares) for epoch in epochs]
    return statistics.fmean(means) if means else None


def _by_epoch(
    epochs: Array, wait: Array, compute: Array, ends: Array
) -> dict[float, float]:
    first = np.flatnonzero(np.diff(epochs, prepend=epochs[0] - 1))
    last = np.append(first[1:], len(epochs)) - 1
    seconds = np.diff(ends[last], prepend=0.0) - wait[first] - compute[first]
    computing = np.add.reduceat(compute, first) - compute[first]
    several = last > first
    shares = computing[several] / seconds[several]
    return dict(zip(epochs[first[several]].tolist(), shares.tolist(), strict=True))


def reproducibility(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compares the rates of runs with equal settings.

    spread is (max - min) / mean of the examples/s. The runs are reproducible if the
    spread is at most 5 %.
    """
    rates = [float(result["examples_per_second"]) for result in results]
    if len(rates) < 2:
        raise ValueError(f"--repeat must be >= 2 to compare runs, got {len(rates)}.")
    spread = (max(rates) - min(rates)) / statistics.fmean(rates)
    return {
        "num_runs": len(rates),
        "examples_per_second_per_run": rates,
        "examples_per_second_best": max(rates),
        "examples_per_second_median": statistics.median(rates),
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
