"""Flags of benchmarks.train, checked before a sweep starts hours of runs.

In: the flags of one run, as words. Out: its `Config`, or an error for what
benchmarks.train would refuse. The flags are parsed by benchmarks.train's own
definitions, in a copy that leaves the flags of this process as they are.
"""

import copy
import dataclasses
import pathlib
from collections.abc import Sequence

from absl import flags, logging

import tfpipe
from benchmarks.options import command, emulation, train_flags
from benchmarks.options.config import Config
from benchmarks.reporting.gates import Gate
from benchmarks.system.tiers.place import is_url

_FIELDS = [field.name for field in dataclasses.fields(Config)]


def parse(arguments: Sequence[str]) -> Config:
    """Returns the config of a run with these flags.

    Raises:
        ValueError: If a flag is unknown, has a wrong value, or contradicts another.
        RemoteError: If a package or a setting for the URL of the data is missing.
    """
    values = flags.FlagValues()
    of_absl = flags.FLAGS.get_key_flags_for_module(logging.__name__)
    for flag in (*train_flags.KEY_FLAGS, *of_absl):
        values[flag.name] = copy.deepcopy(flag)
        values[flag.name].unparse()  # the sweep may have a value of its own
    try:
        rest = values(["benchmarks.train", *arguments])[1:]
    except flags.UnrecognizedFlagError as error:
        if error.flagname in flags.FLAGS:
            raise ValueError(
                f"--{error.flagname} is no flag of benchmarks.train: it must stand "
                "before --."
            ) from None
        raise ValueError(f"benchmarks.train refuses its flags: {error}") from None
    except flags.Error as error:
        raise ValueError(f"benchmarks.train refuses its flags: {error}") from None
    command.refuse_urls(values)
    if rest:
        raise ValueError(
            f"Flags of benchmarks.train must be --name=value, got {rest[0]!r}."
        )
    return Config(**{name: values[name].value for name in _FIELDS})


def check(arguments: Sequence[str]) -> None:
    """Checks all that can be known of a run before it starts.

    Raises:
        ValueError: If benchmarks.train would refuse the flags, a folder or file is
            missing, or the accelerator's time for the model is not known.
        RemoteError: If the index of a data set cannot be read by its URL.
    """
    config = parse(arguments)
    for text in config.require:
        Gate.parse(text)
    if is_url(config.data_dir):
        tfpipe.Files(config.data_dir).size("index.json")
    elif config.data_dir is not None:
        _check_exists(pathlib.Path(config.data_dir, "index.json"), "data_dir")
    if config.tuning is not None:
        _check_exists(pathlib.Path(config.tuning), "tuning")
    if config.mode != "train" and config.checkpoint_dir is not None:
        _check_exists(pathlib.Path(config.checkpoint_dir), "checkpoint_dir")
    emulation.of_config(config)


def _check_exists(path: pathlib.Path, flag: str) -> None:
    if not path.exists():
        raise ValueError(f"--{flag} must be there, and {path} is not.")


def given_here() -> list[str]:
    """Returns the flags of benchmarks.train that this process was started with."""
    own = ("shard_cache_dir",)  # a sweep takes it too
    return [f.name for f in train_flags.KEY_FLAGS if f.present and f.name not in own]
