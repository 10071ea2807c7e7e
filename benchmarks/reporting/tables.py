"""Tables of a page: gates, runs, changes, environments.

In: a `Collection`, or pairs of runs. Out: a `Table` of texts, or None where there is
nothing to show.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.reporting import compare
from benchmarks.reporting.charts.frame import amount, milliseconds, percent
from benchmarks.reporting.compare import Change, Pair
from benchmarks.reporting.results import Collection, Group, Result, as_number


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        text: What it says.
        note: A second line, in small letters.
        mark: A class of the style sheet: good, bad, warn, differs, badge.
        link: Name of the place on the page that it leads to.
    """

    text: str
    note: str = ""
    mark: str = ""
    link: str = ""


class Table(NamedTuple):
    """A table; the first cell of a row is its heading."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def all_gates(collection: Collection) -> list[tuple[Group, Result, Mapping[str, Any]]]:
    return [
        (group, result, gate)
        for group in collection.groups
        for result in group.results
        for gate in result.items("gates")
        if isinstance(gate, Mapping)
    ]


def gates(collection: Collection) -> Table | None:
    rows = []
    for group, result, gate in all_gates(collection):
        passed = gate.get("passed") is True
        name = str(gate.get("gate", "?"))
        number = as_number(gate.get("measured"))
        repeat = f"repeat {result.name}" if len(group.results) > 1 else ""
        rows.append(
            [
                Cell(name),
                Cell(
                    "✓ Met" if passed else "✗ Not met", "", "good" if passed else "bad"
                ),
                Cell(group.label, repeat, "", f"run-{group.number}"),
                Cell("—" if number is None else _gate_number(name, number)),
                Cell(_margin(gate)),
                Cell(str(gate.get("text") or "")),
            ]
        )
    if not rows:
        return None
    rows.sort(key=lambda row: row[1].mark)  # bad before good
    columns = ("Gate", "Verdict", "Run", "Measured", "By how much", "In words")
    return Table("Gates, those not met first", columns, rows)


def _gate_number(gate: str, value: float) -> str:
    return percent(value) if "%" in gate else f"{value:,.6g}"


def _margin(gate: Mapping[str, Any]) -> str:
    """Returns the distance between measured value and limit."""
    margin = as_number(gate.get("margin"))
    measured, limit = as_number(gate.get("measured")), as_number(gate.get("limit"))
    if margin is None and measured is not None and limit is not None:
        margin = measured - limit
    if margin is None:
        return "—"
    size = abs(margin)
    if "%" in str(gate.get("gate", "")):
        return f"{size * 100:.1f} points"
    return f"{size:,.3g}"


def runs(groups: Sequence[Group]) -> Table | None:
    if not groups:
        return None
    columns = (
        *("Run", "Kind", "Started, host", "Ranks", "Batch", "Page cache"),
        *("Images/s ± 95%", "AU", "Stall", "Step p50 / p99, ms", "Storage, MB/s"),
        *("CPU", "GPU"),
    )
    caption = (
        "Runs. AU is the share of the time in which the accelerators computed, stall "
        "the share in which they waited for input. Repeats share a row: their means "
        "are shown, with the 95% interval over repeats; the interval of a single run "
        "is over its steps."
    )
    return Table(caption, columns, [_run(group) for group in groups])


def _run(group: Group) -> list[Cell]:
    result, estimate = group.median, compare.rate(group)
    hosts = list(dict.fromkeys(h for r in group.results for h in r.hosts))
    host = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" * (len(hosts) > 3))
    steps = [milliseconds(group.mean(f"step_seconds_p{p}")) for p in (50, 99)]
    count = len(group.rates)
    repeats = f"{count} repeats" if count > 1 else ""
    cache = result.cache or "—"
    mark = {"cold": "cold", "warm": "warm", "mixed": "warn"}.get(result.cache, "")
    return [
        Cell(group.label, result.data, "", f"run-{group.number}"),
        Cell(result.kind, result.accelerator, f"badge {result.kind}"),
        Cell(result.started or "—", host),
        Cell(_whole(result.number("num_ranks"))),
        Cell(_whole(result.number("config.batch_size"))),
        Cell(cache, result.text("cache.text"), mark),
        Cell(_with_interval(estimate), repeats),
        Cell(percent(group.mean("accelerator_utilization"))),
        Cell(percent(group.mean("stall_fraction"))),
        Cell(" / ".join(steps)),
        Cell(amount(group.mean("storage_megabytes_per_second"))),
        Cell(percent(group.mean("telemetry.host_cpu_fraction"))),
        Cell(percent(_gpu(result))),
    ]


def _whole(value: float | None) -> str:
    return "—" if value is None else f"{value:,g}"


def _with_interval(estimate: compare.Estimate | None) -> str:
    if estimate is None:
        return "—"
    interval = estimate.interval
    half = "" if interval is None else f" ± {amount(interval)}"
    return f"{amount(estimate.mean)}{half}"


def _gpu(result: Result) -> float | None:
    """Returns the mean use of all GPUs of all hosts, 0 to 1."""
    hosts = result.items("telemetry.gpu_utilization_mean_per_host")
    flat = [gpu for host in hosts for gpu in (host if isinstance(host, list) else [])]
    known = [value for gpu in flat if (value := as_number(gpu)) is not None]
    return sum(known) / len(known) if known else None


def changes(pairs: Iterable[Pair]) -> Table:
    rows = [
        [
            Cell(
                pair.new.label, "; ".join(pair.differing), "", f"run-{pair.new.number}"
            ),
            Cell(change.figure.title),
            *(Cell(_figure(change, value)) for value in (change.before, change.after)),
            Cell(_change(change)),
            Cell(_noise(change), change.basis and f"of {change.basis}"),
            Cell(
                change.verdict,
                "",
                {"better": "good", "worse": "bad"}.get(change.verdict, ""),
            ),
        ]
        for pair in pairs
        for change in pair.changes
    ]
    columns = ("Run", "Figure", "Before", "After", "Change", "Noise", "Verdict")
    caption = (
        "Changes. A change is beyond the noise if it is larger than the 95% interval "
        "of the difference, over repeats or over the steps of a single run. Steps vary "
        "less than repeats do: with --repeat the verdict is safer."
    )
    return Table(caption, columns, rows)


def _figure(change: Change, value: float) -> str:
    return percent(value) if change.figure.is_share else amount(value)


def _change(change: Change) -> str:
    if change.figure.is_share:
        return f"{(change.after - change.before) * 100:+.1f} points"
    return "—" if change.relative is None else f"{change.relative:+.1%}"


def _noise(change: Change) -> str:
    if change.noise is None:
        return "unknown"
    if change.figure.is_share:
        return f"± {change.noise * 100:.1f} points"
    return f"± {change.noise / abs(change.before):.1%}" if change.before else "—"


def trials(result: Result) -> Table | None:
    """Returns the settings that benchmarks.input tried, without those that failed."""
    rows = []
    for trial in result.items("tune.trials"):
        if not isinstance(trial, Mapping) or trial.get("error"):
            continue
        ratio = amount(as_number(trial.get("ratio")))
        rows.append(
            [
                Cell(str(trial.get("name", "?"))),
                Cell(amount(as_number(trial.get("elements_per_second")))),
                Cell(milliseconds(as_number(trial.get("cpu_seconds_per_element")))),
                Cell(f"{ratio} of {trial.get('against', '?')}"),
            ]
        )
    columns = ("Setting", "Batches/s", "CPU, ms a batch", "Ratio")
    return Table("Settings that were tried", columns, rows) if rows else None


def environment(collection: Collection) -> Table | None:
    """Returns a column for each environment, with the rows marked that differ."""
    columns: dict[str, tuple[list[str], dict[str, str]]] = {}
    named = [(str(g.number), r) for g in collection.groups for r in g.results]
    named += [(f"input {i}", r) for i, r in enumerate(collection.inputs, 1)]
    for name, result in named:
        found = result.get("environment")
        if not isinstance(found, Mapping) or not found:
            continue
        values = {str(key): _shown(str(key), found[key]) for key in found}
        names, _ = columns.setdefault(repr(sorted(values.items())), ([], values))
        if name not in names:
            names.append(name)
    if not columns:
        return None
    every = list(columns.values())
    keys = list(dict.fromkeys(key for _, values in every for key in values))
    rows = []
    for key in keys:
        texts = [values.get(key, "—") for _, values in every]
        differs = len(set(texts)) > 1
        cells = [Cell(text, "", "differs" if differs else "") for text in texts]
        rows.append([Cell(key, "differs" if differs else ""), *cells])
    heads = [f"Run {', '.join(names)}" for names, _ in every]
    return Table("Versions and hardware of the runs", ["", *heads], rows)


def _shown(key: str, value: Any) -> str:
    """Returns a value of an environment as a text."""
    number = as_number(value)
    if number is not None:
        if key.endswith("bytes"):
            return f"{number / 1e9:,.1f} GB"
        return f"{number:,.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {_shown(str(k), v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(_shown(key, item) for item in value) or "none"
    return "none" if value is None else re.sub(r"\s+", " ", str(value))
