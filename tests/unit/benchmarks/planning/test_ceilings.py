"""The closed form: ceilings by hand, and rules that hold for every scenario."""

import dataclasses
import math

import pytest
from hypothesis import given, strategies as st

from benchmarks.planning import ceilings
from benchmarks.planning.ceilings import Scenario


def _scenario(**changes):
    figures = {
        "num_images": 1000,
        "record": 100e3,
        "images_per_second": 1000.0,
        "cpu_ms": 1.0,
        "batch_size": 100,
        "num_accelerators": 8,
        "accelerators_per_host": 4,
        "cores": 10,
        "link": 1e9,
        "storage": 1.5e9,
        "requests": 1e3,
        "request": 1e6,
    }
    return Scenario(**{**figures, **changes})


def test_ceilings_by_hand():
    got = ceilings.predict(_scenario())
    want = {
        "accelerator": 8000.0,
        "cores": 20_000.0,
        "storage": 15_000.0,
        "network": 20_000.0,
        "requests": 10_000.0,
    }
    assert got.ceilings == pytest.approx(want)
    assert (got.images_per_second, got.binding) == (8000.0, "accelerator")
    assert (got.busy_share, got.next_binding) == (1.0, "requests")
    assert dataclasses.astuple(got.demand) == pytest.approx((8.0, 8e8, 800.0))
    assert got.needs == got.demand


@pytest.mark.parametrize(
    ("changes", "binding", "rate"),
    [
        ({"exchange_ms": 100.0}, "accelerator", 4000.0),
        ({"cores": 1.5}, "cores", 3000.0),
        ({"storage": 1e8}, "storage", 1000.0),
        ({"storage": 1e8, "shared_storage": False}, "storage", 2000.0),
        (
            {"storage": 1e8, "shared_storage": False, "cached": 0.5},
            *("storage", 4000.0),
        ),
        ({"requests": 500}, "requests", 5000.0),
        ({"link": 1e8}, "network", 2000.0),
        ({"cached": 1.0}, "accelerator", 8000.0),
    ],
)
def test_binding(changes, binding, rate):
    got = ceilings.predict(_scenario(**changes))
    assert (got.binding, got.images_per_second) == (binding, pytest.approx(rate))
    assert got.busy_share == pytest.approx(rate / got.ceilings["accelerator"])


@pytest.mark.parametrize(
    "changes",
    [
        *({name: 0} for name in ("num_images", "record", "cores")),
        {"cpu_ms": -1.0},
        {"link": math.nan},
        {"cached": 1.1},
        {"exchange_ms": math.inf},
    ],
)
def test_a_scenario_of_impossible_figures_is_refused(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        _scenario(**changes)


def test_what_is_cached_is_read_once():
    cached = _scenario(cached=1.0)
    warm = ceilings.predict(cached)
    assert warm.ceilings["storage"] == warm.ceilings["network"] == math.inf
    assert warm.demand.storage_bytes_per_second == 0
    cold = ceilings.predict(ceilings.first_epoch(cached))
    assert cold.demand.storage_bytes_per_second == pytest.approx(8e8)


def _of_hosts(num_hosts, **figures):
    total = num_hosts * figures["accelerators_per_host"]
    return Scenario(num_accelerators=total, **figures)


_positive = st.floats(min_value=1e-3, max_value=1e9)


@given(
    st.builds(
        _of_hosts,
        st.integers(1, 2000),
        num_images=st.integers(1, 10**9),
        record=_positive,
        images_per_second=_positive,
        cpu_ms=_positive,
        batch_size=st.integers(1, 4096),
        accelerators_per_host=st.integers(1, 16),
        cores=_positive,
        link=_positive,
        storage=_positive,
        shared_storage=st.booleans(),
        requests=_positive,
        request=_positive,
        cached=st.floats(0, 1),
        exchange_ms=st.floats(0, 10_000),
    )
)
def test_no_resource_gives_more_than_it_has(scenario):
    got = ceilings.predict(scenario)
    most = (
        scenario.num_cores,
        scenario.num_storages * scenario.storage,
        scenario.num_storages * scenario.requests,
        scenario.num_hosts * scenario.link,
    )
    demand = (*dataclasses.astuple(got.demand), got.demand.storage_bytes_per_second)
    for used, limit in zip(demand, most, strict=True):
        assert used <= limit * (1 + 1e-9)
    assert 0 < got.busy_share <= 1
    assert got.images_per_second == min(got.ceilings.values())
    more = scenario.num_accelerators + scenario.accelerators_per_host
    faster = ceilings.predict(dataclasses.replace(scenario, num_accelerators=more))
    assert faster.images_per_second >= got.images_per_second * (1 - 1e-9)
