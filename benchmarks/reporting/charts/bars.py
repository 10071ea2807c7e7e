"""Charts of bars: three bars, storages, ranks, and the costs of a pipeline.

In: groups, or results of benchmarks.input. Out: charts whose bars lie, because the
names at their left may be long.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.reporting import compare
from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result
from benchmarks.results.other_results import InputResult, StageShare
from benchmarks.results.train_result import BarRates, Numbers, TrainResult

_Of = Callable[[TrainResult], float | None]
_BARS: Mapping[str, Callable[[BarRates], float | None]] = {
    "input alone": lambda bars: bars.input_examples_per_second,
    "model alone": lambda bars: bars.synthetic_examples_per_second,
    "both together": lambda bars: bars.real_examples_per_second,
}
_PARTS: Mapping[str, Callable[[TrainResult], Numbers]] = {
    "waiting for input": lambda result: result.wait_seconds_per_step_per_rank,
    "computing": lambda result: result.compute_seconds_per_step_per_rank,
    "other ranks": lambda result: result.sync_seconds_per_step_per_rank,
}
_COST_COLUMNS = (
    *("Stage", "Processor, ms an image", "Waiting, ms an image"),
    "Could do, images/s",
)
_COSTS: Mapping[str, Callable[[StageShare], float | None]] = {
    "processor": lambda stage: stage.cpu_seconds_per_output,
    "waiting": lambda stage: stage.wait_seconds_per_output,
}


def three_bars(groups: Sequence[Group]) -> Chart | None:
    """Draws the input alone, the model alone, and both, for runs with --bars."""
    plots, rows, sentences = [], [], []
    for group in groups:
        values = {name: group.mean(_of_bars(get)) for name, get in _BARS.items()}
        bars = [{"what": n, "rate": v} for n, v in values.items() if v is not None]
        if not bars:
            continue
        if group.values.bars and group.values.bars.sentence:
            sentences.append(f"{group.label}: {group.values.bars.sentence}")
        plots.append(Plot(group.label, _rates(bars)))
        ratio = group.mean(_of_bars(lambda bars: bars.real_over_synthetic))
        rows.append(
            [group.label, *map(frame.amount, values.values()), frame.percent(ratio)]
        )
    if not plots:
        return None
    columns = ["Run", *(f"{name}, images/s" for name in _BARS)]
    return Chart(
        "bars",
        "Input alone, model alone, both together",
        sentences,
        [],
        plots,
        [*columns, "both over model alone"],
        rows,
    )


def _of_bars(get: Callable[[BarRates], float | None]) -> _Of:
    return lambda result: None if result.bars is None else get(result.bars)


def _rates(bars: Sequence[Spec]) -> Spec:
    """Returns bars of images/s with a number at the end, and intervals if known."""
    names = frame.bar_names("what")
    tooltip: Any = [
        frame.category("what", title="what"),
        frame.quantity("rate", title="images/s", format=",.1f"),
    ]
    drawing = frame.number_bars(bars, names, "rate", "images/s", tooltip=tooltip)
    if any("high" in bar for bar in bars):
        ends = {"x": frame.quantity("low"), "x2": {"field": "high"}}
        rule = {"type": "rule", "strokeWidth": 2, "stroke": "var(--text)"}
        bar, text = drawing["layer"]
        text["encoding"] |= {"x": {**text["encoding"]["x"], "field": "high"}}
        drawing["layer"] = [
            bar,
            {"mark": rule, "encoding": {**ends, "y": names}},
            text,
        ]
    return drawing


def storages(groups: Sequence[Group]) -> Chart | None:
    """Draws runs side by side that differ only in data or cache state."""
    alike: dict[str, list[Group]] = {}
    for group in groups:
        if group.median.data and compare.rate(group) is not None:
            others = {
                key: value
                for key, value in results.settings(group.median).items()
                if key not in ("data_dir", "cache", "num_steps", "num_epochs")
            }
            alike.setdefault(json.dumps(others, sort_keys=True), []).append(group)
    shown = [
        same
        for same in alike.values()
        if len({(group.median.data, group.median.cache) for group in same}) > 1
    ]
    if not shown:
        return None
    return Chart(
        "storages",
        "Storages and cache states side by side",
        [
            "The runs of a group differ only in where their data is and in how much of "
            "it was in memory. The line at the end of a bar is its 95% interval."
        ],
        [],
        [
            Plot(_without_storage(same[0]), _rates([_storage_bar(g) for g in same]))
            for same in shown
        ],
        ["Run", "Data", "Page cache", "Images/s", "AU", "Storage, MB/s"],
        [_storage_row(group) for same in shown for group in same],
    )


def _storage_bar(group: Group) -> Spec:
    result, estimate = group.median, compare.rate(group)
    rate = estimate.mean if estimate else 0.0
    half = (estimate and estimate.interval) or 0.0
    cache = result.cache or "cache unknown"
    what = f"{results.short_name(result.data)}, {cache} ({group.index})"
    return {
        "what": what,
        "rate": rate,
        "low": max(0.0, rate - half),
        "high": rate + half,
    }


def _storage_row(group: Group) -> list[str]:
    result, estimate = group.median, compare.rate(group)
    return [
        group.label,
        result.data,
        result.cache or "unknown",
        frame.with_interval(estimate.mean, estimate.interval) if estimate else "—",
        frame.percent(group.mean(lambda r: r.accelerator_utilization)),
        frame.amount(group.mean(lambda r: r.storage_megabytes_per_second)),
    ]


def _without_storage(group: Group) -> str:
    result = group.median
    config, ranks = result.values.config, result.values.num_ranks
    kind = "" if result.kind == "real" else f", {result.kind} {result.accelerator}"
    return (
        f"{results.short_name(config.model)}, {_whole(ranks)} "
        f"rank{'s' if ranks != 1 else ''}, batch {_whole(config.batch_size)}{kind}"
    )


def _whole(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def per_rank(groups: Sequence[Group]) -> Chart | None:
    """Draws the parts of a step by rank: input, computing, other ranks."""
    plots, rows, sentences = [], [], []
    for group in groups:
        result = group.values
        parts = {name: get(result) for name, get in _PARTS.items()}
        parts = {name: values for name, values in parts.items() if values}
        num_ranks = max(map(len, parts.values()), default=0)
        if num_ranks < 2:
            continue
        if result.stragglers.cause and result.stragglers.text:
            sentences.append(f"{group.label}: {result.stragglers.text}")
        bars = [
            {"rank": f"rank {rank}", "part": name, "ms": value * 1e3, "order": order}
            for order, (name, values) in enumerate(parts.items())
            for rank, value in enumerate(values)
            if value is not None
        ]
        plots.append(Plot(group.label, _stacked(bars, "rank", num_ranks, list(_PARTS))))
        for rank in range(num_ranks):
            cells = [
                frame.milliseconds(values[rank] if rank < len(values) else None)
                for values in (parts.get(name, ()) for name in _PARTS)
            ]
            rows.append([group.label, str(rank), *cells])
    if not plots:
        return None
    return Chart(
        "ranks",
        "What each rank waits for",
        sentences,
        frame.legend(list(_PARTS)),
        plots,
        ["Run", "Rank", *(f"{name}, ms a step" for name in _PARTS)],
        rows,
    )


def _stacked(
    bars: Sequence[Spec], name: str, num_bars: int, parts: Sequence[str]
) -> Spec:
    """Returns bars of milliseconds, made of parts."""
    return frame.spec(
        bars,
        height=frame.bar_height(num_bars),
        mark={"type": "bar"},
        encoding={
            "y": frame.bar_names(name),
            "x": frame.quantity("ms", title="ms a step", axis={"tickCount": 5}),
            "color": frame.category("part", **frame.colors(parts)),
            "order": frame.quantity("order"),
            "tooltip": [
                frame.category(name),
                frame.category("part"),
                frame.quantity("ms", format=",.2f"),
            ],
        },
    )


def pipeline_costs(inputs: Sequence[Result[InputResult]]) -> Chart | None:
    """Draws the costs of the stages, from profiles of benchmarks.input."""
    plots, rows, sentences = [], [], []
    for result in inputs:
        profile = result.values.profile
        count = profile.examples_per_output or 1
        bars = []
        for index, stage in enumerate(profile.stages):
            name = f"{index} {stage.name}"
            cells = []
            for order, (part, get) in enumerate(_COSTS.items()):
                seconds = get(stage)
                cells.append(frame.milliseconds(seconds and seconds / count))
                if seconds is not None:
                    ms = seconds / count * 1e3
                    bar = {"stage": name, "part": part, "ms": ms, "order": order}
                    bars.append(bar)
            rate = stage.max_rate and stage.max_rate * count
            rows.append([name, *cells, frame.amount(rate)])
        if bars:
            plots.append(Plot(result.name, _costs(bars, len(profile.stages))))
            if profile.bottleneck.sentence:
                sentences.append(profile.bottleneck.sentence)
    if not plots:
        return None
    return Chart(
        "pipeline-costs",
        "What each stage of the pipeline costs",
        sentences,
        frame.legend(list(_COSTS)),
        plots,
        _COST_COLUMNS,
        rows,
    )


def _costs(bars: Sequence[Spec], num_stages: int) -> Spec:
    drawing = _stacked(bars, "stage", num_stages, list(_COSTS))
    drawing["encoding"]["x"]["title"] = "ms an image, in one thread"
    return drawing
