"""The flags that several benchmarks take.

In: the command line. Out: the values by name.
"""

from typing import Any

from absl import flags

from benchmarks.models import catalog

_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of a converted data set, with its index.json."
)
_MODEL = flags.DEFINE_enum(
    "model", "resnet50", sorted(catalog.MODELS), "Which model to train or evaluate."
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size",
    None,
    "Examples in a batch of each rank. Default: the model's own.",
    lower_bound=1,
)
_IMAGE_SIZE = flags.DEFINE_integer(
    "image_size",
    None,
    "Height and width of the images in pixels. Default: the model's published size.",
    lower_bound=32,
)
_REPORT_DIR = flags.DEFINE_string(
    "report_dir",
    None,
    "Write the result (JSON) and a picture of the first batch here, for "
    "python -m benchmarks.report.",
)
_SEED = flags.DEFINE_integer(
    "seed",
    0,
    "Seed of weights, order and augmentation; the same on all ranks.",
    lower_bound=0,
    # The converters define --seed too; only tests import both packages.
    allow_override=True,
)
_TUNING = flags.DEFINE_string(
    "tuning",
    None,
    "JSON file of a tuning: benchmarks.input writes it, benchmarks.train reads it.",
)
_WHOLE_BATCHES = flags.DEFINE_bool(
    "whole_batches",
    False,
    "Decode and crop whole batches at once: the same batches, which cost less with the "
    "native op. Not for recipes that distort colors.",
)


def shared() -> dict[str, Any]:
    """Returns the values of the flags, by name."""
    return {
        "data_dir": _DATA_DIR.value,
        "model": _MODEL.value,
        "image_size": _IMAGE_SIZE.value,
        "batch_size": _BATCH_SIZE.value,
        "seed": _SEED.value,
        "tuning": _TUNING.value,
        "whole_batches": _WHOLE_BATCHES.value,
        "report_dir": _REPORT_DIR.value,
    }
