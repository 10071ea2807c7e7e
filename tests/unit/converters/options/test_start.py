"""converters.options.start: the flags that every command refuses."""

import copy

import pytest
from absl import flags

from converters import folder, imagenet, synthesize, verify
from converters.options import start

TEXT_FLAGS = ("string", "comma separated list of strings")
COMMANDS = (folder, imagenet, synthesize, verify)


@pytest.mark.parametrize(
    "flag",
    {
        flag.name: flag
        for module in COMMANDS
        for flag in flags.FLAGS.get_key_flags_for_module(module)
        if flag.flag_type() in TEXT_FLAGS
    }.values(),
    ids=lambda flag: flag.name,
)
def test_no_flag_takes_a_url(flag: flags.Flag) -> None:
    """A new flag of a command is tried too."""
    values = flags.FlagValues()
    values[flag.name] = copy.deepcopy(flag)
    values([__name__, f"--{flag.name}=s3://bucket/x"])

    with pytest.raises(ValueError, match=f"--{flag.name} must be a path on this"):
        start.refuse_urls(values)
