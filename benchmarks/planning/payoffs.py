"""Remedies for a bound run: the gain of each remedy in images/s, and the cost.

In: facts. Out: `Payoff`s, the best remedy first. A gain is the ratio of two
predictions. The ratios of CPU time and of bytes were measured, and each payoff names
the source.
"""

import dataclasses
import math
from typing import Any

import tfpipe
from benchmarks.planning import ceilings, facts, hardware
from benchmarks.planning.facts import Facts, Scenario
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
    payoffs = [
        _shard_cache(whole, before),
        _ram_cache(before, "records", before.num_bytes, 1.0, "size of the data set"),
        _ram_cache(before, "decoded images", _decoded_bytes(before), *_DECODED_CPU),
        _resized(whole, before),
        *(_faster_path(before, *path) for path in _FASTER_PATHS),
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
    room, size = before.local_disk_room, before.num_bytes
    hits = max(ceilings.shard_cache_hits(room, size), before.cached)
    changes: dict[str, Any] = {
        "cached": hits,
        "cpu_ms": before.cpu_ms * _SHARD_CACHE_CPU[0],
    }
    times = ceilings.epochs(dataclasses.replace(before, **changes))
    # Memory gives its part of the hits, and the disk the rest.
    from_disk = (hits - before.cached) * before.record
    disk = before.num_hosts * before.local_disk
    return _payoff(
        "shard cache",
        before,
        cost=f"{_size(min(room, size))} on the local disk of each host, which gives "
        f"{hits:.0%} of the bytes once it is full, after "
        f"{count_of(times.filling_epochs, 'epoch')}; a first "
        f"epoch of {_time(times.first_seconds)}",
        source=f"{_SHARD_CACHE_CPU[1]}; disk: {whole['local_disk'].source}",
        is_possible=room > 0,
        limit=("local disk", disk / from_disk if from_disk else math.inf),
        **changes,
    )


def _ram_cache(
    before: Scenario, what: str, needed: float, cpu_ratio: float, source: str
) -> Payoff:
    fits = needed <= before.page_cache
    text = "" if fits else f", which does not fit into {_size(before.page_cache)}"
    return _payoff(
        f"RAM cache of {what}",
        before,
        cost=f"{_size(needed)} of memory on each host{text}",
        source=source,
        is_possible=fits,
        cached=1.0,
        cpu_ms=before.cpu_ms * cpu_ratio,
    )


def _decoded_bytes(before: Scenario) -> float:
    return before.num_images * 3 * (before.image_size * _MARGIN) ** 2


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
    cpu = hardware.cpu_milliseconds(size) / hardware.cpu_milliseconds(old)
    return _payoff(
        f"records of a short side of {side:.0f} pixels",
        before,
        cost=f"a conversion with --short_side={side:.0f}, once; records of "
        f"{_size(size)} in place of {_size(old)}; other pixels, and no crop that is "
        "larger",
        source=f"300 photographs; CPU time: {hardware.CPU_SOURCE}",
        is_possible=size < old,
        record=size,
        cached=cached,
        cpu_ms=before.cpu_ms * cpu,
    )


# Name, ratio of the CPU time, cost, and source.
_FASTER_PATHS = (
    (
        *("entry points", hardware.ENTRY_POINTS),
        "python -m converters.verify DIR --write_entry_points, once; a side file of "
        "0.6 % of the bytes; the records stay as they are; baseline JPEGs and the "
        "native op",
        hardware.ENTRY_POINTS_SOURCE,
    ),
    (
        *("whole batches", hardware.WHOLE_BATCHES),
        "--whole_batches=yes; memory of a batch for each parallel call; needs the "
        "native op",
        "2026-11-22-decode-native.json",
    ),
)


def _faster_path(
    before: Scenario, name: str, ratio: float, cost: str, source: str
) -> Payoff:
    has_it = bool(getattr(before, name.replace(" ", "_")))
    return _payoff(
        name,
        before,
        cost="it is there already" if has_it else cost,
        source=source,
        is_possible=not has_it,
        cpu_ms=before.cpu_ms * (1 if has_it else ratio),
    )


def _remote(before: Scenario) -> Payoff:
    pixels = 3 * before.image_size**2
    most = before.num_hosts * before.link / pixels
    changes: dict[str, Any] = {
        "link": math.inf,
        "cpu_ms": min(before.cpu_ms, _READ_ONLY_MS[0]),
    }
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


def _size(num_bytes: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:,.3g} {unit}"
    return f"{num_bytes / 1e3:,.3g} kB"


def _time(seconds: float) -> str:
    return f"{seconds / 60:,.1f} minutes" if seconds >= 90 else f"{seconds:,.1f} s"
