"""Charts of runs: bars, lines over time, the time of a step, and learning.

In: groups, or results of benchmarks.input and benchmarks.storage. Out: charts. Bars
lie, because names are long. Lines are of at most six runs, so that colors stay apart;
the median repeat stands for a group. A chart without data has no rows.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from benchmarks.reporting import compare, tables
from benchmarks.reporting.tables import mean
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result
from benchmarks.results.other_results import InputResult, StageShare, StorageResult
from benchmarks.results.train_result import (
    LearnedEpoch,
    Numbers,
    TimeSeries,
    TrainResult,
)
from benchmarks.storage_probe import probe
from tfpipe.pages import frame
from tfpipe.pages.frame import Bar, Chart, Plot, Spec, milliseconds

_BARS: Mapping[str, Callable[[TrainResult], float | None]] = {
    "input alone": lambda result: result.bars.input_examples_per_second,
    "model alone": lambda result: result.bars.synthetic_examples_per_second,
    "both together": lambda result: result.bars.real_examples_per_second,
}
_BAR_COLUMNS: Mapping[str, Callable[[Group], str]] = {
    "Run": lambda group: group.label,
    **{f"{name}, images/s": mean(get, frame.amount) for name, get in _BARS.items()},
    "both over model alone": mean(lambda r: r.bars.real_over_synthetic, frame.percent),
}
_STORAGE_COLUMNS: Mapping[str, Callable[[Group], str]] = {
    "Run": lambda group: group.label,
    "Data": lambda group: group.median.data,
    "Page cache": lambda group: group.median.cache or "unknown",
    "Images/s": tables.rate,
    "AU": mean(lambda r: r.accelerator_utilization, frame.percent),
    "Storage, MB/s": mean(lambda r: r.storage_megabytes_per_second, frame.amount),
}
_STATES = ("direct", "cold", "warm", "remote", "durable")
# The options that may differ between storages.
_OF_STORAGE = ("data_dir", "cache", "num_steps", "num_epochs")
_PARTS: Mapping[str, Callable[[TrainResult], Numbers]] = {
    "waiting for input": lambda result: result.wait_seconds_per_step_per_rank,
    "computing": lambda result: result.compute_seconds_per_step_per_rank,
    "network and other ranks": lambda r: r.sync_seconds_per_step_per_rank,
    "late": lambda result: result.late_seconds_per_step_per_rank,
}
_COSTS: Mapping[str, Callable[[StageShare], float | None]] = {
    "processor": lambda stage: stage.cpu_seconds_per_output,
    "waiting": lambda stage: stage.wait_seconds_per_output,
}
_COST_COLUMNS = (
    *("Stage", "Processor, ms an image", "Waiting, ms an image"),
    "Could do, images/s",
)


def three_bars(groups: Sequence[Group]) -> Chart:
    """Draws the input alone, the model alone, and both, for runs with --bars."""
    plots, drawn, sentences = [], [], []
    for group in groups:
        rates = {name: group.mean(get) for name, get in _BARS.items()}
        bars = [Bar(name, rate) for name, rate in rates.items() if rate is not None]
        if bars:
            plots.append(Plot(group.label, frame.bars(bars, "images/s")))
            drawn.append(group)
            if sentence := group.values.bars.sentence:
                sentences.append(f"{group.label}: {sentence}")
    title = "Input alone, model alone, both together"
    table = frame.table(_BAR_COLUMNS, drawn)
    return Chart("bars", title, sentences, [], plots, *table)


def storages(groups: Sequence[Group]) -> Chart:
    """Draws runs side by side that differ only in data or cache state."""

    def others(group: Group) -> dict[str, Any]:
        chosen = results.settings(group.median).items()
        return {k: v for k, v in chosen if k not in _OF_STORAGE}

    rated = [group for group in groups if group.median.data and compare.rate(group)]
    shown = [
        same
        for same in results.alike(rated, others)
        if len({(group.median.data, group.median.cache) for group in same}) > 1
    ]
    text = (
        "The runs of a group differ only in where their data is and in how much of it "
        "was in memory. The line at the end of a bar is its 95% interval."
    )
    names = ("model", "ranks", "batch", "kind")
    texts = [results.texts(same[0].median) for same in shown]
    titles = [", ".join(filter(None, map(each.get, names))) for each in texts]
    plots = [
        Plot(title, frame.bars(list(map(_storage_bar, same)), "images/s"))
        for title, same in zip(titles, shown, strict=True)
    ]
    return Chart(
        *("storages", "Storages and cache states side by side", [text], [], plots),
        *frame.table(_STORAGE_COLUMNS, itertools.chain(*shown)),
    )


def _storage_bar(group: Group) -> Bar:
    result, estimate = group.median, compare.rate(group) or compare.Estimate(0.0)
    what = f"{results.short_name(result.data)}, {result.cache or 'cache unknown'}"
    name = f"{what} ({group.index})"
    return Bar(name, estimate.mean, half=estimate.interval or 0.0)


def per_rank(groups: Sequence[Group]) -> Chart:
    """Draws the parts of a step by rank."""
    plots, rows, sentences = [], [], []
    for group in groups:
        columns = (get(group.values) for get in _PARTS.values())
        ranks = [
            (str(rank), [seconds and seconds * 1e3 for seconds in parts])
            for rank, parts in enumerate(itertools.zip_longest(*columns))
        ]
        if len(ranks) < 2:
            continue
        named = [(f"rank {rank}", parts) for rank, parts in ranks]
        plots.append(frame.parted(group.label, "ms a step", _PARTS, named))
        rows += [[group.label, rank, *map(frame.amount, ms)] for rank, ms in ranks]
        if (slowest := group.values.critical_path.slowest).cause:
            sentences.append(f"{group.label}: {slowest.text}")
    return Chart(
        *("ranks", "What each rank waits for", sentences, frame.legend(_PARTS), plots),
        ["Run", "Rank", *(f"{name}, ms a step" for name in _PARTS)],
        rows,
    )


def pipeline_costs(inputs: Sequence[Result[InputResult]]) -> Chart:
    """Draws the costs of the stages, from profiles of benchmarks.input."""
    plots, rows, sentences = [], [], []
    for result in inputs:
        profile, stages = result.values.profile, []
        count = profile.examples_per_output or 1
        for index, stage in enumerate(profile.stages):
            seconds = [get(stage) for get in _COSTS.values()]
            costs = [cost and cost / count * 1e3 for cost in seconds]
            stages.append((name := f"{index} {stage.name}", costs))
            rate = frame.amount(stage.max_rate and stage.max_rate * count)
            rows.append([name, *map(frame.amount, costs), rate])
        if stages:
            unit = "ms an image, in one thread"
            plots.append(frame.parted(result.name, unit, _COSTS, stages))
            sentences += [text] if (text := profile.bottleneck.sentence) else []
    title, legend = "What each stage of the pipeline costs", frame.legend(_COSTS)
    return Chart("pipeline-costs", title, sentences, legend, plots, _COST_COLUMNS, rows)


@frame.of_each
def storage_rates(index: int, result: Result[StorageResult]) -> Chart | None:
    """Draws MB/s of a result of benchmarks.storage."""
    every = result.values.measurements
    if all(row.reads_per_second is None for row in every):
        return None
    rated = [row for row in every if row.megabytes_per_second is not None]
    states = [state for state in _STATES if state in {row.state for row in rated}]
    rates = [
        Bar(f"{probe.name_of(m)}\n{m.state}", m.megabytes_per_second or 0.0, m.state)
        for m in rated
        if m.state in states
    ]
    plots = [Plot("Rate", frame.bars(rates, "MB/s", parts=states))] if rates else []
    where = results.short_name(str(result.options.get("place") or "")) or result.name
    return Chart(
        f"storage-{index}-rates",
        f"How fast {where} is",
        result.values.sentences,
        frame.legend(states),
        plots,
        *tables.view(probe.READINGS, every),
    )


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


# The kernel counts a read when a process asks, also before a slow disk answers.
_STORAGE = Curve("Asked of storage, MB/s", lambda s: s.storage_megabytes_per_second)
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
    """Returns charts with at most six groups, of the groups with values."""
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

    99 % of the whole rise is done then. The time is None if the share rises by less
    than 10 points, still rises in the last tenth of the time, or falls again: a cold
    run empties the cache after each epoch.
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
