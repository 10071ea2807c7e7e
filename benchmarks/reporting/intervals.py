"""Intervals: how sure a mean is, a difference of two means, and their ratio.

In: the values of repeated runs. Out: an `Estimate` of their mean, and 95 % intervals.
The interval of a ratio follows the delta method on its logarithm (Casella and Berger,
Statistical Inference, 5.5.4), with Student's t. Two variances have the degrees of
freedom of Welch (Biometrika 34, 1947).
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

# Student's t, two-sided 95 %, by degrees of freedom: NIST/SEMATECH Handbook, 1.3.6.7.2.
_T_95 = {
    **{1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365},
    **{8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145},
    **{15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086, 21: 2.080},
    **{22: 2.074, 23: 2.069, 24: 2.064, 25: 2.060, 26: 2.056, 27: 2.052, 28: 2.048},
    **{29: 2.045, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980},
}


class Estimate(NamedTuple):
    """A mean with its variance.

    Attributes:
        basis: Source of the variance: "repeats", "steps" or "".
    """

    mean: float
    variance: float | None = None
    degrees: float = 0
    basis: str = ""

    @property
    def interval(self) -> float | None:
        """Half the width of the 95 % interval; None if unknown."""
        if self.variance is None:
            return None
        return t_95(self.degrees) * math.sqrt(self.variance)


def of_repeats(values: Sequence[float]) -> Estimate | None:
    """Returns the mean of repeats; its variance is unknown for a single repeat.

    Example:
        >>> of_repeats([99.0, 101.0])
        Estimate(mean=100.0, variance=1.0, degrees=1, basis='repeats')
    """
    if not values:
        return None
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Estimate(mean)
    variance = statistics.variance(values) / len(values)
    return Estimate(mean, variance, len(values) - 1, "repeats")


def t_95(degrees: float) -> float:
    """Returns Student's t, two-sided 95 %, for at least one degree of freedom.

    Between two rows of the table the row of fewer degrees counts: its t is larger, so
    an interval is never too narrow.
    """
    return _T_95[max(row for row in _T_95 if row <= degrees)]


def difference(old: Estimate, new: Estimate) -> float | None:
    """Returns half the width of the 95 % interval of new - old; None if unknown."""
    if old.variance is None or new.variance is None:
        return None
    return _half((old.variance, new.variance), (old.degrees, new.degrees))


def ratio(
    above: Estimate | None, below: Estimate | None
) -> tuple[float | None, float | None]:
    """Returns the 95 % interval of the ratio of two independent means.

    Both ends are None if either variance is unknown.
    """
    if above is None or below is None or None in (above.variance, below.variance):
        return None, None
    both = (above, below)
    relative = [(each.variance or 0.0) / each.mean**2 for each in both]
    factor = math.exp(_half(relative, [each.degrees for each in both]))
    middle = above.mean / below.mean
    return middle / factor, middle * factor


def _half(variances: Sequence[float], degrees: Sequence[float]) -> float:
    """Returns half the width of the 95 % interval of a sum of independent parts."""
    total = sum(variances)
    if not total:
        return 0.0
    parts = zip(variances, degrees, strict=True)
    freedom = total**2 / sum(part**2 / own for part, own in parts)
    # Rounding errors may bring the value to just below a whole number of degrees.
    return t_95(max(1.0, freedom + 1e-9)) * math.sqrt(total)
