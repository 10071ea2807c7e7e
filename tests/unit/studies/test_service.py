"""studies.service: ratios are those of each round, not of the medians."""

from studies import service


def _run(per_cpu_second: float, per_second: float) -> dict[str, float]:
    return {
        "num_images": 1.0,
        "cpu_seconds": 1 / per_cpu_second,
        "seconds": 1 / per_second,
    }


def test_a_ratio_compares_rates_of_the_same_round() -> None:
    runs = {
        "process": [_run(128, 64), _run(256, 64), _run(512, 64)],
        "service": [_run(96, 32), _run(128, 64), _run(512, 16)],
    }

    row = service.compared(runs)["service"]

    assert (row["ratio"], row["ratio_min"], row["ratio_max"]) == (0.75, 0.5, 1.0)
    assert (row["images_per_cpu_second"], row["images_per_second"]) == (128, 32)
    assert "service        0.750         128.0      32.0" in service.table(
        {"service": row}
    )
