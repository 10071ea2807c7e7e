"""The table of a sweep in the rows of the publications, with their figures beside.

In: the rows of a sweep that have results. Out: model, batch, ranks, images/s, MB/s, CPU
and accelerator of each, and the published row that is nearest, as text and for JSON.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.models import publications
from benchmarks.sweeps.plan import NO_ACCELERATOR, Result
from benchmarks.sweeps.tier_rows import Row

_HEAD = (
    f"{'model':14}{'mode':6}{'batch':>6}{'ranks':>6}{'images/s':>10}{'a rank':>9}"
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


def as_json(row: Row) -> dict[str, Any]:
    """Returns the figures of a row, means over its repeats, and the published row.

    Returns:
        model, mode, batch_size of a rank, num_ranks, num_hosts, tier, data_dir, cache,
        accelerator, scaling, num_repeats, examples_per_second (also _per_rank).
        consumed_megabytes_per_second is what the pipeline read,
        storage_megabytes_per_second what servers and disks gave. host_cpu_fraction.
        accelerator_busy_fraction, and accelerator_busy_of: "gpu", whose use the driver
        measured, or "steps", the share of the time that was not spent waiting.
        gates_met: None without gates. published: the row of `publications`, or None.
        rate_over_published: ratio of the rates of one accelerator, or None.
    """
    series, place, results = row.series, row.place, row.results
    config: Mapping[str, Any] = results[0].get("config") or {}
    rate = statistics.mean(float(result["examples_per_second"]) for result in results)
    mode = series.mode or config.get("mode") or "train"
    accelerator = series.accelerator or config.get("emulate")
    accelerator = None if accelerator == NO_ACCELERATOR else accelerator
    published = publications.find(
        model=series.model,
        mode=mode,
        accelerator=accelerator,
        num_accelerators=place.num_ranks,
        is_local=(series.tier or "").startswith("local_"),
    )
    gates = [gate["passed"] for r in results for gate in r.get("gates", ())]
    batch_size = series.batch_size_per_rank(place.num_ranks)
    per_rank = rate / place.num_ranks
    return {
        **series.as_json(),
        "mode": mode,
        "batch_size": batch_size or config.get("batch_size"),
        "accelerator": accelerator,
        "num_ranks": place.num_ranks,
        "num_hosts": place.num_hosts,
        "num_repeats": len(results),
        "examples_per_second": rate,
        "examples_per_second_per_rank": per_rank,
        "consumed_megabytes_per_second": row.mean("consumed_megabytes_per_second"),
        "storage_megabytes_per_second": _mean([_storage(r) for r in results]),
        "host_cpu_fraction": _mean([_host_cpu(result) for result in results]),
        **_accelerator(results),
        "gates_met": all(gates) if gates else None,
        "published": published and published.as_json(),
        "rate_over_published": published
        and per_rank / published.images_per_second_per_accelerator,
    }


def _storage(result: Result) -> float | None:
    """Returns the MB/s that servers and disks gave in the timed steps."""
    section = result.get("storage") or {}
    given = [section.get(name) for name in ("bytes_from_server", "bytes_from_disk")]
    if None in given:
        return result.get("storage_megabytes_per_second")
    return sum(given) / result["timed_seconds"] / 1e6


def _host_cpu(result: Result) -> float | None:
    return (result.get("telemetry") or {}).get("host_cpu_fraction")


def _accelerator(results: Sequence[Result]) -> dict[str, Any]:
    """Returns how busy the accelerators were, and what says so."""
    used = _mean([_gpu(result) for result in results])
    if used is not None:
        return {"accelerator_busy_fraction": used, "accelerator_busy_of": "gpu"}
    busy = _mean([result.get("accelerator_utilization") for result in results])
    return {"accelerator_busy_fraction": busy, "accelerator_busy_of": "steps"}


def _gpu(result: Result) -> float | None:
    """Returns the mean use of all GPUs of all hosts, 0 to 1; None if it is unknown."""
    telemetry = result.get("telemetry") or {}
    hosts = telemetry.get("gpu_utilization_mean_per_host") or ()
    known = [value for host in hosts for value in host or () if value is not None]
    return statistics.mean(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known and len(known) == len(values) else None


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
        table.append(f"{_figures(row)}{beside}{_place(row, rows)}".rstrip())
    notes = [f"[{number}] {source}" for source, number in sources.items()]
    return [legend, head, *table, *notes]


def _source(published: Mapping[str, Any]) -> str:
    text = f"{published['source']}: {published['model']} {published['mode']}, "
    text += f"{published['images_per_second']:,.0f} images/s"
    if published["is_computed"]:
        text += ", computed from MB/s and bytes of a record"
    return text


def _figures(row: Mapping[str, Any]) -> str:
    met = {None: "-", True: "met", False: "not met"}[row["gates_met"]]
    return (
        f"{row['model']:14}{row['mode']:6}{row['batch_size'] or '-':>6}"
        f"{row['num_ranks']:6}{row['examples_per_second']:10,.0f}"
        f"{row['examples_per_second_per_rank']:9,.0f}"
        f"{_or_dash(row['consumed_megabytes_per_second'], ',.0f'):>8}"
        f"{_or_dash(row['storage_megabytes_per_second'], ',.0f'):>9}"
        f"{_or_dash(row['host_cpu_fraction'], '.0%'):>7}"
        f"{_or_dash(row['accelerator_busy_fraction'], '.1%'):>8}{met:>9}"
    )


def _published(row: Mapping[str, Any], sources: Mapping[str, int]) -> str:
    known = row["published"]
    if known is None:
        return f" | {'-':>9}{'-':>7}{'-':>9}{'-':>6}{'-':>8}  -"
    own = known["storage_megabytes_per_second"]
    return (
        f" | {known['images_per_second_per_accelerator']:9,.0f}"
        f"{row['rate_over_published']:6.2f}x"
        f"{_or_dash(own, ',.0f'):>9}{_or_dash(known['host_cpu_fraction'], '.0%'):>6}"
        f"{_or_dash(known['accelerator_busy_fraction'], '.0%'):>8}"
        f"  {known['num_accelerators']} {known['accelerator']} "
        f"[{sources[_source(known)]}]"
    )


def _place(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the settings that the columns do not have and that rows do not share."""
    names = ("tier", "scaling", "data_dir", "cache", "accelerator")
    differ = [n for n in names if len({other[n] for other in rows}) > 1]
    if "tier" in differ:  # it says where the data is, and the state of its cache
        differ = [n for n in differ if n not in ("data_dir", "cache")]
    texts = [str(row[name]) for name in differ if row[name]]
    return f"  {', '.join(texts)}" if texts else ""


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
