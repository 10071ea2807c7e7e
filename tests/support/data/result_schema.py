"""The JSON Schema of a result of benchmarks.train, for the documents."""

import dataclasses
import types
import typing
from typing import Any, Union

from benchmarks.results.train_result import TrainResult

_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def json_schema() -> dict[str, Any]:
    """Returns the schema."""
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A result of benchmarks.train",
    }
    return {**about, **_schema(TrainResult)}


def _schema(kind: Any) -> dict[str, Any]:
    """Returns the schema of a type; other keys than those of the type may be."""
    if kind is Any:
        return {}
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in parts if each is not type(None))
        return {"anyOf": [_schema(inner), {"type": "null"}]}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        properties = {name: _schema(hints[name]) for name in names}
        return {"type": "object", "properties": properties}
    if origin is tuple:
        return {"type": "array", "items": _schema(parts[0])}
    if parts:
        return {"type": "object", "additionalProperties": _schema(parts[1])}
    return {"type": _NAMES[kind]}
