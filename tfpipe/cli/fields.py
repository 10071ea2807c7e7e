"""Fields of options: one field says all about its flag.

In: a dataclass with annotated fields. Out: an `Option` for each flag, which turns text
into a value, checks values, and names what is wrong.

| annotation                       | text of the flag                                  |
|----------------------------------|---------------------------------------------------|
| bool                             | --name, --noname, --name=true                     |
| int, float, str                  | --name=VALUE                                      |
| Literal["a", "b"], Enum          | --name=a                                          |
| tuple[X, ...]                    | --name=A,B; with `repeated` --name=A --name=B     |
| X or None                        | as X; without the flag the value is None          |
| any other, with `parse`          | as `parse` takes it                               |
"""

import contextlib
import csv
import dataclasses
import enum
import functools
import os
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfpipe import errors

_KEY = "flag"
_BOUNDS = ("least", "most", "above", "below")
_TRUE, _FALSE = ("true", "t", "1", "yes"), ("false", "f", "0", "no")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """The words of a field about its flag.

    Attributes:
        help: Sentences about the flag. The first sentence stands alone in --help.
        group: Title of the group in the help.
        bounds: `least`, `most`, `above` and `below` of a number.
        choices: The allowed texts and their values. Default: as the annotation says.
        name: Name of the flag. Default: the name of the field.
        parse: Turns the text into the value, or raises ValueError with a message that
            follows the name of the flag, "must be ..., got ...", or begins with it.
        shown: The value in the help, such as DIR. Default: by type and name.
        repeated: Whether several values are given as several flags, and may have
            commas.
        url: Whether a text may be a URL. Otherwise a URL is refused, because the system
            would take the URL for a folder.
        needs: Flag without which this flag has no effect, such as --save or
            --engine=ray.
        variable: Variable of the environment with the value while the command works,
            also for child processes.
        is_argument: Whether the value is given without the name of the flag.
    """

    help: str
    group: str = ""
    bounds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    choices: Mapping[str, Any] | None = None
    name: str | None = None
    parse: Callable[[str], Any] | None = None
    shown: str | None = None
    repeated: bool = False
    url: bool = False
    needs: str = ""
    variable: str = ""
    is_argument: bool = False


def flag(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] | Mapping[str, Any] | None = None,
    **words: Any,
) -> Any:
    """Makes a field of options that is a flag of the command line.

    Args:
        default: Value without the flag.
        help: Sentences about the flag.
        choices: The allowed texts, or a mapping of the texts to their values.
        words: The other attributes of `Flag`, and each of its `bounds` by name.

    Example:
        >>> num_steps: int | None = flag(None, "Steps to train.", least=1)
    """
    if choices is not None and not isinstance(choices, Mapping):
        choices = {text: text for text in choices}
    bounds = {name: words.pop(name) for name in _BOUNDS if name in words}
    about = Flag(help=help, bounds=bounds, choices=choices, **words)
    if isinstance(default, dict):
        factory = default.copy
        return dataclasses.field(default_factory=factory, metadata={_KEY: about})
    return dataclasses.field(default=default, metadata={_KEY: about})


def required(help: str, **more: Any) -> Any:
    """Makes a field of options that is a flag without a default, which must be given.

    Args:
        help: Sentences about the flag.
        more: As for `flag`.
    """
    return flag(dataclasses.MISSING, help, **more)


def argument(help: str, *, default: Any = dataclasses.MISSING, **more: Any) -> Any:
    """Makes a field of options that is an argument without a flag.

    Args:
        help: Sentences about the argument.
        default: Value without the argument. An argument without a default must be
            given.
        more: As for `flag`.
    """
    return flag(default, help, is_argument=True, **more)


@dataclasses.dataclass(frozen=True)
class _Nested:
    """The words of a field that is a dataclass of options."""

    kind: type
    make: Callable[..., Any]
    defaults: Mapping[str, Any]

    def __call__(self, **values: Any) -> Any:
        return self.make(**{**self.defaults, **values})


def nested(
    kind: type, *, make: Callable[..., Any] | None = None, **defaults: Any
) -> Any:
    """Makes a field that is a dataclass of options; its fields become flags too.

    Args:
        kind: The dataclass, whose fields all have defaults.
        make: Takes the fields with other values than in the class, and makes the
            dataclass. Default: the class.
        defaults: Other defaults for some of its fields; `make` gets these too.
    """
    factory = _Nested(kind, make or kind, defaults)
    return dataclasses.field(default_factory=factory, metadata={_KEY: factory})


def group(title: str) -> Callable[..., Any]:
    """Returns `flag` for the flags of one group in the help.

    Example:
        >>> _LENGTH = group("How long")
        >>> num_steps: int | None = _LENGTH(None, "Steps to train.", least=1)
    """
    return functools.partial(flag, group=title)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One flag or argument of a command.

    Attributes:
        field: Name of the field.
        about: The words of the field.
        kind: Type of a value, or of each value of a list.
        is_list: Whether the value is a tuple.
        is_optional: Whether None is a value.
        default: Value without the flag; `dataclasses.MISSING` if it must be given.
        path: Names of the nested fields above the field.
        is_positional: Whether the value may be given without the name of the flag.
    """

    field: str
    about: Flag
    kind: type
    is_list: bool
    is_optional: bool
    default: Any
    path: tuple[str, ...] = ()
    is_positional: bool = False

    @property
    def name(self) -> str:
        """Name of the flag without dashes."""
        return self.about.name or self.field

    @property
    def label(self) -> str:
        """Name of the flag or argument in messages."""
        return self.shown if self.about.is_argument else f"--{self.name}"

    @property
    def is_switch(self) -> bool:
        """Whether the flag needs no value."""
        return self.kind is bool and self.about.choices is None

    @property
    def is_required(self) -> bool:
        """Whether the flag must be given."""
        return self.default is dataclasses.MISSING

    @property
    def choices(self) -> Mapping[str, Any] | None:
        """The allowed texts and their values; None if any text is allowed."""
        if self.about.choices is None and issubclass(self.kind, enum.Enum):
            return {str(member.value): member for member in self.kind}
        return self.about.choices

    @property
    def shown(self) -> str:
        """The value in the help, such as N or DIR."""
        if self.about.shown or self.is_switch:
            return self.about.shown or ""
        if self.about.is_argument:
            return self.field.upper()
        if self.choices and not self.is_list:
            texts = "|".join(self.choices)
            return texts if len(texts) <= 24 else self.field.rpartition("_")[2].upper()
        ending = self.field.rpartition("_")[2].upper()
        word = ending if ending in ("DIR", "FILE", "URL") else "TEXT"
        word = {int: "N", float: "X"}.get(self.kind, word)
        return f"{word},..." if self.is_list and not self.about.repeated else word

    def said(self, say: Callable[[str], str]) -> "Option":
        """Returns the option with another text about it."""
        about = dataclasses.replace(self.about, help=say(self.about.help))
        return dataclasses.replace(self, about=about)

    def text_of(self, value: Any) -> str:
        """Returns a value as its text on a command line."""
        if isinstance(value, list | tuple):
            return ",".join(map(self.text_of, value))
        for text, choice in (self.choices or {}).items():
            if choice == value and type(choice) is type(value):
                return text
        return str(value).lower() if isinstance(value, bool) else str(value)

    def parse(self, text: str) -> Any:
        """Returns the value of a text of the command line.

        Raises:
            ValueError: If the text is not as it must be.
        """
        if not self.is_list:
            return self.check(self._convert(text))
        texts = [text] if self.about.repeated and text else _split(text)
        return self.check(tuple(map(self._convert, texts)))

    def _convert(self, text: str) -> Any:
        """Returns the value of a text; the text itself if `check` must refuse it."""
        if self.choices is not None:
            return self.choices.get(text, text)
        if self.about.parse is not None:
            try:
                return self.about.parse(text)
            except ValueError as error:
                text = str(error)
                message = text if text.startswith("--") else f"{self.label} {text}"
                raise ValueError(message) from None
        if self.kind is bool:
            lower = text.lower()
            return lower in _TRUE if lower in (*_TRUE, *_FALSE) else text
        try:
            return self.kind(text) if self.kind in (int, float) else text
        except ValueError:
            return text

    def check(self, value: Any) -> Any:
        """Returns a value with plain types; None and lists only where they may be.

        Raises:
            ValueError: If the value is not as it must be. The message names the flag,
                what must hold, and what was got.
        """
        if value is None and self.is_optional:
            return None
        if not self.is_list:
            return self._check_item(value)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ValueError(f"{self.label} must be a list, got {value!r}.")
        return tuple(map(self._check_item, value))

    def _check_item(self, value: Any) -> Any:
        label = self.label
        bounds: dict[str, Any] = dict(self.about.bounds)
        if self.choices is not None:
            if value in self.choices.values():
                return value
            texts = ", ".join(self.choices)
            raise ValueError(
                f"{label} must be one of {texts}, got {value}."
                f"{errors.did_you_mean(str(value), self.choices)}"
            )
        if self.kind is bool:
            return errors.require_bool("", label, value)
        if self.kind is int:
            return errors.require_int("", label, value, **bounds)
        if self.kind is float:
            return float(errors.require_number("", label, value, **bounds))
        if self.kind is str and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if self.kind is str and not isinstance(value, str):
            raise ValueError(f"{label} must be a text, got {value!r}.")
        if not self.about.url:
            errors.require_local_path("", label, value)
        return value


def _split(text: str) -> list[str]:
    """Returns the parts between commas; a part in double quotes may have commas."""
    try:
        rows = list(csv.reader([text], strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise ValueError(f"A list must be A,B,C, got {text!r}: {error}.") from None
    return [part.strip() for part in rows[0]] if text and rows else []


def options_of(kind: Any) -> tuple[Option, ...]:
    """Returns the flags and arguments of a dataclass, in the order of its fields.

    A field without words of its own, such as `name: str = "folder"`, is another default
    for the field of the base class. A field without any words is no flag.
    """
    return _options_once(kind)


def _options(kind: Any) -> tuple[Option, ...]:
    options: list[Option] = []
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        about = next(
            (
                fields[field.name].metadata[_KEY]
                for base in kind.__mro__
                if field.name in (fields := getattr(base, "__dataclass_fields__", {}))
                and _KEY in fields[field.name].metadata
            ),
            None,
        )
        if isinstance(about, _Nested):
            options += (
                dataclasses.replace(
                    option,
                    path=(field.name, *option.path),
                    default=about.defaults.get(option.field, option.default),
                )
                for option in options_of(about.kind)
            )
        elif about is not None:
            options.append(_option(field, about, hints[field.name]))
    return tuple(options)


_options_once: Callable[[Any], tuple[Option, ...]] = functools.cache(_options)


def _option(field: "dataclasses.Field[Any]", about: Flag, hint: Any) -> Option:
    members = {hint}
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = set(typing.get_args(hint))
    rest = [member for member in members if member is not type(None)]
    kind, is_list = rest[0], False
    if typing.get_origin(kind) not in (None, typing.Literal):
        kind, is_list = typing.get_args(kind)[0], True
    if typing.get_origin(kind) is typing.Literal:
        texts = about.choices or {text: text for text in typing.get_args(kind)}
        about = dataclasses.replace(about, choices=texts)
        kind = str
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return Option(
        field=field.name,
        about=about,
        # More than one type: `choices` or `parse` say what a value is.
        kind=kind if len(rest) == 1 and about.parse is None else object,
        is_list=is_list and about.parse is None,
        is_optional=type(None) in members,
        default=default,
    )


def build(kind: Any, **values: Any) -> Any:
    """Returns options of values by field; the values of a nested field are a dict."""
    for field in dataclasses.fields(kind):
        about, value = field.metadata.get(_KEY), values.get(field.name)
        if isinstance(about, _Nested) and isinstance(value, dict):
            values[field.name] = about(**value)
    return kind(**values)


def check(self: Any) -> None:
    """Checks all fields of options, and stores their values with plain types.

    Raises:
        ValueError: If a value is not as its field says, or has no effect without
            another one.
    """
    own = [option for option in options_of(type(self)) if not option.path]
    for option in own:
        value = option.check(getattr(self, option.field))
        object.__setattr__(self, option.field, value)
    for option in own:
        if option.about.needs and getattr(self, option.field) != option.default:
            _check_need(self, option, own)


def _check_need(options: Any, option: Option, others: Iterable[Option]) -> None:
    """Checks that another flag gives a flag its effect."""
    label, _, text = option.about.needs.partition("=")
    (other,) = (each for each in others if each.label == label)
    value = getattr(options, other.field)
    if value == other.default or (text and other.text_of(value) != text):
        raise ValueError(
            f"{option.label} needs {option.about.needs}. Add it, or leave "
            f"{option.label} out."
        )


@contextlib.contextmanager
def environment(options: Any) -> Iterator[None]:
    """Sets the variables of fields with a value, until the end of the block."""
    own = [o for o in options_of(type(options)) if o.about.variable and not o.path]
    values = {o.about.variable: getattr(options, o.field) for o in own}
    new = {name: str(value) for name, value in values.items() if value is not None}
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, text in before.items():
            os.environ.pop(name, None)
            if text is not None:
                os.environ[name] = text


def changed(options: Any, *names: str) -> list[str]:
    """Returns the flags, as --num_steps, of fields that have not their defaults."""
    return [
        option.label
        for option in options_of(type(options))
        if option.field in names and getattr(options, option.field) != option.default
    ]


def refuse(options: Any, why: str, *names: str) -> None:
    """Checks that fields without effect have their defaults.

    Args:
        options, names: The options, and the names of the fields.
        why: The reason, as in "--mode=eval".

    Raises:
        ValueError: If a field has another value.
    """
    if unused := changed(options, *names):
        raise ValueError(f"{why} does not use {', '.join(unused)}. Leave it out.")


@dataclasses.dataclass(frozen=True)
class Unused:
    """Fields without an effect in a mode of a command, for `Command.unused`.

    Attributes:
        why: The mode in a message. A field in braces stands for its value, as in
            "--mode={mode}".
        when: Takes the options; returns whether the mode holds.
        names: Names of the fields.
    """

    why: str
    when: Callable[[Any], bool]
    names: tuple[str, ...]


def refuse_unused(options: Any, table: Iterable[Unused]) -> None:
    """Checks that no field has a value without an effect in a mode of a table.

    Raises:
        ValueError: If such a field has another value than its default.
    """
    for row in table:
        if row.when(options):
            refuse(options, row.why.format_map(vars(options)), *row.names)


def gigabytes(text: str) -> int:
    """Returns the bytes of a number of GB, for `parse` of a flag.

    Raises:
        ValueError: If the text is no number above 0.
    """
    try:
        size = int(float(text) * 1e9)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise ValueError(f"must be a number of GB above 0, got {text!r}.")
    return size
