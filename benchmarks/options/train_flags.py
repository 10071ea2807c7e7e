"""The flags of benchmarks.train.

In: the command line, or the flags of one run of a sweep as words. Out: a `Config`, or
an error for a run that benchmarks.train would refuse. Each flag is defined once in the
package; shared_flags.py has the flags that other benchmarks take too.
"""

import copy
import pathlib
from collections.abc import Sequence

from absl import flags, logging

import tfpipe
from benchmarks.models import published
from benchmarks.options import command, config, shared_flags
from benchmarks.options.config import Config
from benchmarks.reporting import gates
from benchmarks.system import residency

GROUPS = {
    "What to run": (
        *("data_dir", "model", "mode", "synthetic", "batch_size", "image_size"),
    ),
    "How long": ("num_steps", "num_epochs", "num_warmup_steps"),
    "Where the records are": (*shared_flags.ACCESS, "ram_cache"),
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

flags.DEFINE_enum(
    "mode",
    "train",
    config.MODES,
    "train: optimize on the train split and time the steps. eval: accuracy on the "
    "validation split, every record once, of the newest checkpoint. infer: the model "
    "forward only, on the validation split again and again, timed.",
)
flags.DEFINE_integer(
    "num_steps",
    None,
    "Timed steps, after the warm-up steps. Default: one epoch; 100 with --synthetic.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "num_epochs",
    None,
    "Number of epochs to train, those of a restored checkpoint included.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "num_warmup_steps",
    None,
    "First steps that are not timed. Default: until the records that were read ahead "
    "are used, at least 10; a tenth of all steps if the epochs are too few for it.",
    lower_bound=0,
)
flags.DEFINE_float(
    "learning_rate",
    None,
    "Peak learning rate for a global batch of 256; scaled linearly with the global "
    "batch. Default: the model's own.",
    lower_bound=0.0,
)
for _name, _text in {
    "synthetic": "Feed one random batch again and again instead of real data.",
    "xla": "Compile the step with XLA.",
    "read_only": (
        "Read records and decode none of them, which is what storage benchmarks "
        "measure. Goes with --emulate or --step_time_ms."
    ),
    "bars": (
        "Also measure the input alone and the model on synthetic data, and print which "
        "of them limits the run."
    ),
    "allow_nan": (
        "Train on although the loss has become NaN or infinite, and mark the result. "
        "Default: end with an error that names step and rank."
    ),
    "elastic": (
        "Continue without a rank that dies. Needs horovodrun with --min-np and "
        "--host-discovery-script, and --num_epochs."
    ),
}.items():
    flags.DEFINE_bool(_name, False, _text)
flags.DEFINE_string(
    "checkpoint_dir",
    None,
    "Save the model here after each epoch, and resume from the newest checkpoint here.",
)
flags.DEFINE_enum(
    "on_error",
    "raise",
    ["raise", "skip"],
    "At a damaged record or image: raise stops and names it; skip leaves it out, and "
    "counts and names it in the result.",
)
flags.DEFINE_integer(
    "num_classes",
    None,
    "Outputs of the model. Default: the classes of the data set; 1000 with "
    "--synthetic.",
    lower_bound=2,
    allow_override=True,  # converters.synthesize has one too
)
flags.DEFINE_enum(
    "precision",
    "float32",
    config.PRECISIONS,
    "Type that the model computes in; weights stay float32. float16 scales the loss.",
)
flags.DEFINE_enum(
    "data_format",
    "NHWC",
    config.DATA_FORMATS,
    "Whether the model has channels last or first. NCHW needs a GPU or --xla.",
)
flags.DEFINE_string(
    "emulate",
    None,
    "Replace the model by its step time on this accelerator: any of "
    f"{', '.join(sorted(published.ACCELERATORS))}, or a name in --accelerators_file. "
    "The result says where the figure was published, or from which figure it is "
    "scaled. The input path and the copy to the device stay real.",
)
flags.DEFINE_string(
    "accelerators_file",
    None,
    "JSON or TOML file of other accelerators for --emulate: "
    '{"NAME": {"source": "TEXT", "train": {"MODEL": IMAGES_PER_SECOND}, "infer": {}}}.',
)
flags.DEFINE_float(
    "step_time_ms",
    None,
    "Replace the model by this step time, in milliseconds.",
    lower_bound=0.0,
)
flags.DEFINE_enum(
    "cache",
    "as_is",
    residency.STATES,
    "State of the page cache for the files of the split: cold empties it at the start, "
    "when the timing begins and after each epoch; warm fills it at the start. With "
    "--shard_cache_dir it is the state of that cache: cold begins with an empty one in "
    "a folder of its own, and removes it; warm fetches the whole split first. A run "
    "in which a timed epoch was in another state ends with an error.",
)
flags.DEFINE_enum(
    "ram_cache",
    None,
    config.RAM_CACHES,
    "Keep the split in the memory of each rank, filled before the first step. records: "
    "as they are in the shards. images: decoded and resized once; crops for training "
    "are then parts of these smaller images.",
)
flags.DEFINE_integer(
    "repeat",
    1,
    "Number of runs; the result is that of the median speed. The runs should agree "
    "within 5 %.",
    lower_bound=1,
)
flags.DEFINE_list(
    "require",
    [],
    "Gates that the result must meet, such as stall<=3%,au>=0.9,real/synthetic>=0.97. "
    "The exit code is 2 if a gate is not met. The metrics: "
    f"{', '.join(gates.METRICS)}.",
)
flags.DEFINE_float(
    "rank_timeout",
    300.0,
    "Seconds that a rank may go without a step before the run ends with an error.",
    lower_bound=1.0,
)
flags.DEFINE_integer(
    "max_faults",
    100,
    "Largest number of records that --on_error=skip may skip on a rank.",
    lower_bound=0,
)

# All flags of the command as they are defined here: a module with a flag of the same
# name, as the converters have, would replace it in absl's own list.
KEY_FLAGS = tuple(flags.FLAGS.get_key_flags_for_module(__name__))


def config_from_flags() -> Config:
    """Returns the values of the flags.

    Raises:
        ValueError: If flags are contradictory, or a flag is given and has no
            effect.
    """
    _refuse_unused()
    return Config(**shared_flags.fields_of(Config, flags.FLAGS))


def _refuse_unused() -> None:
    """Refuses flags that would be in the result and had no effect on it."""
    values = flags.FLAGS
    if values.mode != "train":
        command.refuse(["learning_rate"], f"--mode={values.mode}")
    if values.mode == "eval":
        command.refuse(["num_steps", "num_epochs", "num_warmup_steps"], "--mode=eval")
    if values.synthetic:
        names = ["tuning", "whole_batches", "on_error", "max_faults"]
        command.refuse([*names, *shared_flags.ACCESS], "--synthetic")
    if values.emulate is not None or values.step_time_ms is not None:
        names = ["precision", "data_format", "xla", "learning_rate"]
        command.refuse(names, "An emulated accelerator")
    if values.on_error == "raise":
        command.refuse(["max_faults"], "--on_error=raise")


def parse(arguments: Sequence[str]) -> Config:
    """Returns the config of a run with these flags, for a sweep.

    The flags are parsed in a copy: the flags of this process stay as they are.

    Args:
        arguments: The flags of benchmarks.train, as words.

    Raises:
        ValueError: If a flag is unknown, has a wrong value, or contradicts another.
        RemoteError: If a package or a setting for the URL of the data is missing.
    """
    values = flags.FlagValues()
    absl_flags = flags.FLAGS.get_key_flags_for_module(logging.__name__)
    for flag in (*KEY_FLAGS, *absl_flags):
        values[flag.name] = copy.deepcopy(flag)
        values[flag.name].unparse()  # the sweep may have a value of its own
    try:
        rest = values(["benchmarks.train", *arguments])[1:]
    except flags.Error as error:
        name = getattr(error, "flagname", None)
        if name in flags.FLAGS and name not in values:
            raise ValueError(
                f"--{name} is no flag of benchmarks.train: it must stand before --."
            ) from None
        raise ValueError(f"benchmarks.train refuses its flags: {error}") from None
    command.refuse_urls(values)
    if rest:
        raise ValueError(
            f"Flags of benchmarks.train must be --name=value, got {rest[0]!r}."
        )
    return Config(**shared_flags.fields_of(Config, values))


def check(arguments: Sequence[str]) -> None:
    """Checks a run as far as possible before it starts, for a sweep of hours of runs.

    Args:
        arguments: The flags of benchmarks.train, as words.

    Raises:
        ValueError: If benchmarks.train would refuse the flags, a folder or file is
            missing, or the accelerator's time for the model is not known.
        RemoteError: If the index of a data set cannot be read by its URL.
    """
    config = parse(arguments)
    for text in config.require:
        gates.Gate.parse(text)
    if config.access.is_remote:
        tfpipe.Files(config.data_dir).size("index.json")
    elif config.data_dir is not None:
        _check_exists(pathlib.Path(config.data_dir, "index.json"), "data_dir")
    if config.tuning is not None:
        _check_exists(pathlib.Path(config.tuning), "tuning")
    if config.mode != "train" and config.checkpoint_dir is not None:
        _check_exists(pathlib.Path(config.checkpoint_dir), "checkpoint_dir")
    config.find_emulation()


def _check_exists(path: pathlib.Path, flag: str) -> None:
    if not path.exists():
        raise ValueError(f"--{flag} must be there, and {path} is not.")


def names_present() -> list[str]:
    """Returns the names of the flags of benchmarks.train on this command line."""
    own = ("shard_cache_dir",)  # a sweep takes it too
    return [flag.name for flag in KEY_FLAGS if flag.present and flag.name not in own]
