"""The start of a command: flags are parsed, or help is printed with exit code 0.

In: the function of a command. Out: the end of the process.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from absl import app, flags

from converters.options import shared
from tfpipe import errors

_HELP = ("help", "helpshort", "helpfull", "helpxml", "?")


def run(main: Callable[[Any], int]) -> NoReturn:
    """Parses the flags, calls the function of a command, and ends the process.

    Args:
        main: Takes the arguments without flags and returns the exit code.
    """
    app.run(main, flags_parser=_parse)
    raise AssertionError("app.run ends the process")


def _parse(argv: list[str]) -> list[str]:
    try:
        arguments: list[str] = app.parse_flags_with_usage(argv)
        refuse_urls(flags.FLAGS)
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(1)
    except SystemExit:
        # absl ends a process that has printed its help with 1, the code of an error.
        if any(word.startswith("-") and word.lstrip("-") in _HELP for word in argv):
            sys.exit(0)
        raise
    return arguments


def data_dir_of(argv: Sequence[str]) -> str:
    """Returns DIR, the only argument of a command about one data set.

    Raises:
        app.UsageError: If there is no argument, or more than one.
    """
    if len(argv) != 2:
        raise app.UsageError(
            "Expected one data set, DIR, got "
            f"{errors.count_of(len(argv) - 1, 'argument')}. Flags start with --."
        )
    return argv[1]


def refuse_urls(values: flags.FlagValues) -> None:
    """Checks that no flag that takes a path has a URL, which would become a folder.

    Raises:
        ValueError: If one has.
    """
    for name in set(values) - shared.TAKE_URLS:
        errors.require_local_path("", f"--{name}", values[name].value)
