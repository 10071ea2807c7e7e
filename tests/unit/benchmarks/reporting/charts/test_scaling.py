"""Scaling of charts and sweeps: tables of rates, with figures worked out by hand."""

import numpy as np
import pytest

from benchmarks.reporting.charts import sweeps
from benchmarks.results.other_results import SweptPoint


def _row(point: SweptPoint) -> tuple[float | None, ...]:
    return (
        point.num_ranks,
        point.num_repeats,
        point.examples_per_second,
        point.speedup,
        point.efficiency,
    )


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        # ranks, repeats, mean images/s, speed-up, efficiency
        ({1: [100.0]}, [(1, 1, 100.0, 1.0, 1.0)]),
        ({2: [180.0], 1: [100.0]}, [(1, 1, 100, 1, 1), (2, 1, 180, 1.8, 0.9)]),
        # The ratio of the means, 190 / 100, not the mean of the ratios.
        ({1: [80, 120], 2: [190]}, [(1, 2, 100, 1, 1), (2, 1, 190, 1.9, 0.95)]),
        # The published 8 V100 of NVIDIA: 9,510 images/s against 1,270.
        ({1: [1270], 8: [9510]}, [(1, 1, 1270, 1, 1), (8, 1, 9510, 7.488, 0.936)]),
        ({1: [100], 4: [440]}, [(1, 1, 100, 1, 1), (4, 1, 440, 4.4, 1.1)]),
        # Without a run on one rank there is nothing to compare with.
        (
            {2: [180], 4: [300, 320], 1: []},
            [(2, 1, 180, None, None), (4, 2, 310, None, None)],
        ),
        ({1: [], 2: []}, []),
        ({}, []),
    ],
)
def test_speedup_and_efficiency(
    rates: dict[int, list[float]], expected: list[tuple[float | None, ...]]
) -> None:
    found = [_row(point) for point in sweeps.points(rates)]

    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert [value is None for value in row] == [v is None for v in wanted]
        assert [v or 0 for v in row] == pytest.approx(
            [v or 0 for v in wanted], rel=1e-3
        )


@pytest.mark.parametrize(
    ("single", "double", "low", "high"),
    [
        # Relative variances of the means: 2 / 2 / 100**2 = 1e-4 both, so 2 degrees of
        # freedom and t = 4.303; exp(4.303 * sqrt(2e-4)) = 1.062743.
        ([99.0, 101.0], [198.0, 202.0], 1 / 1.062743, 1.062743),
        # 1e-4 and 8 / 2 / 180**2 = 1.234568e-4: 1.978 degrees, which is rounded down
        # to 1, t = 12.706; exp(12.706 * sqrt(2.234568e-4)) = 1.209172.
        ([99.0, 101.0], [178.0, 182.0], 0.9 / 1.209172, 0.9 * 1.209172),
        # Three repeats, deviation 1 of 100 and 2 of 200: 3.3333e-5 both, 4 degrees,
        # t = 2.776; exp(2.776 * sqrt(6.6667e-5)) = 1.022925.
        ([99, 100, 101], [198, 200, 202], 1 / 1.022925, 1.022925),
        # Only one of the two varies: its 2 degrees are all there are.
        ([100, 100, 100], [198, 200, 202], 1 / 1.025154, 1.025154),
        ([100.0, 100.0], [190.0, 190.0], 0.95, 0.95),
        ([100.0], [198.0, 202.0], None, None),
        ([99.0, 101.0], [200.0], None, None),
    ],
)
def test_interval_of_efficiency(
    single: list[float], double: list[float], low: float | None, high: float | None
) -> None:
    one, two = sweeps.points({1: single, 2: double})

    if low is None:
        assert (two.efficiency_low, two.efficiency_high) == (None, None)
    else:
        assert two.efficiency_low == pytest.approx(low, rel=1e-5)
        assert two.efficiency_high == pytest.approx(high, rel=1e-5)
    assert (one.efficiency_low, one.efficiency_high) == (1.0, 1.0)


def test_interval_holds_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        single, double = random.normal(100, 2, 5), random.normal(180, 6, 5)
        point = sweeps.points({1: single.tolist(), 2: double.tolist()})[1]
        held += point.efficiency_low <= 0.9 <= point.efficiency_high

    # 380 are expected; the deviation of the count is 4.4. Rounding down adds a few.
    assert 368 <= held <= 395
