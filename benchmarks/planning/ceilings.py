"""Predictions for a scenario: its rate and what binds, its caches and checkpoints.

In: a `Scenario`. Out: a `Prediction`; shares of hits, sizes, seconds and money. The
images of a run pass every resource, so the slowest resource sets the rate. The rules
for sizes of data sets come from MLPerf Storage and from the test of Dell and NVIDIA.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.models import catalog
from tfpipe.errors import count_of

# The first of equal ceilings binds. The names are the words of reporting/binding.py;
# storage has two ceilings.
_WORKING, _READING = ("accelerator", "cores"), ("storage", "network", "requests")

_GRID = 64  # points a side of the grid for the sum of the hits of LRU
# If a cache keeps the records of so many epochs of a host, the order of the records is
# as good as random.
_MANY_EPOCHS = 64

_LEFT = 0.05
_NOTHING = 1e-4
_RUN_STEPS = 500  # MLPerf Storage: steps of an epoch
_RUN_MEMORIES = 5  # MLPerf Storage: data over the memory of all hosts
_BYTES_PER_PARAMETER = 8  # a weight and its momentum, float32
_MOST_ACCELERATORS = 1_000_000


def _fact(kind: str, default: Any = dataclasses.MISSING) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """Equal hosts that train on a data set from a storage: the values of all facts.

    --what_if and the flags of benchmarks.advise have the same names, and the flags
    explain the values. The kinds: "count", "number", "bytes", "rate" (bytes a
    second), "milliseconds", "share" (0 to 1), "yes" and "text". A fact whose default is
    0 may be 0.
    """

    model: str = _fact("text", "")
    accelerator: str = _fact("text", "")
    batch_size: int = _fact("count")
    image_size: int = _fact("count", 224)
    images_per_second: float = _fact("number")
    num_accelerators: int = _fact("count")
    accelerators_per_host: int = _fact("count")
    cores: float = _fact("number")
    ram: float = _fact("bytes", 0)
    cpu_ms: float = _fact("milliseconds")
    num_images: int = _fact("count")
    whole_batches: bool = _fact("yes", True)
    entry_points: bool = _fact("yes", False)
    record: float = _fact("bytes")
    storage: float = _fact("rate", math.inf)
    shared_storage: bool = _fact("yes", True)
    requests: float = _fact("number", math.inf)
    request: float = _fact("bytes", 1e6)
    price_per_1000_requests: float = _fact("number", 0)
    price_per_gb: float = _fact("number", 0)
    link: float = _fact("rate", math.inf)
    page_cache: float = _fact("bytes", 0)
    cached: float = _fact("share", 0)
    storage_cache: float = _fact("bytes", 0)
    local_disk: float = _fact("rate", math.inf)
    local_disk_room: float = _fact("bytes", 0)
    write: float = _fact("rate", math.inf)
    exchange_ms: float = _fact("milliseconds", 0)

    def __post_init__(self) -> None:
        for name in KINDS:
            if text := problem(name, value := getattr(self, name)):
                raise ValueError(f"{name} must be {text}, got {value}.")
        total, per_host = self.num_accelerators, self.accelerators_per_host
        if total > _MOST_ACCELERATORS:
            raise ValueError(
                f"num_accelerators must be at most {_MOST_ACCELERATORS:,}, got "
                f"{total:,}."
            )
        if total % per_host:
            raise ValueError(
                f"num_accelerators={total} must fill hosts of accelerators_per_host="
                f"{per_host}: give a multiple of {per_host}, or other hosts."
            )

    @property
    def num_bytes(self) -> float:
        return self.num_images * self.record

    @property
    def num_hosts(self) -> int:
        return self.num_accelerators // self.accelerators_per_host

    @property
    def num_cores(self) -> float:
        return self.num_hosts * self.cores

    @property
    def num_storages(self) -> int:
        return 1 if self.shared_storage else self.num_hosts

    @property
    def cpu_seconds(self) -> float:
        return self.cpu_ms / 1e3


KINDS = {
    field.name: str(field.metadata["kind"]) for field in dataclasses.fields(Scenario)
}
DEFAULTS = {field.name: field.default for field in dataclasses.fields(Scenario)}


def problem(name: str, value: Any) -> str:
    """Returns what the value of a fact must be and is not; or ""."""
    kind = KINDS[name]
    may_be_0 = kind == "yes" or DEFAULTS[name] == 0
    if kind != "text" and not (value > 0 or (value == 0 and may_be_0)):
        return "above 0"
    if kind == "share" and value > 1:
        return "at most 1"
    if kind == "milliseconds" and math.isinf(value):
        return "finite"
    return "a whole number" if kind == "count" and value != int(value) else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demand:
    """Consumption of the resources at a rate."""

    cores: float
    storage_bytes_per_second: float
    requests_per_second: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """The rate of a scenario, and the resource that sets the rate.

    Attributes:
        binding: The resource with the lowest ceiling.
        ceilings: Images/s of all accelerators if each resource alone had a limit; inf
            for a resource without a limit.
        busy_share: Share of the time in which the accelerators do not wait for images,
            0 to 1. The exchange of gradients counts as busy, as in tools of vendors.
        needs: Consumption of the resources if the accelerators never waited.
    """

    images_per_second: float
    binding: str
    ceilings: Mapping[str, float]
    busy_share: float
    demand: Demand
    needs: Demand

    @property
    def word(self) -> str:
        """The binding resource as a word of `reporting.binding`."""
        return "storage" if self.binding == "requests" else self.binding

    @property
    def next_binding(self) -> str:
        """The resource that binds if the binding resource has no limit."""
        others = {k: v for k, v in self.ceilings.items() if k != self.binding}
        return min(others, key=lambda name: others[name])


def predict(scenario: Scenario) -> Prediction:
    """Returns the rate of the epochs after the first epoch.

    The caches are full: the storage gives the fraction of the bytes outside all caches.
    `first_epoch` returns the scenario of the epoch before.
    """
    step = scenario.batch_size / scenario.images_per_second + scenario.exchange_ms / 1e3
    rates = {
        "storage": scenario.num_storages * scenario.storage,
        "network": scenario.num_hosts * scenario.link,
        "requests": scenario.num_storages * scenario.requests * scenario.request,
    }
    read = scenario.record * (1 - scenario.cached)  # outside the caches of a host
    ceilings = {
        "accelerator": scenario.num_accelerators * scenario.batch_size / step,
        "cores": scenario.num_cores / scenario.cpu_seconds,
        **{name: rate / read if read else math.inf for name, rate in rates.items()},
    }
    binding = min(ceilings, key=lambda name: ceilings[name])
    rate = ceilings[binding]

    def demand(images_per_second: float) -> Demand:
        return Demand(
            cores=images_per_second * scenario.cpu_seconds,
            storage_bytes_per_second=images_per_second * read,
            requests_per_second=images_per_second * read / scenario.request,
        )

    return Prediction(
        images_per_second=rate,
        binding=binding,
        ceilings=ceilings,
        busy_share=rate / ceilings["accelerator"],
        demand=demand(rate),
        needs=demand(ceilings["accelerator"]),
    )


def first_epoch(scenario: Scenario) -> Scenario:
    """Returns the scenario of an epoch with empty caches."""
    return dataclasses.replace(scenario, cached=0.0)


def page_cache_hits(cache_bytes: float, data_bytes: float, num_hosts: int) -> float:
    """Returns the share of the bytes from a page cache, from epoch 2 on.

    The cache forgets the least recently used bytes (LRU). An epoch is a new permutation
    of the data, and every host reads an equal part. A record is still cached if the
    other records read since its last use fit the cache. On a single host a share f of
    the data gives f + (1 - f) ln(1 - f). On many hosts the share gives at most f.
    """
    fits = min(1.0, cache_bytes / data_bytes)
    if fits in (0.0, 1.0) or num_hosts * fits > _MANY_EPOCHS:
        return fits
    if num_hosts == 1:
        # Rounding makes the sum of a very small share less than 0.
        return max(0.0, fits + (1 - fits) * math.log(1 - fits))
    part = 1 / num_hosts
    points = (np.arange(_GRID) + 0.5) / _GRID
    # Shares of the data not read since, within the two epochs at the ends.
    unread = np.multiply.outer(1 - part * points, 1 - part * points)
    hits, between = 0.0, 1.0  # epochs between the two uses, without the record
    while between > 1 - fits:
        hits += part * between * float(np.mean(unread * between > 1 - fits))
        between *= 1 - part
    return hits


def shard_cache_hits(cache_bytes: float, data_bytes: float) -> float:
    """Returns the share of the bytes from a shard cache, from epoch 2 on.

    The cache knows the order to come, and an epoch reads every byte once: a share f of
    the data gives f. 2026-11-23-shard-cache.json measured so: with 0.25, 0.5 and 0.75
    of the data the server gave 2.49, 1.99 and 1.49 times its bytes in three epochs. The
    first epoch finds nothing.
    """
    return min(1.0, cache_bytes / data_bytes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizing:
    """Sizes of a data set beyond every cache.

    Attributes:
        mlperf_bytes: Rule of MLPerf Storage: 500 steps an epoch, and five times the
            memory of all hosts.
        dell_bytes: Rule of Dell's and NVIDIA's test: more than the memory of all hosts
            and more than the cache of the storage.
    """

    mlperf_bytes: float
    dell_bytes: float
    needed_bytes: float
    copies: int
    arithmetic: str


def sizing(scenario: Scenario) -> Sizing:
    """Returns how large a data set must be to defeat the caches."""
    record, batch = scenario.record, scenario.batch_size
    steps = _RUN_STEPS * batch * scenario.num_accelerators * record
    memory = scenario.num_hosts * scenario.ram
    mlperf = max(steps, _RUN_MEMORIES * memory)
    dell = max(memory, scenario.storage_cache)
    needed = max(mlperf, dell)
    return Sizing(
        mlperf_bytes=mlperf,
        dell_bytes=dell,
        needed_bytes=needed,
        copies=math.ceil(needed / scenario.num_bytes),
        arithmetic=(
            f"MLPerf Storage: max({_RUN_STEPS} steps x {batch:,} images x "
            f"{scenario.num_accelerators:,} accelerators x {record:,.0f} B, "
            f"{_RUN_MEMORIES} x {count_of(scenario.num_hosts, 'host')} x "
            f"{scenario.ram / 1e9:,.0f} GB) = {mlperf / 1e12:,.2f} TB; Dell: more "
            f"than max({memory / 1e9:,.0f} GB of all hosts, "
            f"{scenario.storage_cache / 1e9:,.0f} GB of the storage) = "
            f"{dell / 1e12:,.2f} TB"
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Epochs:
    """Times of epochs. The first epochs fill the caches.

    Attributes:
        filling_epochs: Epochs until a cache holds 95 % of its final bytes: 1 for a
            single host. On several hosts a host reads other records in every epoch.
        amortized_epochs: Epochs of the shortest run at most 5 % longer than a run with
            full caches from the start.
    """

    first_seconds: float
    later_seconds: float
    filling_epochs: int
    amortized_epochs: int


def epochs(scenario: Scenario) -> Epochs:
    """Returns the times of the first epoch and of later epochs."""
    images = scenario.num_images
    cold = predict(first_epoch(scenario))
    later = images / predict(scenario).images_per_second
    unseen = 1 - 1 / scenario.num_hosts  # share not seen by a host, an epoch
    filling = math.ceil(math.log(_LEFT) / math.log(unseen)) if unseen else 1
    # Reading takes less time the more was seen. The other work takes its own time.
    num_epochs = math.ceil(math.log(_NOTHING) / math.log(unseen)) if unseen else 1
    seen = 1 - unseen ** np.arange(num_epochs)
    reading = images / min(cold.ceilings[name] for name in _READING)
    working = images / min(cold.ceilings[name] for name in _WORKING)
    seconds = np.maximum(working, reading * (1 - scenario.cached * seen))
    extra = np.cumsum(seconds / later - 1)
    enough = extra <= _LEFT * np.arange(1, num_epochs + 1) + _NOTHING
    # Full caches add nothing more.
    after = math.ceil(float(extra[-1]) / _LEFT - _NOTHING)
    return Epochs(
        first_seconds=images / cold.images_per_second,
        later_seconds=later,
        filling_epochs=filling if scenario.cached else 1,
        amortized_epochs=int(np.argmax(enough)) + 1 if enough.any() else after,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreUse:
    """Requests, bytes and price of an epoch of all hosts; 0 without prices."""

    num_requests: float
    num_bytes: float
    money: float


def store_use(scenario: Scenario) -> StoreUse:
    """Returns what an epoch with full caches takes from the storage."""
    num_bytes = scenario.num_bytes * (1 - scenario.cached)
    num_requests = num_bytes / scenario.request
    return StoreUse(
        num_requests=num_requests,
        num_bytes=num_bytes,
        money=num_requests / 1e3 * scenario.price_per_1000_requests
        + num_bytes / 1e9 * scenario.price_per_gb,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointCost:
    """A checkpoint after each epoch."""

    num_bytes: float
    seconds: float
    share: float


def checkpoint(scenario: Scenario, epoch_seconds: float) -> CheckpointCost | None:
    """Returns size and time of the checkpoint of rank 0 after an epoch.

    None if the number of parameters of the model is not known.
    """
    if (parameters := catalog.MODELS[scenario.model].num_parameters) is None:
        return None
    num_bytes = float(parameters * _BYTES_PER_PARAMETER)
    seconds = num_bytes / scenario.write
    share = seconds / (seconds + epoch_seconds)
    return CheckpointCost(num_bytes=num_bytes, seconds=seconds, share=share)
