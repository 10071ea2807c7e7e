"""A sweep for people and scripts: tables of text, and a JSON object.

In: a `Session`. Out: lines about the series of runs or about the tiers, the plan of a
dry run, and the document for the last line and for sweep.json.
"""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.models import catalog
from benchmarks.planning import published
from benchmarks.planning.plan import NO_ACCELERATOR, Run, Series
from benchmarks.planning.session import (
    RULE,
    Repeats,
    Session,
    duration,
    missed_gates,
    time_text,
)
from benchmarks.reporting import binding
from benchmarks.reporting.charts import scaling, sweeps
from benchmarks.results import checks
from benchmarks.results.collection import RunResult
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
from benchmarks.system.figures import joined
from tfpipe.cli import text_table

_NOTHING = SourceBytes(
    bytes_from_server=0,
    bytes_from_disk=0,
    bytes_from_page_cache=0,
    bytes_from_ram_cache=0,
)


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


def estimate_seconds(run: Run, finished: Mapping[Run, RunResult]) -> float | None:
    """Returns the mean duration, in seconds, of the finished repeats of a run.

    Only runs with the same settings count, because nothing predicts how long another
    model, batch or number of ranks takes. None if no such run has finished.
    """
    seconds = [
        duration(result)
        for other, result in finished.items()
        if dataclasses.replace(other, repeat=run.repeat) == run
    ]
    return statistics.mean(seconds) if seconds else None


def series_lines(session: Session, series: Series) -> list[str]:
    """Returns the lines of the printed table of a series; none without results."""
    finished = session.repeats(series)
    if not finished:
        return []
    rows = scaling.rows_of(_title(series), _points(finished))
    columns = text_table.filled(scaling.POINTS[1:], rows)
    lines = [_title(series), *text_table.lines(columns, rows)]
    if all(row.point.efficiency is None for row in rows):
        lines.append("No run on one rank has finished, so there is no efficiency.")
    for repeats in finished:
        missed = (text for result in repeats.results for text in missed_gates(result))
        lines += [
            f"Ranks {repeats.placement}: {text}" for text in dict.fromkeys(missed)
        ]
    if answer := session.answers.get(series):
        lines += [answer.text, RULE]
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


def _points(finished: Sequence[Repeats]) -> list[SweptPoint]:
    """Returns the scaling of a series, in the order of the numbers of ranks."""
    single = next((r.rates for r in finished if r.placement.num_ranks == 1), ())
    ordered = sorted(finished, key=lambda r: r.placement.num_ranks)
    return [_point(repeats, single) for repeats in ordered]


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
            part: joined(statistics.mean, [each[part] for each in shares]) or 0.0
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


def tier(repeats: Repeats) -> SweptTier:
    """Returns settings and figures of a tier, means over its runs."""
    sections = [values.storage or _NOTHING for values in repeats.values]
    return SweptTier(
        **dataclasses.asdict(repeats.series),
        num_ranks=repeats.placement.num_ranks,
        num_repeats=len(repeats.rates),
        examples_per_second=joined(statistics.mean, repeats.rates),
        examples_per_second_min=min(repeats.rates),
        examples_per_second_max=max(repeats.rates),
        cpu_seconds_per_example=repeats.mean(lambda r: r.cpu_seconds_per_example),
        stall_fraction=repeats.mean(lambda r: r.stall_fraction),
        binding=_binding(repeats),
        state=_joined(section.state for section in sections) or "",
        bytes_from_server=joined(
            statistics.mean, [s.bytes_from_server for s in sections]
        ),
        bytes_from_disk=joined(statistics.mean, [s.bytes_from_disk for s in sections]),
        bytes_from_page_cache=joined(
            statistics.mean, [s.bytes_from_page_cache for s in sections]
        ),
        bytes_from_ram_cache=joined(
            statistics.mean, [s.bytes_from_ram_cache for s in sections]
        ),
    )


def tier_lines(tiers: Sequence[SweptTier]) -> list[str]:
    """Returns the printed table of tiers; bytes are megabytes of the timed steps."""
    named = sweeps.named_tiers(tiers)
    return text_table.lines(sweeps.TIERS, named) if tiers else []


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
        rule=RULE,
        answers=tuple(answer for answer in session.answers.values() if answer),
    )
    return {
        **checks.head(checks.SWEEP),
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
            points=tuple(_points(finished)),
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
        kind=first.kind or "",
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
