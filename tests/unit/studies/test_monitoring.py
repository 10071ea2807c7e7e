"""studies.monitoring: the cost of watching the input, with and without."""

import pytest

from studies import monitoring


def test_turns_alternate_and_ratios_are_of_one_turn():
    order = []
    pair = (lambda: order.append("without"), lambda: order.append("with"))
    seconds = {
        "wall_without": [1.0, 2.0, 4.0],
        "wall_with": [1.5, 2.0, 8.0],
        "cpu_without": [1.0, 1.0, 1.0],
        "cpu_with": [1.0, 1.0, 1.0],
    }

    taken = monitoring._take_turns(pair, 2)
    figures = monitoring._figures(seconds, num_steps=10)

    assert order == ["with", "without", "without", "with"]
    assert sorted(taken) == sorted(seconds)
    assert {len(values) for values in taken.values()} == {2}
    ratios = [figures[f"wall_ratio{end}"] for end in ("", "_min", "_max")]
    assert ratios == [1.5, 1.0, 2.0]
    assert figures["wall_seconds_added_per_step"] == pytest.approx(0.05)
    assert figures["cpu_ratio"] == 1.0
    assert figures["seconds_per_step"] == pytest.approx(0.2)
