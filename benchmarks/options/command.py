"""The frame around a command: its help, wrong flags, and quiet libraries.

In: the function of a command, and its flags in groups. Out: an exit code. A command
calls `run` before it imports TensorFlow, so that help and errors about flags come at
once.
"""

import functools
import importlib
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from absl import app, flags, logging

from tfpipe import errors

Main = Callable[[Sequence[str]], int]
Groups = Mapping[str, Sequence[str]]

_WIDTH = 88
# Flags that may have a URL: the data set of a run, or the data sets of a sweep.
URL_FLAGS = ("data_dir", "data_dirs", "remote_url")
_HELP = ("help", "helpshort", "helpfull", "h", "?")

# Modules with the flags of commands, for errors about flags of other commands.
_FLAGS_OF = {
    "benchmarks.train": "benchmarks.options.train_flags",
    "benchmarks.input": "benchmarks.options.input_flags",
    "benchmarks.sweep": "benchmarks.options.sweep_flags",
}


def run(main: Main, groups: Groups) -> NoReturn:
    """Parses the flags, calls the function of a command, and ends the process.

    --help prints the docstring of the module of `main` and the groups, on stdout, with
    exit code 0. A wrong flag, and an `app.UsageError` of `main`, are a line on stderr
    with exit code 1.

    Args:
        main: Takes the name of the program and the arguments besides flags; returns the
            exit code.
        groups: Title of a group -> names of its flags, in the order of use. Other flags
            of the command come last.
    """
    app.run(
        functools.partial(_call, main),
        flags_parser=functools.partial(_parse, main=main, groups=groups),
    )


def _call(main: Main, argv: Sequence[str]) -> int:
    _choose_verbosity()
    try:
        return main(argv)
    except app.UsageError as error:
        return _fail(str(error))


def _choose_verbosity() -> None:
    """Hides messages of TensorFlow and absl below --verbosity.

    TensorFlow reads its variable during its import.
    """
    verbosity = flags.FLAGS["verbosity"]
    if verbosity.present:
        # absl: 1 debug, 0 info, -1 warning, -2 error. TensorFlow: 0 info to 3 nothing.
        level = min(max(-verbosity.value, 0), 3)
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = str(level)
    else:
        logging.set_verbosity(logging.WARNING)


def _parse(argv: list[str], *, main: Main, groups: Groups) -> list[str]:
    asked = _asked_help(argv[1:])
    if asked:
        print(help_text(main, groups, with_all=asked == "helpfull"))
        sys.exit(0)
    try:
        words = flags.FLAGS(argv)
        refuse_urls(flags.FLAGS)
        return words
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(1)
    except flags.UnrecognizedFlagError as error:
        sys.exit(_fail(f"{error}{_owner_sentence(error.flagname)}"))
    except flags.Error as error:
        sys.exit(_fail(str(error)))


def _asked_help(arguments: Sequence[str]) -> str | None:
    """Returns the first flag for help, before any --."""
    for argument in arguments:
        if argument == "--":
            break
        if argument.startswith("-") and argument.lstrip("-") in _HELP:
            return argument.lstrip("-")
    return None


def _fail(message: str) -> int:
    text = " ".join(message.split()).replace(" ?", "?")
    end = "" if text[-1] in ".?" else "."
    print(f"Error: {text}{end} --help lists the flags.", file=sys.stderr)
    return 1


def _owner_sentence(name: str) -> str:
    """Returns a sentence with the commands that take a flag, or ""."""
    owners = [
        command
        for command, module in _FLAGS_OF.items()
        if {name, name.removeprefix("no")} & _names(module)
    ]
    return f" It is a flag of {' and '.join(owners)}." if owners else ""


def _names(module: str) -> set[str]:
    imported = importlib.import_module(module)
    return {flag.name for flag in flags.FLAGS.get_key_flags_for_module(imported)}


def help_text(main: Main, groups: Groups, *, with_all: bool) -> str:
    """Returns the docstring of the module of `main`, and its flags in groups.

    Args:
        main: The function of the command.
        groups: As in `run`.
        with_all: Whether the flags of absl and of other modules follow.
    """
    doc = main.__globals__["__doc__"]  # type: ignore[attr-defined]
    own = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    named = {name for names in groups.values() for name in names}
    others = [flag.name for flag in own if flag.name not in named]
    shown = {**groups, ("Other flags" if groups else "Flags"): others}
    if with_all:
        own_names = named.union(others)
        shown["Flags of every command"] = sorted(set(flags.FLAGS) - own_names)
    lines = [doc.rstrip()]
    for title, names in shown.items():
        if names:
            lines += ["", f"{title}:", *(_describe(flags.FLAGS[n]) for n in names)]
    if not with_all:
        lines += ["", "--helpfull also lists the flags for logging and debugging."]
    return "\n".join(lines)


def _describe(flag: flags.Flag) -> str:
    """Returns name, choices, meaning and default of a flag, as a paragraph."""
    name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    text = (flag.help or "").replace("|", " | ")
    default = flag.default
    if isinstance(default, list):
        default = ",".join(map(str, default))
    if default is not None and default is not False and default != "":
        text += f" (default: {default})"
    return textwrap.fill(
        f"{name}: {text}",
        width=_WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_on_hyphens=False,
    )


def refuse_urls(values: flags.FlagValues) -> None:
    """Checks that no flag but `URL_FLAGS` has a URL, which would become a folder.

    Raises:
        ValueError: If another flag has a URL.
    """
    for name in values:
        if name not in URL_FLAGS:
            errors.require_local_path("", f"--{name}", values[name].value)


def refuse_arguments(argv: Sequence[str]) -> None:
    """Checks that the command line has nothing but flags.

    Raises:
        app.UsageError: If there is another argument.
    """
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected argument: {argv[1]}. Flags start with --.")


def refuse_others(groups: Groups, modules: Sequence[Any], command: str) -> None:
    """Checks that no flag of other commands is on the command line.

    Args:
        groups: The flags of the command.
        modules: Modules with flags of other commands.
        command: Name of the command.

    Raises:
        ValueError: If a flag of `modules` that `groups` lack is on the command line.
    """
    own = {name for names in groups.values() for name in names}
    keys = flags.FLAGS.get_key_flags_for_module
    others = {flag.name for module in modules for flag in keys(module)}
    refuse(sorted(others - own), command)


def refuse(names: Sequence[str], why: str) -> None:
    """Checks that flags without effect are not on the command line.

    Args:
        names: Names of the flags.
        why: The reason, as in "--mode=eval".

    Raises:
        ValueError: If a flag is on the command line.
    """
    present = [f"--{name}" for name in names if flags.FLAGS[name].present]
    if present:
        raise ValueError(f"{why} does not use {', '.join(present)}. Leave it out.")
