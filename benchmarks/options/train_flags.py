"""The flags of benchmarks.train.

In: the command line. Out: a `Config`. Each flag is defined once in the package; those
that other benchmarks take too are in shared_flags.py.
"""

from absl import flags

from benchmarks.models import published
from benchmarks.options import command, config, shared_flags
from benchmarks.reporting import gates
from benchmarks.system import residency

GROUPS = {
    "What to run": (
        *("data_dir", "model", "mode", "synthetic", "batch_size", "image_size"),
    ),
    "How long": ("num_steps", "num_epochs", "num_warmup_steps"),
    "Where the records are": (*shared_flags.PLACE, "ram_cache"),
    "How the input is made": ("tuning", "whole_batches", "on_error", "max_faults"),
    "How the model computes": (
        *("precision", "data_format", "xla", "learning_rate", "num_classes", "seed"),
    ),
    "An accelerator in place of the model": (
        *("emulate", "accelerators_file", "step_time_ms", "read_only"),
    ),
    "What is compared and required": ("cache", "bars", "repeat", "require"),
    "What is kept": ("report_dir", "checkpoint_dir"),
    "When something goes wrong": ("rank_timeout", "elastic", "allow_nan"),
}

flags.adopt_module_key_flags(shared_flags)

_MODE = flags.DEFINE_enum(
    "mode",
    "train",
    config.MODES,
    "train: optimize on the train split and time the steps. eval: accuracy on the "
    "validation split, every record once, of the newest checkpoint. infer: the model "
    "forward only, on the validation split again and again, timed.",
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
    "Number of epochs to train, those of a restored checkpoint included.",
    lower_bound=1,
)
_NUM_WARMUP_STEPS = flags.DEFINE_integer(
    "num_warmup_steps",
    None,
    "First steps that are not timed. Default: until the records that were read ahead "
    "are used, at least 10; a tenth of all steps if the epochs are too few for it.",
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
    "Save the model here after each epoch, and resume from the newest checkpoint here.",
)
_ON_ERROR = flags.DEFINE_enum(
    "on_error",
    "raise",
    ["raise", "skip"],
    "At a damaged record or image: raise stops and names it; skip leaves it out, and "
    "counts and names it in the result.",
)
_NUM_CLASSES = flags.DEFINE_integer(
    "num_classes",
    None,
    "Outputs of the model. Default: the classes of the data set; 1000 with "
    "--synthetic.",
    lower_bound=2,
    allow_override=True,  # converters.synthesize has one too
)
_PRECISION = flags.DEFINE_enum(
    "precision",
    "float32",
    config.PRECISIONS,
    "Type that the model computes in; weights stay float32. float16 scales the loss.",
)
_DATA_FORMAT = flags.DEFINE_enum(
    "data_format",
    "NHWC",
    config.DATA_FORMATS,
    "Whether the model has channels last or first. NCHW needs a GPU or --xla.",
)
_XLA = flags.DEFINE_bool("xla", False, "Compile the step with XLA.")
_EMULATE = flags.DEFINE_string(
    "emulate",
    None,
    "Replace the model by its step time on this accelerator: any of "
    f"{', '.join(sorted(published.ACCELERATORS))}, or a name in --accelerators_file. "
    "The result says where the figure was published, or from which figure it is "
    "scaled. The input path and the copy to the device stay real.",
)
_ACCELERATORS_FILE = flags.DEFINE_string(
    "accelerators_file",
    None,
    "JSON or TOML file of other accelerators for --emulate: "
    '{"NAME": {"source": "TEXT", "train": {"MODEL": IMAGES_PER_SECOND}, "infer": {}}}.',
)
_STEP_TIME_MS = flags.DEFINE_float(
    "step_time_ms",
    None,
    "Replace the model by this step time, in milliseconds.",
    lower_bound=0.0,
)
_READ_ONLY = flags.DEFINE_bool(
    "read_only",
    False,
    "Read records and decode none of them, which is what storage benchmarks measure. "
    "Goes with --emulate or --step_time_ms.",
)
_CACHE = flags.DEFINE_enum(
    "cache",
    "as_is",
    residency.STATES,
    "State of the page cache for the files of the split: cold empties it at the start, "
    "when the timing begins and after each epoch; warm fills it at the start. With "
    "--shard_cache_dir it is the state of that cache: cold begins with an empty one in "
    "a folder of its own, and removes it; warm fetches the whole split first. A run "
    "in which a timed epoch was in another state ends with an error.",
)
_RAM_CACHE = flags.DEFINE_enum(
    "ram_cache",
    None,
    config.RAM_CACHES,
    "Keep the split in the memory of each rank, filled before the first step. records: "
    "as they are in the shards. images: decoded and resized once; crops for training "
    "are then parts of these smaller images.",
)
_BARS = flags.DEFINE_bool(
    "bars",
    False,
    "Also measure the input alone and the model on synthetic data, and print which of "
    "them limits the run.",
)
_REPEAT = flags.DEFINE_integer(
    "repeat",
    1,
    "Number of runs; the result is that of the median speed. The runs should agree "
    "within 5 %.",
    lower_bound=1,
)
_REQUIRE = flags.DEFINE_list(
    "require",
    [],
    "Gates that the result must meet, such as stall<=3%,au>=0.9,real/synthetic>=0.97. "
    "The exit code is 2 if a gate is not met. The metrics: "
    f"{', '.join(gates.METRICS)}.",
)
_ALLOW_NAN = flags.DEFINE_bool(
    "allow_nan",
    False,
    "Train on although the loss has become NaN or infinite, and mark the result. "
    "Default: end with an error that names step and rank.",
)
_RANK_TIMEOUT = flags.DEFINE_float(
    "rank_timeout",
    300.0,
    "Seconds that a rank may go without a step before the run ends with an error.",
    lower_bound=1.0,
)
_ELASTIC = flags.DEFINE_bool(
    "elastic",
    False,
    "Continue without a rank that dies. Needs horovodrun with --min-np and "
    "--host-discovery-script, and --num_epochs.",
)
_MAX_FAULTS = flags.DEFINE_integer(
    "max_faults",
    100,
    "Largest number of records that --on_error=skip may skip on a rank.",
    lower_bound=0,
)

# All flags of the command as they are defined here: a module with a flag of the same
# name, as the converters have, would replace it in absl's own list.
KEY_FLAGS = tuple(flags.FLAGS.get_key_flags_for_module(__name__))


def config_from_flags() -> config.Config:
    """Returns the values of the flags.

    Raises:
        ValueError: If flags contradict each other, or one is given that has no effect.
    """
    _refuse_unused()
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
        num_classes=_NUM_CLASSES.value,
        precision=_PRECISION.value,
        data_format=_DATA_FORMAT.value,
        xla=_XLA.value,
        emulate=_EMULATE.value,
        accelerators_file=_ACCELERATORS_FILE.value,
        step_time_ms=_STEP_TIME_MS.value,
        read_only=_READ_ONLY.value,
        cache=_CACHE.value,
        ram_cache=_RAM_CACHE.value,
        allow_nan=_ALLOW_NAN.value,
        rank_timeout=_RANK_TIMEOUT.value,
        elastic=_ELASTIC.value,
        bars=_BARS.value,
        repeat=_REPEAT.value,
        require=_REQUIRE.value,
        **shared_flags.shared(),
    )


def _refuse_unused() -> None:
    """Refuses flags that would be in the result and had no effect on it."""
    if _MODE.value != "train":
        command.refuse(["learning_rate"], f"--mode={_MODE.value}")
    if _MODE.value == "eval":
        command.refuse(["num_steps", "num_epochs", "num_warmup_steps"], "--mode=eval")
    if _SYNTHETIC.value:
        names = ["tuning", "whole_batches", "on_error", "max_faults"]
        names += shared_flags.PLACE
        command.refuse(names, "--synthetic")
    if _EMULATE.value is not None or _STEP_TIME_MS.value is not None:
        names = ["precision", "data_format", "xla", "learning_rate"]
        command.refuse(names, "An emulated accelerator")
    if _ON_ERROR.value == "raise":
        command.refuse(["max_faults"], "--on_error=raise")
