"""studies.dlio: utilization from DLIO's steps, and the summary."""

import pytest

from studies import dlio


def test_figures_of_steps_leave_out_the_first_of_each_epoch() -> None:
    # Four steps an epoch, loading and both together, in seconds.
    slow_start = ([9.0, 0.1, 0.1, 0.1], [10.0, 1.0, 1.0, 1.0])
    waiting = ([0.0, 0.5, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0])

    figures = dlio.figures_of_steps([slow_start, waiting])

    assert figures == {
        "wait_ms": pytest.approx(300),
        "by_our_formula": pytest.approx((0.9 + 0.5) / 2),
    }


def test_summary_has_medians_and_differences_within_rounds() -> None:
    runs = {
        "dlio": [(0.90, 3), (0.80, 1), (0.95, 2)],
        "read_only": [(0.91, 1), (0.82, 1), (0.98, 1)],
        "decoding": [(0.50, 9), (0.52, 9), (0.48, 9)],
    }

    found = dlio.summarize(
        {
            name: [{"au": au, "wait_ms": wait} for au, wait in rows]
            for name, rows in runs.items()
        }
    )

    assert found["dlio"] == {"au": 0.9, "wait_ms": 2, "au_min": 0.8, "au_max": 0.95}
    assert found["read_only_minus_dlio"] == pytest.approx(2)
    assert found["decoding_minus_read_only"] == pytest.approx(-41)
    found["dlio"]["by_our_formula"] = 0.93
    *_, last = dlio.table({"25": found}).splitlines()
    assert "read_only - dlio +2.00 points; DLIO's steps by our formula 93.00%" in last
    assert last.endswith("decoding -41.00 points")
