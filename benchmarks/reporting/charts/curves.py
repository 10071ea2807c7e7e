"""Charts of lines: figures over time, the time of a step, and learning.

In: groups. Out: charts of at most six runs, so that colors stay apart. The median
repeat stands for a group.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from benchmarks.reporting.tables import mean
from benchmarks.results.collection import Group
from benchmarks.results.train_result import (
    LearnedEpoch,
    Numbers,
    TimeSeries,
    TrainResult,
)
from tfpipe.pages import frame
from tfpipe.pages.frame import Chart, Plot, Spec, milliseconds

# Points of a curve: a result may have 600, and a page of many runs must stay small.
_MAX_POINTS, _LEAST_POINTS, _POINTS_OF_ALL_RUNS = 200, 40, 1200
_TABLE_ROWS = 12
_LINES = frame.declared("benchmarks.reporting", "lines.json")
_LEAST_RISE = 0.1  # of the resident share, if the run has filled a cache


class Curve(NamedTuple):
    """A figure of `TimeSeries`: name, values, and the text of a value."""

    title: str
    get: Callable[[TimeSeries], Numbers]
    show: Callable[[float | None], str] = frame.amount


_STORAGE = Curve("From storage, MB/s", lambda s: s.storage_megabytes_per_second)
_RATE = Curve("Images/s", lambda s: s.examples_per_second)
_RESIDENT = Curve("Data in memory", lambda s: s.resident_fraction, frame.percent)
_CURVES = (
    _RATE,
    Curve("Waiting for input", lambda s: s.wait_fraction, frame.percent),
    _STORAGE,
    _RESIDENT,
    Curve("Processors of the hosts", lambda s: s.host_cpu_fraction, frame.percent),
    Curve("GPUs", lambda s: s.gpu_utilization, frame.percent),
)
_Learned = tuple[Group, LearnedEpoch]
_LEARNED_COLUMNS: Mapping[str, Callable[[_Learned], str]] = {
    "Run": lambda learned: learned[0].label,
    "Epoch": lambda learned: f"{learned[1].epoch + 1}",
    "Loss": lambda learned: frame.amount(learned[1].loss),
    "Accuracy": lambda learned: frame.percent(learned[1].accuracy),
}


_STEP_COLUMNS: Mapping[str, Callable[[Group], str]] = {
    "Run": lambda group: group.label,
    "p50, ms": mean(lambda r: r.step_seconds_p50, milliseconds),
    "p90, ms": mean(lambda r: r.step_seconds_p90, milliseconds),
    "p95, ms": mean(lambda r: r.step_seconds_p95, milliseconds),
    "p99, ms": mean(lambda r: r.step_seconds_p99, milliseconds),
    "wait p99 of steps with a new window, ms": mean(
        lambda r: r.window_steps.wait_seconds_p99, milliseconds
    ),
    "wait p99 of other steps, ms": mean(
        lambda r: r.other_steps.wait_seconds_p99, milliseconds
    ),
}

Points = Sequence[tuple[float, float]]
_Series = Mapping[Curve, Points]
_Values = TypeVar("_Values")


def _charts(
    groups: Sequence[Group],
    get: Callable[[TrainResult], _Values],
    draw: Callable[[Mapping[Group, _Values], int], Chart],
) -> list[Chart]:
    """Returns charts with at most six groups, of the groups with values.

    Args:
        draw: Takes the values of a chart, and the number of groups in all charts.
    """
    items, charts = [(g, values) for g in groups if (values := get(g.values))], []
    for index, start in enumerate(range(0, len(items), frame.MAX_COLORS), 1):
        drawn = dict(items[start : start + frame.MAX_COLORS])
        chart, more = draw(drawn, len(items)), f", more runs ({index})" if start else ""
        named = chart._replace(name=f"{chart.name}-{index}", title=chart.title + more)
        legend = frame.legend(group.label for group in drawn)
        charts.append(named._replace(legend=legend))
    return charts


def over_time(groups: Sequence[Group]) -> list[Chart]:
    """Draws every figure over time, with a line where the cache of a run is full."""
    return _charts(groups, _series, _over_time)


def _series(result: TrainResult) -> _Series:
    measured = result.time_series
    series = {}
    for curve in _CURVES:
        pairs = zip(measured.seconds, curve.get(measured), strict=False)
        points = [(s, v) for s, v in pairs if s is not None and v is not None]
        if len(points) > 1:
            series[curve] = points
    return series


def _over_time(measured: Mapping[Group, _Series], num_groups: int) -> Chart:
    num_points = max(_LEAST_POINTS, _POINTS_OF_ALL_RUNS // num_groups)
    knees, sentences, plots = {}, [], []
    for group, series in measured.items():
        if (time := knee(series.get(_RESIDENT, []))) is not None:
            knees[group.label] = time
            sentences.append(f"{group.label}: {_knee_sentence(time, series)}")
    if knees:
        sentences.append("A dashed line stands where a cache is full.")
    for curve in _CURVES:
        points = {
            group.label: _thinned(series.get(curve, []), min(_MAX_POINTS, num_points))
            for group, series in measured.items()
        }
        if any(points.values()):
            plots.append(Plot(curve.title, _lines(curve, points, knees)))
    return Chart(
        *("time", "Over time", sentences, [], plots),
        ["Run", "Second", *(curve.title for curve in _CURVES)],
        [row for group, series in measured.items() for row in _table(group, series)],
    )


def knee(resident: Points) -> float | None:
    """Returns the time at which the share of the data in memory stops growing.

    Returns:
        The first time at which 99 % of the whole rise is done; None if the share rises
        by less than 10 points, still rises in the last tenth of the time, or falls
        again: a cold run empties the cache after each epoch.
    """
    if not resident:
        return None
    (first, before), (last, _) = resident[0], resident[-1]
    most = max(share for _, share in resident)
    if most - before < _LEAST_RISE:
        return None
    full = before + 0.99 * (most - before)
    time = next(second for second, share in resident if share >= full)
    if min(share for second, share in resident if second >= time) < most - _LEAST_RISE:
        return None
    return time if time <= first + 0.9 * (last - first) else None


def _knee_sentence(time: float, series: _Series) -> str:
    text = f"the cache is full after {frame.amount(time)} s."
    changes = []
    for curve, unit in ((_STORAGE, "MB/s from storage"), (_RATE, "images/s")):
        points = series.get(curve, [])
        before = [value for second, value in points if second <= time]
        after = [value for second, value in points if second > time]
        if before and after:
            means = (frame.amount(statistics.fmean(part)) for part in (before, after))
            changes.append(f"{' → '.join(means)} {unit}")
    return f"{text} Mean before and after: {', '.join(changes)}." if changes else text


def _thinned(points: Points, num_points: int) -> Points:
    """Returns at most `num_points` points: means of neighbors."""
    width = max(1, -(-len(points) // num_points))
    parts = [points[start : start + width] for start in range(0, len(points), width)]
    return [
        (part[-1][0], statistics.fmean(value for _, value in part)) for part in parts
    ]


def _lines(
    curve: Curve, points: Mapping[str, Points], knees: Mapping[str, float]
) -> Spec:
    hue = frame.category("line", **frame.colors(list(points)))
    full = {
        "data": {"values": [{"x": at, "line": label} for label, at in knees.items()]},
        "mark": {"type": "rule", "strokeDash": [4, 4], "strokeWidth": 1.5},
        "encoding": {"x": frame.quantity("x"), "color": hue},
    }
    unit = _LINES["share" if curve.show is frame.percent else "amount"]
    layers = [full] if knees else []
    return frame.lines(points, params=[frame.ZOOM], layers=layers, **unit)


def _table(group: Group, series: _Series) -> Iterator[list[str]]:
    """Yields some rows of numbers, at equal distances in time."""
    by_time = {curve: dict(points) for curve, points in series.items()}
    times = sorted(set().union(*by_time.values()))
    step = max(1, len(times) // _TABLE_ROWS)
    for time in times[step - 1 :: step]:
        texts = [curve.show(by_time.get(curve, {}).get(time)) for curve in _CURVES]
        yield [group.label, frame.amount(time), *texts]


def step_times(groups: Sequence[Group]) -> list[Chart]:
    """Draws how many steps take how long."""
    return _charts(groups, _shares, _step_times)


def _shares(result: TrainResult) -> Points:
    """Returns the begin of each bin of the step histogram in ms, and its share."""
    edges, counts = result.step_histogram.edges_seconds, result.step_histogram.counts
    total = sum(count or 0 for count in counts)
    if not total or len(edges) != len(counts) + 1 or None in edges:
        return []
    ends = [edge * 1e3 for edge in edges if edge is not None]
    if min(ends) <= 0:  # the axis is logarithmic
        return []
    # A last, empty bin ends the line of steps at the last edge.
    return list(zip(ends, [*((n or 0) / total for n in counts), 0.0], strict=True))


def _step_times(shares: Mapping[Group, Points], _: int) -> Chart:
    points = {group.label: points for group, points in shares.items()}
    plots = [Plot("All ranks", frame.lines(points, **_LINES["steps"]))]
    text = (
        "Steps in a second hump, at the right, had to wait: for storage, or for a new "
        "shuffle window."
    )
    table = frame.table(_STEP_COLUMNS, shares)
    return Chart("steps", "Time of a step", [text], [], plots, *table)


def learning(groups: Sequence[Group]) -> list[Chart]:
    """Draws loss and accuracy over the epochs of training."""
    return _charts(groups, lambda result: result.epochs, _learning)


def _learning(learned: Mapping[Group, Sequence[LearnedEpoch]], _: int) -> Chart:
    every = [(group, epoch) for group, epochs in learned.items() for epoch in epochs]
    numbers = sorted({epoch.epoch + 1 for _, epoch in every})
    ticks = numbers[-(-len(numbers) // 10) - 1 :: -(-len(numbers) // 10)]
    x = {"title": "epoch", "axis": {"values": ticks, "format": "d", "grid": False}}
    figures: Mapping[str, Callable[[LearnedEpoch], float | None]] = {
        "Loss": lambda epoch: epoch.loss,
        "Accuracy": lambda epoch: epoch.accuracy,
    }
    plots = []
    for title, get in figures.items():
        points = {
            group.label: [(e.epoch + 1, v) for e in epochs if (v := get(e)) is not None]
            for group, epochs in learned.items()
        }
        if any(points.values()):
            drawing = frame.lines(points, x, **_LINES[title])
            plots.append(Plot(f"{title} in training", drawing))
    table = frame.table(_LEARNED_COLUMNS, every)
    return Chart("learning", "Learning", [], [], plots, *table)
