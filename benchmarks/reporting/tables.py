"""Tables of a page: gates, runs, changes, environments.

In: a `Collection`, or pairs of runs. Out: a `Table` of texts, or None where there is
nothing to show.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reporting import compare
from benchmarks.reporting.charts.frame import (
    amount,
    milliseconds,
    percent,
    with_interval,
)
from benchmarks.reporting.compare import FIGURES, Change, Pair
from benchmarks.results.collection import (
    Collection,
    Group,
    Result,
    as_number,
    short_name,
)
from tfpipe.pages.page import Cell, Table


def _number(text: str, note: str = "") -> Cell:
    return Cell(text, note, is_number=True)


def all_gates(
    collection: Collection,
) -> list[tuple[Group, Result, Mapping[str, Any]]]:
    """Returns every gate, computed again, with its group and its result."""
    return [
        (group, result, gate)
        for group in collection.groups
        for result in group.results
        for gate in result.gates
    ]


def gates(collection: Collection) -> Table | None:
    """Returns a row for each run with gates; runs that miss a gate come first."""
    by_group: dict[int, tuple[Group, dict[str, list[Mapping[str, Any]]]]] = {}
    names: dict[str, None] = {}
    for group, _, gate in all_gates(collection):
        name = str(gate.get("gate", "?"))
        names[name] = None
        _, own = by_group.setdefault(group.index, (group, {}))
        own.setdefault(name, []).append(gate)
    if not by_group:
        return None
    rows = [
        [
            Cell(group.label, link=f"run-{group.index}"),
            *(_gate(own[name]) if name in own else Cell("—") for name in names),
        ]
        for group, own in by_group.values()
    ]
    rows.sort(key=lambda row: all(cell.mark != "bad" for cell in row))
    return Table("Gates, runs that miss one first", ["Run", *names], rows)


def _gate(repeats: Sequence[Mapping[str, Any]]) -> Cell:
    """Returns the verdict of the worst repeat, with its distance to the limit."""
    missed = [gate for gate in repeats if gate.get("passed") is not True]
    among = missed or repeats
    worst = min(among, key=lambda gate: m if (m := _margin(gate)) is not None else 0)
    margin, measured = _margin(worst), as_number(worst.get("measured"))
    text = str(worst.get("text") or "")
    if margin is None or measured is None:
        note = text
    elif missed and margin >= 0:
        # A gate may be refused although the limit is met. The findings say more.
        is_unsteady = "steady state" in text
        note = "limit met, but not in a steady state" if is_unsteady else text
    else:
        is_share = "%" in str(worst.get("gate", ""))
        value = percent(measured) if is_share else f"{measured:,.6g}"
        size = f"{abs(margin) * 100:.1f} points" if is_share else f"{abs(margin):,.3g}"
        note = f"{value}, {size} {'short' if missed else 'to spare'}"
    if missed and len(repeats) > 1:
        note = note.rstrip(".") + f", in {len(missed)} of {len(repeats)} repeats"
    return Cell("✗ Not met" if missed else "✓ Met", note, "bad" if missed else "good")


def _margin(gate: Mapping[str, Any]) -> float | None:
    """Returns the distance to the limit, below 0 on the wrong side."""
    measured, limit = as_number(gate.get("measured")), as_number(gate.get("limit"))
    if measured is None or limit is None:
        return as_number(gate.get("margin"))
    return limit - measured if "<" in str(gate.get("gate", "")) else measured - limit


def runs(groups: Sequence[Group]) -> Table | None:
    """Returns a row for each group, with all conditions of its figures."""
    if not groups:
        return None
    columns = (
        *("Run", "Kind", "Started, host", "Ranks", "Batch", "Page cache"),
        *("Images/s ± 95%", "AU", "Stall", "Step, ms", "Storage, MB/s"),
        *("CPU", "GPU"),
    )
    text = (
        "AU is the share of the time in which the accelerators computed, stall the "
        "share in which they waited for input. Repeats share a row, which shows their "
        "means and the 95% interval over repeats; the interval of a single run is "
        "over its steps."
    )
    return Table("Runs", columns, [_run(group) for group in groups], text)


def _run(group: Group) -> list[Cell]:
    result, estimate = group.median, compare.rate(group)
    mode = result.text("config.mode")
    name = short_name(result.text("config.model")) or "unknown model"
    hosts = list(dict.fromkeys(h for r in group.results for h in r.hosts))
    host = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" * (len(hosts) > 3))
    middle, slow = (milliseconds(group.mean(f"step_seconds_p{p}")) for p in (50, 99))
    repeats = f"{len(group.rates)} repeats" if len(group.rates) > 1 else ""
    rate = "—" if estimate is None else with_interval(estimate.mean, estimate.interval)
    storage = amount(group.mean("storage_megabytes_per_second"))
    cache = result.cache
    day, _, time = result.started.partition(" ")
    clock = f"{time} UTC" if time else ""
    return [
        Cell(
            f"{group.index}. {name}{'' if mode in ('', 'train') else f' {mode}'}",
            result.data,
            "",
            f"run-{group.index}",
        ),
        Cell(result.kind, result.accelerator, f"badge {result.kind}"),
        Cell(day or "—", ", ".join(filter(None, (clock, host))), "date"),
        _number(_whole(result.figure("num_ranks"))),
        _number(_whole(result.figure("config.batch_size")), _of_images(result)),
        Cell(
            cache or "—",
            mark="warn" if cache == "mixed" else "",
            folded=result.text("cache.text"),
        ),
        _number(rate, repeats),
        _number(percent(group.mean("accelerator_utilization"))),
        _number(percent(group.mean("stall_fraction"))),
        _number(f"p50 {middle}", f"p99 {slow}"),
        _number(storage),
        _number(percent(group.mean("telemetry.host_cpu_fraction"))),
        _number(percent(_gpu(result))),
    ]


def _of_images(result: Result) -> str:
    """Returns precision and image size of a run, as far as the result says them."""
    config = result.values.config
    size = f"{config.image_size} pixels" if config.image_size else ""
    return ", ".join(filter(None, (config.precision, size)))


def _whole(value: float | None) -> str:
    return "—" if value is None else f"{value:,g}"


def _gpu(result: Result) -> float | None:
    """Returns the mean use of all GPUs of all hosts, 0 to 1."""
    hosts = result.items("telemetry.gpu_utilization_mean_per_host")
    flat = [gpu for host in hosts for gpu in (host if isinstance(host, list) else [])]
    used = [value for gpu in flat if (value := as_number(gpu)) is not None]
    return sum(used) / len(used) if used else None


def changes(pairs: Sequence[Pair]) -> Table | None:
    """Returns the change of each figure: a row for each run in both sets."""
    if not pairs:
        return None
    figures = [
        figure
        for figure in FIGURES
        if any(change.figure == figure for pair in pairs for change in pair.changes)
    ]
    rows = []
    for pair in pairs:
        changes_of = {change.figure: change for change in pair.changes}
        link = f"run-{pair.new.index}"
        run = Cell(pair.new.label, "; ".join(pair.differing), link=link)
        rows.append([run, *(_change(changes_of.get(figure)) for figure in figures)])
    text = (
        "A change is beyond the noise if it is larger than the "
        "95% interval of the difference, over repeats or over the steps of a single "
        "run. Steps vary less than repeats do: with --repeat the verdict is safer."
    )
    columns = ["Run", *(figure.title for figure in figures)]
    return Table("Change of each figure", columns, rows, text)


def _change(change: Change | None) -> Cell:
    """Returns a change, its verdict, both values and the noise."""
    if change is None:
        return Cell("—")
    if change.figure.is_share:
        text = f"{(change.after - change.before) * 100:+.1f} points"
        noise = "" if change.noise is None else f"± {change.noise * 100:.1f} points"
        values = f"{percent(change.before)} → {percent(change.after)}"
    else:
        text = "—" if change.relative is None else f"{change.relative:+.1%}"
        part = change.noise and change.before and change.noise / abs(change.before)
        noise = "" if change.noise is None else f"± {part:.1%}"
        values = f"{amount(change.before)} → {amount(change.after)}"
    noise = f"noise {noise} of {change.basis}" if noise else "noise unknown"
    mark = {"better": "good", "worse": "bad"}.get(change.verdict, "")
    word = "" if change.verdict == "unknown" else f", {change.verdict}"
    return Cell(f"{text}{word}", f"{values}, {noise}", mark)


def trials(result: Result) -> Table | None:
    """Returns the settings that benchmarks.input tried and that did not fail."""
    rows = []
    for trial in result.items("tune.trials"):
        if not isinstance(trial, Mapping) or trial.get("error"):
            continue
        ratio = amount(as_number(trial.get("ratio")))
        rows.append(
            [
                Cell(str(trial.get("name", "?"))),
                _number(amount(as_number(trial.get("elements_per_second")))),
                _number(milliseconds(as_number(trial.get("cpu_seconds_per_element")))),
                Cell(f"{ratio} of {trial.get('against', '?')}"),
            ]
        )
    columns = ("Setting", "Batches/s", "CPU, ms a batch", "Ratio")
    return Table("Settings that were tried", columns, rows) if rows else None


def environment(collection: Collection) -> Table | None:
    """Returns a column for each environment; rows that differ are marked."""
    columns: dict[str, tuple[list[str], dict[str, str]]] = {}
    named = [(str(g.index), r) for g in collection.groups for r in g.results]
    named += [(f"input {i}", r) for i, r in enumerate(collection.inputs, 1)]
    named += [(f"storage {i}", r) for i, r in enumerate(collection.probes, 1)]
    for name, result in named:
        described = result.get("environment")
        if not isinstance(described, Mapping) or not described:
            continue
        values = _flat(described)
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


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Returns name -> text of each value; nested names are joined by spaces."""
    texts = {}
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
