"""Comparison of two sets of runs: the change of each figure, and whether it is noise.

In: two collections of results. Out: a `Change` for each figure of each run in both
collections. A figure is a mean with its variance: over the repeats of a run, or over
the steps of a single run. The interval of
a ratio follows the delta method on its logarithm (Casella and Berger, Statistical
Inference, 5.5.4), with Student's t. Two variances have the degrees of freedom of Welch
(Biometrika 34, 1947).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.results import collection as results
from benchmarks.results.collection import Group, RunResult
from benchmarks.results.gates import METRICS, Metric

# Student's t, two-sided 95 %, by degrees of freedom: NIST/SEMATECH Handbook, 1.3.6.7.2.
_T_95 = {
    **{1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365},
    **{8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145},
    **{15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086, 21: 2.080},
    **{22: 2.074, 23: 2.069, 24: 2.064, 25: 2.060, 26: 2.056, 27: 2.052, 28: 2.048},
    **{29: 2.045, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980},
}


class Estimate(NamedTuple):
    """A mean with its variance, whose source is `basis`: "repeats", "steps" or ""."""

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


def ratio(
    above: Estimate | None, below: Estimate | None
) -> tuple[float | None, float | None]:
    """Returns the 95 % interval of the ratio of two independent means, if known."""
    if above is None or below is None or None in (above.variance, below.variance):
        return None, None
    parts = [((e.variance or 0.0) / e.mean**2, e.degrees) for e in (above, below)]
    factor, middle = math.exp(_half_width(parts)), above.mean / below.mean
    return middle / factor, middle * factor


def _half_width(parts: Sequence[tuple[float, float]]) -> float:
    """Returns half the width of the 95 % interval of a sum of independent parts.

    A part is a variance and its degrees of freedom.
    """
    total = sum(variance for variance, _ in parts)
    if not total:
        return 0.0
    freedom = total**2 / sum(variance**2 / degrees for variance, degrees in parts)
    # Rounding errors may bring the value to just below a whole number of degrees.
    return t_95(max(1.0, freedom + 1e-9)) * math.sqrt(total)


_Z_95 = 1.96  # a deviation of a result is this many standard deviations of its steps


class ComparedFigure(NamedTuple):
    """A compared figure: the metric of a gate, and the title on a page."""

    title: str
    metric: Metric
    more_is_better: bool = False


IMAGES_PER_SECOND = ComparedFigure("Images/s", METRICS["examples_per_second"], True)
FIGURES = (
    IMAGES_PER_SECOND,
    ComparedFigure("Accelerator utilization", METRICS["au"], True),
    ComparedFigure("Stall", METRICS["stall"]),
    ComparedFigure("Step p99, ms", METRICS["p99_step_ms"]),
    ComparedFigure("CPU, ms an image", METRICS["cpu_ms_per_example"]),
)


class Change(NamedTuple):
    """A figure of a run before and after."""

    figure: ComparedFigure
    old: Estimate
    new: Estimate

    @property
    def noise(self) -> float | None:
        """Half the width of the 95 % interval of new - old; None if unknown."""
        old, new = self.old, self.new
        if old.variance is None or new.variance is None:
            return None
        return _half_width([(old.variance, old.degrees), (new.variance, new.degrees)])

    @property
    def basis(self) -> str:
        """Source of the noise: "repeats", "steps", or "" if the noise is unknown."""
        is_of_repeats = self.old.basis == self.new.basis == "repeats"
        return "" if self.noise is None else "repeats" if is_of_repeats else "steps"

    @property
    def difference(self) -> float:
        """The new mean minus the old mean."""
        return self.new.mean - self.old.mean

    @property
    def verdict(self) -> str:
        """One of: better, worse, within the noise, unknown."""
        if self.noise is None:
            return "unknown"
        if abs(self.difference) <= self.noise:
            return "within the noise"
        is_better = (self.difference > 0) == self.figure.more_is_better
        return "better" if is_better else "worse"


class Pair(NamedTuple):
    """A run in both sets; `differing` has name, old and new value of other options."""

    old: Group
    new: Group
    differing: Sequence[str]
    changes: Mapping[ComparedFigure, Change]


def rate(group: Group) -> Estimate | None:
    """Returns the images/s of a group; None without images/s."""
    if len(group.rates) != 1:
        return of_repeats(group.rates)
    (mean,) = group.rates
    result = group.results[0].values
    deviation, steps = result.examples_per_second_deviation, result.num_timed_steps or 0
    if deviation is None or steps < 2:
        return Estimate(mean)
    # Neighboring steps resemble each other, so the noise is at least as large.
    return Estimate(mean, (deviation / _Z_95) ** 2 / steps, steps - 1, "steps")


def _estimate(group: Group, figure: ComparedFigure) -> Estimate | None:
    is_rate = figure is IMAGES_PER_SECOND
    return rate(group) if is_rate else of_repeats(group.figures(figure.metric.measured))


def pairs(
    old: Sequence[Group], new: Sequence[Group]
) -> tuple[list[Pair], list[Group], list[Group]]:
    """Finds the runs in both sets, and compares their figures.

    Runs belong together if mode, model, ranks, batch, data and --cache are equal. Runs
    with the fewest other differences are paired first.

    Returns:
        The pairs in the order of `new`, the groups only in `old`, and the groups only
        in `new`.
    """
    candidates = [
        (before, after)
        for after in new
        for before in old
        if _identity(before.median) == _identity(after.median)
    ]
    partner: dict[Group, Group] = {}
    for before, after in sorted(candidates, key=lambda pair: len(_differences(*pair))):
        if after not in partner and before not in partner.values():
            partner[after] = before
    return (
        [_pair(partner[group], group) for group in new if group in partner],
        [group for group in old if group not in partner.values()],
        [group for group in new if group not in partner],
    )


def _pair(old: Group, new: Group) -> Pair:
    changes = {
        figure: Change(figure, before, after)
        for figure in FIGURES
        if (before := _estimate(old, figure)) and (after := _estimate(new, figure))
    }
    return Pair(old, new, _differences(old, new), changes)


def _identity(result: RunResult) -> tuple[Any, ...]:
    names = ("mode", "model", "batch_size", "image_size", "precision", "cache", "bars")
    values = (str(result.options.get(name)) for name in names)
    where = (result.kind, result.accelerator, result.data)
    return (*values, *where, result.values.num_ranks)


def _differences(old: Group, new: Group) -> list[str]:
    before, after = _described(old.median), _described(new.median)
    return [
        f"{key}: {before.get(key)} → {after.get(key)}"
        for key in before | after
        if key != "data_dir" and _text(before.get(key)) != _text(after.get(key))
    ]


def _described(result: RunResult) -> dict[str, Any]:
    """Returns the settings and versions by which two runs may differ."""
    versions = results.environment(result).items()
    return {
        "hosts": ", ".join(result.hosts) or "?",
        "page cache": result.cache or "?",
        **results.settings(result),
        **{f"environment {key}": value for key, value in versions},
    }


def _text(value: Any) -> str:
    # A result of an older version lacks the options that came later.
    return "" if value in (None, False, [], {}) else str(value)
