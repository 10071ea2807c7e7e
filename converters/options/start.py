"""The start and the end of a command: flags and help, and the exit code of its work.

In: the function of a command, and its work. Out: the end of the process; help has the
exit code 0. An expected failure is a line on stderr that says what to do. A fault of
the program itself is not caught.
"""

import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from absl import app, flags

from converters.engines import processes
from converters.jobs import work_dir
from converters.options import shared
from tfpipe import errors

if TYPE_CHECKING:
    from converters.exports.source import Source

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


def open_data_set(
    data_dir: str,
    folder: pathlib.Path,
    splits: Sequence[str],
    *,
    output: tuple[str, str] | None,
) -> "Source":
    """Opens DIR, and refuses an output inside DIR.

    Args:
        data_dir: DIR, a folder or a URL.
        folder: Empty folder for the index and catalog of a data set at a URL.
        splits: Splits to take; empty takes all.
        output: The flag of the output, and its value; None for no output.

    Raises:
        ValueError: If DIR or the output is not as it must be.
        TfpipeError: If the data set cannot be read.
    """
    # Commands that read images start without Pillow.
    from converters.exports.source import open_source, require_beside

    location = shared.location_of("DIR", data_dir)
    if output is not None:
        require_beside(output[0], shared.location_of(*output), location)
    return open_source(location, folder, splits)


def refuse_urls(values: flags.FlagValues) -> None:
    """Checks that no flag that takes a path has a URL, which would become a folder.

    Raises:
        ValueError: If one has.
    """
    for name in set(values) - shared.TAKE_URLS:
        errors.require_local_path("", f"--{name}", values[name].value)


def exit_code(work: Callable[[], int]) -> int:
    """Does the work of a command, and returns its exit code; 1 for expected failures.

    An expected failure is one line on stderr.
    """
    try:
        with processes.terminate_as_interrupt():
            return work()
    except (
        ValueError,
        FileExistsError,
        errors.BadIndexError,
        errors.BadRecordError,
        errors.BadSubsetError,
    ) as error:
        message = str(error)  # the same command would fail again
    except (OSError, errors.RemoteError) as error:
        message = f"{error}{_how_to_go_on('Mend the cause, then run')}"
    except MemoryError:
        message = f"out of memory.{_how_to_go_on('Try fewer --num_workers, or run')}"
    except KeyboardInterrupt:
        message = f"interrupted.{_how_to_go_on('Run')}"
    print(f"Error: {message}", file=sys.stderr)
    return 1


def _how_to_go_on(what_to_do: str) -> str:
    """Returns a sentence on how to go on with the job; empty if it was not begun."""
    # Functions of os.path raise no error, even where the folder cannot be looked at.
    try:
        output = shared.location_of("--output_dir", shared.value_of("output_dir"))
    except ValueError:
        return ""
    has_flag = "work_dir" in flags.FLAGS  # the command writes to a URL, too
    work = shared.value_of("work_dir") if has_flag else None
    folder = shared.work_folder(output, work)
    if not os.path.exists(folder / work_dir.WORK_DIR_NAME):
        return ""
    return f" Complete shards are kept. {what_to_do} the same command again to go on."
