"""studies.epochs: ratios are those of each round, with the least and the most."""

from studies import epochs


def _run(cpu_seconds: float) -> dict[str, float]:
    return {"num_images": 32.0, "cpu_seconds": cpu_seconds, "seconds": 1.0}


def test_a_ratio_compares_costs_of_the_same_round() -> None:
    runs = {
        "hand": [_run(0.5), _run(0.25), _run(1.0)],
        "keras": [_run(0.25), _run(0.25), _run(0.25)],
    }

    row = epochs.compared(runs)["keras"]

    assert (row["cpu_ratio"], row["cpu_ratio_min"], row["cpu_ratio_max"]) == (
        *(0.5, 0.25, 1.0),
    )
    assert "keras          0.250   0.250   0.500      32" in epochs.table(
        {"keras": row}
    )
