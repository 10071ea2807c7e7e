"""Percentiles from buckets, against numpy's on the values themselves."""

import numpy as np
import pytest

from benchmarks.storage_probe import reads


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_those_of_the_values(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.lognormal(11, 2.5, size=20_000).astype(np.int64) + 1

    found = reads.percentiles(reads.count_latencies(values))

    for name, share in reads.PERCENTILES.items():
        wanted = np.quantile(values, share, method="inverted_cdf") / 1e9
        assert found[name] == pytest.approx(wanted, rel=0.0051)


def test_counts_of_threads_add_up() -> None:
    fast, slow = np.full(900, 1_000), np.full(100, 5_000_000)

    both = reads.count_latencies(fast) + reads.count_latencies(slow)

    found = reads.percentiles(both)
    assert found["p50"] == pytest.approx(1e-6, rel=0.0051)
    assert found["p90"] == pytest.approx(1e-6, rel=0.0051)
    assert found["p99"] == pytest.approx(5e-3, rel=0.0051)


def test_no_percentile_without_a_read_beyond_it() -> None:
    assert reads.percentiles(reads.count_latencies([])) == dict.fromkeys(
        reads.PERCENTILES
    )
    for number, is_known in ((999, False), (1000, True)):
        found = reads.percentiles(reads.count_latencies([7_000] * number))
        assert (found["p99_9"] is not None) == is_known
        assert found["p99"] is not None


def test_values_beyond_the_buckets_count_at_the_ends() -> None:
    counts = reads.count_latencies([0, -5, 10**18])

    assert counts.sum() == 3
    assert counts.shape == reads.count_latencies([]).shape, "counts add up"
    assert (counts[0], counts[-1]) == (2, 1)
