"""The ceilings of a scenario: the rates of the resources, and the resource that binds.

In: a `Scenario`. Out: a `Prediction`. The images of a run pass every resource, so the
slowest resource sets the rate.
"""

import dataclasses
import math
from collections.abc import Mapping

from benchmarks.planning.scenario import Scenario

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
