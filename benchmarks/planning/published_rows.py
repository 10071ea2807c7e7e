"""The table of a sweep in the rows of the publications, with their figures beside.

In: the finished runs of a sweep. Out: model, batch, ranks, images/s, MB/s, CPU and
accelerator, and the nearest published row, as text and for JSON.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.models import catalog
from benchmarks.planning import published
from benchmarks.planning.plan import NO_ACCELERATOR
from benchmarks.planning.session import Repeats
from benchmarks.results.train_result import SourceBytes, TrainResult

MET = {None: "-", True: "met", False: "not met"}
_HEAD = (
    f"{'model':14}{'mode':6}{'kind':10}{'precision':>10}{'batch':>6}{'hosts':>6}"
    f"{'ranks':>6}{'images/s':>10}{'a rank':>9}"
    f"{'read':>8}{'storage':>9}{'CPU':>7}{'accel.':>8}{'gate':>9}"
)
_PUBLISHED_HEAD = (
    f" | {'published':>9}{'ours':>7}{'storage':>9}{'CPU':>6}{'accel.':>8}  on"
)
_LEGEND = (
    "Rows as storage tests publish them. read, storage: MB/s that the pipeline read, "
    "and that storage gave of it."
)
_PUBLISHED_LEGEND = (
    " published: images/s of one GPU, with the MB/s of all; ours: our rate of one rank "
    "over it."
)


def as_json(repeats: Repeats) -> dict[str, Any]:
    """Returns the figures of a row, means over its repeats, and the published row.

    Returns:
        model, mode, kind ("real", "synthetic" or "emulated"), precision, batch_size of
        a rank, num_ranks, num_hosts, tier, data_dir, cache, accelerator, scaling,
        num_repeats, examples_per_second (also _per_rank).
        consumed_megabytes_per_second: read by the pipeline.
        storage_megabytes_per_second: given by servers and disks. host_cpu_fraction.
        accelerator_busy_fraction, and accelerator_busy_of: "gpu", whose use the driver
        measured, or "steps", the share of the time without waits for input.
        gates_met: None without gates. published: the nearest published row, or None.
        not_compared: why our rate must not be laid over the published one; "" if it may
        be. rate_over_published: ratio of the rates of an accelerator, or None.
    """
    series, num_ranks = repeats.series, repeats.placement.num_ranks
    first = repeats.values[0]
    config, rate = first.config, statistics.mean(repeats.rates)
    mode = series.mode or config.mode or "train"
    emulated = series.accelerator or config.emulate
    accelerator = None if emulated == NO_ACCELERATOR else emulated
    hosts = repeats.placement.num_hosts or len(first.environment.hosts) or None
    row = published.find(
        model=series.model,
        mode=mode,
        accelerator=accelerator,
        num_accelerators=num_ranks,
        is_local=(series.tier or "").startswith("local_"),
    )
    per_rank = rate / num_ranks
    different = _differences(row, first) if row else ""
    return {
        **dataclasses.asdict(series),
        "mode": mode,
        "batch_size": series.batch_size_per_rank(num_ranks) or config.batch_size,
        "accelerator": accelerator,
        "num_ranks": num_ranks,
        "num_hosts": hosts,
        "kind": first.kind,
        "precision": config.precision,
        "num_repeats": len(repeats.results),
        "examples_per_second": rate,
        "examples_per_second_per_rank": per_rank,
        "consumed_megabytes_per_second": repeats.mean(_consumed),
        "storage_megabytes_per_second": repeats.mean(_storage),
        "host_cpu_fraction": repeats.mean(lambda r: r.telemetry.host_cpu_fraction),
        **_accelerator(repeats),
        "gates_met": repeats.are_gates_met,
        "published": row and row.as_json(),
        "not_compared": different,
        "rate_over_published": per_rank / row.images_per_second_per_accelerator
        if row and not different
        else None,
    }


def _differences(row: published.Publication, result: TrainResult) -> str:
    """Returns why a run must not be compared with a published row; "" if it may be."""
    config, model = result.config, catalog.MODELS[row.model]
    megabytes, rate = result.consumed_megabytes_per_second, result.examples_per_second
    return row.differences(
        image_size=config.image_size or model.image_size,
        decodes=not config.read_only and not config.synthetic,
        record_bytes=megabytes and rate and megabytes * 1e6 / rate,
    )


def _consumed(result: TrainResult) -> float | None:
    return result.consumed_megabytes_per_second


def _storage(result: TrainResult) -> float | None:
    """Returns the MB/s from servers and disks in the timed steps."""
    source = result.storage or SourceBytes()
    server, disk = source.bytes_from_server, source.bytes_from_disk
    if server is None or disk is None or not result.timed_seconds:
        return result.storage_megabytes_per_second
    return (server + disk) / result.timed_seconds / 1e6


def _accelerator(repeats: Repeats) -> dict[str, Any]:
    """Returns the busy share of the accelerators, and its source."""
    used = repeats.mean(lambda r: r.telemetry.gpu_utilization)
    if used is not None:
        return {"accelerator_busy_fraction": used, "accelerator_busy_of": "gpu"}
    busy = repeats.mean(lambda r: r.accelerator_utilization)
    return {"accelerator_busy_fraction": busy, "accelerator_busy_of": "steps"}


def lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the printed table of rows from `as_json`, and its sources below it.

    The columns of the publications are left out where none of the rows was published.
    """
    sources: dict[str, int] = {}
    for row in rows:
        if row["published"]:
            sources.setdefault(_source(row["published"]), 1 + len(sources))
    if not rows:
        return []
    head, legend = _HEAD, _LEGEND
    if sources:
        head, legend = head + _PUBLISHED_HEAD, legend + _PUBLISHED_LEGEND
    table = []
    for row in rows:
        beside = _published(row, sources) if sources else ""
        table.append(f"{_figures(row)}{beside}{_differing(row, rows)}".rstrip())
    notes = [f"[{index}] {source}" for source, index in sources.items()]
    apart = {
        f"[{sources[_source(row['published'])]}] is not compared with {row['model']}: "
        f"{row['not_compared']}."
        for row in rows
        if row["published"] and row["not_compared"]
    }
    return [legend, head, *table, *notes, *sorted(apart)]


def _source(published: Mapping[str, Any]) -> str:
    text = f"{published['source']}: {published['model']} {published['mode']}, "
    text += f"{published['images_per_second']:,.0f} images/s"
    if published["is_computed"]:
        text += ", computed from MB/s and bytes of a record"
    return text


def _figures(row: Mapping[str, Any]) -> str:
    met = MET[row["gates_met"]]
    return (
        f"{row['model']:14}{row['mode']:6}{row['kind'] or '-':10}"
        f"{row['precision'] or '-':>10}{row['batch_size'] or '-':>6}"
        f"{row['num_hosts'] or '-':>6}"
        f"{row['num_ranks']:6}{row['examples_per_second']:10,.0f}"
        f"{row['examples_per_second_per_rank']:9,.0f}"
        f"{or_dash(row['consumed_megabytes_per_second'], ',.0f'):>8}"
        f"{or_dash(row['storage_megabytes_per_second'], ',.0f'):>9}"
        f"{or_dash(row['host_cpu_fraction'], '.0%'):>7}"
        f"{or_dash(row['accelerator_busy_fraction'], '.1%'):>8}{met:>9}"
    )


def _published(row: Mapping[str, Any], sources: Mapping[str, int]) -> str:
    published = row["published"]
    if published is None:
        return f" | {'-':>9}{'-':>7}{'-':>9}{'-':>6}{'-':>8}  -"
    return (
        f" | {published['images_per_second_per_accelerator']:9,.0f}"
        f"{or_dash(row['rate_over_published'], '.2f'):>6}"
        f"{'x' if row['rate_over_published'] else ' '}"
        f"{or_dash(published['storage_megabytes_per_second'], ',.0f'):>9}"
        f"{or_dash(published['host_cpu_fraction'], '.0%'):>6}"
        f"{or_dash(published['accelerator_busy_fraction'], '.0%'):>8}"
        f"  {published['num_accelerators']} {published['accelerator']} "
        f"[{sources[_source(published)]}]"
    )


def _differing(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the settings without a column that differ between rows."""
    names = ("tier", "scaling", "data_dir", "cache", "accelerator")
    differ = [n for n in names if len({other[n] for other in rows}) > 1]
    if "tier" in differ:  # the tier says where the data is, and the cache's state
        differ = [n for n in differ if n not in ("data_dir", "cache")]
    texts = [str(row[name]) for name in differ if row[name]]
    return f"  {', '.join(texts)}" if texts else ""


def or_dash(value: float | None, form: str) -> str:
    """Returns a number in a form such as ".1%"; a dash if the number is unknown."""
    return "-" if value is None else format(value, form)
