"""benchmarks.system.telemetry: a run over time, on made-up figures."""

import numpy as np
import pytest

from benchmarks.system import telemetry


@pytest.mark.parametrize(
    ("seconds", "num_steps", "number"),
    [
        (0.3, 100, 1),
        (10.0, 1000, 10),
        (10.9, 1000, 10),
        (30.0, 10, 10),  # steps of three seconds
        (0.7 * 3 * 10, 10, 10),
        (5 * 3600.0, 100_000, 600),
    ],
)
def test_intervals_are_a_second_or_a_step_and_at_most_600(seconds, num_steps, number):
    edges = telemetry.make_edges(seconds, num_steps)

    assert len(edges) == number + 1
    assert (edges[0], edges[-1]) == (0.0, seconds)
    assert np.diff(edges) == pytest.approx(seconds / number)


def test_steps_are_spread_over_their_time():
    edges = np.array([0.0, 1.0, 2.0, 3.0])

    found = telemetry.of_steps(
        edges,
        end_seconds=[0.75, 1.5, 2.25, 3.0],
        wait_seconds=[0.75, 0.0, 0.5, 0.0],
        num_examples=12,
    )

    assert found["examples_per_second"].tolist() == [4.0, 4.0, 4.0]
    # The wait of the third step, at its start, lies within the second interval.
    assert found["wait_fraction"].tolist() == [0.75, 0.5, 0.0]


def test_examples_and_waits_of_all_intervals_are_those_of_the_run():
    random = np.random.default_rng(0)
    steps = random.exponential(0.4, 500)
    waits = steps * random.random(500)
    seconds = steps.sum()
    edges = telemetry.make_edges(seconds, 500)

    found = telemetry.of_steps(
        edges, end_seconds=np.cumsum(steps), wait_seconds=waits, num_examples=4000
    )

    lengths = np.diff(edges)
    assert (found["examples_per_second"] * lengths).sum() == pytest.approx(4000)
    assert (found["wait_fraction"] * lengths).sum() == pytest.approx(waits.sum())


def _samples(**series):
    """One sample a second."""
    rows = zip(*series.values(), strict=True)
    return [
        {"seconds": 7.0 + second, **dict(zip(series, row, strict=True))}
        for second, row in enumerate(rows)
    ]


def test_counters_become_rates_and_gauges_means():
    samples = _samples(
        process_storage_bytes=[0, 4_000_000, 4_000_000, 5_000_000],
        host_busy=[10.0, 12.0, 13.0, 13.0],
        host_capacity_seconds=[20.0, 22.0, 24.0, 26.0],
        gpu_utilization=[[0.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]],
        resident_fraction=[0.0, 0.25, 0.5, 1.0],
    )

    found = telemetry.of_samples(np.array([0.0, 1.5, 3.0]), samples)

    assert {name: values.tolist() for name, values in found.items()} == {
        "storage_megabytes_per_second": pytest.approx([4 / 1.5, 1 / 1.5]),
        "host_cpu_fraction": pytest.approx([2.5 / 3, 0.5 / 3]),
        "gpu_utilization": pytest.approx([1.25 / 1.5, 1.0 / 1.5]),
        "resident_fraction": pytest.approx([0.375, 1.0]),
    }


def test_what_a_sample_lacks_has_no_series():
    samples = _samples(host_busy=[1.0, 1.0], host_capacity_seconds=[2.0, 2.0])
    samples[0]["resident_fraction"] = 0.5

    assert telemetry.of_samples(np.array([0.0, 1.0]), samples) == {}


def test_ranks_are_joined_by_their_common_time():
    edges = np.array([0.0, 1.0, 2.0])
    steps = [
        {"examples_per_second": [10.0, 20.0], "wait_fraction": [0.1, 0.9]},
        {"examples_per_second": [1.0, 2.0], "wait_fraction": [0.5, 0.2]},
        {"examples_per_second": [1.0, 2.0], "wait_fraction": [0.0, 0.0]},
    ]
    samples = [
        {"storage_megabytes_per_second": [1.0, 1.0], "host_cpu_fraction": [0.2, 0.4]},
        {"storage_megabytes_per_second": [2.0, 0.0], "host_cpu_fraction": [9.0, 9.0]},
        {"storage_megabytes_per_second": [4.0, 0.0], "host_cpu_fraction": [0.6, 0.8]},
    ]

    ranks = [{**step, **sample} for step, sample in zip(steps, samples, strict=True)]
    found = telemetry.join_series(edges, ranks, [0, 1, 0])

    assert found == {
        "interval_seconds": 1.0,
        "seconds": [1.0, 2.0],
        "examples_per_second": [12.0, 24.0],
        "wait_fraction": [0.5, 0.9],
        "storage_megabytes_per_second": [7.0, 1.0],
        "host_cpu_fraction": [pytest.approx(0.4), pytest.approx(0.6)],
        "gpu_utilization": None,
        "resident_fraction": None,
    }
    del ranks[1]["storage_megabytes_per_second"]
    again = telemetry.join_series(edges, ranks, [0, 1, 0])
    assert again["storage_megabytes_per_second"] is None
