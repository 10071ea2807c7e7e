"""absl's flags of options: defined on import, parsed by the running command.

In: a dataclass of options, and the words of a command line. Out: an instance.
A command parses the words with its own flags alone: imported modules add none.
absl's own list has all flags, for programs with an import of an options module.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, dataclass_transform

from absl import flags, logging

from tfpipe import errors
from tfpipe.cli import fields
from tfpipe.cli.fields import Option

Options = TypeVar("Options")
_LONGEST_NAME = 60

# Modules with flags of every command.
_COMMON_MODULES = (__name__, logging.__name__, "absl.app")


def _common(name: str, text: str) -> flags.BooleanFlag:
    """Defines a switch of every command. Another program may define the same switch."""
    switch = flags.BooleanFlag(name, None, text, allow_override=True)
    flags.DEFINE_flag(switch, flags.FLAGS, __name__)
    return switch


JSON = _common(
    "json",
    "Print the result as one JSON object, the last line of stdout. Default: only if "
    "stdout is no terminal.",
)
VERBOSE = _common(
    "verbose",
    "Also print the pipeline, the proofs and the environment. Default: only if stdout "
    "is no terminal.",
)


class UnknownFlagError(ValueError):
    """A word of the command line looks like a flag, and the command has no such flag.

    Attributes:
        flag: Name of the flag.
    """

    def __init__(self, flag: str, message: str) -> None:
        super().__init__(message)
        self.flag = flag


@dataclass_transform(kw_only_default=True, frozen_default=True)
def options(kind: type[Options]) -> type[Options]:
    """Makes a frozen dataclass of options with checks, and defines its flags.

    The module of the class gets the flags as key flags: another program imports the
    module, calls `absl.flags.adopt_module_key_flags`, and then `from_flags`.

    Args:
        kind: A class with annotated fields, some of them made by `cli.flag`.
    """
    own = getattr(kind, "__post_init__", lambda self: None)

    def checked(self: Any) -> None:
        fields.check(self)
        own(self)

    kind.__post_init__ = checked  # type: ignore[attr-defined]
    made: type[Options] = dataclasses.dataclass(frozen=True, kw_only=True)(kind)
    for option in fields.options_of(made):
        if not option.about.is_argument:
            _define(option, made.__module__)
    return made


def _define(option: Option, module: str) -> None:
    """Adds a flag to absl's own list, once for all classes with the field."""
    flag, before = _Flag(option), None
    if option.name in flags.FLAGS:
        before = flags.FLAGS[option.name]
        if isinstance(before, _Flag) and before.option == option:
            flags.FLAGS.register_key_flag_for_module(module, before)
            return
    # Two commands may have a flag of one name. A flag of another program stays.
    flag.allow_override = isinstance(before, _Flag)
    flags.DEFINE_flag(flag, flags.FLAGS, module)
    flag.allow_override = False


class _Flag(flags.Flag[Any]):
    """A flag of absl with the texts, values and errors of an `Option`."""

    def __init__(self, option: Option) -> None:
        self.option = option
        default = None if option.is_required else option.default
        super().__init__(
            flags.ArgumentParser(),
            None,
            option.name,
            default,
            option.about.help,
            boolean=option.is_switch,
        )

    def parse(self, argument: Any) -> None:
        before = self.value if self.present else None
        if self.present and not self.option.about.repeated:
            raise flags.IllegalFlagValueError(
                f"{self.option.label} was given twice: "
                f"{self.option.text_of(before)} and {argument}. Leave one out."
                f"{' Commas join the values of a list.' if self.option.is_list else ''}"
            )
        super().parse(argument)
        if before is not None:
            self.value = before + self.value

    def _parse(self, argument: Any) -> Any:
        if not isinstance(argument, str) or argument == self.option.default:
            return argument
        try:
            return self.option.parse(argument)
        except ValueError as error:
            raise flags.IllegalFlagValueError(str(error)) from None


def _values_of(kind: type) -> flags.FlagValues:
    """Returns the flags of options and of every command, not yet parsed."""
    values = _Values()  # type: ignore[no-untyped-call]
    for flag in common():
        values[flag.name] = flag
    for option in fields.options_of(kind):
        if not option.about.is_argument:
            values[option.name] = _Flag(option)
    return values


def from_flags(
    kind: type[Options],
    *,
    values: flags.FlagValues | None = None,
    make: Callable[..., Options] | None = None,
    **more: Any,
) -> Options:
    """Returns options with the values of the given flags.

    Args:
        kind: A class made by `options`.
        values: Parsed flags. Default: absl's own.
        make: Takes the values by field, and makes the options; the values of a nested
            field are a dict. Default: `kind`.
        more: Values of other fields.

    Raises:
        ValueError: If a flag is missing, or values do not fit together.
    """
    values = flags.FLAGS if values is None else values
    own: dict[str, Any] = {}
    missing: list[Option] = []
    for option in fields.options_of(kind):
        target = own
        for name in option.path:
            target = target.setdefault(name, {})
        if option.field in more:
            target[option.field] = more.pop(option.field)
        elif option.name in values and not values[option.name].using_default_value:
            target[option.field] = values[option.name].value
        elif option.is_required:
            missing.append(option)
    if missing:
        *first, last = (option.label for option in missing)
        labels = f"{', '.join(first)} and {last}" if first else last
        hint = missing[0].about.help.partition(". ")[0].rstrip(".")
        if missing[0].choices:
            hint += f". One of {', '.join(missing[0].choices)}"
        about = f": {hint}." if len(missing) == 1 else ". --help shows an example."
        raise ValueError(f"{labels} must be given{about}")
    own |= more
    return (make or functools.partial(fields.build, kind))(**own)


def parse(
    kind: type[Options],
    words: Sequence[str],
    *,
    arguments: Sequence[str] = (),
    rest: str | None = None,
    make: Callable[..., Options] | None = None,
) -> Options:
    """Returns the options of a command line.

    Args:
        kind: A class made by `options`.
        words: The words after the name of the command.
        arguments, rest, make: As for `Command`. A list takes all words, except for the
            words of the later fields.

    Raises:
        UnknownFlagError: If there is no flag of a name.
        ValueError: If a word is wrong, or words contradict other words.
    """
    words, after = list(words), None
    if rest is not None and "--" in words:
        cut = words.index("--")
        words, after = words[:cut], tuple(words[cut + 1 :])
    _refuse_long(words)
    values = _values_of(kind)
    try:
        free = values(["", *words])[1:]
    except flags.UnrecognizedFlagError as error:
        name = error.flagname
        raise UnknownFlagError(name, _unknown(kind, name, values)) from None
    except flags.Error as error:
        message = re.sub(r"^ERROR:: |\[Errno \d+\] ", "", str(error))
        raise ValueError(message if message[-1] in ".?" else f"{message}.") from None
    more = _arguments(kind, values, free, arguments)
    if after is not None and rest is not None:
        more[rest] = after
    return from_flags(kind, values=values, make=make, **more)


class _Values(flags.FlagValues):
    """Values of flags; absl looks for a file of flags in squared time."""

    def read_flags_from_files(
        self, argv: Sequence[str], force_gnu: bool = True
    ) -> list[str]:
        if not any("flagfile" in word for word in argv):
            return list(argv)
        return super().read_flags_from_files(argv, force_gnu)


def _refuse_long(words: Sequence[str]) -> None:
    """Refuses a long name: absl would compare the name with all names for minutes."""
    for word in words:
        name = word.partition("=")[0]
        if word.startswith("-") and len(name) > _LONGEST_NAME:
            name = name.lstrip("-")[:_LONGEST_NAME]
            raise UnknownFlagError(name, f"There is no flag --{name}...")


def _unknown(kind: type, name: str, values: flags.FlagValues) -> str:
    """Returns the message about a flag that a command does not have."""
    for option in fields.options_of(kind):
        if option.about.is_argument and option.field == name:
            return f"There is no flag --{name}: give {option.label} without a flag."
    near = errors.did_you_mean(name, values, prefix="--")
    return f"There is no flag --{name}.{near}"


def _arguments(
    kind: type, values: flags.FlagValues, words: list[str], names: Sequence[str]
) -> dict[str, Any]:
    """Returns the values of the fields for words without a flag."""
    by_field = {option.field: option for option in fields.options_of(kind)}
    taken: dict[str, Any] = {}
    for index, name in enumerate(names):
        if not words:
            break
        option = by_field[name]
        if option.is_list:
            after = (by_field[other] for other in names[index + 1 :])
            wanted = [each for each in after if not _is_set(values, each)]
            count = max(len(words) - len(wanted), 1)
            taken[name] = option.check(tuple(words[:count]))
            words = words[count:]
        else:
            taken[name] = option.parse(words.pop(0))
        if _is_set(values, option) and values[option.name].value != taken[name]:
            by_flag, own = values[option.name].value, taken[name]
            raise ValueError(
                f"{option.label} must be given once, got {option.text_of(by_flag)} by "
                f"its flag, and {option.text_of(own)} as an argument."
            )
    if words:
        word = words[0]  # a URL and a connection string may hold a password
        shown = "a URL" if "://" in word else "a text" if {*word} & {*"@=:"} else word
        raise ValueError(f"Unexpected argument: {shown}. Flags start with --.")
    return taken


def _is_set(values: flags.FlagValues, option: Option) -> bool:
    """Whether the command line has the flag of an option or argument."""
    return option.name in values and bool(values[option.name].present)


def mark_parsed() -> None:
    """Tells absl that the command line was parsed."""
    flags.FLAGS.mark_as_parsed()


def common() -> "list[flags.Flag[Any]]":
    """Returns the flags of every command."""
    by_module = flags.FLAGS.flags_by_module_dict()
    return [flag for name in _COMMON_MODULES for flag in by_module.get(name, ())]
