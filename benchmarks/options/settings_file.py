"""Settings in a file that a flag names: JSON, or TOML if the name ends in .toml.

In: the name of the flag and of the file. Out: a dict.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from benchmarks.models import accelerators, catalog
from benchmarks.models.accelerators import Accelerators, Figure
from benchmarks.planning import published
from benchmarks.results import tree
from tfpipe import errors
from tfpipe.cli import fields


def read(flag: str, path: str) -> dict[str, Any]:
    """Reads the settings that a file holds."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        parse = _parse_toml if path.endswith(".toml") else errors.from_json
        settings = parse(text)
    except OSError as error:
        raise ValueError(f"--{flag}={path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # the base class of both parsers' errors
        raise ValueError(f"--{flag}={path} cannot be read: {error}.") from error
    if not isinstance(settings, dict):
        raise ValueError(f"--{flag}={path} must hold an object, got {text[:40]!r}.")
    return settings


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:
        raise ValueError("TOML needs Python 3.11; write it as JSON.") from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("brackets must be nested less deeply") from None


def read_options(flag: str, path: str, kind: type) -> dict[str, Any]:
    """Reads values of options, by the names of their fields."""
    settings = read(flag, path)
    options = {option.field: option for option in fields.options_of(kind)}
    for name in settings:
        if name not in options:
            raise ValueError(
                f"--{flag}={path} may have {', '.join(options)}; got {name}."
                f"{errors.did_you_mean(name, options)}"
            )
    try:
        return {name: options[name].check(value) for name, value in settings.items()}
    except ValueError as error:
        raise ValueError(f"--{flag}={path} is not valid: {error}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OwnAccelerator:
    source: str
    train: Mapping[str, float] = dataclasses.field(default_factory=dict)
    infer: Mapping[str, float] = dataclasses.field(default_factory=dict)


def accelerators_with(path: str | None) -> Accelerators:
    """Returns the published accelerators, and those of --accelerators_file, by name.

    Args:
        path: Value of --accelerators_file, or None. The file holds {name: {"source":
            text, "train": {model: images a second}, "infer": likewise}}.
    """
    if not path:
        return published.ACCELERATORS
    settings = read("accelerators_file", path)
    if not settings:
        raise ValueError(f"--accelerators_file={path} must hold an accelerator.")
    return {**published.ACCELERATORS} | {
        name: _own_figures(name, value, f"--accelerators_file={path}: {name}")
        for name, value in settings.items()
    }


def _own_figures(
    name: str, value: Any, where: str
) -> Mapping[str, Mapping[str, Figure]]:
    if accelerators.name_of(name, published.ACCELERATORS) in published.ACCELERATORS:
        raise ValueError(f"{where} is a built-in accelerator; choose another name.")
    keys = [field.name for field in dataclasses.fields(_OwnAccelerator)]
    if not isinstance(value, Mapping) or not {*value} <= {*keys}:
        raise ValueError(f"{where} must be a table of {', '.join(keys)}, got {value}.")
    try:
        own = tree.read(_OwnAccelerator, value)
        if unknown := sorted({*own.train, *own.infer} - {*catalog.MODELS}):
            models = ", ".join(sorted(catalog.MODELS))
            raise ValueError(f"a model must be one of {models}; got {unknown[0]}.")
        if not own.train and not own.infer:
            raise ValueError("figures must be in train or infer, got none.")
        about: Any = {"accelerator": name, "source": own.source}
        return {
            mode: {
                m: Figure(model=m, images_per_second=r, **about)
                for m, r in rates.items()
            }
            for mode, rates in (("train", own.train), ("infer", own.infer))
        }
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
