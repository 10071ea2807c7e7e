"""A sweep for people and scripts: tables of text, and a JSON object.

In: a `Session`. Out: lines about the series of runs or about the tiers, the plan of a
dry run, and the document for the last line and for sweep.json.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.planning import find_ranks, published_rows
from benchmarks.planning.plan import Run, Series, estimate_seconds
from benchmarks.planning.published_rows import MET, or_dash
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
from benchmarks.results.train_result import SourceBytes

BYTES: Mapping[str, Callable[[SourceBytes], float | None]] = {
    "bytes_from_server": lambda source: source.bytes_from_server,
    "bytes_from_disk": lambda source: source.bytes_from_disk,
    "bytes_from_page_cache": lambda source: source.bytes_from_page_cache,
    "bytes_from_ram_cache": lambda source: source.bytes_from_ram_cache,
}
_NOTHING = SourceBytes(
    bytes_from_server=0,
    bytes_from_disk=0,
    bytes_from_page_cache=0,
    bytes_from_ram_cache=0,
)
_BYTES_TITLES = ("server", "disk", "page cache", "RAM cache")


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
    lines = [
        _title(series),
        f"{'ranks':>7}{'runs':>6}{'images/s':>12}{'+-':>9}{'speed-up':>10}"
        f"{'efficiency':>12}{'95 % interval':>18}{'stall':>8}{'AU':>8}"
        f"{'cache':>9}{'gates':>9}",
        *(_series_row(point, repeats) for point, repeats in points),
    ]
    lines += _placement_lines(points)
    if all(point.efficiency is None for point, _ in points):
        lines.append("No run on one rank has finished, so there is no efficiency.")
    for repeats in finished:
        missed = (text for result in repeats.results for text in missed_gates(result))
        lines += [
            f"Ranks {repeats.placement}: {text}" for text in dict.fromkeys(missed)
        ]
    if answer := session.answers.get(series):
        lines += [answer["text"], find_ranks.RULE]
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


def _series_row(point: scaling.Point, repeats: Repeats) -> str:
    low, high = point.efficiency_low, point.efficiency_high
    interval = "-"
    if point.num_ranks > 1 and low is not None and high is not None:
        interval = f"{low:.1%} to {high:.1%}"
    return (
        f"{repeats.placement!s:>7}{point.num_repeats:6}"
        f"{point.examples_per_second:12.1f}"
        f"{or_dash(point.examples_per_second_interval, '.1f'):>9}"
        f"{or_dash(point.speedup, '.2f'):>10}"
        f"{or_dash(point.efficiency, '.1%'):>12}{interval:>18}"
        f"{or_dash(repeats.mean(lambda r: r.stall_fraction), '.1%'):>8}"
        f"{or_dash(repeats.mean(lambda r: r.accelerator_utilization), '.1%'):>8}"
        f"{_cache(repeats) or '-':>9}{MET[repeats.are_gates_met]:>9}"
    )


def _points(finished: Sequence[Repeats]) -> list[tuple[scaling.Point, Repeats]]:
    """Returns the scaling of a series, in the order of the numbers of ranks."""
    single = next((r.rates for r in finished if r.placement.num_ranks == 1), ())
    return [
        (scaling.point(r.placement.num_ranks, r.rates, single), r)
        for r in sorted(finished, key=lambda r: r.placement.num_ranks)
    ]


def _placement_lines(points: Sequence[tuple[scaling.Point, Repeats]]) -> list[str]:
    """Returns how equal numbers of ranks on other numbers of hosts compare."""
    lines = []
    for num_ranks, several in itertools.groupby(points, lambda p: p[0].num_ranks):
        first, *others = [(r.placement, p.examples_per_second) for p, r in several]
        if others:
            rates = [f"{which} {rate / first[1]:.1%}" for which, rate in others]
            lines.append(f"{num_ranks} ranks over {first[0]}: {', '.join(rates)}")
    return lines


def _cache(repeats: Repeats) -> str | None:
    """Returns the measured label, "/" between several labels; None if unknown."""
    labels = {values.cache.label for values in repeats.values}
    return "/".join(sorted(label for label in labels if label)) or None


def tier_json(repeats: Repeats) -> dict[str, Any]:
    """Returns settings and figures of a tier as a dict for JSON.

    Returns:
        binding: the resource that binds the most runs. state: the measured state, "/"
        between several states. bytes_from_*: means over the runs; 0 without records,
        and None if a run does not know the bytes.
    """
    rates = repeats.rates
    bound = [binding.of_run(values) for values in repeats.values]
    sections = [values.storage or _NOTHING for values in repeats.values]
    return {
        **dataclasses.asdict(repeats.series),
        "num_ranks": repeats.placement.num_ranks,
        "num_repeats": len(rates),
        "examples_per_second": known_mean(rates),
        "examples_per_second_min": min(rates),
        "examples_per_second_max": max(rates),
        "cpu_seconds_per_example": repeats.mean(lambda r: r.cpu_seconds_per_example),
        "stall_fraction": repeats.mean(lambda r: r.stall_fraction),
        "binding": max(dict.fromkeys(bound), key=bound.count),
        "state": "/".join(sorted({section.state for section in sections})),
        **{name: known_mean([get(s) for s in sections]) for name, get in BYTES.items()},
    }


def tier_lines(finished: Sequence[Repeats]) -> list[str]:
    """Returns the printed table of tiers; bytes are megabytes of the timed steps."""
    if not finished:
        return []
    head = f"{'tier':18}{'ranks':>6}{'images/s':>10}{'CPU ms':>8}{'stall':>8}"
    head += f"  {'binding':12}{'state':9}"
    lines = [head + "".join(f"{title + ' MB':>15}" for title in _BYTES_TITLES)]
    for repeats in finished:
        values = tier_json(repeats)
        cpu, stall = values["cpu_seconds_per_example"], values["stall_fraction"]
        line = f"{values['tier']:18}{repeats.placement!s:>6}"
        line += f"{values['examples_per_second']:10.1f}"
        line += f"{or_dash(cpu and cpu * 1e3, '.2f'):>8}{or_dash(stall, '.1%'):>8}"
        line += f"  {values['binding']:12}{values['state'] or '-':9}"
        for name in BYTES:
            megabytes = None if values[name] is None else values[name] / 1e6
            line += f"{or_dash(megabytes, '.1f'):>15}"
        lines.append(f"{line}  {_settings(repeats.series, finished)}".rstrip())
    return lines


def _settings(series: Series, finished: Sequence[Repeats]) -> str:
    """Returns the settings of a tier's row that differ between rows."""
    names = ("model", "mode", "batch_size", "accelerator", "scaling")
    differ = [n for n in names if len({getattr(r.series, n) for r in finished}) > 1]
    return ", ".join(str(getattr(series, name)) for name in differ)


def document(session: Session) -> dict[str, Any]:
    """Returns the JSON object of a sweep."""
    sweep, results = session.sweep, session.results
    first = next(iter(results.values()), None)
    # A search chooses its runs.
    runs = {*results, *session.errors} if sweep.find_ranks else sweep.runs()
    missed = {run.name: missed_gates(result) for run, result in results.items()}
    finished = session.all_repeats()
    answers = {
        "gates": sweep.find_ranks,
        "rule": find_ranks.RULE,
        "answers": [
            {**dataclasses.asdict(series), **answer}
            for series, answer in session.answers.items()
            if answer is not None
        ],
    }
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
        "tiers": [tier_json(repeats) for repeats in finished if sweep.tiers],
        "rows": [published_rows.as_json(repeats) for repeats in finished],
        # The table of tiers has the figures of a sweep with tiers.
        "series": [] if sweep.tiers else _series_json(session),
        "find_ranks": answers if sweep.find_ranks else None,
        "results": [f"{run.name}.json" for run in results],
        "environment": first.document.get("environment") if first else None,
    }


def _series_json(session: Session) -> list[dict[str, Any]]:
    return [
        {
            **dataclasses.asdict(series),
            "points": [_point_json(*pair) for pair in _points(finished)],
        }
        for series in session.sweep.series()
        if (finished := session.repeats(series))
    ]


def _point_json(point: scaling.Point, repeats: Repeats) -> dict[str, Any]:
    bound = [binding.of_run(values) for values in repeats.values]
    hosts = repeats.values[-1].telemetry
    return {
        **dataclasses.asdict(point),
        "num_hosts": repeats.placement.num_hosts,
        "ideal_examples_per_second": _ideal(repeats),
        "stall_fraction": repeats.mean(lambda r: r.stall_fraction),
        "accelerator_utilization": repeats.mean(lambda r: r.accelerator_utilization),
        "binding": max(dict.fromkeys(bound), key=bound.count),
        "critical_path": _critical_path(repeats),
        "host_cpu_fraction": repeats.mean(lambda r: r.telemetry.host_cpu_fraction),
        "network_utilization": repeats.mean(lambda r: r.network_utilization),
        "received_mb_per_second_per_host": list(
            hosts.network_received_megabytes_per_second_per_host
        )
        or None,
        "cache": _cache(repeats),
        "gates_met": repeats.are_gates_met,
    }


def _critical_path(repeats: Repeats) -> dict[str, float] | None:
    """Returns the mean share of each part of the time; None if no run knows it."""
    paths = [values.critical_path.shares for values in repeats.values]
    shares = [path for path in paths if path]
    if not shares:
        return None
    return {part: known_mean([s[part] for s in shares]) or 0.0 for part in shares[0]}


def _ideal(repeats: Repeats) -> float | None:
    """Returns the images/s of emulated accelerators that never wait, or None."""
    first = repeats.values[0]
    seconds, batch_size = first.emulated_seconds_per_step, first.config.batch_size
    if not seconds or not batch_size:
        return None
    return repeats.placement.num_ranks * batch_size / seconds
