"""Typed values from JSON: frozen dataclasses, checked at the reading.

In: a dataclass and a JSON value. Out: an instance, and a sentence for each value of a
wrong type; the field has its default then. A missing or null key takes the
default too, and an unknown key is ignored: results of other versions are read too.

  read(Point, {"x": 1.0})           -> Point(x=1.0)
  read(Point, {"x": "far"})         -> ValueError: x must be a number, got 'far'
  decode(Point, {"x": "far"})       -> Point(x=0.0), ["x must be a number, got 'far'."]
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Union

T = TypeVar("T")
_Note = Callable[[str], None]

_KINDS: Mapping[type, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: (int | float, "a number"),
    str: (str, "a text"),
}


def read(kind: type[T], value: Any) -> T:
    """Returns a typed value of JSON; a wrong type or field is a ValueError."""
    typed, problems = decode(kind, value)
    if problems:
        raise ValueError(problems[0])
    return typed


def decode(kind: type[T], value: Any) -> tuple[T, list[str]]:
    """Returns a typed value of JSON, and a sentence for each wrong value.

    A wrong item of a list is left out. A value that is no object is a ValueError.
    """
    problems: list[str] = []
    return typing.cast(T, _read(kind, value, "", problems.append)), problems


def as_number(value: Any) -> float | None:
    """Returns a finite number unchanged, and None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:  # a whole number of JSON may be too large
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _read(kind: Any, value: Any, path: str, note: _Note) -> Any:
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, _checked(Mapping, value, "an object", path), path, note)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):  # a wrong value is null
        (inner,) = (part for part in parts if part is not type(None))
        items = [] if value is None else [(0, inner, value, path)]
        return _sound(items, note).get(0)
    if origin is tuple:
        values = enumerate(_checked(list | tuple, value, "a list", path))
        items = [(n, parts[0], item, f"{path}[{n}]") for n, item in values]
        return tuple(_sound(items, note).values())
    if origin is not None:  # a mapping by names
        pairs = _checked(Mapping, value, "an object", path).items()
        return _sound([(k, parts[1], item, f"{path}.{k}") for k, item in pairs], note)
    accepted, text = _KINDS[kind]
    if kind in (int, float) and as_number(value) is None:
        raise _wrong(value, text, path)
    return kind(_checked(accepted, value, text, path))


def _dataclass(kind: Any, values: Any, path: str, note: _Note) -> Any:
    fields: dict[str, Any] = {}
    for name, hint, has_default in _fields(kind):
        item, inside = values.get(name), f"{path}.{name}".lstrip(".")
        if item is None and not has_default:
            raise _wrong(None, "there", inside)
        if not has_default:
            fields[name] = _read(hint, item, inside, note)
        elif item is not None:
            fields |= _sound([(name, hint, item, inside)], note)
    return kind(**fields)


@functools.cache
def _fields(kind: Any) -> list[tuple[str, Any, bool]]:
    """Returns name and type of each field, and whether the field has a default."""
    hints, missing = typing.get_type_hints(kind), (dataclasses.MISSING,) * 2
    return [
        (
            field.name,
            hints[field.name],
            (field.default, field.default_factory) != missing,
        )
        for field in dataclasses.fields(kind)
    ]


def _sound(items: Sequence[tuple[Any, Any, Any, str]], note: _Note) -> dict[Any, Any]:
    """Returns typed values by key, from (key, type, value, path); notes wrong ones."""
    typed = {}
    for key, kind, value, path in items:
        try:
            typed[key] = _read(kind, value, path, note)
        except ValueError as error:
            note(str(error))
    return typed


def _checked(accepted: Any, value: Any, text: str, path: str) -> Any:
    if not isinstance(value, accepted):
        raise _wrong(value, text, path)
    return value


def _wrong(value: Any, text: str, path: str) -> ValueError:
    return ValueError(f"{path or 'the result'} must be {text}, got {value!r:.60}.")
