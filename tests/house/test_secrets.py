"""No error repeats a secret of a command line: a table over all flags of all commands.

tests/unit/converters/options/test_job.py looks at the options in a result and an index.
"""

import itertools

import pytest

from tests.support.processes import commands
from tfpipe.cli import fields, names

SECRET = "hunter2-hidden"
# Ways in which a secret stands in a place that a user names.
PLACES = (
    f"s3://AKIA:{SECRET}@bucket/photos",
    f"https://host/photos?X-Amz-Signature={SECRET}",
    f"postgresql://me:{SECRET}@127.0.0.1:1/base#photos",
    f"mysql://me@127.0.0.1:1/base?password={SECRET}#photos",
    f"a=s3://AKIA:{SECRET}@bucket/photos",
)


def _flags(command: object) -> list[tuple[str, ...]]:
    """Returns words for each flag and each argument of a command, with {} in them."""
    options = fields.options_of(command.options)  # type: ignore[attr-defined]
    flags = [f"--{option.name}={{}}" for option in options if option.kind is str]
    return [*((flag,) for flag in flags), ("{}",), ("{}", "{}"), ("--", "{}")]


@pytest.mark.parametrize("name", names.MODULES)
def test_no_command_line_is_repeated_with_its_secret(name: str) -> None:
    own = [command for each, command in names.commands_of("") if each == name]
    repeated = []
    for command in own:
        for words, place in itertools.product(_flags(command), PLACES):
            line = [command.form] * bool(command.form)
            line += [word.format(place) for word in words]
            try:
                command.parse(line[bool(command.form) :])
            except (ValueError, OSError) as error:
                if SECRET in str(error):
                    repeated.append((line, str(error)))

    assert repeated == []


def test_an_error_of_the_command_line_is_printed_as_it_is_raised() -> None:
    own = [command for each, command in names.commands_of("") if each == "train"]

    done = commands.answer(own, data_dir=PLACES[0])

    assert done.returncode == 1
    assert SECRET not in done.stderr
