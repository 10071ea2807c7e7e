"""Charts of lines: figures over time, the time of a step, and learning.

In: groups. Out: charts of at most six runs, so that colors stay apart. The median
repeat stands for a group.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results.collection import Group
from benchmarks.results.train_result import Numbers, TimeSeries, TrainResult

# Points of a curve: a result may have 600, and a page of many runs must stay small.
_MAX_POINTS, _LEAST_POINTS, _POINTS_OF_ALL_RUNS = 200, 40, 1200
_TABLE_ROWS = 12
# Invisible points, with numbers for a pointer.
_UNSEEN = {"type": "point", "filled": True, "opacity": 0, "size": 120}
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
    """Returns seconds and values of the measured figures."""
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

    Args:
        resident: Seconds, and the share of the data in memory, 0 to 1.

    Returns:
        The first time at which 99 % of the whole rise is done; None if the share rises
        by less than 10 points, or still rises in the last tenth of the time.
    """
    if not resident:
        return None
    (first, before), (last, _) = resident[0], resident[-1]
    most = max(share for _, share in resident)
    if most - before < _LEAST_RISE:
        return None
    full = before + 0.99 * (most - before)
    time = next(second for second, share in resident if share >= full)
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
    rows = [
        {"s": second, "v": value, "run": label}
        for label, points in runs.items()
        for second, value in points
    ]
    marks = [{"s": time, "run": label} for label, time in knees.items()]
    form = ".0%" if curve.is_share else ",.4~r"
    x = frame.quantity("s", title="seconds", axis={"grid": False, "tickCount": 6})
    y = frame.quantity("v", title=None, axis={"format": form, "tickCount": 4})
    if curve.is_share:
        y["scale"] = {"domain": [0, 1], "clamp": True}
    hue = frame.category("run", **frame.colors(labels))
    tooltip = [
        frame.category("run"),
        frame.quantity("s", title="seconds", format=",.1f"),
        frame.quantity("v", title=curve.title, format=form),
    ]
    encoding = {"x": x, "y": y, "color": hue}
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 1.8}, "encoding": encoding},
        {
            "mark": _UNSEEN,
            "encoding": encoding | {"tooltip": tooltip},
            "params": [_zoom()],
        },
    ]
    if marks:
        rule = {"type": "rule", "strokeDash": [4, 4], "strokeWidth": 1.5}
        knee_layer = {"mark": rule, "encoding": {"x": x, "color": hue}}
        layers.append({"data": {"values": marks}, **knee_layer})
    return frame.spec(rows, height=130, layer=layers)


def _zoom() -> Spec:
    """Returns zooming in time by Shift and wheel: a wheel alone scrolls the page."""
    return {
        "name": "zoom",
        "bind": "scales",
        "select": {
            "type": "interval",
            "encodings": ["x"],
            "zoom": "wheel![event.shiftKey]",
            "translate": "[pointerdown[event.pointerType === 'mouse'], "
            "window:pointerup] > window:pointermove!",
        },
    }


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


def _shares(result: TrainResult) -> list[Spec]:
    """Returns the bins of the step histogram with their share of all steps."""
    edges, counts = result.step_histogram.edges_seconds, result.step_histogram.counts
    total = sum(count or 0 for count in counts)
    if not total or len(edges) != len(counts) + 1 or None in edges:
        return []
    ends = [edge * 1e3 for edge in edges if edge is not None]
    if min(ends) <= 0:  # the axis is logarithmic
        return []
    # A last, empty bin ends the line of steps at the last edge.
    shares = [*((count or 0) / total for count in counts), 0.0]
    return [
        {"ms": low, "high": high, "share": share}
        for low, high, share in zip(ends, [*ends[1:], ends[-1]], shares, strict=True)
    ]


def _step_times(groups: Sequence[Group], chart: int) -> Chart:
    labels = [group.label for group in groups]
    rows = [row | {"run": g.label} for g in groups for row in _shares(g.values)]
    return Chart(
        f"steps-{chart}",
        _title("Time of a step", chart),
        [
            "Steps in a second hump, at the right, had to wait: for storage, or for a "
            "new shuffle window."
        ],
        frame.legend(labels),
        [Plot("All ranks", _histogram(rows, labels))],
        ["Run", *_STEP_TIMES],
        [[group.label, *_percentiles(group)] for group in groups],
    )


def _histogram(rows: Sequence[Spec], labels: Sequence[str]) -> Spec:
    x = frame.quantity("ms", title="ms a step, logarithmic")
    x |= {"scale": {"type": "log", "nice": False}}
    x |= {"axis": {"grid": False, "format": ",.3~r"}}
    y = frame.quantity("share", title="share of the steps")
    y |= {"axis": {"format": ".0%", "tickCount": 4}}
    hue = frame.category("run", **frame.colors(labels))
    tooltip = [
        frame.category("run"),
        frame.quantity("ms", title="from, ms", format=",.3~r"),
        frame.quantity("high", title="to, ms", format=",.3~r"),
        frame.quantity("share", format=".1%"),
    ]
    encoding = {"x": x, "y": y, "color": hue}
    line = {"type": "line", "interpolate": "step-after"}
    return frame.spec(
        rows,
        height=220,
        layer=[
            {"mark": line, "encoding": encoding},
            {"mark": _UNSEEN, "encoding": {**encoding, "tooltip": tooltip}},
        ],
    )


def _percentiles(group: Group) -> list[str]:
    return [frame.milliseconds(group.mean(get)) for get in _STEP_TIMES.values()]


def learning(groups: Sequence[Group]) -> list[Chart]:
    """Draws loss and accuracy over the epochs of training."""
    measured = [group for group in groups if _epochs(group.values)]
    return [_learning(some, chart) for chart, some in _by_colors(measured)]


def _epochs(result: TrainResult) -> list[tuple[float, float | None, float | None]]:
    """Returns epoch from 1, loss and accuracy of the epochs."""
    return [(each.epoch + 1, each.loss, each.accuracy) for each in result.epochs]


def _learning(groups: Sequence[Group], chart: int) -> Chart:
    labels = [group.label for group in groups]
    measured = {group.label: _epochs(group.values) for group in groups}
    plots = []
    for column, title, form in ((1, "Loss", ",.3~r"), (2, "Accuracy", ".0%")):
        rows = [
            {"epoch": item[0], "v": item[column], "run": label}
            for label, items in measured.items()
            for item in items
            if item[column] is not None
        ]
        if rows:
            plots.append(Plot(f"{title} in training", _epoch_lines(rows, form, labels)))
    rows_of_table = [
        [label, f"{epoch:g}", frame.amount(loss), frame.percent(accuracy)]
        for label, items in measured.items()
        for epoch, loss, accuracy in items
    ]
    return Chart(
        f"learning-{chart}",
        _title("Learning", chart),
        [],
        frame.legend(labels),
        plots,
        ["Run", "Epoch", "Loss", "Accuracy"],
        rows_of_table,
    )


def _epoch_lines(rows: Sequence[Spec], form: str, labels: Sequence[str]) -> Spec:
    epochs = sorted({row["epoch"] for row in rows})
    step = -(-len(epochs) // 10)
    ticks = {"values": epochs[step - 1 :: step], "format": "d", "grid": False}
    tooltip = [frame.category("run"), frame.quantity("epoch")]
    return frame.spec(
        rows,
        height=160,
        mark={"type": "line", "point": True},
        encoding={
            "x": frame.quantity("epoch", title="epoch", axis=ticks),
            "y": frame.quantity("v", title=None, axis={"format": form, "tickCount": 4}),
            "color": frame.category("run", **frame.colors(labels)),
            "tooltip": [*tooltip, frame.quantity("v", title="value", format=form)],
        },
    )
