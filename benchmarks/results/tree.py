"""Typed values from JSON: frozen dataclasses, checked when they are read.

In: a dataclass and a JSON value. Out: an instance, and a sentence for each value of a
wrong type, which takes the default of its field. A key that is missing or null takes
the default too, and an unknown key is ignored: results of other versions are read too.

  read(Point, {"x": 1.0})           -> Point(x=1.0)
  read(Point, {"x": "far"})         -> ValueError: x must be a number, got 'far'
  decode(Point, {"x": "far"})       -> Point(x=0.0), ["x must be a number, got 'far'."]
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Union

T = TypeVar("T")
_Note = Callable[[str], None]

_KINDS: Mapping[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
}
_ABSENT = object()


def read(kind: type[T], value: Any) -> T:
    """Returns a JSON value as a typed one.

    Raises:
        ValueError: If a value has another type, or a dataclass refuses its fields.
    """
    typed, problems = decode(kind, value)
    if problems:
        raise ValueError(problems[0])
    return typed


def decode(kind: type[T], value: Any) -> tuple[T, list[str]]:
    """Returns a JSON value as a typed one, and a sentence for each wrong value.

    A wrong item of a list is left out.

    Raises:
        ValueError: If the value itself is no such dataclass.
    """
    problems: list[str] = []
    return typing.cast(T, _read(kind, value, "", problems.append)), problems


def _read(kind: Any, value: Any, path: str, note: _Note) -> Any:
    if kind is Any:
        return value
    if inner := _optional(kind):
        return None if value is None else _or(None, inner, value, path, note)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, path, note)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        items = _require(isinstance(value, list | tuple), value, "a list", path)
        read = [_or(_ABSENT, parts[0], x, f"{path}[{n}]", note) for n, x in items]
        return tuple(item for item in read if item is not _ABSENT)
    if origin is not None:  # a mapping by names
        pairs = _require(isinstance(value, Mapping), value, "an object", path)
        named = {k: _or(_ABSENT, parts[1], x, f"{path}.{k}", note) for k, x in pairs}
        return {key: item for key, item in named.items() if item is not _ABSENT}
    accepted, text = _KINDS[kind]
    is_right = isinstance(value, accepted) and (
        kind is bool or not isinstance(value, bool)
    )
    if not is_right or not _is_finite(value):
        raise _wrong(value, text, path)
    return float(value) if kind is float else value


def _or(default: Any, kind: Any, value: Any, path: str, note: _Note) -> Any:
    """Returns a typed value; the default, and a note, for a value of another type."""
    try:
        return _read(kind, value, path, note)
    except ValueError as error:
        note(str(error))
        return default


def _dataclass(kind: Any, value: Any, path: str, note: _Note) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(value, "an object", path)
    fields = {}
    for name, hint, has_default in _fields(kind):
        inside = f"{path}.{name}".lstrip(".")
        if value.get(name) is not None:
            read = _or if has_default else _strictly
            fields[name] = read(_ABSENT, hint, value[name], inside, note)
        elif not has_default:
            raise _wrong(None, "there", inside)
    return kind(**{k: item for k, item in fields.items() if item is not _ABSENT})


def _strictly(_: Any, kind: Any, value: Any, path: str, note: _Note) -> Any:
    return _read(kind, value, path, note)


@functools.cache
def _fields(kind: Any) -> list[tuple[str, Any, bool]]:
    """Returns name and type of each field, and whether the field has a default."""
    hints, missing = typing.get_type_hints(kind), dataclasses.MISSING
    return [
        (
            field.name,
            hints[field.name],
            field.default is not missing or field.default_factory is not missing,
        )
        for field in dataclasses.fields(kind)
    ]


def _require(is_right: bool, value: Any, text: str, path: str) -> Any:
    """Returns the indexed items of a list, or the pairs of an object."""
    if not is_right:
        raise _wrong(value, text, path)
    return value.items() if isinstance(value, Mapping) else enumerate(value)


def _wrong(value: Any, text: str, path: str) -> ValueError:
    return ValueError(f"{path or 'the result'} must be {text}, got {value!r:.60}.")


def _is_finite(value: Any) -> bool:
    try:  # a whole number of JSON may be too large
        return not isinstance(value, int | float) or math.isfinite(value)
    except OverflowError:
        return False


def _optional(kind: Any) -> Any:
    """Returns the type of a value that may also be null; None for other types."""
    if typing.get_origin(kind) not in (Union, types.UnionType):
        return None
    (inner,) = (each for each in typing.get_args(kind) if each is not type(None))
    return inner
