"""Intervals: how sure a mean is, and a ratio of two means.

In: the values of repeated runs. Out: 95 % intervals. The interval of a ratio follows
the delta method on its logarithm (Casella and Berger, Statistical Inference, 5.5.4),
with Student's t and the degrees of freedom of Welch (Biometrika 34, 1947).
"""

import math
import statistics
from collections.abc import Sequence

# Student's t, two-sided 95 %, by degrees of freedom: NIST/SEMATECH Handbook, 1.3.6.7.2.
_T_95 = {
    **{1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365},
    **{8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145},
    **{15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086, 21: 2.080},
    **{22: 2.074, 23: 2.069, 24: 2.064, 25: 2.060, 26: 2.056, 27: 2.052, 28: 2.048},
    **{29: 2.045, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980},
}


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


def ratio_interval(
    above: Sequence[float], below: Sequence[float]
) -> tuple[float | None, float | None]:
    """Returns the 95 % interval of mean(above) / mean(below), of independent values.

    Both ends are None if either has fewer than two values.
    """
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
