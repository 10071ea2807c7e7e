"""Remedies for a bound run: the gain of each remedy in images/s, and the cost.

In: facts. Out: `Payoff`s, the best remedy first. A gain is the ratio of two
predictions. The ratios of CPU time and of bytes were measured, and each payoff names
the source.
"""

import dataclasses
import math
from typing import Any

import tfpipe
from benchmarks.planning import ceilings, facts, hardware, run_costs
from benchmarks.planning.ceilings import Scenario
from benchmarks.planning.facts import Facts
from tfpipe.errors import count_of

LEAST_GAIN = 1.03

_MARGIN = 1 / 0.875  # a resized image is larger than its crop, as for evaluation
_DECODED_CPU = 0.132, "2026-11-22-tuning-cache.json: cached images over encoded ones"
_SHARD_CACHE_CPU = 1.006, "2026-11-23-shard-cache.json"
_READ_ONLY_MS = 0.154, "2026-11-23-shard-cache.json: local files, not decoded"
_SERVICE_SOURCE = "2026-11-23-service.json: images a CPU-second, of those in process"
# 300 photographs converted with --short_side=256 and 342 have 36.8 and 70.0 kB. The
# bytes grow with the pixels, up to the size of the originals.
_RESIZED = (256, 36.8e3), (342, 70.0e3)


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


def find(whole: Facts) -> list[Payoff]:
    """Returns the remedies, in the order of their gains."""
    before = facts.scenario(whole)
    remedies = (
        *(_shard_cache, _ram_cache, _decoded_cache, _resized, _entry_points),
        *(_whole_batches, _remote),
    )
    payoffs = [remedy(whole, before) for remedy in remedies]
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
    """Returns the payoff of a remedy.

    Args:
        limit: A further resource with its ceiling in images/s.
        changes: Fields of the scenario with the remedy.
    """
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
    room = facts.figure(whole, "local_disk_room")
    hits = run_costs.shard_cache_hits(room, before.num_bytes)
    hits = max(hits, before.cached_fraction)
    changes: dict[str, Any] = {
        "cached_fraction": hits,
        "cpu_seconds": before.cpu_seconds * _SHARD_CACHE_CPU[0],
    }
    times = run_costs.epochs(dataclasses.replace(before, **changes))
    # Memory gives its part of the hits, and the disk the rest.
    from_disk = (hits - before.cached_fraction) * before.record_bytes
    disk = before.num_hosts * facts.figure(whole, "local_disk")
    used = min(room, before.num_bytes)
    return _payoff(
        "shard cache",
        before,
        cost=f"{_size(used)} on the local disk of each host, which gives {hits:.0%} "
        "of the bytes once it is full, after "
        f"{count_of(times.filling_epochs, 'epoch')}; a first "
        f"epoch of {_time(times.first_seconds)}",
        source=f"{_SHARD_CACHE_CPU[1]}; disk: {whole['local_disk'].source}",
        is_possible=room > 0,
        limit=("local disk", disk / from_disk if from_disk else math.inf),
        **changes,
    )


def _ram_cache(whole: Facts, before: Scenario) -> Payoff:
    cost, fits = _memory(whole, before.num_bytes)
    return _payoff(
        "RAM cache of records",
        before,
        cost=cost,
        source="size of the data set",
        is_possible=fits,
        cached_fraction=1.0,
    )


def _decoded_cache(whole: Facts, before: Scenario) -> Payoff:
    side = facts.figure(whole, "image_size") * _MARGIN
    cost, fits = _memory(whole, before.num_images * 3 * side**2)
    return _payoff(
        "RAM cache of decoded images",
        before,
        cost=cost,
        source=_DECODED_CPU[1],
        is_possible=fits,
        cached_fraction=1.0,
        cpu_seconds=before.cpu_seconds * _DECODED_CPU[0],
    )


def _memory(whole: Facts, needed: float) -> tuple[str, bool]:
    room = facts.figure(whole, "page_cache")
    fits = needed <= room
    text = "" if fits else f", which does not fit into {_size(room)}"
    return f"{_size(needed)} of memory on each host{text}", fits


def _resized(whole: Facts, before: Scenario) -> Payoff:
    side = facts.figure(whole, "image_size") * _MARGIN
    (x0, y0), (x1, y1) = _RESIZED
    size = y0 + (y1 - y0) / (x1**2 - x0**2) * (side**2 - x0**2)
    old = before.record_bytes
    size = min(max(size, y0 * (side / x0) ** 2), old)
    cached = before.cached_fraction
    if whole["cached"].origin == "table":  # more of the smaller records fit
        cached = run_costs.page_cache_hits(
            before.cache_bytes, before.num_images * size, before.num_hosts
        )
    cpu = hardware.cpu_milliseconds(size) / hardware.cpu_milliseconds(old)
    return _payoff(
        f"records of a short side of {side:.0f} pixels",
        before,
        cost=f"a conversion with --short_side={side:.0f}, once; records of "
        f"{_size(size)} in place of {_size(old)}; other pixels, and no crop that is "
        "larger",
        source=f"300 photographs; CPU time: {hardware.CPU_SOURCE}",
        is_possible=size < old,
        record_bytes=size,
        cached_fraction=cached,
        cpu_seconds=before.cpu_seconds * cpu,
    )


def _entry_points(whole: Facts, before: Scenario) -> Payoff:
    return _faster_path(
        *("entry points", whole, before),
        ratio=hardware.ENTRY_POINTS,
        cost="python -m converters.verify DIR --write_entry_points, once; a side file "
        "of 0.6 % of the bytes; the records stay as they are; baseline JPEGs and the "
        "native op",
        source=hardware.ENTRY_POINTS_SOURCE,
    )


def _whole_batches(whole: Facts, before: Scenario) -> Payoff:
    return _faster_path(
        *("whole batches", whole, before),
        ratio=hardware.WHOLE_BATCHES,
        cost="--whole_batches=yes; memory of a batch for each parallel call; needs the "
        "native op",
        source="2026-11-22-decode-native.json",
    )


def _faster_path(
    name: str,
    whole: Facts,
    before: Scenario,
    *,
    ratio: float,
    cost: str,
    source: str,
) -> Payoff:
    has_it = bool(facts.figure(whole, name.replace(" ", "_")))
    return _payoff(
        name,
        before,
        cost="it is there already" if has_it else cost,
        source=source,
        is_possible=not has_it,
        cpu_seconds=before.cpu_seconds * (1 if has_it else ratio),
    )


def _remote(whole: Facts, before: Scenario) -> Payoff:
    pixels = 3 * facts.figure(whole, "image_size") ** 2
    most = before.num_hosts * before.link_bytes_per_second / pixels
    changes: dict[str, Any] = {
        "link_bytes_per_second": math.inf,
        "cpu_seconds": min(before.cpu_seconds, _READ_ONLY_MS[0] / 1e3),
    }
    after = dataclasses.replace(before, **changes)
    rate = min(ceilings.predict(after).images_per_second, most)
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


def _size(num_bytes: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:,.3g} {unit}"
    return f"{num_bytes / 1e3:,.3g} kB"


def _time(seconds: float) -> str:
    return f"{seconds / 60:,.1f} minutes" if seconds >= 90 else f"{seconds:,.1f} s"
