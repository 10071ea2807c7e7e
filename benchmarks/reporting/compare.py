"""Comparison of two sets of runs: the change of each figure, and whether it is noise.

In: two collections of results. Out: a `Change` for each figure of each run in both
collections. A figure is a mean with its variance: over the repeats of a run, or over
the steps of a single run. The interval of
a ratio follows the delta method on its logarithm (Casella and Berger, Statistical
Inference, 5.5.4), with Student's t. Two variances have the degrees of freedom of Welch
(Biometrika 34, 1947).
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.results import collection as results
from benchmarks.results.collection import Group, RunResult
from benchmarks.results.train_result import TrainResult

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
    return _half_width((old.variance, new.variance), (old.degrees, new.degrees))


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
    factor = math.exp(_half_width(relative, [each.degrees for each in both]))
    middle = above.mean / below.mean
    return middle / factor, middle * factor


def _half_width(variances: Sequence[float], degrees: Sequence[float]) -> float:
    """Returns half the width of the 95 % interval of a sum of independent parts."""
    total = sum(variances)
    if not total:
        return 0.0
    parts = zip(variances, degrees, strict=True)
    freedom = total**2 / sum(part**2 / own for part, own in parts)
    # Rounding errors may bring the value to just below a whole number of degrees.
    return t_95(max(1.0, freedom + 1e-9)) * math.sqrt(total)


_Z_95 = 1.96  # a deviation of a result is this many standard deviations of its steps


class ComparedFigure(NamedTuple):
    """A figure that is compared.

    Attributes:
        is_share: Whether the value is 0 to 1, so that a change is in points.
    """

    title: str
    get: Callable[[TrainResult], float | None]
    scale: float = 1.0
    more_is_better: bool = False
    is_share: bool = False


IMAGES_PER_SECOND = ComparedFigure(
    "Images/s", lambda r: r.examples_per_second, more_is_better=True
)
FIGURES = (
    IMAGES_PER_SECOND,
    ComparedFigure(
        *("Accelerator utilization", lambda r: r.accelerator_utilization, 1, True),
        is_share=True,
    ),
    ComparedFigure("Stall", lambda r: r.stall_fraction, is_share=True),
    ComparedFigure("Step p99, ms", lambda r: r.step_seconds_p99, 1e3),
    ComparedFigure("CPU, ms an image", lambda r: r.cpu_seconds_per_example, 1e3),
)


@dataclasses.dataclass(frozen=True)
class Change:
    """A figure of a run before and after.

    Attributes:
        noise: Half the width of the 95 % interval of after - before; None if unknown.
        basis: Source of the noise: "repeats" or "steps".
    """

    figure: ComparedFigure
    before: float
    after: float
    noise: float | None
    basis: str

    @property
    def relative(self) -> float | None:
        """The change as a part of the old value; None if the old value is 0."""
        return (self.after - self.before) / self.before if self.before else None

    @property
    def verdict(self) -> str:
        """One of: better, worse, within the noise, unknown."""
        change = self.after - self.before
        if self.noise is None:
            return "unknown"
        if abs(change) <= self.noise:
            return "within the noise"
        return "better" if (change > 0) == self.figure.more_is_better else "worse"


class Pair(NamedTuple):
    """A run in both sets.

    Attributes:
        differing: Name, old and new value of each option that differs.
    """

    old: Group
    new: Group
    differing: Sequence[str]
    changes: Sequence[Change]


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
    if figure is IMAGES_PER_SECOND:
        return rate(group)
    return of_repeats([value * figure.scale for value in group.figures(figure.get)])


def change(figure: ComparedFigure, old: Estimate, new: Estimate) -> Change:
    """Compares two means of a figure; see `Change`."""
    noise = difference(old, new)
    basis = "repeats" if old.basis == new.basis == "repeats" else "steps"
    return Change(figure, old.mean, new.mean, noise, basis if noise is not None else "")


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
    candidates = sorted(
        (len(_differences(before.median, after.median)), index, other)
        for index, after in enumerate(new)
        for other, before in enumerate(old)
        if _identity(before.median) == _identity(after.median)
    )
    partner: dict[int, int] = {}
    for _, index, other in candidates:
        if index not in partner and other not in partner.values():
            partner[index] = other
    return (
        [_pair(old[partner[index]], new[index]) for index in sorted(partner)],
        [group for other, group in enumerate(old) if other not in partner.values()],
        [group for index, group in enumerate(new) if index not in partner],
    )


def _pair(old: Group, new: Group) -> Pair:
    changes = []
    for figure in FIGURES:
        before, after = _estimate(old, figure), _estimate(new, figure)
        if before is not None and after is not None:
            changes.append(change(figure, before, after))
    return Pair(old, new, _differences(old.median, new.median), changes)


def _identity(result: RunResult) -> tuple[Any, ...]:
    names = ("mode", "model", "batch_size", "image_size", "precision", "cache", "bars")
    values = (str(result.options.get(name)) for name in names)
    where = (result.kind, result.accelerator, result.data)
    return (*values, *where, result.values.num_ranks)


def _differences(old: RunResult, new: RunResult) -> list[str]:
    differences = []
    if old.hosts != new.hosts:
        hosts = (", ".join(result.hosts) or "?" for result in (old, new))
        differences.append(f"hosts: {' → '.join(hosts)}")
    if old.cache != new.cache:
        differences.append(f"page cache: {old.cache or '?'} → {new.cache or '?'}")
    for name, before, after in (
        ("", results.settings(old), results.settings(new)),
        ("environment ", results.environment(old), results.environment(new)),
    ):
        differences += [
            f"{name}{key}: {before.get(key)} → {after.get(key)}"
            for key in sorted(before.keys() | after.keys())
            if key != "data_dir" and _text(before, key) != _text(after, key)
        ]
    return differences


def _text(values: Mapping[str, Any], key: str) -> str:
    # A result of an older version lacks the options that came later.
    value = values.get(key)
    return "" if value in (None, False, [], {}) else str(value)
