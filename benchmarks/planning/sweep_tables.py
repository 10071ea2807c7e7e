"""A sweep for people and scripts: tables of text, and a JSON object.

In: a `Session`. Out: lines about the series of runs or about the tiers, the plan of a
dry run, and the document for the last line and for sweep.json.
"""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.planning import published
from benchmarks.planning.plan import NO_ACCELERATOR, Run, Series
from benchmarks.planning.sweep_run import (
    RULE,
    Repeats,
    Session,
    duration,
    missed_gates,
    time_text,
)
from benchmarks.reporting import binding
from benchmarks.reporting.charts import sweeps
from benchmarks.results import checks, other_results as typed
from benchmarks.results.collection import RunResult
from benchmarks.results.train_result import SourceBytes, TrainResult
from benchmarks.system.figures import joined
from tfpipe.cli import text_table

_GIVERS = ("server", "disk", "page_cache", "ram_cache")


def plan(session: Session) -> tuple[list[str], float | None]:
    """Returns the runs of a sweep, done or not, and the time of the missing runs.

    Returns:
        lines: a line for each run, and a last line about the missing runs. seconds:
        their duration; None if the duration of a run is unknown.
    """
    runs, results = session.sweep.runs(), session.results
    left = {run: estimate_seconds(run, results) for run in runs if run not in results}
    seconds = joined(sum, list(left.values())) if left else 0.0
    states = {
        run: "to run" if estimate is None else time_text(estimate)
        for run, estimate in left.items()
    }
    lines = [f"{states.get(run, 'done'):>8}  {run.name}" for run in runs]
    last = f"Runs left: {len(left)} of {len(runs)}."
    if seconds:
        last += f" They take about {time_text(seconds)}, as their finished repeats did."
    return [*lines, last], seconds


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


def _series_lines(
    finished: Sequence[Repeats], answer: typed.FoundRanks | None
) -> list[str]:
    """Returns the lines of the printed table of a series."""
    title = _title(finished[0].series)
    rows = sweeps.rows_of(title, _points(finished))
    columns = text_table.filled(sweeps.POINTS[1:], rows)
    lines = [title, *text_table.lines(columns, rows)]
    if all(row.point.efficiency is None for row in rows):
        lines.append("No run on one rank has finished, so there is no efficiency.")
    missed = [
        f"Ranks {repeats.placement}: {text}"
        for repeats in finished
        for result in repeats.results
        for text in missed_gates(result)
    ]
    lines += dict.fromkeys(missed)
    return lines + ([answer.text, RULE] if answer else [])


def _title(series: Series) -> str:
    whose = "a rank" if series.scaling == "weak" else "in all"
    batch = f"batch {series.batch_size} {whose}" if series.batch_size else "own batch"
    cache = series.cache and f"cache {series.cache}"
    accelerator = series.accelerator and f"accelerator {series.accelerator}"
    words = (f"{series.scaling} scaling", series.model, series.mode, batch)
    return ", ".join(filter(None, (*words, series.data_dir, cache, accelerator)))


def _points(finished: Sequence[Repeats]) -> tuple[typed.SweptPoint, ...]:
    """Returns the scaling of a series, in the order of the numbers of ranks."""
    single = next((r.rates for r in finished if r.placement.num_ranks == 1), ())
    ordered = sorted(finished, key=lambda r: r.placement.num_ranks)
    return tuple(_point(repeats, single) for repeats in ordered)


def _point(repeats: Repeats, single: Sequence[float]) -> typed.SweptPoint:
    first, last = repeats.values[0], repeats.values[-1]
    shares = [v.critical_path.shares for v in repeats.values if v.critical_path.shares]
    return dataclasses.replace(
        sweeps.point(repeats.placement.num_ranks, repeats.rates, single),
        num_hosts=repeats.placement.num_hosts,
        ideal_examples_per_second=first.ideal_examples_per_second,
        binding=_binding(repeats),
        critical_path={
            part: joined(statistics.mean, [each[part] for each in shares]) or 0.0
            for part in (shares[0] if shares else ())
        },
        received_mb_per_second_per_host=(
            last.telemetry.network_received_megabytes_per_second_per_host
        ),
        cache=_joined(values.cache.label for values in repeats.values),
        gates_met=repeats.are_gates_met,
        **repeats.means(
            *("stall_fraction", "accelerator_utilization", "network_utilization"),
            "telemetry.host_cpu_fraction",
        ),
    )


def _binding(repeats: Repeats) -> str:
    """Returns the resource that binds the most runs."""
    return statistics.mode(map(binding.of_run, repeats.values))


def _joined(labels: Iterable[str | None]) -> str | None:
    """Returns the label of all runs, "/" between several labels; None if unknown."""
    return "/".join(sorted({label for label in labels if label})) or None


def tier(repeats: Repeats) -> typed.SweptTier:
    """Returns settings and figures of a tier, means over its runs."""
    sections = [values.storage for values in repeats.values]
    sources: dict[str, Any] = {
        # A run without records got no bytes.
        name: joined(statistics.mean, [getattr(s, name) if s else 0 for s in sections])
        for name in (f"bytes_from_{giver}" for giver in _GIVERS)
    }
    return typed.SweptTier(
        **dataclasses.asdict(repeats.series),
        num_ranks=repeats.placement.num_ranks,
        num_repeats=len(repeats.rates),
        examples_per_second=statistics.mean(repeats.rates),
        binding=_binding(repeats),
        state=_joined(section.state for section in sections if section) or "",
        **repeats.means("cpu_seconds_per_example", "stall_fraction"),
        **sources,
    )


def report(session: Session) -> tuple[dict[str, Any], list[str]]:
    """Returns a sweep as a JSON object, and as printed tables."""
    by_series = list(filter(None, map(session.repeats, session.sweep.series())))
    finished = [repeats for each in by_series for repeats in each]
    rows, tiers = list(map(published_row, finished)), list[typed.SweptTier]()
    if session.sweep.tiers:  # the table of tiers has the figures of the series too
        tiers, by_series = list(map(tier, finished)), []
    series = [
        typed.SweptSeries(**dataclasses.asdict(each[0].series), points=_points(each))
        for each in by_series
    ]
    parts: dict[str, Sequence[typed.SweptSettings]] = {"tiers": tiers, "rows": rows}
    parts["series"] = series
    stored = {key: list(map(dataclasses.asdict, part)) for key, part in parts.items()}
    named = sweeps.named_tiers(tiers)
    lines = text_table.lines(sweeps.TIERS, named) if tiers else []
    for each in by_series:
        lines += _series_lines(each, session.answers.get(each[0].series))
    return {**_document(session), **stored}, [*lines, *sweeps.row_lines(rows)]


def _document(session: Session) -> dict[str, Any]:
    sweep, results = session.sweep, session.results
    first = next(iter(results.values()), None)
    # A search chooses its runs.
    runs = {*results, *session.errors} if sweep.find_ranks else sweep.runs()
    missed = {run.name: missed_gates(result) for run, result in results.items()}
    answers = tuple(answer for answer in session.answers.values() if answer)
    search = typed.FoundAnswers(gates=sweep.find_ranks, rule=RULE, answers=answers)
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
        "find_ranks": dataclasses.asdict(search) if sweep.find_ranks else None,
        "results": [f"{run.name}.json" for run in results],
        "environment": first.document.get("environment") if first else None,
    }


def published_row(repeats: Repeats) -> typed.SweptRow:
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
    different = published.differences(there, first) if there else ""
    of_gpu = there and not different and there.images_per_second_per_accelerator
    busy = repeats.means("telemetry.gpu_utilization", "accelerator_utilization")
    used, stepping = busy.values()
    batch_size = series.batch_size_per_rank(num_ranks) or config.batch_size
    own = {"mode": mode, "batch_size": batch_size, "accelerator": accelerator}
    return typed.SweptRow(
        **{**dataclasses.asdict(series), **own},
        kind=first.kind or "",
        precision=config.precision,
        num_ranks=num_ranks,
        num_hosts=repeats.placement.num_hosts or len(first.environment.hosts) or None,
        num_repeats=len(repeats.results),
        examples_per_second=rate,
        examples_per_second_per_rank=rate / num_ranks,
        storage_megabytes_per_second=joined(
            statistics.mean, [_storage_rate(values) for values in repeats.values]
        ),
        accelerator_busy_fraction=stepping if used is None else used,
        accelerator_busy_of="steps" if used is None else "gpu",
        gates_met=repeats.are_gates_met,
        published=there,
        not_compared=different,
        rate_over_published=rate / num_ranks / of_gpu if of_gpu else None,
        **repeats.means("consumed_megabytes_per_second", "telemetry.host_cpu_fraction"),
    )


def _storage_rate(result: TrainResult) -> float | None:
    source = result.storage or SourceBytes()
    server, disk = source.bytes_from_server, source.bytes_from_disk
    if server is None or disk is None or not result.timed_seconds:
        return result.storage_megabytes_per_second
    return (server + disk) / result.timed_seconds / 1e6
