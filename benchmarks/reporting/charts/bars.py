"""Charts of bars: three bars, storages, ranks, and the costs of a pipeline.

In: groups, or results of benchmarks.input. Out: charts whose bars lie, because the
names at their left may be long.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.reporting import compare
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result
from benchmarks.results.other_results import InputResult, StageShare
from benchmarks.results.train_result import BarRates, Numbers, TrainResult
from tfpipe.errors import count_of
from tfpipe.pages import frame
from tfpipe.pages.frame import Bar, Chart, Plot

_Of = Callable[[TrainResult], float | None]


def _of_bars(get: Callable[[BarRates], float | None]) -> _Of:
    return lambda result: None if result.bars is None else get(result.bars)


_BARS: Mapping[str, _Of] = {
    "input alone": _of_bars(lambda bars: bars.input_examples_per_second),
    "model alone": _of_bars(lambda bars: bars.synthetic_examples_per_second),
    "both together": _of_bars(lambda bars: bars.real_examples_per_second),
}
_BOTH_OVER_MODEL = _of_bars(lambda bars: bars.real_over_synthetic)
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


def _mean(get: _Of, show: Callable[[float | None], str]) -> Callable[[Group], str]:
    """Returns a column with the mean of a figure over the repeats of a group."""
    return lambda group: show(group.mean(get))


def three_bars(groups: Sequence[Group]) -> Chart | None:
    """Draws the input alone, the model alone, and both, for runs with --bars."""
    drawn = {
        group: [
            Bar(name, rate)
            for name, get in _BARS.items()
            if (rate := group.mean(get)) is not None
        ]
        for group in groups
    }
    drawn = {group: bars for group, bars in drawn.items() if bars}
    if not drawn:
        return None
    columns = {
        "Run": lambda group: group.label,
        **{f"{k}, images/s": _mean(get, frame.amount) for k, get in _BARS.items()},
        "both over model alone": _mean(_BOTH_OVER_MODEL, frame.percent),
    }
    return Chart(
        "bars",
        "Input alone, model alone, both together",
        [
            f"{group.label}: {group.values.bars.sentence}"
            for group in drawn
            if group.values.bars and group.values.bars.sentence
        ],
        [],
        [Plot(g.label, frame.bars(bars, "images/s")) for g, bars in drawn.items()],
        *frame.table(columns, drawn),
    )


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
            Plot(
                _without_storage(same[0]),
                frame.bars([_storage_bar(group) for group in same], "images/s"),
            )
            for same in shown
        ],
        *frame.table(_STORAGE_COLUMNS, itertools.chain(*shown)),
    )


def _storage_bar(group: Group) -> Bar:
    result, estimate = group.median, compare.rate(group)
    what = f"{results.short_name(result.data)}, {result.cache or 'cache unknown'}"
    mean, half = (estimate.mean, estimate.interval) if estimate else (0.0, None)
    return Bar(f"{what} ({group.index})", mean, half=half or 0.0)


def _rate(group: Group) -> str:
    estimate = compare.rate(group)
    return frame.with_interval(estimate.mean, estimate.interval) if estimate else "—"


_STORAGE_COLUMNS: Mapping[str, Callable[[Group], str]] = {
    "Run": lambda group: group.label,
    "Data": lambda group: group.median.data,
    "Page cache": lambda group: group.median.cache or "unknown",
    "Images/s": _rate,
    "AU": _mean(lambda r: r.accelerator_utilization, frame.percent),
    "Storage, MB/s": _mean(lambda r: r.storage_megabytes_per_second, frame.amount),
}


def _without_storage(group: Group) -> str:
    result, values = group.median, group.values
    kind = "" if result.kind == "real" else f", {result.kind} {result.accelerator}"
    ranks = (
        "? ranks" if values.num_ranks is None else count_of(values.num_ranks, "rank")
    )
    return (
        f"{results.short_name(values.config.model)}, {ranks}, batch "
        f"{values.config.batch_size or '?'}{kind}"
    )


def per_rank(groups: Sequence[Group]) -> Chart | None:
    """Draws the parts of a step by rank."""
    drawn = [
        g for g in groups if max(len(get(g.values)) for get in _PARTS.values()) > 1
    ]
    if not drawn:
        return None
    return Chart(
        "ranks",
        "What each rank waits for",
        [
            f"{group.label}: {group.values.critical_path.slowest.text}"
            for group in drawn
            if group.values.critical_path.slowest.cause
        ],
        frame.legend(_PARTS),
        [
            Plot(
                group.label,
                frame.bars(
                    [
                        Bar(f"rank {rank}", ms, part)
                        for rank, parts in enumerate(_steps_of_ranks(group.values))
                        for part, ms in zip(_PARTS, parts, strict=True)
                        if ms is not None
                    ],
                    "ms a step",
                    parts=list(_PARTS),
                    is_stacked=True,
                ),
            )
            for group in drawn
        ],
        ["Run", "Rank", *(f"{name}, ms a step" for name in _PARTS)],
        [
            [group.label, str(rank), *(frame.amount(ms) for ms in parts)]
            for group in drawn
            for rank, parts in enumerate(_steps_of_ranks(group.values))
        ],
    )


def _steps_of_ranks(result: TrainResult) -> Iterator[tuple[float | None, ...]]:
    parts = (get(result) for get in _PARTS.values())
    for rank in itertools.zip_longest(*parts):
        yield tuple(None if seconds is None else seconds * 1e3 for seconds in rank)


def pipeline_costs(inputs: Sequence[Result[InputResult]]) -> Chart | None:
    """Draws the costs of the stages, from profiles of benchmarks.input."""
    plots, rows, sentences = [], [], []
    for result in inputs:
        profile = result.values.profile
        count = profile.examples_per_output or 1
        bars = []
        for index, stage in enumerate(profile.stages):
            name = f"{index} {stage.name}"
            costs = [seconds and seconds / count for seconds in _costs(stage)]
            bars += [
                Bar(name, seconds * 1e3, part)
                for part, seconds in zip(_COSTS, costs, strict=True)
                if seconds is not None
            ]
            rate = frame.amount(stage.max_rate and stage.max_rate * count)
            rows.append([name, *map(frame.milliseconds, costs), rate])
        if bars:
            unit, parts = "ms an image, in one thread", list(_COSTS)
            drawing = frame.bars(bars, unit, parts=parts, is_stacked=True)
            plots.append(Plot(result.name, drawing))
            if profile.bottleneck.sentence:
                sentences.append(profile.bottleneck.sentence)
    if not plots:
        return None
    return Chart(
        "pipeline-costs",
        "What each stage of the pipeline costs",
        sentences,
        frame.legend(_COSTS),
        plots,
        _COST_COLUMNS,
        rows,
    )


def _costs(stage: StageShare) -> Iterator[float | None]:
    return (get(stage) for get in _COSTS.values())
