"""Scaling: images/s of N ranks beside N times the images/s of a single rank.

In: images/s of repeated runs by number of ranks, as groups or as documents of
benchmarks.sweep. Out: a `SweptPoint` for each number of ranks, with speed-up and
efficiency and a 95 % interval of the efficiency; and a chart with a drawing for each
series, and the largest number of ranks that meets its gates in words.

Weak scaling keeps the batch size of a rank, strong scaling the global batch size. Both
use the same formula, on the means of the repeats: efficiency = rate_N / (N * rate_1).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.reporting import compare, tables
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result
from benchmarks.results.other_results import SweepResult, SweptPoint
from tfpipe.cli.text_table import Column
from tfpipe.pages import frame
from tfpipe.pages.frame import Chart, Plot, Spec, percent

PARTS = ("compute", "input", "communication", "late")
MET = {None: "—", True: "met", False: "not met"}
_Series = tuple[str, Sequence[SweptPoint]]  # its label, and its points
# The ideal line, the measured line, intervals, and points in the color of their state.
_LAYERS = frame.declared("benchmarks.reporting", "scaling.json")
_COLORS = _LAYERS[-1]["encoding"]["color"]["scale"]


class PointRow(NamedTuple):
    """A point in a table: the label of its series, and the first point of its ranks."""

    label: str
    point: SweptPoint
    first: SweptPoint


def _over(row: PointRow, rate: float | None) -> str:
    return percent(rate and row.point.examples_per_second / rate)


def _share(part: str) -> Callable[[PointRow], str]:
    return lambda row: percent(row.point.critical_path.get(part))


# The columns of a point on pages and on terminals, which leave out columns of dashes.
POINTS: Sequence[Column[PointRow]] = (
    Column("Run", lambda r: r.label, is_left=True),
    Column("Hosts x ranks", lambda r: r.point.name),
    Column("Runs", lambda r: str(r.point.num_repeats)),
    Column(
        "Images/s",
        lambda r: frame.with_interval(
            r.point.examples_per_second, r.point.examples_per_second_interval
        ),
    ),
    Column(
        "Of the first",
        lambda r: "—" if r.point is r.first else _over(r, r.first.examples_per_second),
    ),
    Column("Of the ideal", lambda r: _over(r, r.point.ideal_examples_per_second)),
    Column("Speed-up", lambda r: frame.amount(r.point.speedup)),
    Column("Efficiency", lambda r: _efficiency(r.point)),
    Column("AU", lambda r: percent(r.point.accelerator_utilization)),
    Column("Binds", lambda r: r.point.binding or "—"),
    *(Column(part.capitalize(), _share(part)) for part in PARTS),
    Column("Cores", lambda r: percent(r.point.host_cpu_fraction)),
    Column(
        "MB/s into each host",
        lambda r: (
            ", ".join(map(frame.amount, r.point.received_mb_per_second_per_host)) or "—"
        ),
    ),
    Column("Link", lambda r: percent(r.point.network_utilization)),
    Column("Page cache", lambda r: r.point.cache or "—"),
    Column("Gates", lambda r: MET[r.point.gates_met]),
)


def rows_of(label: str, points: Sequence[SweptPoint]) -> list[PointRow]:
    """Returns the rows of a series for `POINTS`."""
    first: dict[int, SweptPoint] = {}
    return [PointRow(label, p, first.setdefault(p.num_ranks, p)) for p in points]


def points(rates: Mapping[int, Sequence[float]]) -> list[SweptPoint]:
    """Computes the scaling of a series, in the order of the numbers of ranks.

    Args:
        rates: Number of ranks -> images/s of all ranks, a value for each repeat. A
            number of ranks without values gets no point.
    """
    single, ordered = rates.get(1, ()), sorted(rates.items())
    return [point(ranks, repeats, single) for ranks, repeats in ordered if repeats]


def point(
    num_ranks: int, repeats: Sequence[float], single: Sequence[float]
) -> SweptPoint:
    """Computes the figures of a number of ranks."""
    every, alone = compare.of_repeats(repeats), compare.of_repeats(single)
    if every is None:
        raise ValueError(f"Images/s on {num_ranks} ranks must be given, got none.")
    speedup = every.mean / alone.mean if alone else None
    low, high = compare.ratio(every, alone)
    if num_ranks == 1:  # its efficiency is 1 by definition, whatever the repeats say
        low, high = 1.0, 1.0
    return SweptPoint(
        num_ranks=num_ranks,
        num_repeats=len(repeats),
        examples_per_second=every.mean,
        examples_per_second_interval=every.interval,
        efficiency=None if speedup is None else speedup / num_ranks,
        efficiency_low=None if low is None else low / num_ranks,
        efficiency_high=None if high is None else high / num_ranks,
        speedup=speedup,
    )


def scaling_chart(
    groups: Sequence[Group], sweeps: Sequence[Result[SweepResult]]
) -> Chart:
    """Draws the rate of each series over the number of ranks; no rows without data."""
    # The page of a sweep's folder has the runs themselves, with more figures.
    drawn = [*_of_groups(groups)] or [*_of_sweeps(sweeps)]
    return Chart(
        "scaling",
        "Ranks against the ideal line",
        [_sentence(*series) for series in drawn],
        list(zip(_COLORS["domain"], _COLORS["range"], strict=True)),
        [Plot(label, _drawing(points)) for label, points in drawn],
        *tables.view(POINTS, [row for series in drawn for row in rows_of(*series)]),
    )


def _of_groups(groups: Sequence[Group]) -> Iterator[_Series]:
    rated = [g for g in groups if g.rates and min(g.rates) > 0 and g.values.num_ranks]
    sized = [group for group in rated if group.values.config.batch_size]
    for is_weak, alike in ((True, rated), (False, sized)):
        for same in results.alike(alike, functools.partial(_constants, is_weak)):
            for index, line in enumerate(_lines(same)):
                if len(line) > 1:
                    yield _series(line, is_weak=is_weak, is_apart=index > 0)


def _constants(is_weak: bool, group: Group) -> list[Any]:
    """Returns all equal settings of a line of weak or strong scaling."""
    result, batch_size = group.median, _batch(group, is_weak)
    common = results.settings(result) | {"num_ranks": 0, "batch_size": batch_size}
    return [common, result.cache, results.environment(result)]


def _batch(group: Group, is_weak: bool) -> int:
    """Returns the batch size of a rank, or the global batch size."""
    return (group.values.config.batch_size or 0) * (1 if is_weak else _ranks(group))


def _lines(groups: Sequence[Group]) -> list[list[Group]]:
    """Returns groups on lines with one group a number of ranks.

    Groups of equal ranks ran on other machines, or on other numbers of hosts.
    """
    lines: list[list[Group]] = []
    for group in sorted(groups, key=lambda g: (_ranks(g), len(g.median.hosts))):
        free = [line for line in lines if _ranks(line[-1]) != _ranks(group)]
        if not free:
            lines.append([])
            free = lines[-1:]
        free[0].append(group)
    return lines


def _ranks(group: Group) -> int:
    return group.values.num_ranks or 1


def _series(groups: Sequence[Group], *, is_weak: bool, is_apart: bool) -> _Series:
    first, batch_size = groups[0].median, _batch(groups[0], is_weak)
    texts = results.texts(first)
    words = [
        *(texts["model"], f"batch {batch_size} {'a rank' if is_weak else 'in all'}"),
        *(texts["kind"], texts["data"], first.cache),
        f"on {', '.join(first.hosts)}" if is_apart else "",
    ]
    rated = points({_ranks(group): group.rates for group in groups})
    passed = [[gate.passed for gate in group.gates] for group in groups]
    return ", ".join(filter(None, words)), [
        dataclasses.replace(point, gates_met=all(own) if own else None)
        for point, own in zip(rated, passed, strict=True)
    ]


def _of_sweeps(sweeps: Sequence[Result[SweepResult]]) -> Iterator[_Series]:
    for series in (each for sweep in sweeps for each in sweep.values.series):
        batch = f"batch {series.batch_size}" if series.batch_size else ""
        words = (series.model, series.scaling, series.data_dir, batch)
        points = [p for p in series.points if p.num_ranks and p.examples_per_second]
        # Equal ranks on other hosts are no line: charts.sweeps draws them.
        if len(points) == 1 or len({point.num_ranks for point in points}) > 1:
            yield ", ".join(filter(None, words)), points


def _sentence(label: str, points: Sequence[SweptPoint]) -> str:
    last = points[-1]
    rate = frame.amount(last.examples_per_second)
    text = f"{label}: {last.num_ranks} ranks reach {rate} images/s"
    if last.efficiency is not None:
        text += f", {percent(last.efficiency)} of {last.num_ranks} times one rank"
    passing = [point.num_ranks for point in points if point.gates_met]
    if passing:
        return f"{text}. The largest number of ranks that passes is {max(passing)}."
    is_gated = any(point.gates_met is not None for point in points)
    return f"{text}.{' No number of ranks passes its gates.' if is_gated else ''}"


def _efficiency(point: SweptPoint) -> str:
    text = percent(point.efficiency)
    low, high = point.efficiency_low, point.efficiency_high
    if point.num_ranks > 1 and low is not None and high is not None:
        text += f" ({percent(low)} to {percent(high)})"
    return text


def _drawing(points: Sequence[SweptPoint]) -> Spec:
    of_one_rank = points[0].examples_per_second / points[0].num_ranks
    rows: list[Spec] = [{"ranks": 0, "ideal": 0.0}]
    for point in points:
        rate, half = point.examples_per_second, point.examples_per_second_interval
        row = {"ranks": point.num_ranks, "ideal": of_one_rank * point.num_ranks}
        row |= {"low": max(0.0, rate - (half or 0.0)), "high": rate + (half or 0.0)}
        state = "gates are met" if point.gates_met else "measured"
        rows.append(row | {"rate": rate, "state": state})
    axis = {"values": [p.num_ranks for p in points], "format": "d", "grid": False}
    x = frame.quantity("ranks", title="ranks", axis=axis)
    return frame.spec(rows, height=280, encoding={"x": x}, layer=_LAYERS)
