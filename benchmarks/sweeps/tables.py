"""A sweep as people and scripts read it: tables of text, and one JSON object.

In: a `Session`. Out: lines for each series of runs, the plan of a dry run, and the
document that is printed and kept as sweep.json.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reporting.charts import scaling
from benchmarks.sweeps import find_ranks, published_rows, tier_rows
from benchmarks.sweeps.placement import Placement
from benchmarks.sweeps.plan import Result, Run, Series, estimate_seconds
from benchmarks.sweeps.session import Session, missed_gates, time_text

Done = Mapping[Placement, Sequence[Result]]


def plan_lines(session: Session) -> list[str]:
    """Returns a line for each run, done or not, and a last line about what is left."""
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
    """Returns the duration of the missing runs; None if that of any is unknown."""
    results = session.results
    missing = [run for run in session.sweep.runs() if run not in results]
    seconds = [estimate_seconds(run, results) for run in missing]
    known = [value for value in seconds if value is not None]
    return sum(known) if len(known) == len(seconds) else None


def series_lines(session: Session, series: Series) -> list[str]:
    """Returns the lines of the printed table of a series; none without results."""
    done = session.results_of(series)
    points = _points(done)
    if not points:
        return []
    lines = [
        _title(series),
        f"{'ranks':>7}{'runs':>6}{'images/s':>12}{'+-':>9}{'speed-up':>10}"
        f"{'efficiency':>12}{'95 % interval':>18}{'stall':>8}{'AU':>8}"
        f"{'cache':>9}{'gates':>9}",
    ]
    for place, point in points.items():
        lines.append(_row(point, str(place), _figures(done[place])))
    if all(point.efficiency is None for point in points.values()):
        lines.append("No run on one rank has finished, so there is no efficiency.")
    for place, results in done.items():
        for missed in dict.fromkeys(text for r in results for text in missed_gates(r)):
            lines.append(f"Ranks {place}: {missed}")
    if answer := session.answers.get(series):
        lines += [answer["text"], find_ranks.RULE]
    return lines


def _rows(session: Session) -> list[tier_rows.Row]:
    series = session.sweep.series()
    return tier_rows.rows(
        session.sweep, {one: session.results_of(one) for one in series}
    )


def rows_of_tiers(session: Session) -> list[tier_rows.Row]:
    """Returns a row for each tier that has a result; none if the sweep has no tiers."""
    return _rows(session) if session.sweep.tiers else []


def rows_as_published(session: Session) -> list[dict[str, Any]]:
    """Returns all that has a result, with the published figures beside, for JSON."""
    return [published_rows.as_json(row) for row in _rows(session)]


def _title(series: Series) -> str:
    whose = "a rank" if series.scaling == "weak" else "in all"
    batch = f"batch {series.batch_size} {whose}" if series.batch_size else "own batch"
    cache = series.cache and f"cache {series.cache}"
    accelerator = series.accelerator and f"accelerator {series.accelerator}"
    rest = (series.mode, batch, series.data_dir, cache, accelerator)
    return ", ".join(
        [f"{series.scaling} scaling", series.model, *(part for part in rest if part)]
    )


def _row(point: scaling.Point, place: str, figures: Mapping[str, Any]) -> str:
    low, high = point.efficiency_low, point.efficiency_high
    interval = "-"
    if point.num_ranks > 1 and low is not None and high is not None:
        interval = f"{low:.1%} to {high:.1%}"
    met = {None: "-", True: "met", False: "not met"}[figures["gates_met"]]
    return (
        f"{place:>7}{point.num_repeats:6}"
        f"{point.examples_per_second:12.1f}"
        f"{_or_dash(point.examples_per_second_interval, '.1f'):>9}"
        f"{_or_dash(point.speedup, '.2f'):>10}"
        f"{_or_dash(point.efficiency, '.1%'):>12}{interval:>18}"
        f"{_or_dash(figures['stall_fraction'], '.1%'):>8}"
        f"{_or_dash(figures['accelerator_utilization'], '.1%'):>8}"
        f"{figures['cache'] or '-':>9}{met:>9}"
    )


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _points(done: Done) -> dict[Placement, scaling.Point]:
    rates = {
        place: [result["examples_per_second"] for result in results]
        for place, results in done.items()
        if results
    }
    single = next((rates[place] for place in rates if place.num_ranks == 1), ())
    return {
        place: scaling.point(place.num_ranks, rates[place], single)
        for place in sorted(rates, key=lambda place: place.num_ranks)
    }


def _figures(results: Sequence[Result]) -> dict[str, Any]:
    """Returns what the repeats of one placement share: means, cache label, gates.

    Returns:
        stall_fraction and accelerator_utilization: the mean, 0 to 1; None if unknown.
        cache: the measured label, "/" between several; None if unknown.
        gates_met: whether each run met all its gates; None without gates.
    """
    labels = {(result.get("cache") or {}).get("label") for result in results} - {None}
    gates = [gate["passed"] for r in results for gate in r.get("gates", ())]
    return {
        **{
            name: _mean([result.get(name) for result in results])
            for name in ("stall_fraction", "accelerator_utilization")
        },
        "cache": "/".join(sorted(labels)) or None,
        "gates_met": all(gates) if gates else None,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def document(session: Session) -> dict[str, Any]:
    """Returns the JSON object of a sweep."""
    sweep, results = session.sweep, session.results
    first = next(iter(results.values()), None)
    # A search has the runs that it chose.
    runs = {*results, *session.errors} if sweep.find_ranks else sweep.runs()
    missed = {run.name: missed_gates(result) for run, result in results.items()}
    answers = {
        "gates": sweep.find_ranks,
        "rule": find_ranks.RULE,
        "answers": [
            {**series.as_json(), **answer}
            for series, answer in session.answers.items()
            if answer is not None
        ],
    }
    return {
        "command": "benchmarks.sweep",
        "schema_version": 2,
        "config": sweep.as_json(),
        "num_runs": len(runs),
        "num_done": len(results),
        "seconds": sum(result["sweep"]["seconds"] for result in results.values()),
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
        "tiers": [row.as_json() for row in rows_of_tiers(session)],
        "rows": rows_as_published(session),
        "series": _series_json(session),
        "find_ranks": answers if sweep.find_ranks else None,
        "results": [f"{run.name}.json" for run in results],
        "environment": first["environment"] if first else None,
    }


def _series_json(session: Session) -> list[dict[str, Any]]:
    """Returns each series with its points; tiers are in a table of their own."""
    if session.sweep.tiers:
        return []
    return [
        {**series.as_json(), "points": points}
        for series in session.sweep.series()
        if (points := _points_json(session.results_of(series)))
    ]


def _points_json(done: Done) -> list[dict[str, Any]]:
    return [
        {**point.as_json(), "num_hosts": place.num_hosts, **_figures(done[place])}
        for place, point in _points(done).items()
    ]
