"""An event simulation of hosts that train together from a storage.

In: a `Scenario`, and how its parts vary. Out: a `Simulated`. The tests compare it with
`benchmarks.planning.ceilings`.

The closed form of `ceilings` takes the smallest of several rates. Real hosts wait for
each other: the steps of all ranks begin together, a rank reads only some batches ahead,
the hosts share a storage, and the first epoch finds empty caches. The simulation plays
each batch through its stations, one after the other:

    readers of a rank -> storage -> link -> cores of a host -> accelerator -> barrier

A station serves batches in the order of arrival. A batch goes on to the next station
while the one before still works on it, as its records do.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.planning.ceilings import Scenario

Floats = npt.NDArray[np.float64]

# Returns factors with mean 1, of the given shape.
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

RESOURCES = ("accelerator", "cores", "storage", "network", "requests", "readers")


def constant(_: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Returns factors that are all 1."""
    return np.ones(shape)


def lognormal(spread: float) -> Draw:
    """Returns a draw of log-normal factors with mean 1.

    Args:
        spread: Standard deviation of the logarithm, >= 0.
    """
    return lambda random, shape: random.lognormal(-(spread**2) / 2, spread, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How the parts of a scenario vary, and how far ranks read ahead.

    Attributes:
        num_batches_ahead: Batches that a rank prepares before it needs them, >= 1.
        num_readers: Requests of a rank at a time, >= 1.
        request_seconds: Time of a request that no other request delays, >= 0.
        step: Factors on the time of each step of each accelerator.
        host: Factors on the CPU time of an image, one for each host of a run.
        batch: Factors on the bytes of each batch.
    """

    num_batches_ahead: int = 4
    num_readers: int = 16
    request_seconds: float = 0.0
    step: Draw = constant
    host: Draw = constant
    batch: Draw = constant


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedEpoch:
    """One epoch of a simulation.

    Attributes:
        images_per_second: Images of all ranks over the time of the epoch.
        seconds: Time of the whole epoch.
        num_steps: Steps of the whole epoch.
        num_simulated_steps: First steps, which were simulated. All others take the mean
            time of the second half of these.
        storage_bytes_per_second: What the storage gave.
        step_seconds_p50: Median time of a step, of the second half.
        step_seconds_p99: 99th percentile, likewise.
        busy: For each of `RESOURCES` the share of time in which it worked, 0 to 1, of
            the second half. Host resources are those of the busiest host. "accelerator"
            is the share in which the slowest rank computed or exchanged gradients.
        accelerator_busy: Share of time in which an accelerator computed, a mean.
    """

    images_per_second: float
    seconds: float
    num_steps: int
    num_simulated_steps: int
    storage_bytes_per_second: float
    step_seconds_p50: float
    step_seconds_p99: float
    busy: dict[str, float]
    accelerator_busy: float

    @property
    def bound_by(self) -> str:
        """The busiest resource."""
        return max(RESOURCES, key=lambda name: self.busy[name])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simulated:
    """The epochs of a simulation; the caches are empty in the first one."""

    epochs: tuple[SimulatedEpoch, ...]

    @property
    def steady(self) -> SimulatedEpoch:
        """The last epoch."""
        return self.epochs[-1]


def simulate(
    scenario: Scenario,
    *,
    behaviour: Behaviour | None = None,
    num_epochs: int = 2,
    max_steps: int = 400,
    seed: int = 0,
) -> Simulated:
    """Plays epochs of a scenario; the same arguments give the same outcome.

    Args:
        scenario: Hosts, data set and storage.
        behaviour: How the parts vary; nothing does by default.
        num_epochs: Number of epochs, >= 1.
        max_steps: Most steps of an epoch that are simulated, >= 2.
        seed: Seed of all draws.
    """
    global_batch = scenario.num_accelerators * scenario.batch_size
    num_steps = scenario.num_images // global_batch
    run = _Run(scenario, behaviour or Behaviour(), np.random.default_rng(seed))
    epochs = []
    for number in range(num_epochs):
        cached = scenario.cached if number else 0.0
        epochs.append(run.epoch(num_steps, min(num_steps, max_steps), cached))
    return Simulated(epochs=tuple(epochs))


class _Station:
    """Servers in a row of queues; each serves batches in the order of arrival.

    Args:
        num_queues: Number of queues, with one server each.
    """

    def __init__(self, num_queues: int) -> None:
        self._free = np.zeros((num_queues, 1))
        self.worked = np.zeros(num_queues)  # seconds

    def serve(self, arrivals: Floats, services: Floats) -> tuple[Floats, Floats]:
        """Returns when the work on each batch begins and ends.

        Args:
            arrivals: Time at which each batch comes, of any shape that `num_queues`
                divides: consecutive batches go to one queue.
            services: Seconds of work on each batch, of the same shape.
        """
        come = arrivals.reshape(len(self._free), -1)
        work = services.reshape(come.shape)
        order = np.argsort(come, axis=1, kind="stable")
        come = np.take_along_axis(come, order, 1)
        sorted_work = np.take_along_axis(work, order, 1)
        # A batch ends after all work since the last time that the queue was empty.
        total = np.cumsum(sorted_work, axis=1)
        begun = np.maximum.accumulate(come - total + sorted_work, axis=1)
        sorted_ends = total + np.maximum(begun, self._free)
        self._free = sorted_ends[:, -1:]
        self.worked += work.sum(axis=1)
        ends = np.empty_like(sorted_ends)
        np.put_along_axis(ends, order, sorted_ends, 1)
        ends = ends.reshape(arrivals.shape)
        return ends - services, ends


class _Run:
    """The state of a run between two steps. Arrays have the shape [hosts, ranks]."""

    def __init__(
        self, scenario: Scenario, behaviour: Behaviour, random: np.random.Generator
    ) -> None:
        self._scenario, self._behaviour, self._random = scenario, behaviour, random
        num_hosts = scenario.num_hosts
        self._shape = num_hosts, scenario.accelerators_per_host
        self._stations = {
            "readers": _Station(scenario.num_accelerators),
            "storage": _Station(1 if scenario.shared_storage else num_hosts),
            "network": _Station(num_hosts),
            "cores": _Station(num_hosts),
        }
        cpu_seconds = scenario.cpu_seconds / scenario.cores
        slowness = behaviour.host(random, (num_hosts, 1))
        self._cpu_seconds = np.broadcast_to(
            scenario.batch_size * cpu_seconds * slowness, self._shape
        )
        self._now = 0.0  # when the last barrier opened
        # When each of the last batches was taken, which makes room for another one.
        self._taken = [np.zeros(self._shape)] * behaviour.num_batches_ahead
        self._asked = np.zeros(self._shape)
        self._worked = dict.fromkeys(
            ("accelerator", "accelerators", "bytes", "storage", "requests"), 0.0
        )

    def epoch(
        self, num_steps: int, num_simulated: int, cached: float
    ) -> SimulatedEpoch:
        """Plays the first steps of an epoch; its caches hold a fraction of the data."""
        start, half = self._now, num_simulated // 2
        ends = np.empty(num_simulated)
        for number in range(num_simulated):
            if number == half:
                before, middle = self._totals(), self._now
            self._step(cached)
            ends[number] = self._now
        steps = np.diff(ends[half - 1 :])
        seconds = ends[-1] - start + (num_steps - num_simulated) * steps.mean()
        elapsed = ends[-1] - middle
        done = {k: (v - before[k]) / elapsed for k, v in self._totals().items()}
        scenario = self._scenario
        num_images = num_steps * scenario.num_accelerators * scenario.batch_size
        median, slow = np.percentile(steps, (50, 99))
        return SimulatedEpoch(
            images_per_second=num_images / seconds,
            seconds=float(seconds),
            num_steps=num_steps,
            num_simulated_steps=num_simulated,
            storage_bytes_per_second=float(done["bytes"]),
            step_seconds_p50=float(median),
            step_seconds_p99=float(slow),
            busy={name: float(np.max(done[name])) for name in RESOURCES},
            accelerator_busy=float(done["accelerators"]),
        )

    def _totals(self) -> dict[str, Floats]:
        stations = ("readers", "network", "cores")
        return {k: np.array(v) for k, v in self._worked.items()} | {
            name: self._stations[name].worked.copy() for name in stations
        }

    def _step(self, cached: float) -> None:
        """Plays one step of all ranks, until the barrier opens."""
        scenario, behaviour = self._scenario, self._behaviour
        ready = self._prepare(cached)
        taken = np.maximum(ready, self._now)
        factors = behaviour.step(self._random, self._shape)
        computed = scenario.batch_size / scenario.images_per_second * factors
        ends = taken + computed
        opened = float(ends.max()) + scenario.exchange_ms / 1e3
        last = np.unravel_index(ends.argmax(), ends.shape)
        self._worked["accelerator"] += (
            float(computed[last]) + scenario.exchange_ms / 1e3
        )
        self._worked["accelerators"] += float(computed.mean())
        self._now = opened
        self._taken = [*self._taken[1:], taken]

    def _prepare(self, cached: float) -> Floats:
        """Returns when the next batch of each rank is read and decoded."""
        scenario = self._scenario
        num_bytes = self._missed_bytes(cached)
        num_requests = num_bytes / scenario.request
        by_bytes = num_bytes / scenario.storage
        by_requests = num_requests / scenario.requests
        queues = scenario.num_storages
        self._worked["bytes"] += float(num_bytes.sum())
        self._worked["storage"] += float(by_bytes.sum()) / queues
        self._worked["requests"] += float(by_requests.sum()) / queues
        behaviour = self._behaviour
        services = {
            "readers": num_requests * behaviour.request_seconds / behaviour.num_readers,
            "storage": np.maximum(by_bytes, by_requests),
            "network": num_bytes / scenario.link,
            "cores": self._cpu_seconds,
        }
        # A rank asks for a batch when there is room for it, and in order.
        begun = self._asked = np.maximum(self._asked, self._taken[0])
        ready = begun
        for name, service in services.items():
            begun, ends = self._stations[name].serve(begun, service)
            ready = np.maximum(ready, ends)
        return ready

    def _missed_bytes(self, cached: float) -> Floats:
        """Returns the bytes of the next batches that no cache holds."""
        batch_size = self._scenario.batch_size
        num_bytes = batch_size * self._scenario.record
        missed = self._random.binomial(batch_size, 1 - cached, self._shape)
        factors = self._behaviour.batch(self._random, self._shape)
        return num_bytes * factors * (missed / batch_size)
