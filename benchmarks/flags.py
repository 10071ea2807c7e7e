"""Every flag of the training benchmarks, once, and their way into a `Config`."""

from typing import Any

from absl import flags, logging

from benchmarks import config, models

_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of a converted data set, with its index.json."
)
_MODEL = flags.DEFINE_enum(
    "model", "resnet50", sorted(models.MODELS), "Which model to train or evaluate."
)
_MODE = flags.DEFINE_enum(
    "mode",
    "train",
    config.MODES,
    "train: optimize on the train split and time the steps. eval: accuracy on the "
    "validation split, every record once, of the newest checkpoint.",
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
    "Height and width in pixels. Default: what the model was published with.",
    lower_bound=32,
)
_NUM_STEPS = flags.DEFINE_integer(
    "num_steps",
    None,
    "Timed steps, after the warm-up steps. Default: one epoch; 100 with --synthetic.",
    lower_bound=1,
)
_NUM_EPOCHS = flags.DEFINE_integer(
    "num_epochs",
    None,
    "Epochs to train in all, those of a restored checkpoint included.",
    lower_bound=1,
)
_NUM_WARMUP_STEPS = flags.DEFINE_integer(
    "num_warmup_steps",
    None,
    "First steps that are not timed. Default: 10, or a tenth of all if that is less.",
    lower_bound=0,
)
_LEARNING_RATE = flags.DEFINE_float(
    "learning_rate",
    None,
    "Peak learning rate for a global batch of 256; scaled linearly with the global "
    "batch. Default: the model's own.",
    lower_bound=0.0,
)
_SYNTHETIC = flags.DEFINE_bool(
    "synthetic", False, "Feed one random batch again and again instead of real data."
)
_CHECKPOINT_DIR = flags.DEFINE_string(
    "checkpoint_dir",
    None,
    "Save the model here after each epoch, and go on from the newest checkpoint there.",
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
    "Of weights, order and augmentation; the same on all ranks.",
    lower_bound=0,
    # The converters have a --seed too; only tests import both.
    allow_override=True,
)
_ON_ERROR = flags.DEFINE_enum(
    "on_error",
    "raise",
    ["raise", "skip"],
    "At a damaged record or image: stop and name it, or go on without it, count it and "
    "name it in the result.",
)
_TUNING = flags.DEFINE_string(
    "tuning",
    None,
    "JSON file of a tuning: benchmarks.input writes it, benchmarks.train uses it.",
)
_MAX_FAULTS = flags.DEFINE_integer(
    "max_faults",
    100,
    "How many records --on_error=skip may skip on a rank.",
    lower_bound=0,
)


def config_from_flags() -> config.Config:
    """The only reader of the flags' values.

    Raises:
        ValueError: If flags contradict each other.
    """
    return config.Config(
        mode=_MODE.value,
        num_steps=_NUM_STEPS.value,
        num_epochs=_NUM_EPOCHS.value,
        num_warmup_steps=_NUM_WARMUP_STEPS.value,
        learning_rate=_LEARNING_RATE.value,
        synthetic=_SYNTHETIC.value,
        checkpoint_dir=_CHECKPOINT_DIR.value,
        on_error=_ON_ERROR.value,
        max_faults=_MAX_FAULTS.value,
        **shared(),
    )


def shared() -> dict[str, Any]:
    """The values that benchmarks.input takes too, by name."""
    return {
        "data_dir": _DATA_DIR.value,
        "model": _MODEL.value,
        "image_size": _IMAGE_SIZE.value,
        "batch_size": _BATCH_SIZE.value,
        "seed": _SEED.value,
        "tuning": _TUNING.value,
        "report_dir": _REPORT_DIR.value,
    }


def quiet_libraries() -> None:
    """Leaves TensorFlow's INFO remarks out, unless --verbosity asks for them."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
