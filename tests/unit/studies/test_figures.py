"""studies.figures: costs, rates and ratios, round by round."""

import pytest

from studies import figures


def test_figures_are_of_rounds() -> None:
    def run(cpu_seconds: float, seconds: float) -> figures.Run:
        return {"cpu_seconds": cpu_seconds, "seconds": seconds, "num_images": 500}

    base = [run(1, 1), run(2, 2), run(1.5, 1)]
    row = figures.costs_and_rates([run(2, 1), run(2, 1), run(6, 2)], base)

    assert row["cpu_seconds_per_1000_images"] == 4
    assert row["cpu_seconds_per_1000_images_max"] == 12
    assert row["cpu_ratio"] == 2
    assert (row["cpu_ratio_min"], row["cpu_ratio_max"]) == (1, 4)
    assert row["images_per_second"] == 500
    assert row["images_per_second_min"] == 250


def test_a_base_without_cpu_time_is_an_error() -> None:
    run = {"cpu_seconds": 0.0, "seconds": 1.0, "num_images": 2}

    with pytest.raises(ValueError, match="Raise --num_timed_images"):
        figures.costs_and_rates([run], [run])


def test_a_summary_has_median_least_and_most() -> None:
    assert figures.summary(iter([3.0, 1.23456, 2.0])) == {
        "median": 2.0,
        "min": 1.2346,
        "max": 3.0,
    }
