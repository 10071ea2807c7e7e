"""A command: words to options, options to work, work to an exit code.

In: the options and the function of a command. Out: the end of the process.

| exit code | meaning                                                     |
|-----------|-------------------------------------------------------------|
| 0         | done; --help and --version too                              |
| 1         | an error: one line on stderr                                |
| other     | as the function of the command returns                      |
"""

import contextlib
import dataclasses
import functools
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tfpipe import errors
from tfpipe.cli import (
    fields,
    flags,
    help as help_texts,
    messages,
    output,
    system_errors,
)
from tfpipe.cli.signals import terminated_as_interrupted

_HELP = {"help": False, "h": False, "helpshort": False, "?": False, "helpfull": True}


@dataclasses.dataclass(frozen=True)
class Command:
    """A command, or one form of a command.

    Attributes:
        options: A class made by `cli.options`.
        work: Takes the options; returns the exit code, or None for 0. Its module has
            the docstring for the help.
        form: The word for the form, if a command has several forms.
        arguments: Fields of the words without a flag, in order.
        rest: Field of the words after --.
        make: Makes the options of the values of the given flags, by field. Default:
            the class.
        groups: Titles of the groups of flags, in the order of the help.
        unused: The flags that have no effect in a mode, which are refused there.
        hint: Takes the options and an error of `work`; returns a sentence to follow
            the message, or "".
        cleans_up: Whether SIGTERM interrupts the work, as Ctrl-C does. Without it the
            process ends at once.
    """

    options: type
    work: Callable[[Any], int | None]
    form: str = ""
    arguments: tuple[str, ...] = ()
    rest: str | None = None
    make: Callable[..., Any] | None = None
    groups: tuple[str, ...] = ()
    unused: tuple[fields.Unused, ...] = ()
    hint: Callable[[Any, BaseException], str] = lambda options, error: ""
    cleans_up: bool = True

    @property
    def module(self) -> str:
        """Module of the command, as `python -m` takes it."""
        spec = self.work.__globals__["__spec__"]
        name: str = spec.name if spec else self.work.__module__
        return name.removesuffix(".__main__")

    @property
    def doc(self) -> str:
        """The docstring for the help."""
        return str(self.work.__globals__["__doc__"])

    @property
    def flags(self) -> list[fields.Option]:
        """The flags and arguments for the help, first the arguments without a flag."""
        options = {each.field: each for each in fields.options_of(self.options)}
        first = {
            name: dataclasses.replace(
                options[name], is_positional=not options[name].about.is_argument
            )
            for name in self.arguments
        }
        return list((first | options | first).values())

    def parse(self, words: Sequence[str]) -> Any:
        """Returns the options of the words of a command line.

        Raises:
            ValueError: If a word is wrong.
        """
        try:
            options = flags.parse(
                self.options,
                words,
                arguments=self.arguments,
                rest=self.rest,
                make=self.make,
            )
            fields.refuse_unused(options, self.unused)
        except ValueError as error:
            error.args = (errors.masked(str(error), words),)
            raise
        return options


Say = Callable[[str], str]


def run(*commands: Command, say: Say = str) -> NoReturn:
    """Runs the command of the process's command line, and ends the process.

    Args:
        commands: The command, or its forms.
        say: Turns help, errors and answers, with commands as `python -m MODULE`, into
            texts for the user.
    """
    from absl import app

    _survive_closed_stdout()
    prepare = functools.partial(_prepare, commands, say)
    app.run(lambda work: work(), flags_parser=prepare)
    raise AssertionError("app.run ends the process")


def call(commands: Sequence[Command], words: Sequence[str], *, say: Say = str) -> int:
    """Runs a command in this process, as `run` does, and returns its exit code.

    Args:
        commands, say: As for `run`.
        words: The words after the name of the command.
    """
    try:
        return _prepare(commands, say, ["", *words])()
    except SystemExit as ended:
        return int(ended.code or 0)


def _prepare(
    commands: Sequence[Command], say: Say, argv: Sequence[str]
) -> Callable[[], int]:
    """Returns the work of a command line.

    Raises:
        SystemExit: If help was asked for, or the command line is wrong.
    """
    words = list(argv[1:])
    if asked := _asked(words):
        print(_answer(asked, commands, say, words))
        sys.exit(0)
    flags.mark_parsed()
    try:
        command = _chosen(commands, words)
        options = command.parse(words)
    except (ValueError, OSError, errors.TfpipeError) as error:
        message = f"Error: {error}{_advice(error, commands[0])}"
        print(say(message), file=sys.stderr)
        sys.exit(1)
    return functools.partial(_work, command, options, say)


def _asked(words: Sequence[str]) -> str | None:
    """Returns the first flag for help or the version, before any --."""
    own = words[: words.index("--")] if "--" in words else words
    names = (word.lstrip("-") for word in own if word.startswith("-"))
    return next((name for name in names if name in (*_HELP, "version")), None)


def _answer(asked: str, commands: Sequence[Command], say: Say, words: list[str]) -> str:
    """Returns the help or the version."""
    if asked == "version":
        import tfpipe

        return f"tfpipe {tfpipe.__version__}"
    command = next((c for c in commands if c.form and c.form in words), None)
    parts: list[help_texts.Part] = []
    for each in [command] if command else commands:
        options = [option.said(say) for option in each.flags]
        if each.form or len(commands) > 1:
            parts.append((each.form or "Flags", options))
        else:
            parts += help_texts.parts_of(options, each.groups)
    doc = say(commands[0].doc)
    if _HELP[asked]:
        common = [(flag.name, flag.help or "") for flag in flags.common()]
        return help_texts.full(doc, parts, common)
    return help_texts.short(doc, parts)


def _chosen(commands: Sequence[Command], words: list[str]) -> Command:
    """Returns the form of the first word with a form, and removes the word.

    Raises:
        ValueError: If there is no such word, and each form needs one.
    """
    forms = {command.form: command for command in commands}
    for index, word in enumerate(words):
        if word in forms and word:
            del words[index]
            return forms[word]
    if "" in forms:
        return forms[""]
    word = next((word for word in words if not word.startswith("-")), "nothing")
    raise ValueError(
        f"Name one of {', '.join(forms)}, got {word}.{errors.did_you_mean(word, forms)}"
    )


def _advice(error: Exception, command: Command) -> str:
    """Returns a sentence of help after a wrong command line."""
    if not isinstance(error, flags.UnknownFlagError):
        return ""
    from tfpipe.cli import names

    owners = names.owners_of(error.flag, command.module.partition(".")[0])
    own = f" It is a flag of {_some(owners)}." if owners else ""
    if owners and command.rest is not None:
        options = {each.field: each for each in fields.options_of(command.options)}
        own += f" {options[command.rest].about.help}"
    return f"{own} --help lists the flags."


def _some(names: Sequence[str]) -> str:
    """Returns the first names of commands."""
    more = [f"{len(names) - 2} others"] if names[3:] else names[2:]
    return " and ".join([*names[:2], *more])


def _work(command: Command, options: Any, say: Say) -> int:
    """Does the work and returns the exit code; 1 for an expected failure."""
    messages.hide()
    output.say.set(say)
    guard = terminated_as_interrupted if command.cleans_up else contextlib.nullcontext
    try:
        with guard(), fields.environment(options):
            return command.work(options) or 0
    except (
        *(OSError, ValueError, MemoryError, KeyboardInterrupt),
        errors.TfpipeError,
    ) as error:
        hint = command.hint(options, error)
        message = f"{_message(error, command, options)}{hint and f' {hint}'}"
    # No name holds the error here: its traceback would keep files of the work open.
    print(say(f"Error: {message}"), file=sys.stderr)
    return 1


def _message(error: BaseException, command: Command, options: Any) -> str:
    """Returns a failure in words, as they follow "Error: "."""
    match error:
        case OSError():
            return system_errors.text(error, command.flags, options)
        case MemoryError():
            return "out of memory."
        case KeyboardInterrupt():
            return "interrupted."
    return str(error)


class _Pipe(io.FileIO):
    """A file descriptor for all bytes, also after the end of its reader (`| head`)."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            return len(data)


def _survive_closed_stdout() -> None:
    """Lets the command go on to its exit code when nobody reads stdout any more."""
    old = sys.stdout
    if isinstance(old, io.TextIOWrapper) and old.fileno() == 1:
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Pipe(1, "wb", closefd=False)),
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=old.line_buffering,
        )
