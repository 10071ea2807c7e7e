"""Charts of a sweep: placements, tiers, published tests; and of a prediction.

In: documents of benchmarks.sweep. Out: charts of the parts that a sweep has. Placements
are the same ranks on one host and on several. A row of a sweep stands beside the
nearest published row. Tiers are the same run on data in several places.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.reporting import tables
from benchmarks.reporting.charts.scaling import MET, PARTS, POINTS, rows_of
from benchmarks.results.collection import Result, labels
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
from tfpipe.pages.frame import Bar, Chart, Plot, amount, milliseconds, percent

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
    placed = list(_series(sweep.values))
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


def _series(sweep: SweepResult) -> Iterator[tuple[str, list[SweptPoint]]]:
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
    """Returns the rows with their names, for `ROWS`.

    A tier says data set and cache, and comes first: a small screen cuts names.
    """
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
        *(_sentence(*each) for each in named if _of_gpu(each[1])),
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
        [_sentence(name, row) for name, row in drawn],
        frame.legend(_OWNERS),
        [frame.parted(title, unit, _OWNERS, rates, is_stacked=False)],
        *tables.view(ROWS, named),
    )


def _of_gpu(row: SweptRow) -> float | None:
    return _there(row).images_per_second_per_accelerator


def _there(row: SweptRow) -> PublishedRow:
    return row.published or PublishedRow()


def _sentence(name: str, row: SweptRow) -> str:
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
