"""Flags that take a text, each given a URL."""

import copy
from collections.abc import Callable

import pytest
from absl import flags

_TEXT_FLAGS = ("string", "comma separated list of strings")


def takes_text(flag: flags.Flag) -> bool:
    """Whether a flag may be given a path."""
    return flag.flag_type() in _TEXT_FLAGS


def check_url_is_refused(
    flag: flags.Flag, refuse: Callable[[flags.FlagValues], None]
) -> None:
    """Checks that a function refuses a URL as the value of a flag, by its name."""
    values = flags.FlagValues()
    values[flag.name] = copy.deepcopy(flag)
    values([__name__, f"--{flag.name}=s3://bucket/x"])

    with pytest.raises(ValueError, match=f"--{flag.name} must be a path on this"):
        refuse(values)
