"""The table of a sweep in the rows of the publications, with their figures beside.

In: the finished runs of a sweep. Out: model, batch, ranks, images/s, MB/s, CPU and
accelerator, and the nearest published row, as typed rows and as text.
"""

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from benchmarks.models import catalog
from benchmarks.planning import published
from benchmarks.planning.plan import NO_ACCELERATOR
from benchmarks.planning.session import Repeats
from benchmarks.results.other_results import PublishedRow, SweptRow
from benchmarks.results.train_result import SourceBytes, TrainResult
from tfpipe.cli import text_table
from tfpipe.cli.text_table import Column, or_dash

MET = {None: "-", True: "met", False: "not met"}
_Columns = Sequence[Column[SweptRow]]
_COLUMNS: _Columns = (
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


def row(repeats: Repeats) -> SweptRow:
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
        storage_megabytes_per_second=repeats.mean(_storage),
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


def _storage(result: TrainResult) -> float | None:
    source = result.storage or SourceBytes()
    server, disk = source.bytes_from_server, source.bytes_from_disk
    if server is None or disk is None or not result.timed_seconds:
        return result.storage_megabytes_per_second
    return (server + disk) / result.timed_seconds / 1e6


def lines(rows: Sequence[SweptRow]) -> list[str]:
    """Returns the printed table of rows, and its sources below it.

    The columns of the publications are left out where none of the rows was published.
    """
    if not rows:
        return []
    sources = list(dict.fromkeys(_source(r.published) for r in rows if r.published))
    columns = (*_COLUMNS, *(_beside(sources) if sources else ()), _differing(rows))
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
