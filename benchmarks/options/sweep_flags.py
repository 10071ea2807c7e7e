"""The flags of benchmarks.sweep.

In: the command line, the file of --sweep_file, and a preset. Out: a `Sweep`.
"""

import dataclasses
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from benchmarks.options import preset_flag, settings_file, shared_flags
from benchmarks.sweeps import presets
from benchmarks.sweeps.plan import NO_ACCELERATOR, SCALINGS, Sweep
from benchmarks.sweeps.tiers import TIERS

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

flags.adopt_module_key_flags(preset_flag)
flags.declare_key_flag("shard_cache_dir")

_SWEEP_DIR = flags.DEFINE_string(
    "sweep_dir",
    None,
    "Folder for one JSON file a run. Runs whose file exists are not run again.",
    required=True,
)
_SWEEP_FILE = flags.DEFINE_string(
    "sweep_file",
    None,
    "JSON or TOML file of these settings, by the names of the flags (arguments: a list "
    "of flags of benchmarks.train). Flags on the command line take precedence.",
)
_MODELS = flags.DEFINE_list("models", None, "Models to run. Default: resnet50.")
_RANKS = flags.DEFINE_list(
    "ranks",
    None,
    "Numbers of ranks to run on. Default: 1. The list must contain 1 for efficiency.",
)
_PLACEMENTS = flags.DEFINE_list(
    "placements",
    None,
    "In place of --ranks: hosts x ranks of each host, such as 1x8,2x4,4x2.",
)
_HOSTS = flags.DEFINE_list(
    "hosts",
    None,
    "Hosts to start ranks on, in the order of their use: host1,host2 with "
    "--placements, and with their slots, host1:8,host2:8, without. Default: this host.",
)
_BATCH_SIZES = flags.DEFINE_list(
    "batch_sizes",
    None,
    "Examples in a batch: of each rank with --scaling=weak, of all ranks together with "
    "--scaling=strong. Default: the model's own, for each rank.",
)
_DATA_DIRS = flags.DEFINE_list(
    "data_dirs", None, "Folders of converted data sets to run on."
)
_MODES = flags.DEFINE_list(
    "modes", None, "Values of --mode to run with. Default: what follows --, or train."
)
_CACHES = flags.DEFINE_list(
    "caches", None, "Values of --cache to run with. Default: what follows --, or as_is."
)
_ACCELERATORS = flags.DEFINE_list(
    "accelerators",
    None,
    f"Values of --emulate to run with; {NO_ACCELERATOR} is the real model. Default: "
    "what follows --, or the real model.",
)
_TIERS = flags.DEFINE_list(
    "tiers",
    None,
    "Run the same on data in several places: any of "
    f"{', '.join(TIERS)}. local and RAM tiers read --data_dirs, remote and shard_cache "
    "tiers --remote_url, mount tiers --mount_dir.",
)
_REMOTE_URL = flags.DEFINE_string(
    "remote_url", None, "URL of the data set, for --tiers."
)
_MOUNT_DIR = flags.DEFINE_string(
    "mount_dir", None, "Folder of the data set on a shared mount, for --tiers."
)
_SCALING = flags.DEFINE_list(
    "scaling",
    None,
    "weak: the batch of each rank is the same on any number of ranks. strong: the "
    f"global batch is. Any of {','.join(SCALINGS)}. Default: weak.",
)
_REPEATS = flags.DEFINE_integer(
    "repeats",
    None,
    "Runs of each setting. Confidence intervals need 2, and are wide with fewer than "
    "5. Default: 1.",
    lower_bound=1,
)
_FIND_RANKS = flags.DEFINE_list(
    "find_ranks",
    None,
    "Find the largest number of ranks that meets these gates, such as au>=0.9, by "
    "doubling and bisection. Each probe is a run.",
)
_MAX_RANKS = flags.DEFINE_integer(
    "max_ranks",
    None,
    "Largest number of ranks that --find_ranks tries. Default: the slots of --hosts.",
    lower_bound=1,
)
_RUN_TIMEOUT = flags.DEFINE_float(
    "run_timeout",
    None,
    "Seconds after which a run is stopped and counts as failed. Default: 3600.",
    lower_bound=1.0,
)
_HOROVODRUN_ARGUMENTS = flags.DEFINE_string(
    "horovodrun_arguments",
    None,
    'More arguments for horovodrun, in one string: "--network-interface eth0".',
)
_DRY_RUN = flags.DEFINE_bool(
    "dry_run",
    False,
    "Check all settings, list the runs, and start none.",
    allow_override=True,  # converters.replicate has one too; only tests import both
)


def sweep_dir() -> pathlib.Path:
    """Returns the folder of the results."""
    return pathlib.Path(_SWEEP_DIR.value)


def is_dry_run() -> bool:
    """Returns whether the runs are only printed."""
    return bool(_DRY_RUN.value)


def sweep_from_flags(arguments: Sequence[str]) -> Sweep:
    """Returns the sweep that file and flags describe.

    Args:
        arguments: The words after `--`: flags of benchmarks.train.

    Raises:
        ValueError: If settings contradict each other, the file holds none, or the
            preset is not known.
        OSError: If the file cannot be read.
    """
    given = {
        "models": _MODELS.value,
        "ranks": _numbers("ranks", _RANKS.value),
        "placements": _PLACEMENTS.value,
        "hosts": _HOSTS.value,
        "batch_sizes": _numbers("batch_sizes", _BATCH_SIZES.value),
        "data_dirs": _DATA_DIRS.value,
        "modes": _MODES.value,
        "caches": _CACHES.value,
        "accelerators": _ACCELERATORS.value,
        "tiers": _TIERS.value,
        "remote_url": _REMOTE_URL.value,
        "mount_dir": _MOUNT_DIR.value,
        "shard_cache_dir": shared_flags.shared()["shard_cache_dir"],
        "scaling": _SCALING.value,
        "repeats": _REPEATS.value,
        "find_ranks": _FIND_RANKS.value,
        "max_ranks": _MAX_RANKS.value,
        "run_timeout": _RUN_TIMEOUT.value,
        "arguments": arguments or None,
        "horovodrun_arguments": shlex.split(_HOROVODRUN_ARGUMENTS.value or "") or None,
    }
    in_file = (
        settings_file.read("sweep_file", _SWEEP_FILE.value) if _SWEEP_FILE.value else {}
    )
    chosen = {name: value for name, value in given.items() if value is not None}
    return make_sweep(presets.settings(preset_flag.PRESET.value, {**in_file, **chosen}))


def _numbers(name: str, values: Sequence[str] | None) -> list[int] | None:
    if values is None:
        return None
    try:
        return [int(value) for value in values]
    except ValueError:
        raise ValueError(
            f"--{name} must be whole numbers, got {','.join(values)}."
        ) from None


def make_sweep(settings: Mapping[str, Any]) -> Sweep:
    """Returns a sweep from settings by name, as a file holds them.

    Raises:
        ValueError: If a setting is unknown or has a wrong type.
    """
    known = {field.name: field for field in dataclasses.fields(Sweep)}
    values = {}
    for name, value in settings.items():
        if name not in known:
            raise ValueError(
                f"A sweep has the settings {', '.join(known)}; got {name}."
            )
        like = known[name].default
        values[name] = _checked(name, value, like)
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
