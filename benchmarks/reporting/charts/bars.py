"""Charts of bars: three bars, storages, ranks, costs of a pipeline, rates of a probe.

In: groups, or results of benchmarks.input and benchmarks.storage. Out: charts of lying
bars, because names are long. A chart without data has no rows.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.reporting import compare, tables
from benchmarks.reporting.tables import mean
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result
from benchmarks.results.other_results import InputResult, StageShare, StorageResult
from benchmarks.results.train_result import Numbers, TrainResult
from benchmarks.storage_probe import summary
from tfpipe.pages import frame
from tfpipe.pages.frame import Bar, Chart, Plot

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
        Bar(f"{summary.name(m)}\n{m.state}", m.megabytes_per_second or 0.0, m.state)
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
        *tables.view(summary.READINGS, every),
    )
