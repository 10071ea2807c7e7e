"""benchmarks.studies.monitoring: the cost of watching the input, by turns with and without."""

import pytest

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.studies import monitoring
from benchmarks.training.setting import make_setting


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


@pytest.mark.slow
def test_both_ways_run(data_dir):
    config = Config(data_dir=str(data_dir), model="tiny", image_size=32, batch_size=4)

    figures = monitoring.compare(make_setting(config, Ranks()), 2, 1)

    assert list(figures) == ["loop", "fit"]
    assert all(row["seconds_per_step"] > 0 for row in figures.values())
    assert monitoring.table(figures).count("\n") == 4
