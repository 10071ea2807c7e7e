"""Typed values from JSON: frozen dataclasses, checked when they are read.

In: a dataclass and a JSON value. Out: an instance, or an error that names the path of
the first wrong value; and the JSON Schema of the dataclass. A key that is missing takes
the default of its field, and an unknown key is ignored: results of other versions are
read too.

  read(Point, {"x": 1.0})           -> Point(x=1.0)
  read(Point, {"x": "far"})         -> ValueError: x must be a number, got 'far'
"""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, Union

T = TypeVar("T")
Schema = dict[str, Any]

_KINDS: Mapping[type, tuple[tuple[type, ...], str, str]] = {
    bool: ((bool,), "true or false", "boolean"),
    int: ((int,), "a whole number", "integer"),
    float: ((int, float), "a number", "number"),
    str: ((str,), "a text", "string"),
}


def read(kind: type[T], value: Any) -> T:
    """Returns a JSON value as a typed one.

    Args:
        kind: A dataclass, or the type of a field of one.
        value: The JSON value.

    Raises:
        ValueError: If a value has another type, or a dataclass refuses its fields.
    """
    return typing.cast(T, _read(kind, value, ""))


def _read(kind: Any, value: Any, path: str) -> Any:
    if kind is Any:
        return value
    if choices := _choices(kind):
        if value is None:
            return None
        return _read(choices, value, path)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, path)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        items = _require(isinstance(value, list | tuple), value, "a list", path)
        return tuple(_read(inner[0], x, f"{path}[{n}]") for n, x in enumerate(items))
    if origin is not None:  # a mapping by names
        pairs = _require(isinstance(value, Mapping), value, "an object", path).items()
        return {key: _read(inner[1], x, f"{path}.{key}") for key, x in pairs}
    accepted, text, _ = _KINDS[kind]
    is_right = isinstance(value, accepted) and (
        kind is bool or not isinstance(value, bool)
    )
    _require(is_right and _is_finite(value), value, text, path)
    return float(value) if kind is float else value


def _dataclass(kind: Any, value: Any, path: str) -> Any:
    _require(isinstance(value, Mapping), value, "an object", path)
    hints = typing.get_type_hints(kind)
    fields = {
        field.name: _read(
            hints[field.name], value[field.name], f"{path}.{field.name}".lstrip(".")
        )
        for field in dataclasses.fields(kind)
        if field.name in value
    }
    for field in dataclasses.fields(kind):
        has_default = field.default is not dataclasses.MISSING
        if not has_default and field.default_factory is dataclasses.MISSING:
            _require(field.name in value, None, "there", f"{path}.{field.name}")
    return kind(**fields)


def _require(is_right: bool, value: Any, text: str, path: str) -> Any:
    if not is_right:
        raise ValueError(f"{path or 'the result'} must be {text}, got {value!r:.60}.")
    return value


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _choices(kind: Any) -> Any:
    """Returns the type of a value that may also be null; None for other types."""
    if typing.get_origin(kind) not in (Union, types.UnionType):
        return None
    (inner,) = (each for each in typing.get_args(kind) if each is not type(None))
    return inner


def schema(kind: Any) -> Schema:
    """Returns the JSON Schema of a type; other keys than those of the type may be."""
    if kind is Any:
        return {}
    if choices := _choices(kind):
        return {"anyOf": [schema(choices), {"type": "null"}]}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        return {
            "type": "object",
            "properties": {name: schema(hints[name]) for name in names},
        }
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return {"type": "array", "items": schema(inner[0])}
    if inner:
        return {"type": "object", "additionalProperties": schema(inner[1])}
    return {"type": _KINDS[kind][2]}
