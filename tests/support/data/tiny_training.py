"""A small model and made-up images, for steps that need no data set."""

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.training.caches import Batch
from benchmarks.training.setting import Setting, make_setting

ALONE = Ranks()


def tiny_setting(ranks: Ranks = ALONE, **fields: object) -> Setting:
    """Two steps of four images of 5 classes, unless the fields of a Config say else."""
    values = {
        "model": "tiny",
        "image_size": 32,
        "batch_size": 4,
        "num_classes": 5,
        "num_steps": 2,
        "learning_rate": 1.0,
        **fields,
    }
    return make_setting(Config(synthetic=True, **values), ranks)


def first_batch(setting: Setting) -> Batch:
    """The first batch of the setting's pipeline."""
    return next(iter(setting.pipeline.build()))
