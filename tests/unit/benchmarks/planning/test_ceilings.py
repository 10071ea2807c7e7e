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
        "record_bytes": 100e3,
        "images_per_second": 1000.0,
        "cpu_seconds": 1e-3,
        "batch_size": 100,
        "num_hosts": 2,
        "accelerators_per_host": 4,
        "cores_per_host": 10,
        "link_bytes_per_second": 1e9,
        "storage_bytes_per_second": 1.5e9,
        "requests_per_second": 1e3,
        "request_bytes": 1e6,
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
    assert dataclasses.astuple(got.demand) == pytest.approx((8.0, 8e8, 800.0, 4e8))
    assert got.needs == got.demand


@pytest.mark.parametrize(
    ("changes", "binding", "rate"),
    [
        ({"exchange_seconds": 0.1}, "accelerator", 4000.0),
        ({"cores_per_host": 1.5}, "cores", 3000.0),
        ({"storage_bytes_per_second": 1e8}, "storage", 1000.0),
        (
            {"storage_bytes_per_second": 1e8, "is_storage_shared": False},
            "storage",
            2000.0,
        ),
        (
            {
                "storage_bytes_per_second": 1e8,
                "is_storage_shared": False,
                "cached_fraction": 0.5,
            },
            "storage",
            4000.0,
        ),
        ({"requests_per_second": 500}, "requests", 5000.0),
        ({"link_bytes_per_second": 1e8}, "network", 2000.0),
        ({"cached_fraction": 1.0}, "accelerator", 8000.0),
    ],
)
def test_binding(changes, binding, rate):
    got = ceilings.predict(_scenario(**changes))
    assert (got.binding, got.images_per_second) == (binding, pytest.approx(rate))
    assert got.busy_share == pytest.approx(rate / got.ceilings["accelerator"])


@pytest.mark.parametrize(
    "changes",
    [
        *({name: 0} for name in ("num_images", "record_bytes", "cores_per_host")),
        {"cpu_seconds": -1.0},
        {"link_bytes_per_second": math.nan},
        {"cached_fraction": 1.1},
        {"exchange_seconds": math.inf},
    ],
)
def test_a_scenario_of_impossible_figures_is_refused(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        _scenario(**changes)


def test_what_is_cached_is_read_once():
    cached = _scenario(cached_fraction=1.0)
    warm = ceilings.predict(cached)
    assert warm.ceilings["storage"] == warm.ceilings["network"] == math.inf
    assert warm.demand.storage_bytes_per_second == 0
    cold = ceilings.predict(ceilings.first_epoch(cached))
    assert cold.demand.storage_bytes_per_second == pytest.approx(8e8)


_positive = st.floats(min_value=1e-3, max_value=1e9)


@given(
    st.builds(
        Scenario,
        num_images=st.integers(1, 10**9),
        record_bytes=_positive,
        images_per_second=_positive,
        cpu_seconds=_positive,
        batch_size=st.integers(1, 4096),
        accelerators_per_host=st.integers(1, 16),
        cores_per_host=_positive,
        link_bytes_per_second=_positive,
        storage_bytes_per_second=_positive,
        is_storage_shared=st.booleans(),
        requests_per_second=_positive,
        request_bytes=_positive,
        num_hosts=st.integers(1, 2000),
        cached_fraction=st.floats(0, 1),
        exchange_seconds=st.floats(0, 10),
    )
)
def test_no_resource_gives_more_than_it_has(scenario):
    got = ceilings.predict(scenario)
    most = (
        scenario.num_cores,
        scenario.num_storages * scenario.storage_bytes_per_second,
        scenario.num_storages * scenario.requests_per_second,
        scenario.link_bytes_per_second,
    )
    for used, limit in zip(dataclasses.astuple(got.demand), most, strict=True):
        assert used <= limit * (1 + 1e-9)
    assert 0 < got.busy_share <= 1
    assert got.images_per_second == min(got.ceilings.values())
    faster = ceilings.predict(
        dataclasses.replace(scenario, num_hosts=scenario.num_hosts + 1)
    )
    assert faster.images_per_second >= got.images_per_second * (1 - 1e-9)
