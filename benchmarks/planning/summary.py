"""The answer about a run: as data for JSON, a page and other answers.

In: facts of flags and results. Out: an `Advice` with the prediction for 1 to N
accelerators, sizes and times; the payoffs of remedies, the best remedy first; and the
same as lines for people. A gain is the ratio of two predictions. The ratios of CPU time
and of bytes were measured, and each payoff names the source.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tfpipe
from benchmarks.models.accelerators import Accelerators
from benchmarks.planning import ceilings, sources
from benchmarks.planning.ceilings import Prediction, Scenario, StoreUse
from benchmarks.planning.sources import Fact, Facts
from benchmarks.reporting.charts import sweeps
from benchmarks.results.other_results import PredictedRow
from benchmarks.system.figures import size_text
from tfpipe.cli import text_table
from tfpipe.cli.text_table import Column
from tfpipe.errors import count_of

_BINDING = {
    "accelerator": "the accelerators",
    "cores": "the cores of the hosts",
    "storage": "the storage",
    "network": "the network of the hosts",
    "requests": "the requests of the storage",
}
LEAST_GAIN = 1.03

_MARGIN = 1 / 0.875  # a resized image is larger than its crop, as for evaluation
_DECODED_CPU = 0.132, "2026-11-22-tuning-cache.json: cached images over encoded ones"
_SHARD_CACHE_CPU = 1.006, "2026-11-23-shard-cache.json"
_READ_ONLY_MS = 0.154, "2026-11-23-shard-cache.json: local files, not decoded"
_SERVICE_SOURCE = "2026-11-23-service.json: images a CPU-second, of those in process"
# 300 photographs converted with --short_side=256 and 342 have 36.8 and 70.0 kB. The
# bytes grow with the pixels, up to the size of the originals.
_RESIZED = (256, 36.8e3), (342, 70.0e3)
_DOING = {"train": "training", "infer": "running"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Payoff:
    """A remedy.

    Attributes:
        pays: Whether the remedy is possible and gains 3 % or more.
        gain: Images/s with the remedy over images/s without, in later epochs.
    """

    name: str
    pays: bool
    gain: float
    images_per_second: float
    binding: str
    cost: str
    source: str


def find_payoffs(whole: Facts) -> list[Payoff]:
    """Returns the remedies, in the order of their gains."""
    before = sources.scenario_of(whole)
    decoded = before.num_images * 3 * (before.image_size * _MARGIN) ** 2
    payoffs = [
        _shard_cache(whole, before),
        _ram_cache(before, "records", before.num_bytes, 1.0, "size of the data set"),
        _ram_cache(before, "decoded images", decoded, *_DECODED_CPU),
        _resized(whole, before),
        *(_faster_path(before, *path) for path in _COSTS_OF_PATHS.items()),
        _remote(before),
    ]
    return sorted(payoffs, key=lambda payoff: (-payoff.pays, -payoff.gain))


def _payoff(
    name: str,
    before: Scenario,
    *,
    cost: str,
    source: str,
    is_possible: bool = True,
    limit: tuple[str, float] = ("", math.inf),
    **changes: Any,
) -> Payoff:
    """Returns the payoff; `limit` is one more resource with its ceiling in images/s."""
    predicted = ceilings.predict(dataclasses.replace(before, **changes))
    rate, binding = predicted.images_per_second, predicted.word
    if limit[1] < rate:
        binding, rate = limit
    gain = rate / ceilings.predict(before).images_per_second
    return Payoff(
        name=name,
        pays=is_possible and gain >= LEAST_GAIN,
        gain=gain,
        images_per_second=rate,
        binding=binding,
        cost=cost,
        source=source,
    )


def _shard_cache(whole: Facts, before: Scenario) -> Payoff:
    room, size = before.local_disk_room, before.num_bytes
    hits = max(ceilings.shard_cache_hits(room, size), before.cached)
    cpu = before.cpu_ms * _SHARD_CACHE_CPU[0]
    changes: dict[str, Any] = {"cached": hits, "cpu_ms": cpu}
    times = ceilings.epochs(dataclasses.replace(before, **changes))
    # Memory gives its part of the hits, and the disk the rest.
    from_disk = (hits - before.cached) * before.record
    disk = before.num_hosts * before.local_disk
    return _payoff(
        "shard cache",
        before,
        cost=f"{size_text(min(room, size))} on the local disk of each host, which "
        f"gives {hits:.0%} of the bytes once it is full, after "
        f"{count_of(times.filling_epochs, 'epoch')}; a first epoch of "
        f"{_time(times.first_seconds)}",
        source=f"{_SHARD_CACHE_CPU[1]}; disk: {whole['local_disk'].source}",
        is_possible=room > 0,
        limit=("local disk", disk / from_disk if from_disk else math.inf),
        **changes,
    )


def _ram_cache(
    before: Scenario, what: str, needed: float, cpu_ratio: float, source: str
) -> Payoff:
    fits = needed <= before.page_cache
    text = "" if fits else f", which does not fit into {size_text(before.page_cache)}"
    return _payoff(
        f"RAM cache of {what}",
        before,
        cost=f"{size_text(needed)} of memory on each host{text}",
        source=source,
        is_possible=fits,
        cached=1.0,
        cpu_ms=before.cpu_ms * cpu_ratio,
    )


def _resized(whole: Facts, before: Scenario) -> Payoff:
    side = before.image_size * _MARGIN
    (x0, y0), (x1, y1) = _RESIZED
    size = y0 + (y1 - y0) / (x1**2 - x0**2) * (side**2 - x0**2)
    old, cached = before.record, before.cached
    size = min(max(size, y0 * (side / x0) ** 2), old)
    if whole["cached"].origin == "table":  # more of the smaller records fit
        cached = ceilings.page_cache_hits(
            before.page_cache, before.num_images * size, before.num_hosts
        )
    cpu = sources.cpu_milliseconds(size) / sources.cpu_milliseconds(old)
    return _payoff(
        f"records of a short side of {side:.0f} pixels",
        before,
        cost=f"a conversion with --short_side={side:.0f}, once; records of "
        f"{size_text(size)} in place of {size_text(old)}; other pixels, and no crop "
        "that is larger",
        source=f"300 photographs; CPU time: {sources.CPU_SOURCE}",
        is_possible=size < old,
        record=size,
        cached=cached,
        cpu_ms=before.cpu_ms * cpu,
    )


_COSTS_OF_PATHS = {
    "entry_points": "python -m converters.verify DIR --write_entry_points, once; a "
    "side file of 0.6 % of the bytes; the records stay as they are; baseline JPEGs and "
    "the native op",
    "whole_batches": "--whole_batches=yes; memory of a batch for each parallel call; "
    "needs the native op",
}


def _faster_path(before: Scenario, path: str, cost: str) -> Payoff:
    has_it, (ratio, source) = bool(getattr(before, path)), sources.PATHS[path]
    return _payoff(
        path.replace("_", " "),
        before,
        cost="it is there already" if has_it else cost,
        source=source,
        is_possible=not has_it,
        cpu_ms=before.cpu_ms * (1 if has_it else ratio),
    )


def _remote(before: Scenario) -> Payoff:
    pixels = 3 * before.image_size**2
    most = before.num_hosts * before.link / pixels
    cpu = min(before.cpu_ms, _READ_ONLY_MS[0])
    changes: dict[str, Any] = {"link": math.inf, "cpu_ms": cpu}
    after = ceilings.predict(dataclasses.replace(before, **changes))
    rate = min(after.images_per_second, most)
    cores = rate * before.cpu_seconds / tfpipe.ServicePayoff.efficiency
    return _payoff(
        "preprocessing on other hosts",
        before,
        cost=f"{count_of(math.ceil(cores), 'core')} on other hosts, and "
        f"{rate * pixels / before.num_hosts / 1e9:,.2f} GB/s of pixels into each host",
        source=f"pixels of uint8; {_SERVICE_SOURCE}; on the trainer: "
        f"{_READ_ONLY_MS[1]}",
        limit=("network", most),
        **changes,
    )


def _time(seconds: float) -> str:
    return f"{seconds / 60:,.1f} minutes" if seconds >= 90 else f"{seconds:,.1f} s"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice:
    """The answer about a run; the names are the keys of JSON.

    Attributes:
        rows: The prediction for 1 to N accelerators; the last row is that of the run.
        first_epoch_use: What the first epoch takes from the storage.
        later_epoch_use: What an epoch with full caches takes from the storage.
        checkpoint: None without training or parameters.
    """

    num_ranks: int
    num_hosts: int
    examples_per_second: float
    accelerator_utilization: float
    stall_fraction: float
    cpu_seconds_per_example: float
    cores_per_accelerator: float
    binding: str
    sentences: Sequence[str]
    service: tfpipe.ServicePayoff
    facts: Facts
    rows: Sequence[PredictedRow]
    payoffs: Sequence[Payoff]
    sizing: ceilings.Sizing
    epochs: ceilings.Epochs
    first_epoch_use: StoreUse
    later_epoch_use: StoreUse
    checkpoint: ceilings.CheckpointCost | None

    def as_json(self) -> dict[str, Any]:
        own = {"service": self.service.as_json(), "facts": sources.as_json(self.facts)}
        return {**dataclasses.asdict(self), **own}


def answer(start: Facts, accelerators: Accelerators, mode: str) -> Advice:
    """Returns everything that facts say about a run."""
    whole = sources.complete(start, accelerators, mode)
    scenario = sources.scenario_of(whole)
    predicted, times = ceilings.predict(scenario), ceilings.epochs(scenario)
    service = tfpipe.ServicePayoff(
        rate=predicted.ceilings["cores"],
        num_cores=scenario.num_cores,
        demand=predicted.ceilings["accelerator"],
        bytes_per_image=3 * scenario.image_size**2,
    )
    return Advice(
        num_ranks=scenario.num_accelerators,
        num_hosts=scenario.num_hosts,
        examples_per_second=predicted.images_per_second,
        accelerator_utilization=predicted.busy_share,
        stall_fraction=1 - predicted.busy_share,
        cpu_seconds_per_example=scenario.cpu_seconds,
        cores_per_accelerator=predicted.needs.cores / scenario.num_accelerators,
        binding=predicted.word,
        sentences=[*_sentences(scenario, predicted, mode), service.sentence],
        service=service,
        facts=whole,
        rows=[
            _row(start, accelerators, mode, count)
            for count in _counts(
                scenario.num_accelerators, scenario.accelerators_per_host
            )
        ],
        payoffs=find_payoffs(whole),
        sizing=ceilings.sizing(scenario),
        epochs=times,
        first_epoch_use=ceilings.store_use(ceilings.first_epoch(scenario)),
        later_epoch_use=ceilings.store_use(scenario),
        checkpoint=ceilings.checkpoint(scenario, times.later_seconds)
        if mode == "train"
        else None,
    )


def _counts(most: int, per_host: int) -> list[int]:
    """Returns powers of two in a host, then of hosts, and the most accelerators."""
    powers = [1 << power for power in range(most.bit_length())]
    within = [count for count in powers if count < per_host]
    hosts = [count * per_host for count in powers if count * per_host < most]
    return [*within, *hosts, most]


def _row(
    start: Facts, accelerators: Accelerators, mode: str, num_accelerators: int
) -> PredictedRow:
    changed = {**start, "num_accelerators": Fact(float(num_accelerators), "")}
    scenario = sources.scenario_of(sources.complete(changed, accelerators, mode))
    predicted = ceilings.predict(scenario)
    figures: dict[str, Any] = {}
    epochs = {"": scenario, "first_epoch_": ceilings.first_epoch(scenario)}
    for prefix, epoch in epochs.items():
        each = ceilings.predict(epoch)
        own = {
            **dataclasses.asdict(each.demand),
            "images_per_second": each.images_per_second,
            "binding": each.word,
            "ceilings": {
                k: v if v < math.inf else None for k, v in each.ceilings.items()
            },
        }
        figures |= {f"{prefix}{name}": value for name, value in own.items()}
    cores, _ = figures.pop("cores"), figures.pop("first_epoch_cores")
    return PredictedRow(
        num_accelerators=num_accelerators,
        num_hosts=scenario.num_hosts,
        busy_share=predicted.busy_share,
        cores_used=cores,
        cores_share=cores / scenario.num_cores,
        **figures,
    )


def _sentences(scenario: Scenario, steady: Prediction, mode: str) -> list[str]:
    cold = ceilings.predict(ceilings.first_epoch(scenario))
    count, hosts = scenario.num_accelerators, scenario.num_hosts
    storage, later = (
        f"{_gb(each.demand.storage_bytes_per_second)} GB/s" for each in (cold, steady)
    )
    if later != storage:
        storage += f" in the first epoch and {later} with full caches"
    word = "gives" if steady.binding in ("storage", "requests") else "must give"
    cores, total = steady.demand.cores, scenario.num_cores
    sentences = [
        f"{count:,} {scenario.accelerator.upper()} on {count_of(hosts, 'host')} "
        f"with {scenario.accelerators_per_host}{' each' * (hosts > 1)}, "
        f"{_DOING.get(mode, mode)} {scenario.model} at {scenario.image_size} pixels "
        f"with {scenario.cached:.0%} of the bytes cached, "
        f"{'are' if count > 1 else 'is'} bound by {_bound(steady)}; the storage {word} "
        f"{storage}, and {cores:,.1f} of {total:,.10g} cores ({cores / total:.0%}) are "
        "busy."
    ]
    if cold.binding != steady.binding:
        sentences.append(f"The first epoch is bound by {_bound(cold)}.")
    if steady.binding != "accelerator":
        sentences.append(
            "Accelerators that never wait need "
            f"{_gb(cold.needs.storage_bytes_per_second)} GB/s, "
            f"{cold.needs.requests_per_second:,.0f} requests/s and "
            f"{cold.needs.cores:,.1f} cores in the first epoch."
        )
    return [*sentences, *_next(scenario, steady)]


def _bound(predicted: Prediction) -> str:
    return (
        f"{_BINDING[predicted.binding]}: {predicted.images_per_second:,.0f} images/s, "
        f"{predicted.busy_share:.0%} busy"
    )


def _next(scenario: Scenario, steady: Prediction) -> list[str]:
    """Returns the sentence on the limit behind the binding one, if there is one."""
    name = steady.next_binding
    rate = steady.ceilings[name]
    if not math.isfinite(rate):
        return []
    text = f"The next limit is {_BINDING[name]}, at {rate:,.0f} images/s"
    is_total = name in ("storage", "requests") and scenario.shared_storage
    if steady.binding == "accelerator" and is_total:
        demand = steady.ceilings["accelerator"] / scenario.num_accelerators
        text += f", which {math.floor(rate / demand):,} accelerators take"
    return [f"{text}."]


def _gb(rate: float) -> str:
    """Returns bytes a second in GB, with two significant digits."""
    return f"{rate / 1e9:,.1f}" if rate >= 1e9 else f"{rate / 1e9:.2g}"


_PAYS = {True: "yes:", False: "no: "}
_PAYOFFS: Sequence[Column[Payoff]] = (
    Column("What would pay", lambda p: f"{_PAYS[p.pays]} {p.name}", is_left=True),
    Column("gain", lambda p: f"{p.gain:.2f}"),
    Column("images/s", lambda p: f"{p.images_per_second:,.0f}"),
    Column("then bound by, cost", lambda p: f"{p.binding}; {p.cost}.", is_left=True),
)


def text(advice: Advice) -> str:
    """Returns an answer as lines: sentences, tables, and figures with their sources."""
    blocks = [
        advice.sentences,
        text_table.lines(sweeps.PREDICTIONS, advice.rows),
        text_table.lines(_PAYOFFS, advice.payoffs),
        _other_lines(advice),
        [
            "Figures, and where each comes from:",
            *text_table.lines(_FACTS, list(advice.facts.items()))[1:],
        ],
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def _other_lines(advice: Advice) -> list[str]:
    sizing, epochs = advice.sizing, advice.epochs
    lines = [
        f"To defeat the caches: {sizing.needed_bytes / 1e12:,.2f} TB, "
        f"{sizing.copies:,} of this data set. {sizing.arithmetic}.",
        f"An epoch takes {epochs.later_seconds:,.1f} s, the first one "
        f"{epochs.first_seconds:,.1f} s; the caches are full after "
        f"{count_of(epochs.filling_epochs, 'epoch')}. A run of "
        f"{count_of(epochs.amortized_epochs, 'epoch')} or more is at most 5 % "
        "longer than with full caches.",
        f"The first epoch takes {_use(advice.first_epoch_use)} from the storage, a "
        f"later epoch {_use(advice.later_epoch_use)}.",
    ]
    if checkpoint := advice.checkpoint:
        lines.append(
            f"A checkpoint of {checkpoint.num_bytes / 1e6:,.0f} MB takes "
            f"{checkpoint.seconds:.2f} s; one after each epoch takes "
            f"{checkpoint.share:.2%} of the run."
        )
    return lines


def _use(use: StoreUse) -> str:
    text = f"{use.num_requests:,.0f} requests and {use.num_bytes / 1e9:,.1f} GB"
    return text + (f" for a price of {use.money:,.2f}" if use.money else "")


_FACTS: Sequence[Column[tuple[str, Fact]]] = (
    Column("", lambda item: f"  {item[0]}", is_left=True),
    Column("", lambda item: sources.shown(item[0], item[1].value)),
    Column("", lambda item: item[1].source, is_left=True),
)
