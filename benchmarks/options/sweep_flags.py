"""The flags of benchmarks.sweep.

In: the command line, and the file of --sweep_file. Out: a `Sweep`.
"""

import dataclasses
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from benchmarks.options import settings_file
from benchmarks.sweeps.plan import SCALINGS, Sweep

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
_BATCH_SIZES = flags.DEFINE_list(
    "batch_sizes",
    None,
    "Examples in a batch: of each rank with --scaling=weak, of all ranks together with "
    "--scaling=strong. Default: the model's own, for each rank.",
)
_DATA_DIRS = flags.DEFINE_list(
    "data_dirs", None, "Folders of converted data sets to run on."
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
_RUN_TIMEOUT = flags.DEFINE_float(
    "run_timeout",
    None,
    "Seconds after which a run is stopped and counts as failed. Default: 3600.",
    lower_bound=1.0,
)
_HOROVODRUN_ARGUMENTS = flags.DEFINE_string(
    "horovodrun_arguments",
    None,
    'More arguments for horovodrun, in one string: "-H host1:8,host2:8".',
)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "List the runs, and start none.")


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
        ValueError: If settings contradict each other, or the file holds none.
        OSError: If the file cannot be read.
    """
    given = {
        "models": _MODELS.value,
        "ranks": _RANKS.value and _numbers("ranks", _RANKS.value),
        "batch_sizes": _BATCH_SIZES.value
        and _numbers("batch_sizes", _BATCH_SIZES.value),
        "data_dirs": _DATA_DIRS.value,
        "scaling": _SCALING.value,
        "repeats": _REPEATS.value,
        "run_timeout": _RUN_TIMEOUT.value,
        "arguments": arguments or None,
        "horovodrun_arguments": shlex.split(_HOROVODRUN_ARGUMENTS.value or "") or None,
    }
    in_file = read_file(_SWEEP_FILE.value) if _SWEEP_FILE.value else {}
    chosen = {name: value for name, value in given.items() if value is not None}
    return make_sweep({**in_file, **chosen})


def _numbers(name: str, values: Sequence[str]) -> list[int]:
    try:
        return [int(value) for value in values]
    except ValueError:
        raise ValueError(
            f"--{name} must be whole numbers, got {','.join(values)}."
        ) from None


def read_file(path: str) -> dict[str, Any]:
    """Reads settings from a file: TOML if its name ends in .toml, else JSON.

    Raises:
        ValueError: If the file is not valid, or holds no object.
        OSError: If it cannot be read.
    """
    return settings_file.read("sweep_file", path)


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
