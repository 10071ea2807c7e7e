"""The study of a service: ratios are those of each turn, not of the medians."""

from studies.service import __main__ as service


def test_a_ratio_compares_rates_of_the_same_turn() -> None:
    turns = {
        "process": [(100.0, 50.0), (200.0, 60.0), (400.0, 70.0)],
        "service": [(90.0, 45.0), (160.0, 50.0), (400.0, 55.0)],
    }

    found = service.figures(turns)["service"]

    assert (found["ratio"], found["ratio_min"], found["ratio_max"]) == (0.9, 0.8, 1.0)
    assert (found["images_per_cpu_second"], found["images_per_second"]) == (160, 50)
    assert "service        0.900         160.0      50.0" in service.table(
        {"service": found}
    )
