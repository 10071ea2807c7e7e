"""MLPerf Storage's rules, as its code has them: utilization, and what counts as equal.

In: the steps of each rank, or the results of several runs. Out: its figures, to set
beside those that it publishes. Source: github.com/mlcommons/storage v2.0, Rules.md; and
DLIO's statscounter.py, which it measures with.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

_SPREAD_LIMIT = 0.05  # results must be reproducible within 5 %


def utilization_of_epochs(
    *,
    epochs: Sequence[int],
    wait_seconds: Sequence[float],
    compute_seconds: Sequence[float],
    end_seconds: Sequence[float],
) -> dict[int, float]:
    """Accelerator utilization of one rank in each epoch that has two steps or more.

    Compute without the first step, over the time of the epoch without the first step's
    wait and compute. Time between steps, and for other ranks, is in the denominator
    only.

    Args:
        epochs: Of each step, equal ones side by side.
        wait_seconds: Of each step, for its input.
        compute_seconds: Of each step.
        end_seconds: When each step ended; the first epoch began at 0, every other one
            at the end of the one before.
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
    """The figure of a run: the mean over ranks, then over epochs.

    None if no epoch has two steps on every rank.
    """
    epochs = sorted(set(ranks[0]).intersection(*ranks))
    if not epochs:
        return None
    return statistics.fmean(
        statistics.fmean(rank[epoch] for rank in ranks) for epoch in epochs
    )


def reproducibility(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How far runs of the same differ: spread is (max - min) / mean of examples/s.

    Reproducible is a spread of 5 % at most.

    Raises:
        ValueError: If there are less than two results.
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
    """`reproducibility` in a sentence."""
    rates = ", ".join(f"{rate:.1f}" for rate in figures["examples_per_second_per_run"])
    verdict = "within" if figures["reproducible"] else "NOT within"
    return (
        f"{figures['num_runs']} runs differ by {figures['spread']:.1%}, {verdict} the "
        f"{figures['spread_limit']:.0%} of a reproducible result: {rates} img/sec"
    )
