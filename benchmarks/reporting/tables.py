"""Tables of a page: gates, runs, changes, environments.

In: a `Collection`, or pairs of runs. Out: a `Table` of texts, or None where there is
nothing to show.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.reporting import compare
from benchmarks.reporting.compare import FIGURES, Change, Pair
from benchmarks.results import collection as results
from benchmarks.results.collection import Collection, Group
from benchmarks.results.other_results import InputResult
from benchmarks.results.train_result import GateAnswer, TrainResult
from benchmarks.results.tree import as_number
from tfpipe.cli import text_table
from tfpipe.cli.text_table import Column, Row
from tfpipe.pages.frame import amount, milliseconds, percent, with_interval
from tfpipe.pages.page import Cell, Table


def _number(text: str, note: str = "") -> Cell:
    return Cell(text, note, is_number=True)


def _whole(value: float | None, note: str = "") -> Cell:
    return _number("—" if value is None else f"{value:,g}", note)


def view(
    columns: Sequence[Column[Row]], rows: Sequence[Row]
) -> tuple[list[str], list[list[str]]]:
    """Returns headings and texts of rows, without columns of dashes."""
    shown = text_table.filled(columns, rows)
    return [c.title for c in shown], [[c.cell(row) for c in shown] for row in rows]


def gates(groups: Sequence[Group]) -> Table:
    """Returns a row for every run with gates; runs with a missed gate come first."""
    names = list(dict.fromkeys(gate.gate for group in groups for gate in group.gates))
    rows = []
    for group in groups:
        own = [[gate for gate in group.gates if gate.gate == name] for name in names]
        cells = [_gate(repeats) if repeats else Cell("—") for repeats in own]
        if group.gates:
            rows.append([Cell(group.label, link=f"run-{group.index}"), *cells])
    rows.sort(key=lambda row: all(cell.mark != "bad" for cell in row))
    return Table("Gates, runs that miss one first", ["Run", *names], rows)


def _gate(repeats: Sequence[GateAnswer]) -> Cell:
    missed = [gate for gate in repeats if not gate.passed]
    worst = min(missed or repeats, key=lambda gate: gate.margin or 0)
    margin, measured, note = worst.margin, worst.measured, worst.text
    is_share = "%" in worst.gate
    value = percent(measured) if is_share else f"{measured or 0:,.6g}"
    if margin is None or measured is None:
        pass  # the text says more
    elif missed and margin >= 0:  # refused although the limit is met
        is_unsteady = "steady state" in note
        note = f"{value}: limit met, but not in a steady state" if is_unsteady else note
    else:
        size = f"{abs(margin) * 100:.1f} points" if is_share else f"{abs(margin):,.3g}"
        beyond = "over" if "<" in worst.gate else "short"
        note = f"{value}, {size} {beyond if missed else 'to spare'}"
    if missed and len(repeats) > 1:
        note = note.rstrip(".") + f", in {len(missed)} of {len(repeats)} repeats"
    return Cell("✗ Not met" if missed else "✓ Met", note, "bad" if missed else "good")


def runs(groups: Sequence[Group]) -> Table:
    """Returns a row for every group, with all conditions of the figures."""
    columns = (
        *("Run", "Kind", "Started, host", "Ranks", "Batch", "Page cache"),
        *("Images/s ± 95%", "AU", "Stall", "Step, ms", "Storage, MB/s", "CPU", "GPU"),
    )
    text = (
        "AU is the share of the time in which the accelerators computed, stall the "
        "share in which they waited for input. Repeats share a row, which shows their "
        "means and the 95% interval over repeats; the interval of a single run is "
        "over its steps."
    )
    return Table("Runs", columns, [_run(group) for group in groups], text)


def _run(group: Group) -> list[Cell]:
    result, values, config = group.median, group.values, group.values.config
    texts = results.texts(result)
    name = f"{group.index}. {texts['model']} {texts['mode']}".strip()
    hosts = list(dict.fromkeys(h for r in group.results for h in r.hosts))
    host = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" * (len(hosts) > 3))
    middle = milliseconds(group.mean(lambda r: r.step_seconds_p50))
    slow = milliseconds(group.mean(lambda r: r.step_seconds_p99))
    repeats = f"{len(group.rates)} repeats" if len(group.rates) > 1 else ""
    day, _, time = result.started.partition(" ")
    clock = f"{time} UTC" if time else ""
    size = f"{config.image_size} pixels" if config.image_size else ""
    mark = "warn" if result.cache == "mixed" else ""
    return [
        Cell(name, result.data, "", f"run-{group.index}"),
        Cell(result.kind, result.accelerator, f"badge {result.kind}"),
        Cell(day or "—", ", ".join(filter(None, (clock, host))), "date"),
        _whole(values.num_ranks),
        _whole(config.batch_size, ", ".join(filter(None, (config.precision, size)))),
        Cell(result.cache or "—", mark=mark, folded=values.cache.text),
        _number(rate(group), repeats),
        _number(percent(group.mean(lambda r: r.accelerator_utilization))),
        _number(percent(group.mean(lambda r: r.stall_fraction))),
        _number(f"p50 {middle}", f"p99 {slow}"),
        _number(amount(group.mean(lambda r: r.storage_megabytes_per_second))),
        _number(percent(group.mean(lambda r: r.telemetry.host_cpu_fraction))),
        _number(percent(values.telemetry.gpu_utilization)),
    ]


def rate(group: Group) -> str:
    """Returns the images/s of a group with their interval, or a dash."""
    estimate = compare.rate(group)
    return with_interval(estimate.mean, estimate.interval) if estimate else "—"


def mean(
    get: Callable[[TrainResult], float | None], show: Callable[[float | None], str]
) -> Callable[[Group], str]:
    """Returns a column with the mean of a figure over the repeats of a group."""
    return lambda group: show(group.mean(get))


def changes(pairs: Sequence[Pair]) -> Table:
    """Returns the changes of all figures: a row for every run in both sets."""
    figures = [f for f in FIGURES if any(f in pair.changes for pair in pairs)]
    rows = []
    for pair in pairs:
        link = f"run-{pair.new.index}"
        run = Cell(pair.new.label, "; ".join(pair.differing), link=link)
        rows.append([run, *(_change(pair.changes.get(figure)) for figure in figures)])
    text = (
        "A change is beyond the noise if it is larger than the "
        "95% interval of the difference, over repeats or over the steps of a single "
        "run. Steps vary less than repeats do: with --repeat the verdict is safer."
    )
    columns = ["Run", *(figure.title for figure in figures)]
    return Table("Change of each figure", columns, rows, text)


def _change(change: Change | None) -> Cell:
    if change is None:
        return Cell("—")
    before, after = change.old.mean, change.new.mean
    is_share = change.figure.metric.at_most_one  # a change is in points

    def sized(value: float, form: str) -> str:
        if is_share:
            return f"{value * 100:{form}f} points"
        return f"{value / before:{form}%}" if before else "—"

    values = " → ".join(map(percent if is_share else amount, (before, after)))
    noise = "unknown"
    if change.noise is not None:
        noise = f"± {sized(change.noise, '.1')} of {change.basis}"
    mark = {"better": "good", "worse": "bad"}.get(change.verdict, "")
    word = "" if change.verdict == "unknown" else f", {change.verdict}"
    text = sized(change.difference, "+.1")
    return Cell(f"{text}{word}", f"{values}, noise {noise}", mark)


def trials(result: InputResult) -> Table:
    """Returns the settings of benchmarks.input, without failed settings."""
    rows = [
        [
            Cell(trial.name),
            _number(amount(trial.elements_per_second)),
            _number(milliseconds(trial.cpu_seconds_per_element)),
            Cell(f"{amount(trial.ratio)} of {trial.against}"),
        ]
        for trial in result.tune.trials
        if not trial.error
    ]
    columns = ("Setting", "Batches/s", "CPU, ms a batch", "Ratio")
    return Table("Settings that were tried", columns, rows)


def environment(collection: Collection) -> Table:
    """Returns a column for every environment; different rows are marked."""
    columns: dict[str, tuple[dict[str, None], dict[str, str]]] = {}
    for entry in collection.entries:
        name = f"{entry.kind} {entry.index}".removeprefix("run ")
        for result in entry.results if entry.kind != "sweep" else ():
            described = result.document.get("environment")
            if isinstance(described, Mapping) and described:
                values = _flat(described)
                key = repr(sorted(values.items()))
                columns.setdefault(key, ({}, values))[0][name] = None
    every = list(columns.values())
    rows = []
    for key in dict.fromkeys(key for _, values in every for key in values):
        texts = [values.get(key, "—") for _, values in every]
        mark = "differs" if len(set(texts)) > 1 else ""
        rows.append([Cell(key, mark), *(Cell(text, "", mark) for text in texts)])
    heads = [f"Run {', '.join(names)}" for names, _ in every]
    return Table("Versions and hardware of the runs", ["", *heads], rows)


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, str]:
    texts: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            texts |= _flat(value, f"{above}{key} ")
        else:
            texts[f"{above}{key}"] = _shown(str(key), value)
    return texts


def _shown(key: str, value: Any) -> str:
    """Returns a value of an environment as a text."""
    figure = as_number(value)
    if figure is not None:
        if key.endswith("bytes"):
            return f"{figure / 1e9:,.1f} GB"
        return f"{figure:,.0f}" if figure.is_integer() else f"{figure:,.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {_shown(str(k), v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        texts = [_shown(key, item) for item in value]
        counts = {text: texts.count(text) for text in texts}
        many = (f"{n} times {text}" if n > 1 else text for text, n in counts.items())
        return "; ".join(many) or "none"
    return "none" if value is None else re.sub(r"\s+", " ", str(value))
