"""The ceilings of a scenario: the rates of the resources, and the resource that binds.

In: a `Scenario`. Out: a `Prediction`. The images of a run pass every resource, so the
slowest resource sets the rate.
"""

import dataclasses
import math
from collections.abc import Mapping

_MAY_BE_ZERO = ("cache_bytes", "cached_fraction", "exchange_seconds")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """Equal hosts that train on a data set from a storage.

    Attributes:
        images_per_second: Rate of an accelerator without waits.
        cpu_seconds: CPU time of an image in the input pipeline, on a core of the hosts.
        link_bytes_per_second: Highest rate from the storage to a host, limited by the
            network or by the client.
        storage_bytes_per_second: Most bytes a second of the storage; of a shared
            storage for all hosts together, otherwise for each host.
        requests_per_second: Most requests a second of the storage, likewise.
        cached_fraction: Fraction of the bytes from memory or local caches of the hosts,
            from the second epoch on, 0 to 1.
        exchange_seconds: Time of a step for the exchange of gradients, as far as no
            computation hides the exchange.
    """

    num_images: int
    record_bytes: float
    images_per_second: float
    cpu_seconds: float
    batch_size: int
    num_hosts: int = 1
    accelerators_per_host: int
    cores_per_host: float
    cache_bytes: float = 0.0
    link_bytes_per_second: float = math.inf
    storage_bytes_per_second: float = math.inf
    is_storage_shared: bool = True
    requests_per_second: float = math.inf
    request_bytes: float = 1e6
    cached_fraction: float = 0.0
    exchange_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            is_zero = value == 0 and name in (*_MAY_BE_ZERO, "is_storage_shared")
            if not value > 0 and not is_zero:
                raise ValueError(f"{name} must be above 0, got {value}.")
        if self.cached_fraction > 1 or math.isinf(self.exchange_seconds):
            raise ValueError(
                "cached_fraction must be at most 1 and exchange_seconds finite, got "
                f"{self.cached_fraction} and {self.exchange_seconds}."
            )

    @property
    def num_bytes(self) -> float:
        return self.num_images * self.record_bytes

    @property
    def step_seconds(self) -> float:
        return self.batch_size / self.images_per_second

    @property
    def num_accelerators(self) -> int:
        return self.num_hosts * self.accelerators_per_host

    @property
    def num_cores(self) -> float:
        return self.num_hosts * self.cores_per_host

    @property
    def num_storages(self) -> int:
        return 1 if self.is_storage_shared else self.num_hosts


# The first of equal ceilings binds.
# Names are the words of reporting/binding.py; storage has two ceilings.
RESOURCES = ("accelerator", "cores", "storage", "network", "requests")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demand:
    """Consumption of the resources at a rate."""

    cores: float
    storage_bytes_per_second: float
    requests_per_second: float
    host_bytes_per_second: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """The steady rate of a scenario, and its reason.

    Attributes:
        binding: The resource with the lowest ceiling, an item of `RESOURCES`.
        ceilings: Highest images a second of all accelerators, by resource; infinite for
            a resource without a limit.
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
    ceilings = _ceilings(scenario)
    binding = min(RESOURCES, key=lambda name: ceilings[name])
    rate = ceilings[binding]
    return Prediction(
        images_per_second=rate,
        binding=binding,
        ceilings=ceilings,
        busy_share=rate / ceilings["accelerator"],
        demand=demand_at(scenario, rate),
        needs=demand_at(scenario, ceilings["accelerator"]),
    )


def first_epoch(scenario: Scenario) -> Scenario:
    """Returns the scenario of an epoch with empty caches."""
    return dataclasses.replace(scenario, cached_fraction=0.0)


def demand_at(scenario: Scenario, images_per_second: float) -> Demand:
    """Returns the consumption of the resources at a rate."""
    read = images_per_second * _read_bytes(scenario)
    return Demand(
        cores=images_per_second * scenario.cpu_seconds,
        storage_bytes_per_second=read,
        requests_per_second=read / scenario.request_bytes,
        host_bytes_per_second=read / scenario.num_hosts,
    )


def _ceilings(scenario: Scenario) -> dict[str, float]:
    step_seconds = scenario.step_seconds + scenario.exchange_seconds
    rates = {
        "storage": scenario.num_storages * scenario.storage_bytes_per_second,
        "network": scenario.num_hosts * scenario.link_bytes_per_second,
        "requests": scenario.num_storages
        * scenario.requests_per_second
        * scenario.request_bytes,
    }
    read_bytes = _read_bytes(scenario)
    return {
        "accelerator": scenario.num_accelerators * scenario.batch_size / step_seconds,
        "cores": scenario.num_cores / scenario.cpu_seconds,
        **{
            name: rate / read_bytes if read_bytes else math.inf
            for name, rate in rates.items()
        },
    }


def _read_bytes(scenario: Scenario) -> float:
    """Returns the mean bytes of an image outside the caches of a host."""
    return scenario.record_bytes * (1 - scenario.cached_fraction)
