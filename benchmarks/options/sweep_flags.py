"""The flags of benchmarks.sweep.

In: the command line, the file of --sweep_file, and a preset. Out: a `Sweep`.
"""

import dataclasses
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from benchmarks.options import (
    preset_flag,
    settings_file,
    shared_flags,  # noqa: F401  # defines --shard_cache_dir
)
from benchmarks.sweeps.plan import NO_ACCELERATOR, SCALINGS, TIERS, Sweep

GROUPS = {
    "What to run": (
        *("sweep_dir", "preset", "sweep_file", "data_dirs", "models", "batch_sizes"),
        *("modes", "caches", "accelerators", "repeats"),
    ),
    "In which places the data is": (
        *("tiers", "remote_url", "mount_dir", "shard_cache_dir"),
    ),
    "On how many ranks": (
        *("ranks", "placements", "hosts", "scaling", "find_ranks", "max_ranks"),
    ),
    "How runs are started": ("dry_run", "run_timeout", "horovodrun_arguments"),
}

# The published tests of storage for deep learning, to start a sweep from. The batch of
# a rank is each model's own, as in the publications.
_MODELS = [
    *("resnet50", "resnet152", "vgg16", "googlenet"),
    *("inception_v3", "inception_v4"),
]
_RANKS = [1, 2, 4, 8]  # a host of the tests had eight accelerators
# In the tests by Dell and NVIDIA, the GPUs were busy for at least 97 % of the time.
GATE = "--require=au>=0.97"
PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Five repeats: with fewer, an interval of confidence is wide.
    "scaling": {"models": ["resnet50"], "ranks": _RANKS, "repeats": 5},
    "models": {"models": _MODELS, "modes": ["train"], "ranks": _RANKS},
    "inference": {"models": _MODELS, "modes": ["infer"], "ranks": _RANKS},
    "tiers": {"tiers": list(TIERS)},
}

flags.adopt_module_key_flags(preset_flag)
flags.declare_key_flag("shard_cache_dir")

flags.DEFINE_string(
    "sweep_dir",
    None,
    "Folder for one JSON file a run. Runs whose file exists are not run again.",
    required=True,
)
flags.DEFINE_string(
    "sweep_file",
    None,
    "JSON or TOML file of these settings, by the names of the flags (arguments: a list "
    "of flags of benchmarks.train). Flags on the command line take precedence.",
)
for _name, _text in {
    "models": "Models to run. Default: resnet50.",
    "ranks": (
        "Numbers of ranks to run on. Default: 1. "
        "The list must contain 1 for efficiency."
    ),
    "placements": (
        "In place of --ranks: hosts x ranks of each host, such as 1x8,2x4,4x2."
    ),
    "hosts": (
        "Hosts to start ranks on, in the order of their use: host1,host2 with "
        "--placements, and with their slots, host1:8,host2:8, without. Default: "
        "this host."
    ),
    "batch_sizes": (
        "Examples in a batch: of each rank with --scaling=weak, of all ranks together "
        "with --scaling=strong. Default: the model's own, for each rank."
    ),
    "data_dirs": "Folders of converted data sets to run on.",
    "modes": "Values of --mode to run with. Default: what follows --, or train.",
    "caches": "Values of --cache to run with. Default: what follows --, or as_is.",
    "accelerators": (
        f"Values of --emulate to run with; {NO_ACCELERATOR} is the real model. "
        "Default: what follows --, or the real model."
    ),
    "tiers": (
        "Run the same on data in several places: any of "
        f"{', '.join(TIERS)}. local and RAM tiers read --data_dirs, remote and "
        "shard_cache tiers --remote_url, mount tiers --mount_dir."
    ),
    "scaling": (
        "weak: the batch of each rank is the same on any number of ranks. strong: the "
        f"global batch is. Any of {','.join(SCALINGS)}. Default: weak."
    ),
    "find_ranks": (
        "Find the largest number of ranks that meets these gates, such as au>=0.9, by "
        "doubling and bisection. Each probe is a run."
    ),
}.items():
    flags.DEFINE_list(_name, None, _text)
flags.DEFINE_string("remote_url", None, "URL of the data set, for --tiers.")
flags.DEFINE_string(
    "mount_dir", None, "Folder of the data set on a shared mount, for --tiers."
)
flags.DEFINE_integer(
    "repeats",
    None,
    "Runs of each setting. Confidence intervals need 2, and are wide with fewer than "
    "5. Default: 1.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "max_ranks",
    None,
    "Largest number of ranks that --find_ranks tries. Default: the slots of --hosts.",
    lower_bound=1,
)
flags.DEFINE_float(
    "run_timeout",
    None,
    "Seconds after which a run is stopped and counts as failed. Default: 3600.",
    lower_bound=1.0,
)
flags.DEFINE_string(
    "horovodrun_arguments",
    None,
    'More arguments for horovodrun, in one string: "--network-interface eth0".',
)
flags.DEFINE_bool(
    "dry_run",
    False,
    "Check all settings, list the runs, and start none.",
    allow_override=True,  # converters.replicate has one too; only tests import both
)


def sweep_dir() -> pathlib.Path:
    """Returns the folder of the results."""
    return pathlib.Path(flags.FLAGS.sweep_dir)


def is_dry_run() -> bool:
    """Returns whether the runs are only printed."""
    return bool(flags.FLAGS.dry_run)


def sweep_from_flags(arguments: Sequence[str]) -> Sweep:
    """Returns the sweep that file and flags describe.

    Args:
        arguments: The words after `--`: flags of benchmarks.train.

    Raises:
        ValueError: If settings are contradictory, the file holds none, or the
            preset is not known.
        OSError: If the file cannot be read.
    """
    values = flags.FLAGS
    fields = {field.name for field in dataclasses.fields(Sweep)} - {"arguments"}
    settings = {name: values[name].value for name in fields} | {
        "ranks": _whole_numbers("ranks"),
        "batch_sizes": _whole_numbers("batch_sizes"),
        "arguments": arguments or None,
        "horovodrun_arguments": shlex.split(values.horovodrun_arguments or "") or None,
    }
    path = values.sweep_file
    in_file = settings_file.read("sweep_file", path) if path else {}
    present = {name: value for name, value in settings.items() if value is not None}
    return make_sweep(with_preset(values.preset, {**in_file, **present}))


def _whole_numbers(name: str) -> list[int] | None:
    values = flags.FLAGS[name].value
    try:
        return None if values is None else [int(value) for value in values]
    except ValueError:
        raise ValueError(
            f"--{name} must be whole numbers, got {','.join(values)}."
        ) from None


def with_preset(name: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a preset, replaced by those of a file and of flags.

    Each preset has the gate `GATE`, unless the settings have a gate. --placements and
    --find_ranks choose the numbers of ranks themselves, so they exclude the ranks of
    the preset.

    Args:
        name: A key of `PRESETS`; None for the settings alone.
        settings: Settings of a `Sweep`, by name.

    Raises:
        ValueError: If there is no preset of this name.
    """
    if name is None:
        return dict(settings)
    if name not in PRESETS:
        raise ValueError(f"--preset must be of {', '.join(PRESETS)}, got {name}.")
    excluded = set()
    if settings.get("find_ranks"):
        excluded = {"ranks", "repeats"}
    elif settings.get("placements"):
        excluded = {"ranks"}
    own = {key: value for key, value in PRESETS[name].items() if key not in excluded}
    return {**own, **settings, "arguments": _with_gate(settings)}


def _with_gate(settings: Mapping[str, Any]) -> Sequence[str] | Any:
    """Returns the flags after -- with the gate, unless they or a search have one."""
    arguments = settings.get("arguments", ())
    if settings.get("find_ranks") or not isinstance(arguments, list | tuple):
        return arguments
    names = {str(word).lstrip("-").partition("=")[0] for word in arguments}
    return arguments if "require" in names else [*arguments, GATE]


def make_sweep(settings: Mapping[str, Any]) -> Sweep:
    """Returns a sweep from settings by name, as a file holds them.

    Raises:
        ValueError: If a setting is unknown or has a wrong type.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(Sweep)}
    values = {}
    for name, value in settings.items():
        if name not in defaults:
            raise ValueError(
                f"A sweep has the settings {', '.join(defaults)}; got {name}."
            )
        values[name] = _checked(name, value, defaults[name])
    return Sweep(**values)


def _checked(name: str, value: Any, like: Any) -> Any:
    """Returns the value if it has the type of the default value `like`."""
    if isinstance(like, str):
        if not isinstance(value, str):
            raise ValueError(f"{name} must be a text, got {value!r}.")
        return value
    if not isinstance(like, tuple):
        if isinstance(value, bool) or not isinstance(value, (int, type(like))):
            raise ValueError(f"{name} must be a number, got {value!r}.")
        return value
    kind = int if name in ("ranks", "batch_sizes") else str
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError(f"{name} must be a list, got {value!r}.")
    if any(isinstance(item, bool) or not isinstance(item, kind) for item in value):
        what = "whole numbers" if kind is int else "strings"
        raise ValueError(f"{name} must be a list of {what}, got {value!r}.")
    return tuple(value)
