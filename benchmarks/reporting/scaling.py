"""Scaling: images/s of N ranks, compared with N times the images/s of one rank.

In: images/s of repeated runs, by number of ranks. Out: a `Point` for each number of
ranks, with speed-up and efficiency, and a 95 % interval of the efficiency.

Weak scaling keeps the batch size of a rank, strong scaling the global batch size. Both
use the same formula, on the means of the repeats: efficiency = rate_N / (N * rate_1).
Its interval is the interval of a ratio of two means, by the delta method on the
logarithm of the ratio (Casella and Berger, Statistical Inference, 5.5.4), with
Student's t and the degrees of freedom of Welch (Biometrika 34, 1947).
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

# Student's t, two-sided 95 %, by degrees of freedom: NIST/SEMATECH Handbook, 1.3.6.7.2.
_T_95 = {
    **{1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365},
    **{8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145},
    **{15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086, 21: 2.080},
    **{22: 2.074, 23: 2.069, 24: 2.064, 25: 2.060, 26: 2.056, 27: 2.052, 28: 2.048},
    **{29: 2.045, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """Figures of one number of ranks; None where a run that is needed is missing.

    Attributes:
        num_ranks: Number of ranks, N.
        num_repeats: Number of runs that the mean is taken over.
        examples_per_second: Rate of all ranks together, the mean over the repeats.
        examples_per_second_interval: Half the width of the mean's 95 % interval; None
            for a single run.
        efficiency: rate_N / (N * rate_1); None without a run on one rank.
        efficiency_low: Lower end of the efficiency's 95 % interval; None unless both N
            ranks and one rank were repeated.
        efficiency_high: Upper end of the same interval.
        speedup: rate_N / rate_1; None without a run on one rank.
    """

    num_ranks: int
    num_repeats: int
    examples_per_second: float
    examples_per_second_interval: float | None
    efficiency: float | None
    efficiency_low: float | None
    efficiency_high: float | None
    speedup: float | None

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as a dict that JSON can hold."""
        return dataclasses.asdict(self)


def points(rates: Mapping[int, Sequence[float]]) -> list[Point]:
    """Computes the scaling of a series, in the order of the numbers of ranks.

    Args:
        rates: Number of ranks -> images/s of all ranks, one value for each repeat. A
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
        _point(num_ranks, rates[num_ranks], single)
        for num_ranks in sorted(rates)
        if rates[num_ranks]
    ]


def _point(num_ranks: int, repeats: Sequence[float], single: Sequence[float]) -> Point:
    mean = statistics.mean(repeats)
    speedup = mean / statistics.mean(single) if single else None
    low, high = _ratio_interval(repeats, single)
    if num_ranks == 1:  # its efficiency is 1 by definition, whatever the repeats say
        low, high = 1.0, 1.0
    return Point(
        num_ranks=num_ranks,
        num_repeats=len(repeats),
        examples_per_second=mean,
        examples_per_second_interval=mean_interval(repeats),
        efficiency=None if speedup is None else speedup / num_ranks,
        efficiency_low=None if low is None else low / num_ranks,
        efficiency_high=None if high is None else high / num_ranks,
        speedup=speedup,
    )


def mean_interval(values: Sequence[float]) -> float | None:
    """Returns half the width of a mean's 95 % interval; None for one value or none."""
    if len(values) < 2:
        return None
    return t_95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def t_95(degrees: float) -> float:
    """Returns Student's t, two-sided 95 %, for at least one degree of freedom.

    Between two rows of the table the row of fewer degrees counts: its t is larger, so
    an interval is never too narrow.
    """
    return _T_95[max(row for row in _T_95 if row <= degrees)]


def _ratio_interval(
    above: Sequence[float], below: Sequence[float]
) -> tuple[float | None, float | None]:
    """Returns the 95 % interval of mean(above) / mean(below), of independent values."""
    if min(len(above), len(below)) < 2:
        return None, None
    ratio = statistics.mean(above) / statistics.mean(below)
    parts = [_relative_variance(above), _relative_variance(below)]
    if sum(parts) == 0:
        return ratio, ratio
    freedom = sum(
        part**2 / (len(values) - 1)
        for part, values in zip(parts, (above, below), strict=True)
    )
    # Rounding errors may bring the value to just below a whole number of degrees.
    degrees = max(1.0, sum(parts) ** 2 / freedom + 1e-9)
    factor = math.exp(t_95(degrees) * math.sqrt(sum(parts)))
    return ratio / factor, ratio * factor


def _relative_variance(values: Sequence[float]) -> float:
    """Returns the variance of the mean of values, over the square of the mean."""
    mean = statistics.mean(values)
    return statistics.variance(values) / len(values) / mean**2
