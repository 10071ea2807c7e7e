"""Percentiles of latencies."""

import dataclasses

import numpy as np
import pytest

from benchmarks.results.other_results import ReadLatency
from benchmarks.storage_probe import probe


def test_percentiles_are_in_seconds_whatever_the_order() -> None:
    values = np.random.default_rng(0).permutation(np.arange(1, 1001)) * 1_000_000

    found = dataclasses.asdict(probe.latency(values))

    wanted = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}
    assert found == pytest.approx(wanted, abs=0.0011)


def test_no_percentile_without_a_read_beyond_it() -> None:
    assert probe.latency(np.array([], np.int64)) == ReadLatency()
    for number, is_known in ((999, False), (1000, True)):
        found = probe.latency(np.full(number, 7_000))
        assert (found.p99_9 is not None) == is_known
        assert found.p99 == 7e-6
