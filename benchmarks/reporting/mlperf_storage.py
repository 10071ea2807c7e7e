"""MLPerf Storage's figures: accelerator utilization and reproducibility.

In: the steps of the ranks, or the results of several runs. Out: figures to compare with
published results of MLPerf Storage. Source: github.com/mlcommons/storage v2.0,
Rules.md, and statscounter.py of DLIO, the measuring program of MLPerf Storage.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_SPREAD_LIMIT = 0.05  # Rules.md: results must be reproducible within 5 %


def utilization_of_epochs(
    *,
    epochs: Sequence[int],
    wait_seconds: Sequence[float] | npt.NDArray[np.float64],
    compute_seconds: Sequence[float] | npt.NDArray[np.float64],
    end_seconds: Sequence[float] | npt.NDArray[np.float64],
) -> dict[int, float]:
    """Computes the accelerator utilization of a rank by epoch.

    The numerator is the compute time of the epoch without the first step. The
    denominator is the time of the epoch without wait and compute of the first step, but
    with the time between steps and the waits for other ranks. An epoch of a single step
    has no utilization.

    Args:
        epochs: Epochs of the steps; the steps of an epoch are consecutive.
        end_seconds: Ends of the steps. The first epoch begins at 0, every other epoch
            at the end of the epoch before.

    Returns:
        Epoch -> utilization, 0 to 1.
    """
    result = {}
    start = 0.0
    for epoch, group in itertools.groupby(range(len(epochs)), key=epochs.__getitem__):
        first, *others = group
        last = others[-1] if others else first
        if others:
            outside = wait_seconds[first] + compute_seconds[first]
            compute = sum(compute_seconds[step] for step in others)
            result[epoch] = compute / (end_seconds[last] - start - outside)
        start = end_seconds[last]
    return result


def utilization(ranks: Sequence[Mapping[int, float]]) -> float | None:
    """Returns the utilization of a run: the mean over ranks, then over epochs.

    None if no epoch has at least two steps on every rank.
    """
    epochs = sorted(set(ranks[0]).intersection(*ranks))
    if not epochs:
        return None
    return statistics.fmean(
        statistics.fmean(rank[epoch] for rank in ranks) for epoch in epochs
    )


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
