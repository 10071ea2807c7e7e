"""studies.monitoring with a Keras model."""

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.training.setting import make_setting
from studies import monitoring


def test_both_variants_run(data_dir):
    config = Config(data_dir=str(data_dir), model="tiny", image_size=32, batch_size=4)

    figures = monitoring.compare(make_setting(config, Ranks()), 2, 1)

    assert list(figures) == ["loop", "fit"]
    assert all(row["seconds_per_step"] > 0 for row in figures.values())
    assert monitoring.table(figures).count("\n") == 4
