"""Scaling: images/s of N ranks beside N times the images/s of a single rank.

In: images/s of repeated runs by number of ranks, as groups or as documents of
benchmarks.sweep. Out: a `SweptPoint` for each number of ranks, with speed-up and
efficiency and a 95 % interval of the efficiency; and a chart with a drawing for each
series, and the largest number of ranks that meets its gates in words.

Weak scaling keeps the batch size of a rank, strong scaling the global batch size. Both
use the same formula, on the means of the repeats: efficiency = rate_N / (N * rate_1).
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.reporting import compare, tables
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result
from benchmarks.results.other_results import SweepResult, SweptPoint
from benchmarks.results.train_result import GateAnswer
from tfpipe.cli.text_table import Column
from tfpipe.pages import frame
from tfpipe.pages.frame import Chart, Plot, Spec, percent

PARTS = ("compute", "input", "communication", "late")
MET = {None: "—", True: "met", False: "not met"}
_MEASURED, _IDEAL, _PASSES = "measured", "ideal", "gates are met"
_COLORS = {_MEASURED: "var(--c1)", _IDEAL: "var(--soft)", _PASSES: "var(--good)"}


class ScalingSeries(NamedTuple):
    """Runs with the same settings on different numbers of ranks."""

    label: str
    points: Sequence[SweptPoint]

    @property
    def passing(self) -> list[int] | None:
        """The numbers of ranks whose gates were all met; None without gates."""
        if all(point.gates_met is None for point in self.points):
            return None
        return [point.num_ranks for point in self.points if point.gates_met]


class PointRow(NamedTuple):
    """A point in a table: the label of its series, and the first point of its ranks."""

    label: str
    point: SweptPoint
    first: SweptPoint


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
        lambda r: percent(
            None
            if r.point is r.first
            else r.point.examples_per_second / r.first.examples_per_second
        ),
    ),
    Column(
        "Of the ideal",
        lambda r: percent(
            (ideal := r.point.ideal_examples_per_second)
            and r.point.examples_per_second / ideal
        ),
    ),
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
    return [
        PointRow(label, point, first.setdefault(point.num_ranks, point))
        for point in points
    ]


def points(rates: Mapping[int, Sequence[float]]) -> list[SweptPoint]:
    """Computes the scaling of a series, in the order of the numbers of ranks.

    Args:
        rates: Number of ranks -> images/s of all ranks, a value for each repeat. A
            number of ranks without values gets no point.
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
) -> Chart | None:
    """Draws the rate of each series over the number of ranks."""
    # The page of a sweep's folder has the runs themselves, with more figures.
    drawn = _of_groups(groups) or _of_sweeps(sweeps)
    if not drawn:
        return None
    return Chart(
        "scaling",
        "Ranks against the ideal line",
        [_sentence(series) for series in drawn],
        list(_COLORS.items()),
        [Plot(series.label, _drawing(series)) for series in drawn],
        *tables.view(POINTS, [r for s in drawn for r in rows_of(s.label, s.points)]),
    )


def _of_groups(groups: Sequence[Group]) -> list[ScalingSeries]:
    alike: dict[str, list[Group]] = {}
    for group in groups:
        result = group.median
        ranks, batch = result.values.num_ranks, result.values.config.batch_size
        if not group.rates or min(group.rates) <= 0 or not ranks or ranks < 1:
            continue
        common = results.settings(result) | {"num_ranks": 0, "batch_size": 0}
        described = results.environment(result)
        same = json.dumps([common, result.cache, described], sort_keys=True)
        alike.setdefault(f"{same} weak {batch}", []).append(group)
        if batch:
            alike.setdefault(f"{same} strong {batch * ranks}", []).append(group)
    return [
        _series(line, is_weak=" strong " not in key, is_apart=index > 0)
        for key, same in alike.items()
        for index, line in enumerate(_lines(same))
        if len(line) > 1
    ]


def _lines(groups: Sequence[Group]) -> list[list[Group]]:
    """Returns groups on lines with one group a number of ranks.

    Groups of equal ranks ran on other machines, or on other numbers of hosts.
    """
    lines: list[list[Group]] = []
    ordered = sorted(groups, key=lambda group: (_ranks(group), len(group.median.hosts)))
    for group in ordered:
        free = [line for line in lines if _ranks(line[-1]) != _ranks(group)]
        if not free:
            free = [[]]
            lines += free
        free[0].append(group)
    return lines


def _ranks(group: Group) -> int:
    return group.values.num_ranks or 1


def _series(groups: Sequence[Group], *, is_weak: bool, is_apart: bool) -> ScalingSeries:
    rates: dict[int, list[float]] = {}
    gates: dict[int, list[GateAnswer]] = {}
    for group in groups:
        num_ranks = _ranks(group)
        rates.setdefault(num_ranks, []).extend(group.rates)
        own = [gate for result in group.results for gate in result.gates]
        gates.setdefault(num_ranks, []).extend(own)
    first = groups[0].median
    batch = first.values.config.batch_size or 0
    whole = batch * (first.values.num_ranks or 1)
    words = [
        results.short_name(first.values.config.model),
        f"batch {batch:g} a rank" if is_weak else f"batch {whole:g} in all",
        "" if first.kind == "real" else f"{first.kind} {first.accelerator}".strip(),
        results.short_name(first.data),
        first.cache,
        f"on {', '.join(first.hosts)}" if is_apart else "",
    ]
    label = ", ".join(word for word in words if word)
    scaled = [
        dataclasses.replace(
            point, gates_met=all(g.passed for g in own) if own else None
        )
        for point in points(rates)
        for own in [gates[point.num_ranks]]
    ]
    return ScalingSeries(label, scaled)


def _of_sweeps(sweeps: Sequence[Result[SweepResult]]) -> list[ScalingSeries]:
    drawn = []
    for series in (each for sweep in sweeps for each in sweep.values.series):
        words = (series.model, series.scaling, series.data_dir)
        label = ", ".join(word for word in words if word)
        if series.batch_size:
            label += f", batch {series.batch_size}"
        points = [p for p in series.points if p.num_ranks and p.examples_per_second]
        # Equal ranks on other hosts are no line: charts.sweeps draws them.
        if len(points) == 1 or len({point.num_ranks for point in points}) > 1:
            drawn.append(ScalingSeries(label, points))
    return drawn


def _sentence(series: ScalingSeries) -> str:
    last = series.points[-1]
    rate = frame.amount(last.examples_per_second)
    text = f"{series.label}: {last.num_ranks} ranks reach {rate} images/s"
    if last.efficiency is not None:
        text += f", {percent(last.efficiency)} of {last.num_ranks} times one rank"
    text += "."
    if series.passing:
        text += f" The largest number of ranks that passes is {max(series.passing)}."
    elif series.passing is not None:
        text += " No number of ranks passes its gates."
    return text


def _efficiency(point: SweptPoint) -> str:
    text = percent(point.efficiency)
    low, high = point.efficiency_low, point.efficiency_high
    if point.num_ranks > 1 and low is not None and high is not None:
        text += f" ({percent(low)} to {percent(high)})"
    return text


def _drawing(series: ScalingSeries) -> Spec:
    first = series.points[0]
    of_one_rank = first.examples_per_second / first.num_ranks
    rows: list[Spec] = [{"ranks": 0, "ideal": 0.0}]
    for point in series.points:
        half = point.examples_per_second_interval or 0.0
        rate = point.examples_per_second
        row = {
            "ranks": point.num_ranks,
            "ideal": of_one_rank * point.num_ranks,
            "rate": rate,
            "low": max(0.0, rate - half),
            "high": rate + half,
        }
        rows.append(row | {"state": _PASSES if point.gates_met else _MEASURED})
    return frame.spec(
        rows, height=280, layer=_layers([p.num_ranks for p in series.points])
    )


def _layers(ranks: Sequence[int]) -> list[Spec]:
    axis = {"values": list(ranks), "format": "d", "grid": False}
    x = frame.quantity("ranks", title="ranks", axis=axis)
    y = frame.quantity("rate", title="images/s")
    tooltip = [
        frame.quantity("ranks"),
        frame.quantity("rate", title="images/s", format=",.0f"),
        frame.quantity("ideal", format=",.0f"),
    ]
    dashed = {"type": "line", "strokeDash": [5, 4], "stroke": _COLORS[_IDEAL]}
    line = {"type": "line", "stroke": _COLORS[_MEASURED]}
    rule = {"type": "rule", "strokeWidth": 2, "stroke": "var(--text)"}
    dot = {"type": "point", "filled": True, "size": 60, "opacity": 1}
    state = frame.category("state", legend=None, scale=frame.scale(_COLORS))
    measured: list[tuple[Spec, Spec]] = [
        (line, {"y": y}),
        (rule, {"y": frame.quantity("low"), "y2": {"field": "high"}}),
        (dot, {"y": y, "color": state, "tooltip": tooltip}),
    ]
    has_rate = [{"filter": "isValid(datum.rate)"}]
    layers: list[Spec] = [
        {"transform": has_rate, "mark": mark, "encoding": {"x": x} | encoding}
        for mark, encoding in measured
    ]
    ideal = {"x": x, "y": {**y, "field": "ideal"}}
    return [{"mark": dashed, "encoding": ideal}, *layers]
