"""The closed form of the ceilings beside an event simulation of the same hosts."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.planning import ceilings
from benchmarks.planning.ceilings import Scenario
from tests.unit.benchmarks.planning import simulation
from tests.unit.benchmarks.planning.simulation import Behaviour, Floats, simulate

# 16 accelerators of 100 images/s, which need 160 MB/s and 16 of the 32 cores.
BASE = Scenario(
    num_images=1_000_000,
    record=100e3,
    images_per_second=100.0,
    cpu_ms=10,
    batch_size=50,
    num_accelerators=16,
    accelerators_per_host=4,
    cores=8,
)


def factors(*values: float) -> simulation.Draw:
    """Returns a draw that repeats the values along its first axis that is not 1."""

    def draw(_: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return np.resize(np.array(values), math.prod(shape)).reshape(shape)

    return draw


@pytest.mark.parametrize(
    ("scenario", "binding"),
    [
        (BASE, "accelerator"),
        (dataclasses.replace(BASE, cpu_ms=50), "cores"),
        (dataclasses.replace(BASE, storage=50e6), "storage"),
        (
            dataclasses.replace(BASE, storage=9e6, shared_storage=False),
            "storage",
        ),
        (dataclasses.replace(BASE, link=9e6), "network"),
        (
            dataclasses.replace(BASE, requests=500, request=100e3),
            "requests",
        ),
        (dataclasses.replace(BASE, exchange_ms=500), "accelerator"),
        (
            dataclasses.replace(
                BASE,
                storage=50e6,
                cached=0.6,
            ),
            "storage",
        ),
    ],
)
def test_without_variation_it_is_the_closed_form(
    scenario: Scenario, binding: str
) -> None:
    steady = simulate(scenario, max_steps=120).steady
    predicted = ceilings.predict(scenario)

    assert (steady.bound_by, predicted.binding) == (binding, binding)
    assert steady.images_per_second == pytest.approx(
        predicted.images_per_second, rel=0.02
    )
    assert steady.storage_bytes_per_second == pytest.approx(
        predicted.demand.storage_bytes_per_second, rel=0.03
    )


@settings(max_examples=12, deadline=None)
@given(
    cpu=st.floats(0.002, 0.1),
    storage=st.floats(10e6, 500e6),
    link=st.floats(3e6, 200e6),
    num_hosts=st.integers(1, 6),
    spread=st.sampled_from([0.0, 0.2]),
)
def test_it_is_never_faster_than_the_closed_form(
    cpu: float, storage: float, link: float, num_hosts: int, spread: float
) -> None:
    scenario = dataclasses.replace(
        BASE,
        cpu_ms=cpu * 1e3,
        storage=storage,
        link=link,
        num_accelerators=4 * num_hosts,
    )
    behaviour = Behaviour(batch=simulation.lognormal(spread))
    predicted = ceilings.predict(scenario).images_per_second

    rate = simulate(scenario, behaviour=behaviour, max_steps=40).steady
    exact = 0.98 if not spread else 0.7

    assert exact * predicted <= rate.images_per_second <= predicted * 1.05
    assert all(0 <= share <= 1.05 for share in rate.busy.values())


def test_a_barrier_waits_for_the_slowest_accelerator() -> None:
    behaviour = Behaviour(step=factors(*[1.0] * 15, 2.0))

    steady = simulate(BASE, behaviour=behaviour, max_steps=20).steady

    assert steady.images_per_second == pytest.approx(16 * 100 / 2)
    assert steady.accelerator_busy == pytest.approx((15 + 2) / 16 / 2)
    assert steady.bound_by == "accelerator"


def test_random_steps_cost_the_mean_of_the_largest_of_all() -> None:
    """The largest of n exponential times has the mean 1 + 1/2 + ... + 1/n."""
    behaviour = Behaviour(step=lambda random, shape: random.exponential(1.0, shape))
    scenario = dataclasses.replace(BASE, cpu_ms=0.001)

    steady = simulate(scenario, behaviour=behaviour, max_steps=500).steady
    harmonic = sum(1 / k for k in range(1, 17))

    assert steady.images_per_second == pytest.approx(1600 / harmonic, rel=0.05)
    assert steady.accelerator_busy == pytest.approx(1 / harmonic, rel=0.05)


def test_one_slow_host_holds_all_others_back() -> None:
    scenario = dataclasses.replace(BASE, cpu_ms=20)
    behaviour = Behaviour(host=factors(1.0, 1.0, 1.0, 4.0))

    steady = simulate(scenario, behaviour=behaviour, max_steps=100).steady

    # Its 8 cores make 8 / (4 x 0.02) images/s, a quarter of those of all hosts.
    assert steady.images_per_second == pytest.approx(4 * 100, rel=0.02)
    assert steady.bound_by == "cores"


def test_the_first_epoch_finds_empty_caches() -> None:
    scenario = dataclasses.replace(BASE, storage=40e6, cached=1.0)

    cold, warm = simulate(scenario, max_steps=100).epochs

    assert cold.images_per_second == pytest.approx(400, rel=0.01)
    assert (cold.bound_by, warm.bound_by) == ("storage", "accelerator")
    # The steps of an epoch that are not simulated keep the rate of those that are.
    assert warm.images_per_second == pytest.approx(1600, rel=0.01)
    assert warm.seconds == pytest.approx(1_000_000 / 1600, rel=0.01)
    assert warm.storage_bytes_per_second == 0


def test_readers_limit_by_the_time_of_a_request() -> None:
    scenario = dataclasses.replace(BASE, request=100e3)
    behaviour = Behaviour(request_seconds=0.5, num_readers=10)

    steady = simulate(scenario, behaviour=behaviour, max_steps=60).steady

    assert steady.images_per_second == pytest.approx(16 * 10 / 0.5, rel=0.02)
    assert steady.bound_by == "readers"


def test_reading_ahead_hides_batches_of_different_sizes() -> None:
    scenario = dataclasses.replace(BASE, storage=200e6)
    rates = [
        simulate(
            scenario,
            behaviour=Behaviour(
                num_batches_ahead=ahead, batch=simulation.lognormal(1.0)
            ),
            max_steps=200,
        ).steady.images_per_second
        for ahead in (1, 8)
    ]

    assert rates[0] < rates[1] <= 1600 * 1.001


def test_a_seed_gives_the_same_run() -> None:
    behaviour = Behaviour(step=simulation.lognormal(0.1))
    first, again, other = (
        simulate(BASE, behaviour=behaviour, max_steps=20, seed=seed)
        for seed in (1, 1, 2)
    )

    assert first == again
    assert first != other


def test_ten_thousand_accelerators_take_a_moment() -> None:
    """The limit of CPU time of a unit test is the assertion."""
    scenario = dataclasses.replace(
        BASE,
        num_images=10**9,
        storage=50e9,
        num_accelerators=10_000,
    )

    steady = simulate(scenario, max_steps=40).steady

    assert steady.images_per_second == pytest.approx(500_000, rel=0.02)
    assert steady.bound_by == "storage"
