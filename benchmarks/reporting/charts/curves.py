"""Charts of lines: figures over time, the time of a step, and learning.

In: groups. Out: charts of at most six runs, so that colors stay apart. The median
repeat stands for a group.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.results.collection import Group
from benchmarks.results.train_result import Numbers, TimeSeries, TrainResult
from tfpipe.pages import frame
from tfpipe.pages.frame import Chart, Plot, PlottedPoint, Spec

# Points of a curve: a result may have 600, and a page of many runs must stay small.
_MAX_POINTS, _LEAST_POINTS, _POINTS_OF_ALL_RUNS = 200, 40, 1200
_TABLE_ROWS = 12
_LEAST_RISE = 0.1  # of the resident share, if the run has filled a cache


class Curve(NamedTuple):
    """A figure of `TimeSeries`: name, values, and whether the figure is a share."""

    title: str
    get: Callable[[TimeSeries], Numbers]
    is_share: bool = False


_STORAGE = Curve("From storage, MB/s", lambda s: s.storage_megabytes_per_second)
_RATE = Curve("Images/s", lambda s: s.examples_per_second)
_RESIDENT = Curve("Data in memory", lambda s: s.resident_fraction, True)
_CURVES = (
    _RATE,
    Curve("Waiting for input", lambda s: s.wait_fraction, True),
    _STORAGE,
    _RESIDENT,
    Curve("Processors of the hosts", lambda s: s.host_cpu_fraction, True),
    Curve("GPUs", lambda s: s.gpu_utilization, True),
)
_Learned = tuple[str, float, float | None, float | None]
_LEARNED_COLUMNS: Mapping[str, Callable[[_Learned], str]] = {
    "Run": lambda learned: learned[0],
    "Epoch": lambda learned: f"{learned[1]:g}",
    "Loss": lambda learned: frame.amount(learned[2]),
    "Accuracy": lambda learned: frame.percent(learned[3]),
}
_STEP_TIMES: Mapping[str, Callable[[TrainResult], float | None]] = {
    "p50, ms": lambda r: r.step_seconds_p50,
    "p90, ms": lambda r: r.step_seconds_p90,
    "p95, ms": lambda r: r.step_seconds_p95,
    "p99, ms": lambda r: r.step_seconds_p99,
    "wait p99 of steps with a new window, ms": lambda r: (
        r.window_steps.wait_seconds_p99
    ),
    "wait p99 of other steps, ms": lambda r: r.other_steps.wait_seconds_p99,
}


def _milliseconds(get: Callable[[TrainResult], float | None]) -> Callable[[Group], str]:
    return lambda group: frame.milliseconds(group.mean(get))


_STEP_COLUMNS: Mapping[str, Callable[[Group], str]] = {
    "Run": lambda group: group.label,
    **{title: _milliseconds(get) for title, get in _STEP_TIMES.items()},
}

Points = list[tuple[float, float]]


def over_time(groups: Sequence[Group]) -> list[Chart]:
    """Draws every figure over time, with a line where the cache of a run is full."""
    measured = [group for group in groups if _series(group.values)]
    share = _POINTS_OF_ALL_RUNS // max(1, len(measured))
    num_points = min(_MAX_POINTS, max(_LEAST_POINTS, share))
    return [_over_time(some, chart, num_points) for chart, some in _by_colors(measured)]


def _by_colors(groups: Sequence[Group]) -> Iterator[tuple[int, Sequence[Group]]]:
    """Yields the groups of each chart, with the number of the chart from 1."""
    for start in range(0, len(groups), frame.MAX_COLORS):
        yield 1 + start // frame.MAX_COLORS, groups[start : start + frame.MAX_COLORS]


def _title(title: str, chart: int) -> str:
    return title if chart == 1 else f"{title}, more runs ({chart})"


def _series(result: TrainResult) -> dict[Curve, Points]:
    measured = result.time_series
    series = {}
    for curve in _CURVES:
        pairs = zip(measured.seconds, curve.get(measured), strict=False)
        points = [(s, v) for s, v in pairs if s is not None and v is not None]
        if len(points) > 1:
            series[curve] = points
    return series


def _over_time(groups: Sequence[Group], chart: int, num_points: int) -> Chart:
    measured = {group.label: _series(group.values) for group in groups}
    labels = list(measured)
    knees = {
        label: time
        for label, series in measured.items()
        if (time := knee(series.get(_RESIDENT, []))) is not None
    }
    plots = [
        Plot(curve.title, _lines(curve, runs, labels, knees))
        for curve in _CURVES
        if (
            runs := {
                label: _thinned(series[curve], num_points)
                for label, series in measured.items()
                if curve in series
            }
        )
    ]
    sentences = [_knee_sentence(lb, knees[lb], measured[lb]) for lb in knees]
    if knees:
        sentences.append("A dashed line stands where a cache is full.")
    return Chart(
        f"time-{chart}",
        _title("Over time", chart),
        sentences,
        frame.legend(labels),
        plots,
        ["Run", "Second", *(curve.title for curve in _CURVES)],
        [row for label in labels for row in _table(label, measured[label])],
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


def _knee_sentence(label: str, time: float, series: Mapping[Curve, Points]) -> str:
    text = f"{label}: the cache is full after {frame.amount(time)} s."
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
    width = -(-len(points) // num_points)
    parts = [points[start : start + width] for start in range(0, len(points), width)]
    return [
        (part[-1][0], statistics.fmean(value for _, value in part)) for part in parts
    ]


def _lines(
    curve: Curve,
    runs: Mapping[str, Points],
    labels: Sequence[str],
    knees: Mapping[str, float],
) -> Spec:
    y: Spec = {"title": None, "axis": {"format": ",.4~r", "tickCount": 4}}
    if curve.is_share:
        y["axis"]["format"] = ".0%"
        y["scale"] = {"domain": [0, 1], "clamp": True}
    hue = frame.category("line", **frame.colors(labels))
    full = {
        "data": {"values": [{"x": at, "line": label} for label, at in knees.items()]},
        "mark": {"type": "rule", "strokeDash": [4, 4], "strokeWidth": 1.5},
        "encoding": {"x": frame.quantity("x"), "color": hue},
    }
    return frame.lines(
        (
            PlottedPoint(s, v, label)
            for label, points in runs.items()
            for s, v in points
        ),
        labels,
        {"title": "seconds", "axis": {"grid": False, "tickCount": 6}},
        y,
        height=130,
        params=[frame.ZOOM],
        layers=[full] if knees else [],
    )


def _table(label: str, series: Mapping[Curve, Points]) -> list[list[str]]:
    """Returns some rows of numbers, at equal distances in time."""
    times = sorted({second for points in series.values() for second, _ in points})
    step = max(1, len(times) // _TABLE_ROWS)
    rows = []
    for time in times[step - 1 :: step]:
        cells = []
        for curve in _CURVES:
            points = series.get(curve, [])
            value = dict(points).get(time)
            cells.append((frame.percent if curve.is_share else frame.amount)(value))
        rows.append([label, frame.amount(time), *cells])
    return rows


def step_times(groups: Sequence[Group]) -> list[Chart]:
    """Draws how many steps take how long."""
    measured = [group for group in groups if _shares(group.values)]
    return [_step_times(some, chart) for chart, some in _by_colors(measured)]


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


def _step_times(groups: Sequence[Group], chart: int) -> Chart:
    labels = [group.label for group in groups]
    drawing = frame.lines(
        (PlottedPoint(ms, v, g.label) for g in groups for ms, v in _shares(g.values)),
        labels,
        {
            "title": "ms a step, logarithmic",
            "scale": {"type": "log", "nice": False},
            "axis": {"grid": False, "format": ",.3~r"},
        },
        {"title": "share of the steps", "axis": {"format": ".0%", "tickCount": 4}},
        height=220,
        mark={"interpolate": "step-after"},
    )
    return Chart(
        f"steps-{chart}",
        _title("Time of a step", chart),
        [
            "Steps in a second hump, at the right, had to wait: for storage, or for a "
            "new shuffle window."
        ],
        frame.legend(labels),
        [Plot("All ranks", drawing)],
        *frame.table(_STEP_COLUMNS, groups),
    )


def learning(groups: Sequence[Group]) -> list[Chart]:
    """Draws loss and accuracy over the epochs of training."""
    measured = [group for group in groups if _epochs(group.values)]
    return [_learning(some, chart) for chart, some in _by_colors(measured)]


def _epochs(result: TrainResult) -> list[tuple[float, float | None, float | None]]:
    return [(each.epoch + 1, each.loss, each.accuracy) for each in result.epochs]


def _learning(groups: Sequence[Group], chart: int) -> Chart:
    labels = [group.label for group in groups]
    learned = [
        (group.label, *item) for group in groups for item in _epochs(group.values)
    ]
    epochs = sorted({epoch for _, epoch, *_ in learned})
    step = -(-len(epochs) // 10)
    ticks = {"values": epochs[step - 1 :: step], "format": "d", "grid": False}
    plots = []
    for column, title, form in ((0, "Loss", ",.3~r"), (1, "Accuracy", ".0%")):
        points = [
            PlottedPoint(epoch, value, label)
            for label, epoch, *values in learned
            if (value := values[column]) is not None
        ]
        y = {"title": None, "axis": {"format": form, "tickCount": 4}}
        x = {"title": "epoch", "axis": ticks}
        if points:
            drawing = frame.lines(
                points, labels, x, y, height=160, mark={"point": True}
            )
            plots.append(Plot(f"{title} in training", drawing))
    return Chart(
        f"learning-{chart}",
        _title("Learning", chart),
        [],
        frame.legend(labels),
        plots,
        *frame.table(_LEARNED_COLUMNS, learned),
    )
