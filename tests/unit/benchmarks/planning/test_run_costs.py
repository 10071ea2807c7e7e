"""Hits of caches against caches that are played through; sizes, epochs, checkpoints."""

import collections
import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks.planning import ceilings
from benchmarks.planning.ceilings import Scenario


def _played(fits: float, num_hosts: int) -> float:
    """The hits of one host's LRU cache, after epochs that fill it."""
    generator = np.random.default_rng(0)
    num_records, num_epochs = 1000, 6 * num_hosts + 10
    cache: collections.OrderedDict[int, None] = collections.OrderedDict()
    hits = reads = 0
    for epoch in range(num_epochs):
        order = generator.permutation(num_records)[: num_records // num_hosts]
        for record in order.tolist():
            found = record in cache
            cache[record] = None
            cache.move_to_end(record)
            if len(cache) > fits * num_records:
                cache.popitem(last=False)
            if epoch >= num_epochs // 2:
                hits, reads = hits + found, reads + 1
    return hits / reads


@pytest.mark.parametrize(
    ("fits", "num_hosts"), [(0.5, 1), (0.9, 1), (0.3, 2), (0.8, 4), (0.5, 8)]
)
def test_hits_of_a_page_cache(fits, num_hosts):
    got = ceilings.page_cache_hits(fits * 1e9, 1e9, num_hosts)
    assert got == pytest.approx(_played(fits, num_hosts), abs=0.03)


@given(
    st.floats(0, 2), st.floats(0, 2), st.sampled_from([1, 2, 9, 60, 200, 1250, 10_000])
)
def test_more_memory_never_hits_less(one, other, num_hosts):
    less, more = sorted((one, other))
    low, high = (ceilings.page_cache_hits(m, 1.0, num_hosts) for m in (less, more))
    assert 0 <= low <= high + 0.02 <= 1.02
    assert high <= min(1.0, more) + 0.3
    assert (more < 1) or high == 1.0


@pytest.mark.parametrize(("fits", "hits"), [(0.25, 0.25), (1, 1), (3, 1)])
def test_hits_of_a_shard_cache_are_the_share_that_fits(fits, hits):
    assert ceilings.shard_cache_hits(fits * 1e9, 1e9) == hits


def _scenario(num_hosts=1, cached=1.0, **more):
    return Scenario(
        num_images=1_281_167,
        record=115_154,
        images_per_second=1786.0,
        cpu_ms=1e-3,
        batch_size=400,
        num_accelerators=8 * num_hosts,
        accelerators_per_host=8,
        cores=100,
        storage=164_600_000.0 * num_hosts,
        cached=cached,
        **more,
    )


def test_sizes_of_the_rules():
    # The worked example of MLPerf Storage: 8 H100, batch 400, one host of 512 GB.
    found = ceilings.sizing(_scenario(ram=512e9))
    assert found.mlperf_bytes == found.needed_bytes == 2.56e12
    assert (found.dell_bytes, found.copies) == (512e9, 18)
    assert "5 x 1 host x 512 GB" in found.arithmetic
    steps = ceilings.sizing(_scenario(ram=1e9))
    assert steps.needed_bytes == pytest.approx(1.6e6 * 115_154)
    cached = ceilings.sizing(_scenario(ram=1e9, storage_cache=2e12))
    assert cached.needed_bytes == 2e12


def test_first_epoch():
    one = ceilings.epochs(_scenario())
    assert one.first_seconds == pytest.approx(10 * one.later_seconds, rel=0.01)
    # Nine epochs more than without the reading, of 5 % a run.
    assert (one.filling_epochs, one.amortized_epochs) == (1, 180)
    never = ceilings.epochs(_scenario(cached=0.0))
    assert (never.filling_epochs, never.amortized_epochs) == (1, 1)
    assert never.first_seconds == never.later_seconds


def test_several_hosts_fill_their_caches_in_several_epochs():
    found = ceilings.epochs(_scenario(num_hosts=9))
    # A host misses (8/9)^k of the data after k epochs.
    assert found.filling_epochs == 26
    times = [max(1.0, 10 * (8 / 9) ** k) for k in range(200)]
    extra = np.cumsum(times) - np.arange(1, 201)
    want = next(k for k in range(1, 9999) if extra[min(k, 200) - 1] <= 0.05 * k)
    assert found.amortized_epochs == pytest.approx(want, rel=0.01)


def test_checkpoint():
    found = ceilings.checkpoint(_scenario(model="resnet50", write=1e9), 9.8)
    assert found.num_bytes == 8 * 25_636_712
    assert (found.seconds, found.share) == pytest.approx((0.205, 0.0205), rel=1e-3)
    assert ceilings.checkpoint(_scenario(model="tiny", write=1e9), 9.8) is None


@pytest.mark.parametrize(
    ("cached", "requests", "money"),
    [(0.0, 1000, 0.49), (0.75, 250, 0.1225), (1.0, 0, 0)],
)
def test_what_an_epoch_takes_from_the_storage(cached, requests, money):
    scenario = dataclasses.replace(
        _scenario(cached=cached, price_per_1000_requests=0.4, price_per_gb=0.09),
        num_images=10_000,
        record=1e5,
        request=1e6,
    )

    use = ceilings.store_use(scenario)

    assert use.num_requests == pytest.approx(requests)
    assert use.num_bytes == pytest.approx(1e9 * (1 - cached))
    assert use.money == pytest.approx(money)
