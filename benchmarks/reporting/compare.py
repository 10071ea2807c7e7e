"""Comparison of two sets of runs: the change of each figure, and whether it is noise.

In: two collections of results. Out: a `Change` for each figure of each run in both
collections. A figure is a mean with its variance: over the repeats of a run, or over
the steps of a single run. `intervals` has the arithmetic.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.reporting import intervals
from benchmarks.reporting.intervals import Estimate, of_repeats
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, RunResult
from benchmarks.results.train_result import TrainResult

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
    noise = intervals.difference(old, new)
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
