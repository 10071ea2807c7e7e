"""Scaling: images/s of N ranks, compared with N times the images/s of a single rank.

In: images/s of repeated runs, by number of ranks. Out: a `SweptPoint` for each number
of ranks, with speed-up and efficiency, and a 95 % interval of the efficiency.

Weak scaling keeps the batch size of a rank, strong scaling the global batch size. Both
use the same formula, on the means of the repeats: efficiency = rate_N / (N * rate_1).
"""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.reporting.intervals import mean_interval, ratio_interval
from benchmarks.results.other_results import SweptPoint


def points(rates: Mapping[int, Sequence[float]]) -> list[SweptPoint]:
    """Computes the scaling of a series, in the order of the numbers of ranks.

    Args:
        rates: Number of ranks -> images/s of all ranks, a value for each repeat. A
            number of ranks without values gets no point.

    Raises:
        ValueError: If a rate is not above 0.
    """
    for num_ranks, repeats in rates.items():
        if any(not rate > 0 for rate in repeats):
            raise ValueError(
                f"Images/s must be above 0, got {list(repeats)} on {num_ranks} ranks."
            )
    single = rates.get(1, ())
    return [
        point(num_ranks, rates[num_ranks], single)
        for num_ranks in sorted(rates)
        if rates[num_ranks]
    ]


def point(
    num_ranks: int, repeats: Sequence[float], single: Sequence[float]
) -> SweptPoint:
    """Computes the figures of a number of ranks.

    Args:
        num_ranks: Number of ranks.
        repeats: Images/s of all ranks, above 0; at least a value.
        single: The same on a single rank; may be empty.
    """
    mean = statistics.mean(repeats)
    speedup = mean / statistics.mean(single) if single else None
    low, high = ratio_interval(repeats, single)
    if num_ranks == 1:  # its efficiency is 1 by definition, whatever the repeats say
        low, high = 1.0, 1.0
    return SweptPoint(
        num_ranks=num_ranks,
        num_repeats=len(repeats),
        examples_per_second=mean,
        examples_per_second_interval=mean_interval(repeats),
        efficiency=None if speedup is None else speedup / num_ranks,
        efficiency_low=None if low is None else low / num_ranks,
        efficiency_high=None if high is None else high / num_ranks,
        speedup=speedup,
    )
