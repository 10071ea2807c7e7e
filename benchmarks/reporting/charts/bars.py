"""Charts of bars: three bars, storages, ranks, and the costs of a pipeline.

In: groups, or results of benchmarks.input. Out: charts whose bars lie, because the
names at their left may be long.
"""

import json
from collections.abc import Mapping, Sequence

from benchmarks.reporting import compare
from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result, as_number

_BARS = {"input": "input alone", "synthetic": "model alone", "real": "both together"}
_PARTS = {"wait": "waiting for input", "compute": "computing", "sync": "other ranks"}
_COST_COLUMNS = (
    *("Stage", "Processor, ms an image", "Waiting, ms an image"),
    "Could do, images/s",
)
_COSTS = {"cpu": "processor", "wait": "waiting"}


def three_bars(groups: Sequence[Group]) -> Chart | None:
    """Draws the input alone, the model alone, and both, for runs with --bars."""
    plots, rows, sentences = [], [], []
    for group in groups:
        values = {
            name: group.mean(f"bars.{key}_examples_per_second")
            for key, name in _BARS.items()
        }
        bars = [
            {"what": name, "rate": value}
            for name, value in values.items()
            if value is not None
        ]
        if not bars:
            continue
        if sentence := group.median.text("bars.sentence"):
            sentences.append(f"{group.label}: {sentence}")
        plots.append(Plot(group.label, _rates(bars)))
        ratio = group.mean("bars.real_over_synthetic")
        rows.append(
            [group.label, *map(frame.amount, values.values()), frame.percent(ratio)]
        )
    if not plots:
        return None
    columns = ["Run", *(f"{name}, images/s" for name in _BARS.values())]
    return Chart(
        "bars",
        "Input alone, model alone, both together",
        sentences,
        [],
        plots,
        [*columns, "both over model alone"],
        rows,
    )


def _rates(bars: Sequence[Spec]) -> Spec:
    """Returns bars of images/s with a number at the end."""
    names = frame.bar_names("what")
    most = max(max(bar["rate"], bar.get("high", 0)) for bar in bars)
    tooltip = [
        frame.category("what", title="what"),
        frame.quantity("rate", title="images/s", format=",.1f"),
    ]
    encoding = {
        "x": frame.bar_length(
            "rate", "images/s", most * 1.2, ticks=5
        ),  # room for the number
        "y": names,
        "tooltip": tooltip,
        "color": {"value": frame.color(0)},
    }
    layers: list[Spec] = [{"mark": {"type": "bar"}, "encoding": encoding}]
    end = "rate"
    if any("high" in bar for bar in bars):
        end = "high"
        ends = {"x": frame.quantity("low"), "x2": {"field": "high"}}
        rule = {"type": "rule", "strokeWidth": 2, "stroke": "var(--text)"}
        layers.append({"mark": rule, "encoding": {**ends, "y": names}})
    text = {"type": "text", "align": "left", "dx": 5}
    label = {
        "x": frame.quantity(end),
        "y": names,
        "text": frame.quantity("rate", format=",.0f"),
    }
    layers.append({"mark": text, "encoding": label})
    return frame.spec(bars, height=frame.bar_height(len(bars)), layer=layers)


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
        frame.percent(group.mean("accelerator_utilization")),
        frame.amount(group.mean("storage_megabytes_per_second")),
    ]


def _without_storage(group: Group) -> str:
    result = group.median
    ranks, batch = result.figure("num_ranks"), result.figure("config.batch_size")
    kind = "" if result.kind == "real" else f", {result.kind} {result.accelerator}"
    return (
        f"{results.short_name(result.text('config.model'))}, {_whole(ranks)} "
        f"rank{'s' if ranks != 1 else ''}, batch {_whole(batch)}{kind}"
    )


def _whole(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def per_rank(groups: Sequence[Group]) -> Chart | None:
    """Draws the parts of a step by rank: input, computing, other ranks."""
    plots, rows, sentences = [], [], []
    for group in groups:
        result = group.median
        parts = {
            name: result.figures(f"{key}_seconds_per_step_per_rank")
            for key, name in _PARTS.items()
        }
        parts = {name: values for name, values in parts.items() if values}
        num_ranks = max(map(len, parts.values()), default=0)
        if num_ranks < 2:
            continue
        if result.get("stragglers.cause") and (text := result.text("stragglers.text")):
            sentences.append(f"{group.label}: {text}")
        bars = [
            {"rank": f"rank {rank}", "part": name, "ms": value * 1e3, "order": order}
            for order, (name, values) in enumerate(parts.items())
            for rank, value in enumerate(values)
            if value is not None
        ]
        plots.append(
            Plot(group.label, _stacked(bars, "rank", num_ranks, list(_PARTS.values())))
        )
        for rank in range(num_ranks):
            cells = [
                frame.milliseconds(values[rank] if rank < len(values) else None)
                for values in (parts.get(name, []) for name in _PARTS.values())
            ]
            rows.append([group.label, str(rank), *cells])
    if not plots:
        return None
    return Chart(
        "ranks",
        "What each rank waits for",
        sentences,
        frame.legend(list(_PARTS.values())),
        plots,
        ["Run", "Rank", *(f"{name}, ms a step" for name in _PARTS.values())],
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


def pipeline_costs(inputs: Sequence[Result]) -> Chart | None:
    """Draws the costs of the stages, from profiles of benchmarks.input."""
    plots, rows, sentences = [], [], []
    for result in inputs:
        stages = [s for s in result.items("profile.stages") if isinstance(s, Mapping)]
        count = result.figure("profile.examples_per_output") or 1
        bars = []
        for index, stage in enumerate(stages):
            name = f"{index} {stage.get('name', '')}"
            cells = []
            for order, (key, part) in enumerate(_COSTS.items()):
                seconds = as_number(stage.get(f"{key}_seconds_per_output"))
                cells.append(frame.milliseconds(seconds and seconds / count))
                if seconds is not None:
                    ms = seconds / count * 1e3
                    bar = {"stage": name, "part": part, "ms": ms, "order": order}
                    bars.append(bar)
            most = as_number(stage.get("max_rate"))
            rows.append([name, *cells, frame.amount(most and most * count)])
        if bars:
            plots.append(Plot(result.name, _costs(bars, len(stages))))
            if sentence := result.text("profile.bottleneck.sentence"):
                sentences.append(sentence)
    if not plots:
        return None
    return Chart(
        "pipeline-costs",
        "What each stage of the pipeline costs",
        sentences,
        frame.legend(list(_COSTS.values())),
        plots,
        _COST_COLUMNS,
        rows,
    )


def _costs(bars: Sequence[Spec], num_stages: int) -> Spec:
    drawing = _stacked(bars, "stage", num_stages, list(_COSTS.values()))
    drawing["encoding"]["x"]["title"] = "ms an image, in one thread"
    return drawing
