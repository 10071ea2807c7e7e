"""Settings in a file that a flag names: JSON, or TOML if the name ends in .toml.

In: the name of the flag and of the file. Out: a dict.
"""

import json
import pathlib
from typing import Any

from benchmarks.models import accelerators, catalog, published
from benchmarks.models.accelerators import Accelerator


def read(flag: str, path: str) -> dict[str, Any]:
    """Reads the settings that a file holds.

    Args:
        flag: Name of the flag that names the file, for errors.
        path: The file.

    Raises:
        ValueError: If the file is not valid, or holds no object.
        OSError: If it cannot be read.
    """
    text = pathlib.Path(path).read_text(encoding="utf-8")
    try:
        settings = _parse_toml(text) if path.endswith(".toml") else json.loads(text)
    except ValueError as error:  # the base class of both parsers' errors
        raise ValueError(f"--{flag}={path} cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"--{flag}={path} must hold an object, got {text[:40]!r}.")
    return settings


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:
        raise ValueError("TOML needs Python 3.11; write it as JSON.") from None
    return tomllib.loads(text)


def accelerators_with(path: str | None) -> dict[str, Accelerator]:
    """Returns the published accelerators, and those of --accelerators_file, by name.

    Args:
        path: Value of --accelerators_file, or None.

    Raises:
        ValueError: If the file is not valid.
        OSError: If the file cannot be read.
    """
    built_in = dict(published.ACCELERATORS)
    if not path:
        return built_in
    settings = read("accelerators_file", path)
    return built_in | accelerators.parse(
        settings, path, taken=built_in, models=catalog.MODELS
    )
