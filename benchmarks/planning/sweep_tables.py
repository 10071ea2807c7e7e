"""A sweep for people and scripts: tables of text, and a JSON object.

In: a `Session`. Out: lines about the series of runs or about the tiers, the plan of a
dry run, and the document for the last line and for sweep.json.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks.models import catalog
from benchmarks.planning import published
from benchmarks.planning.plan import NO_ACCELERATOR, Run, Series, estimate_seconds
from benchmarks.planning.session import (
    Repeats,
    Session,
    duration,
    known_mean,
    missed_gates,
    time_text,
)
from benchmarks.reporting import binding
from benchmarks.reporting.charts import scaling
from benchmarks.results.other_results import (
    FoundAnswers,
    PublishedRow,
    SweptPoint,
    SweptRow,
    SweptSeries,
    SweptSettings,
    SweptTier,
)
from benchmarks.results.train_result import SourceBytes, TrainResult
from tfpipe.cli import text_table
from tfpipe.cli.text_table import Column, or_dash

_NOTHING = SourceBytes(
    bytes_from_server=0,
    bytes_from_disk=0,
    bytes_from_page_cache=0,
    bytes_from_ram_cache=0,
)


class _Placed(NamedTuple):
    point: SweptPoint
    repeats: Repeats


_POINTS: Sequence[Column[_Placed]] = (
    Column("ranks", lambda p: str(p.repeats.placement)),
    Column("runs", lambda p: str(p.point.num_repeats)),
    Column("images/s", lambda p: f"{p.point.examples_per_second:.1f}"),
    Column("+-", lambda p: or_dash(p.point.examples_per_second_interval, ".1f")),
    Column("speed-up", lambda p: or_dash(p.point.speedup, ".2f")),
    Column("efficiency", lambda p: or_dash(p.point.efficiency, ".1%")),
    Column("95 % interval", lambda p: _interval(p.point)),
    Column("stall", lambda p: or_dash(p.point.stall_fraction, ".1%")),
    Column("AU", lambda p: or_dash(p.point.accelerator_utilization, ".1%")),
    Column("cache", lambda p: p.point.cache or "-"),
    Column("gates", lambda p: MET[p.point.gates_met]),
)
_TIERS: Sequence[Column[SweptTier]] = (
    Column("tier", lambda t: t.tier or "-", is_left=True),
    Column("ranks", lambda t: str(t.num_ranks)),
    Column("images/s", lambda t: or_dash(t.examples_per_second, ".1f")),
    Column("CPU ms", lambda t: _scaled(t.cpu_seconds_per_example, 1e3, ".2f")),
    Column("stall", lambda t: or_dash(t.stall_fraction, ".1%")),
    Column("binding", lambda t: t.binding, is_left=True),
    Column("state", lambda t: t.state or "-", is_left=True),
    Column("server MB", lambda t: _scaled(t.bytes_from_server, 1e-6, ".1f")),
    Column("disk MB", lambda t: _scaled(t.bytes_from_disk, 1e-6, ".1f")),
    Column("page cache MB", lambda t: _scaled(t.bytes_from_page_cache, 1e-6, ".1f")),
    Column("RAM cache MB", lambda t: _scaled(t.bytes_from_ram_cache, 1e-6, ".1f")),
)


def _scaled(value: float | None, factor: float, form: str) -> str:
    return or_dash(None if value is None else value * factor, form)


def _interval(point: SweptPoint) -> str:
    low, high = point.efficiency_low, point.efficiency_high
    if point.num_ranks == 1 or low is None or high is None:
        return "-"
    return f"{low:.1%} to {high:.1%}"


def plan_lines(session: Session) -> list[str]:
    """Returns a line for each run, done or not, and a last line about missing runs."""
    runs = session.sweep.runs()
    missing = [run for run in runs if run not in session.results]
    last = f"Runs left: {len(missing)} of {len(runs)}."
    if missing and (seconds := seconds_left(session)) is not None:
        last += f" They take about {time_text(seconds)}, as their finished repeats did."
    return [*(f"{_state(run, session):>8}  {run.name}" for run in runs), last]


def _state(run: Run, session: Session) -> str:
    if run in session.results:
        return "done"
    seconds = estimate_seconds(run, session.results)
    return "to run" if seconds is None else time_text(seconds)


def seconds_left(session: Session) -> float | None:
    """Returns the duration of the missing runs; None if a duration is unknown."""
    results = session.results
    missing = [run for run in session.sweep.runs() if run not in results]
    estimates = [estimate_seconds(run, results) for run in missing]
    seconds = [estimate for estimate in estimates if estimate is not None]
    return sum(seconds) if len(seconds) == len(estimates) else None


def series_lines(session: Session, series: Series) -> list[str]:
    """Returns the lines of the printed table of a series; none without results."""
    finished = session.repeats(series)
    if not finished:
        return []
    points = _points(finished)
    lines = [_title(series), *text_table.lines(_POINTS, points)]
    lines += _placement_lines(points)
    if all(placed.point.efficiency is None for placed in points):
        lines.append("No run on one rank has finished, so there is no efficiency.")
    for repeats in finished:
        missed = (text for result in repeats.results for text in missed_gates(result))
        lines += [
            f"Ranks {repeats.placement}: {text}" for text in dict.fromkeys(missed)
        ]
    if answer := session.answers.get(series):
        lines += [answer.text, session.RULE]
    return lines


def _title(series: Series) -> str:
    whose = "a rank" if series.scaling == "weak" else "in all"
    batch = f"batch {series.batch_size} {whose}" if series.batch_size else "own batch"
    cache = series.cache and f"cache {series.cache}"
    accelerator = series.accelerator and f"accelerator {series.accelerator}"
    rest = (series.mode, batch, series.data_dir, cache, accelerator)
    return ", ".join(
        [f"{series.scaling} scaling", series.model, *(part for part in rest if part)]
    )


def _points(finished: Sequence[Repeats]) -> list[_Placed]:
    single = next((r.rates for r in finished if r.placement.num_ranks == 1), ())
    ordered = sorted(finished, key=lambda r: r.placement.num_ranks)
    return [_Placed(_point(repeats, single), repeats) for repeats in ordered]


def _point(repeats: Repeats, single: Sequence[float]) -> SweptPoint:
    shares = [v.critical_path.shares for v in repeats.values if v.critical_path.shares]
    return dataclasses.replace(
        scaling.point(repeats.placement.num_ranks, repeats.rates, single),
        num_hosts=repeats.placement.num_hosts,
        ideal_examples_per_second=_ideal(repeats),
        stall_fraction=repeats.mean(lambda r: r.stall_fraction),
        accelerator_utilization=repeats.mean(lambda r: r.accelerator_utilization),
        binding=_binding(repeats),
        critical_path={
            part: known_mean([each[part] for each in shares]) or 0.0
            for part in (shares[0] if shares else ())
        },
        host_cpu_fraction=repeats.mean(lambda r: r.telemetry.host_cpu_fraction),
        network_utilization=repeats.mean(lambda r: r.network_utilization),
        received_mb_per_second_per_host=repeats.values[
            -1
        ].telemetry.network_received_megabytes_per_second_per_host,
        cache=_joined(values.cache.label for values in repeats.values),
        gates_met=repeats.are_gates_met,
    )


def _binding(repeats: Repeats) -> str:
    """Returns the resource that binds the most runs."""
    bound = [binding.of_run(values) for values in repeats.values]
    return max(dict.fromkeys(bound), key=bound.count)


def _joined(labels: Iterable[str | None]) -> str | None:
    """Returns the label of all runs, "/" between several labels; None if unknown."""
    return "/".join(sorted({label for label in labels if label})) or None


def _placement_lines(points: Sequence[_Placed]) -> list[str]:
    lines = []
    for num_ranks, several in itertools.groupby(points, lambda p: p.point.num_ranks):
        first, *others = [
            (placed.repeats.placement, placed.point.examples_per_second)
            for placed in several
        ]
        if others:
            rates = [f"{which} {rate / first[1]:.1%}" for which, rate in others]
            lines.append(f"{num_ranks} ranks over {first[0]}: {', '.join(rates)}")
    return lines


def tier(repeats: Repeats) -> SweptTier:
    """Returns settings and figures of a tier, means over its runs."""
    sections = [values.storage or _NOTHING for values in repeats.values]
    return SweptTier(
        **dataclasses.asdict(repeats.series),
        num_ranks=repeats.placement.num_ranks,
        num_repeats=len(repeats.rates),
        examples_per_second=known_mean(repeats.rates),
        examples_per_second_min=min(repeats.rates),
        examples_per_second_max=max(repeats.rates),
        cpu_seconds_per_example=repeats.mean(lambda r: r.cpu_seconds_per_example),
        stall_fraction=repeats.mean(lambda r: r.stall_fraction),
        binding=_binding(repeats),
        state=_joined(section.state for section in sections) or "",
        bytes_from_server=known_mean([s.bytes_from_server for s in sections]),
        bytes_from_disk=known_mean([s.bytes_from_disk for s in sections]),
        bytes_from_page_cache=known_mean([s.bytes_from_page_cache for s in sections]),
        bytes_from_ram_cache=known_mean([s.bytes_from_ram_cache for s in sections]),
    )


def tier_lines(tiers: Sequence[SweptTier]) -> list[str]:
    """Returns the printed table of tiers; bytes are megabytes of the timed steps."""
    names = ("model", "mode", "batch_size", "accelerator", "scaling")
    differ = [name for name in names if len({getattr(t, name) for t in tiers}) > 1]
    settings = Column[SweptTier](
        "",
        lambda t: ", ".join(str(getattr(t, name)) for name in differ),
        is_left=True,
    )
    return text_table.lines((*_TIERS, settings), tiers) if tiers else []


def document(session: Session) -> dict[str, Any]:
    """Returns the JSON object of a sweep."""
    sweep, results = session.sweep, session.results
    first = next(iter(results.values()), None)
    # A search chooses its runs.
    runs = {*results, *session.errors} if sweep.find_ranks else sweep.runs()
    missed = {run.name: missed_gates(result) for run, result in results.items()}
    finished = session.all_repeats()
    answers = FoundAnswers(
        gates=sweep.find_ranks,
        rule=session.RULE,
        answers=tuple(answer for answer in session.answers.values() if answer),
    )
    return {
        "command": "benchmarks.sweep",
        "schema_version": 2,
        "config": dataclasses.asdict(sweep),
        "num_runs": len(runs),
        "num_done": len(results),
        "seconds": sum(duration(result) for result in results.values()),
        "failed": [
            {"run": run.name, "error": error} for run, error in session.errors.items()
        ],
        "gates_not_met": [
            {"run": name, "gates": gates} for name, gates in missed.items() if gates
        ],
        "stale": [
            {"run": run.name, "moved_to": path and str(path)}
            for run, path in session.stale.items()
        ],
        "tiers": _json(map(tier, finished if sweep.tiers else ())),
        "rows": _json(map(published_row, finished)),
        # The table of tiers has the figures of a sweep with tiers.
        "series": _json(() if sweep.tiers else _series(session)),
        "find_ranks": dataclasses.asdict(answers) if sweep.find_ranks else None,
        "results": [f"{run.name}.json" for run in results],
        "environment": first.document.get("environment") if first else None,
    }


def _json(rows: Iterable[SweptSettings]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(row) for row in rows]


def _series(session: Session) -> list[SweptSeries]:
    return [
        SweptSeries(
            **dataclasses.asdict(series),
            points=tuple(placed.point for placed in _points(finished)),
        )
        for series in session.sweep.series()
        if (finished := session.repeats(series))
    ]


def _ideal(repeats: Repeats) -> float | None:
    first = repeats.values[0]
    seconds, batch_size = first.emulated_seconds_per_step, first.config.batch_size
    if not seconds or not batch_size:
        return None
    return repeats.placement.num_ranks * batch_size / seconds


MET = {None: "-", True: "met", False: "not met"}
_Columns = Sequence[Column[SweptRow]]
_PUBLISHED: _Columns = (
    Column("model", lambda r: r.model, is_left=True),
    Column("mode", lambda r: r.mode or "", is_left=True),
    Column("kind", lambda r: r.kind or "-", is_left=True),
    Column("precision", lambda r: r.precision or "-"),
    Column("batch", lambda r: str(r.batch_size or "-")),
    Column("hosts", lambda r: str(r.num_hosts or "-")),
    Column("ranks", lambda r: str(r.num_ranks)),
    Column("images/s", lambda r: or_dash(r.examples_per_second, ",.0f")),
    Column("a rank", lambda r: or_dash(r.examples_per_second_per_rank, ",.0f")),
    Column("read", lambda r: or_dash(r.consumed_megabytes_per_second, ",.0f")),
    Column("storage", lambda r: or_dash(r.storage_megabytes_per_second, ",.0f")),
    Column("CPU", lambda r: or_dash(r.host_cpu_fraction, ".0%")),
    Column("accel.", lambda r: or_dash(r.accelerator_busy_fraction, ".1%")),
    Column("gate", lambda r: MET[r.gates_met]),
)
_LEGEND = (
    "Rows as storage tests publish them. read, storage: MB/s that the pipeline read, "
    "and that storage gave of it."
)
_PUBLISHED_LEGEND = (
    " published: images/s of one GPU, with the MB/s of all; ours: our rate of one rank "
    "over it."
)


def published_row(repeats: Repeats) -> SweptRow:
    """Returns the figures of a row, means over its repeats, and the published row."""
    series, num_ranks = repeats.series, repeats.placement.num_ranks
    first = repeats.values[0]
    config, rate = first.config, statistics.mean(repeats.rates)
    mode = series.mode or config.mode or "train"
    emulated = series.accelerator or config.emulate
    accelerator = None if emulated == NO_ACCELERATOR else emulated
    there = published.find(
        model=series.model,
        mode=mode,
        accelerator=accelerator,
        num_accelerators=num_ranks,
        is_local=(series.tier or "").startswith("local_"),
    )
    different = _differences(there, first) if there else ""
    of_gpu = there and not different and there.images_per_second_per_accelerator
    used = repeats.mean(lambda r: r.telemetry.gpu_utilization)
    busy = repeats.mean(lambda r: r.accelerator_utilization)
    batch_size = series.batch_size_per_rank(num_ranks) or config.batch_size
    own = {"mode": mode, "batch_size": batch_size, "accelerator": accelerator}
    return SweptRow(
        **{**dataclasses.asdict(series), **own},
        kind=first.kind,
        precision=config.precision,
        num_ranks=num_ranks,
        num_hosts=repeats.placement.num_hosts or len(first.environment.hosts) or None,
        num_repeats=len(repeats.results),
        examples_per_second=rate,
        examples_per_second_per_rank=rate / num_ranks,
        consumed_megabytes_per_second=repeats.mean(_consumed),
        storage_megabytes_per_second=repeats.mean(_storage_rate),
        host_cpu_fraction=repeats.mean(lambda r: r.telemetry.host_cpu_fraction),
        accelerator_busy_fraction=busy if used is None else used,
        accelerator_busy_of="steps" if used is None else "gpu",
        gates_met=repeats.are_gates_met,
        published=there,
        not_compared=different,
        rate_over_published=rate / num_ranks / of_gpu if of_gpu else None,
    )


def _differences(there: PublishedRow, result: TrainResult) -> str:
    config, model = result.config, catalog.MODELS[there.model]
    megabytes, rate = result.consumed_megabytes_per_second, result.examples_per_second
    return published.differences(
        there,
        image_size=config.image_size or model.image_size,
        decodes=not config.read_only and not config.synthetic,
        record_bytes=megabytes and rate and megabytes * 1e6 / rate,
    )


def _consumed(result: TrainResult) -> float | None:
    return result.consumed_megabytes_per_second


def _storage_rate(result: TrainResult) -> float | None:
    source = result.storage or SourceBytes()
    server, disk = source.bytes_from_server, source.bytes_from_disk
    if server is None or disk is None or not result.timed_seconds:
        return result.storage_megabytes_per_second
    return (server + disk) / result.timed_seconds / 1e6


def published_lines(rows: Sequence[SweptRow]) -> list[str]:
    """Returns the printed table of rows, and its sources below it.

    The columns of the publications are left out where none of the rows was published.
    """
    if not rows:
        return []
    sources = list(dict.fromkeys(_source(r.published) for r in rows if r.published))
    columns = (*_PUBLISHED, *(_beside(sources) if sources else ()), _differing(rows))
    apart = {
        f"[{1 + sources.index(_source(r.published))}] is not compared with {r.model}: "
        f"{r.not_compared}."
        for r in rows
        if r.published and r.not_compared
    }
    return [
        _LEGEND + (_PUBLISHED_LEGEND if sources else ""),
        *text_table.lines(columns, rows),
        *(f"[{index}] {source}" for index, source in enumerate(sources, 1)),
        *sorted(apart),
    ]


def _source(there: PublishedRow) -> str:
    text = f"{there.source}: {there.model} {there.mode}, "
    text += f"{or_dash(there.images_per_second, ',.0f')} images/s"
    return text + ", computed from MB/s and bytes of a record" * there.is_computed


def _beside(sources: Sequence[str]) -> _Columns:
    """Returns the columns of the published rows, whose sources have numbers."""

    def beside(
        title: str, form: str, get: Callable[[PublishedRow], float | None]
    ) -> Column[SweptRow]:
        return Column(title, lambda r: or_dash(r.published and get(r.published), form))

    def ours(r: SweptRow) -> str:
        ratio = r.rate_over_published
        return "-" if ratio is None else f"{ratio:.2f}x"

    def on(r: SweptRow) -> str:
        if (there := r.published) is None:
            return "-"
        index = 1 + sources.index(_source(there))
        return f"{there.num_accelerators} {there.accelerator} [{index}]"

    return (
        Column("|", lambda r: "|"),
        beside("published", ",.0f", lambda p: p.images_per_second_per_accelerator),
        Column("ours", ours),
        beside("storage", ",.0f", lambda p: p.storage_megabytes_per_second),
        beside("CPU", ".0%", lambda p: p.host_cpu_fraction),
        beside("accel.", ".0%", lambda p: p.accelerator_busy_fraction),
        Column("on", on, is_left=True),
    )


def _differing(rows: Sequence[SweptRow]) -> Column[SweptRow]:
    names = ["tier", "scaling", "data_dir", "cache", "accelerator"]
    if (
        len({r.tier for r in rows}) > 1
    ):  # the tier says where the data is, and its state
        names = ["tier", "scaling", "accelerator"]
    differ = [name for name in names if len({getattr(r, name) for r in rows}) > 1]
    return Column(
        "",
        lambda r: ", ".join(str(v) for name in differ if (v := getattr(r, name))),
        is_left=True,
    )
