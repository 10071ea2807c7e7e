"""Charts of a sweep: scaling, placements, tiers, published tests; and of a prediction.

In: groups, or documents of benchmarks.sweep and benchmarks.advise. Out: charts of the
parts that a sweep has. Placements are the same ranks on one host and on several. A row
of a sweep stands beside the nearest published row. Tiers are the same run on data in
several places. Scaling is images/s of N ranks beside N times the images/s of a single
rank: a `SweptPoint` for each number of ranks, with speed-up, efficiency and its 95 %
interval, and in words the largest number of ranks that meets its gates.

Weak scaling keeps the batch size of a rank, strong scaling the global batch size. Both
use the same formula, on the means of the repeats: efficiency = rate_N / (N * rate_1).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.reporting import compare, tables
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result, labels
from benchmarks.results.other_results import (
    AdviceResult,
    PredictedRow,
    PublishedRow,
    SweepResult,
    SweptPoint,
    SweptRow,
    SweptTier,
)
from tfpipe.cli import text_table
from tfpipe.cli.text_table import Column
from tfpipe.errors import count_of
from tfpipe.pages import frame
from tfpipe.pages.frame import Bar, Chart, Plot, Spec, amount, milliseconds, percent

PARTS = ("compute", "input", "communication", "late")
MET = {None: "—", True: "met", False: "not met"}
_Series = tuple[str, Sequence[SweptPoint]]  # its label, and its points
# The ideal line, the measured line, intervals, and points in the color of their state.
_LAYERS = frame.declared("benchmarks.reporting", "scaling.json")
_COLORS = _LAYERS[-1]["encoding"]["color"]["scale"]


class PointRow(NamedTuple):
    """A point in a table: the label of its series, and the first point of its ranks."""

    label: str
    point: SweptPoint
    first: SweptPoint


def _over(row: PointRow, rate: float | None) -> str:
    return percent(rate and row.point.examples_per_second / rate)


def _share(part: str) -> Callable[[PointRow], str]:
    return lambda row: percent(row.point.critical_path.get(part))


# The columns of a point on pages and on terminals, which leave out columns of dashes.
POINTS: Sequence[Column[PointRow]] = (
    Column("Run", lambda r: r.label, is_left=True),
    Column("Hosts x ranks", lambda r: r.point.name),
    Column("Runs", lambda r: str(r.point.num_repeats)),
    Column(
        "Images/s",
        lambda r: frame.with_interval(
            r.point.examples_per_second, r.point.examples_per_second_interval
        ),
    ),
    Column(
        "Of the first",
        lambda r: "—" if r.point is r.first else _over(r, r.first.examples_per_second),
    ),
    Column("Of the ideal", lambda r: _over(r, r.point.ideal_examples_per_second)),
    Column("Speed-up", lambda r: frame.amount(r.point.speedup)),
    Column("Efficiency", lambda r: _efficiency(r.point)),
    Column("AU", lambda r: percent(r.point.accelerator_utilization)),
    Column("Binds", lambda r: r.point.binding or "—"),
    *(Column(part.capitalize(), _share(part)) for part in PARTS),
    Column("Cores", lambda r: percent(r.point.host_cpu_fraction)),
    Column(
        "MB/s into each host",
        lambda r: (
            ", ".join(map(frame.amount, r.point.received_mb_per_second_per_host)) or "—"
        ),
    ),
    Column("Link", lambda r: percent(r.point.network_utilization)),
    Column("Page cache", lambda r: r.point.cache or "—"),
    Column("Gates", lambda r: MET[r.point.gates_met]),
)


def rows_of(label: str, points: Sequence[SweptPoint]) -> list[PointRow]:
    """Returns the rows of a series for `POINTS`."""
    first: dict[int, SweptPoint] = {}
    return [PointRow(label, p, first.setdefault(p.num_ranks, p)) for p in points]


def points(rates: Mapping[int, Sequence[float]]) -> list[SweptPoint]:
    """Computes the scaling from the images/s of the repeats, by number of ranks.

    A number of ranks without values gets no point.
    """
    single, ordered = rates.get(1, ()), sorted(rates.items())
    return [point(ranks, repeats, single) for ranks, repeats in ordered if repeats]


def point(
    num_ranks: int, repeats: Sequence[float], single: Sequence[float]
) -> SweptPoint:
    """Computes the figures of a number of ranks."""
    every, alone = compare.of_repeats(repeats), compare.of_repeats(single)
    if every is None:
        raise ValueError(f"Images/s on {num_ranks} ranks must be given, got none.")
    speedup = every.mean / alone.mean if alone else None
    low, high = compare.ratio(every, alone)
    if num_ranks == 1:  # its efficiency is 1 by definition, whatever the repeats say
        low, high = 1.0, 1.0
    return SweptPoint(
        num_ranks=num_ranks,
        num_repeats=len(repeats),
        examples_per_second=every.mean,
        examples_per_second_interval=every.interval,
        efficiency=None if speedup is None else speedup / num_ranks,
        efficiency_low=None if low is None else low / num_ranks,
        efficiency_high=None if high is None else high / num_ranks,
        speedup=speedup,
    )


def scaling_chart(
    groups: Sequence[Group], sweeps: Sequence[Result[SweepResult]]
) -> Chart:
    """Draws the rate of each series over the number of ranks; no rows without data."""
    # The page of a sweep's folder has the runs themselves, with more figures.
    drawn = [*_of_groups(groups)] or [*_of_sweeps(sweeps)]
    return Chart(
        "scaling",
        "Ranks against the ideal line",
        [_sentence(*series) for series in drawn],
        list(zip(_COLORS["domain"], _COLORS["range"], strict=True)),
        [Plot(label, _drawing(points)) for label, points in drawn],
        *tables.view(POINTS, [row for series in drawn for row in rows_of(*series)]),
    )


def _of_groups(groups: Sequence[Group]) -> Iterator[_Series]:
    rated = [g for g in groups if g.rates and min(g.rates) > 0 and g.values.num_ranks]
    sized = [group for group in rated if group.values.config.batch_size]
    for is_weak, alike in ((True, rated), (False, sized)):
        for same in results.alike(alike, functools.partial(_constants, is_weak)):
            for index, line in enumerate(_lines(same)):
                if len(line) > 1:
                    yield _series(line, is_weak=is_weak, is_apart=index > 0)


def _constants(is_weak: bool, group: Group) -> list[Any]:
    """Returns all equal settings of a line of weak or strong scaling."""
    result, batch_size = group.median, _batch(group, is_weak)
    common = results.settings(result) | {"num_ranks": 0, "batch_size": batch_size}
    return [common, result.cache, results.environment(result)]


def _batch(group: Group, is_weak: bool) -> int:
    """Returns the batch size of a rank, or the global batch size."""
    return (group.values.config.batch_size or 0) * (1 if is_weak else _ranks(group))


def _lines(groups: Sequence[Group]) -> list[list[Group]]:
    """Returns groups on lines with one group a number of ranks.

    Groups of equal ranks ran on other machines, or on other numbers of hosts.
    """
    lines: list[list[Group]] = []
    for group in sorted(groups, key=lambda g: (_ranks(g), len(g.median.hosts))):
        free = [line for line in lines if _ranks(line[-1]) != _ranks(group)]
        if not free:
            lines.append([])
            free = lines[-1:]
        free[0].append(group)
    return lines


def _ranks(group: Group) -> int:
    return group.values.num_ranks or 1


def _series(groups: Sequence[Group], *, is_weak: bool, is_apart: bool) -> _Series:
    first, batch_size = groups[0].median, _batch(groups[0], is_weak)
    texts = results.texts(first)
    words = [
        *(texts["model"], f"batch {batch_size} {'a rank' if is_weak else 'in all'}"),
        *(texts["kind"], texts["data"], first.cache),
        f"on {', '.join(first.hosts)}" if is_apart else "",
    ]
    rated = points({_ranks(group): group.rates for group in groups})
    passed = [[gate.passed for gate in group.gates] for group in groups]
    return ", ".join(filter(None, words)), [
        dataclasses.replace(point, gates_met=all(own) if own else None)
        for point, own in zip(rated, passed, strict=True)
    ]


def _of_sweeps(sweeps: Sequence[Result[SweepResult]]) -> Iterator[_Series]:
    for series in (each for sweep in sweeps for each in sweep.values.series):
        batch = f"batch {series.batch_size}" if series.batch_size else ""
        words = (series.model, series.scaling, series.data_dir, batch)
        points = [p for p in series.points if p.num_ranks and p.examples_per_second]
        # Equal ranks on other hosts are no line: `placements` draws them.
        if len(points) == 1 or len({point.num_ranks for point in points}) > 1:
            yield ", ".join(filter(None, words)), points


def _sentence(label: str, points: Sequence[SweptPoint]) -> str:
    last = points[-1]
    rate = frame.amount(last.examples_per_second)
    text = f"{label}: {last.num_ranks} ranks reach {rate} images/s"
    if last.efficiency is not None:
        text += f", {percent(last.efficiency)} of {last.num_ranks} times one rank"
    passing = [point.num_ranks for point in points if point.gates_met]
    if passing:
        return f"{text}. The largest number of ranks that passes is {max(passing)}."
    is_gated = any(point.gates_met is not None for point in points)
    return f"{text}.{' No number of ranks passes its gates.' if is_gated else ''}"


def _efficiency(point: SweptPoint) -> str:
    text = percent(point.efficiency)
    low, high = point.efficiency_low, point.efficiency_high
    if point.num_ranks > 1 and low is not None and high is not None:
        text += f" ({percent(low)} to {percent(high)})"
    return text


def _drawing(points: Sequence[SweptPoint]) -> Spec:
    of_one_rank = points[0].examples_per_second / points[0].num_ranks
    rows: list[Spec] = [{"ranks": 0, "ideal": 0.0}]
    for point in points:
        rate, half = point.examples_per_second, point.examples_per_second_interval
        row = {"ranks": point.num_ranks, "ideal": of_one_rank * point.num_ranks}
        row |= {"low": max(0.0, rate - (half or 0.0)), "high": rate + (half or 0.0)}
        state = "gates are met" if point.gates_met else "measured"
        rows.append(row | {"rate": rate, "state": state})
    axis = {"values": [p.num_ranks for p in points], "format": "d", "grid": False}
    x = frame.quantity("ranks", title="ranks", axis=axis)
    return frame.spec(rows, height=280, encoding={"x": x}, layer=_LAYERS)


# Placements whose rates differ by less are as good as each other.
TOLERANCE = 0.03
# An accelerator decides alone only where the hosts have cores to spare.
_SPARE_CORES = 0.5
_SETTINGS = ("data_dir", "cache", "accelerator", "scaling")
_OWNERS = "this sweep, a rank", "published, a GPU"
_GIVERS: Mapping[str, Callable[[SweptTier], float | None]] = {
    "server": lambda tier: tier.bytes_from_server,
    "local disk": lambda tier: tier.bytes_from_disk,
    "page cache": lambda tier: tier.bytes_from_page_cache,
    "cache in RAM": lambda tier: tier.bytes_from_ram_cache,
}


@frame.of_each
def placements(index: int, sweep: Result[SweepResult]) -> Chart:
    """Draws equal numbers of ranks on one host and on several."""
    placed = list(_placed(sweep.values))
    plots = [plot for series in placed for plot in _plots(*series)]
    rows = [row for series in placed for row in rows_of(*series)]
    return Chart(
        f"placements-{index}",
        "The same ranks on one host and on several",
        [f"{label}: {verdict(points)}" for label, points in placed],
        frame.legend(PARTS) if len(plots) > len(placed) else [],
        plots,
        *tables.view(POINTS, rows),
    )


def verdict(placed: Sequence[SweptPoint]) -> str:
    """Returns whether the placement matters, and what binds, in a sentence or two."""
    first, *others = placed
    rates = [each.examples_per_second for each in placed]
    bound = {each.binding for each in placed}
    text = f"placement does not matter within {TOLERANCE:.0%}."
    if min(rates) < max(rates) * (1 - TOLERANCE):
        base = first.examples_per_second
        shares = [f"{p.name} {p.examples_per_second / base:.1%}" for p in others]
        text = f"placement matters: of the rate of {first.name}, {', '.join(shares)}."
    if bound == {""}:
        return text
    if len(bound) > 1:
        bindings = [f"{each.binding or 'nothing known'} {each.name}" for each in placed]
        return f"{text} What binds: {', '.join(bindings)}."
    (name,) = bound
    text += f" What binds everywhere: {name}."
    cores = [each.host_cpu_fraction or 0.0 for each in placed]
    if name == "accelerator" and max(cores) > _SPARE_CORES:
        busy = f"The cores were {max(cores):.0%} busy"
        text += f" {busy}: with faster accelerators they may bind."
    return text


def _placed(sweep: SweepResult) -> Iterator[tuple[str, list[SweptPoint]]]:
    for series in sweep.series:
        by_ranks: dict[int, list[SweptPoint]] = {}
        for point in series.points:
            if point.num_ranks and point.num_hosts and point.examples_per_second:
                by_ranks.setdefault(point.num_ranks, []).append(point)
        for ranks, several in by_ranks.items():
            if len(several) > 1:
                words = (series.model, series.accelerator)
                yield f"{' on '.join(filter(None, words))}, {ranks} ranks", several


def _plots(label: str, placed: Sequence[SweptPoint]) -> Iterator[Plot]:
    rates = [
        Bar(p.name, p.examples_per_second, ideal=p.ideal_examples_per_second)
        for p in placed
    ]
    yield Plot(label, frame.bars(rates, "images/s"))
    if any(p.critical_path for p in placed):
        shares = [(p.name, map(p.critical_path.get, PARTS)) for p in placed]
        title = f"{label}: critical path"
        yield frame.parted(title, "share of the time", PARTS, shares)


_Named = tuple[str, SweptRow]
# The columns of a row as storage tests publish them, on pages and on terminals.
ROWS: Sequence[Column[_Named]] = (
    Column("Run", lambda n: n[0], is_left=True),
    Column("Kind", lambda n: n[1].kind or "—"),
    Column("Precision", lambda n: n[1].precision or "—"),
    Column("Hosts", lambda n: str(n[1].num_hosts or "—")),
    Column("Batch", lambda n: str(n[1].batch_size or "—")),
    Column("Images/s", lambda n: amount(n[1].examples_per_second)),
    Column("A rank", lambda n: amount(n[1].examples_per_second_per_rank)),
    Column("Read, MB/s", lambda n: amount(n[1].consumed_megabytes_per_second)),
    Column("Storage, MB/s", lambda n: amount(n[1].storage_megabytes_per_second)),
    Column("CPU", lambda n: percent(n[1].host_cpu_fraction)),
    Column("Accelerator", lambda n: percent(n[1].accelerator_busy_fraction)),
    Column("Gate", lambda n: MET[n[1].gates_met]),
    Column("Published, a GPU", lambda n: amount(_of_gpu(n[1]))),
    Column("Ours", lambda n: percent(n[1].rate_over_published)),
    Column(
        "Published storage, MB/s",
        lambda n: amount(_there(n[1]).storage_megabytes_per_second),
    ),
    Column("Published CPU", lambda n: percent(_there(n[1]).host_cpu_fraction)),
    Column(
        "Published accelerator",
        lambda n: percent(_there(n[1]).accelerator_busy_fraction),
    ),
    Column("On", lambda n: _on(n[1]), is_left=True),
    Column("Source", lambda n: _there(n[1]).source or "—", is_left=True),
)


def named_rows(rows: Sequence[SweptRow]) -> list[_Named]:
    """Returns the rows with names; a tier says data set and cache, and comes first."""
    parts = [
        {
            "tier": row.tier,
            "model": row.model if row.mode == "train" else f"{row.model} {row.mode}",
            "ranks": count_of(row.num_ranks, "rank"),
        }
        | ({} if row.tier else {key: getattr(row, key) for key in _SETTINGS})
        for row in rows
    ]
    return list(zip(labels(parts, "tier", "model", "ranks"), rows, strict=True))


def row_lines(rows: Sequence[SweptRow]) -> list[str]:
    """Returns the rows as a printed table, and what stands beside them."""
    if not rows:
        return []
    named = named_rows(rows)
    return [
        "Rows as storage tests publish them. MB/s: what the pipeline read, and what "
        "storage gave of it.",
        *text_table.lines(text_table.filled(ROWS, named), named),
        *(_beside(*each) for each in named if _of_gpu(each[1])),
    ]


@frame.of_each
def beside_publications(index: int, sweep: Result[SweepResult]) -> Chart | None:
    """Draws rows of a sweep beside published rows: a rank beside a GPU."""
    rows = [row for row in sweep.values.rows if row.examples_per_second_per_rank]
    named = named_rows(rows)
    drawn = [(name, row) for name, row in named if _of_gpu(row)]
    if not drawn:
        return None
    rates = [(name, [r.examples_per_second_per_rank, _of_gpu(r)]) for name, r in drawn]
    title, unit = "Images/s of one accelerator", "images/s"
    return Chart(
        f"published-{index}",
        "Beside the published tests",
        [_beside(name, row) for name, row in drawn],
        frame.legend(_OWNERS),
        [frame.parted(title, unit, _OWNERS, rates, is_stacked=False)],
        *tables.view(ROWS, named),
    )


def _of_gpu(row: SweptRow) -> float | None:
    return _there(row).images_per_second_per_accelerator


def _there(row: SweptRow) -> PublishedRow:
    return row.published or PublishedRow()


def _beside(name: str, row: SweptRow) -> str:
    published = amount(_of_gpu(row))
    ours = amount(row.examples_per_second_per_rank)
    text = f"{name}: {ours} images/s a rank; published {published} a GPU, on {_on(row)}"
    apart = f"; not compared: {row.not_compared}" if row.not_compared else ""
    return f"{text}{apart}."


def _on(row: SweptRow) -> str:
    """Returns the accelerators of the published row, such as 72 v100."""
    there = _there(row)
    count = there.num_accelerators
    return "—" if count is None else f"{count} {there.accelerator or '—'}"


_NamedTier = tuple[str, SweptTier]


def _given(get: Callable[[SweptTier], float | None]) -> Callable[[_NamedTier], str]:
    return lambda named: amount(get(named[1]), scale=1e-6)


# The columns of a tier, on pages and on terminals.
TIERS: Sequence[Column[_NamedTier]] = (
    Column("Tier", lambda n: n[0], is_left=True),
    Column("images/s", lambda n: amount(n[1].examples_per_second)),
    Column("CPU, ms an image", lambda n: milliseconds(n[1].cpu_seconds_per_example)),
    Column("Stall", lambda n: percent(n[1].stall_fraction)),
    Column("Binding", lambda n: n[1].binding or "—", is_left=True),
    Column("State", lambda n: n[1].state or "—", is_left=True),
    *(Column(f"{giver}, MB", _given(get)) for giver, get in _GIVERS.items()),
)


def named_tiers(rows: Sequence[SweptTier]) -> list[_NamedTier]:
    """Returns the tiers with their names, for `TIERS`."""
    parts = [
        {
            **{key: getattr(row, key) for key in ("tier", "model", "mode")},
            "batch": row.batch_size and f"batch {row.batch_size}",
            "accelerator": row.accelerator,
            "ranks": count_of(row.num_ranks, "rank"),
        }
        for row in rows
    ]
    return list(zip(labels(parts, "tier"), rows, strict=True))


@frame.of_each
def tiers(index: int, sweep: Result[SweepResult]) -> Chart | None:
    """Draws images/s and bytes of the tiers of a sweep."""
    rows = [row for row in sweep.values.tiers if row.examples_per_second]
    if not rows:
        return None
    named = named_tiers(rows)
    rates = [Bar(name, row.examples_per_second or 0.0) for name, row in named]
    plots = [Plot("Rate", frame.bars(rates, "images/s"))]
    megabytes = [
        (name, [(size := get(row)) and size / 1e6 for get in _GIVERS.values()])
        for name, row in named
    ]
    if any(any(sizes) for _, sizes in megabytes):
        title = "Bytes of the timed steps, by the place they came from"
        plots.append(frame.parted(title, "MB", _GIVERS, megabytes))
    return Chart(
        f"tiers-{index}",
        "Tiers: the same run on data in several places",
        [
            f"{name}: {amount(row.examples_per_second)} images/s; the run waited "
            f"for: {row.binding or '?'}."
            for name, row in named
        ],
        frame.legend(_GIVERS),
        plots,
        *tables.view(TIERS, named),
    )


# The columns of a prediction, on pages and on terminals.
PREDICTIONS: Sequence[Column[PredictedRow]] = (
    Column("accelerators", lambda r: f"{r.num_accelerators:,}"),
    Column("hosts", lambda r: f"{r.num_hosts:,}"),
    Column("images/s", lambda r: amount(r.images_per_second)),
    Column("busy", lambda r: percent(r.busy_share)),
    Column("cores", lambda r: amount(r.cores_used)),
    Column("of all", lambda r: percent(r.cores_share)),
    Column("bound by", lambda r: r.binding or "—", is_left=True),
    Column("1st epoch, images/s", lambda r: amount(r.first_epoch_images_per_second)),
    Column(
        "1st epoch, GB/s",
        lambda r: amount(r.first_epoch_storage_bytes_per_second, scale=1e-9),
    ),
    Column(
        "1st epoch, requests/s", lambda r: amount(r.first_epoch_requests_per_second)
    ),
    Column("1st epoch, bound by", lambda r: r.first_epoch_binding or "—", is_left=True),
)


@frame.of_each
def predictions(index: int, result: Result[AdviceResult]) -> Chart:
    """Returns the answer and the table of a prediction."""
    rows = [row for row in result.values.rows if row.num_accelerators]
    facts = result.values.facts
    names = (facts.get(key, {}).get("value") for key in ("model", "accelerator"))
    title = " on ".join(str(name) for name in names if name) or result.name
    name, table = f"prediction-{index}", tables.view(PREDICTIONS, rows)
    return Chart(name, f"Predicted: {title}", result.values.sentences, [], [], *table)
