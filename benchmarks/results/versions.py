"""Versions and hardware, read without the import of TensorFlow, and their changes.

In: installed packages, and the environment of a stored result. Out: the differences. A
sweep does not join results of other versions or machines with new results.
"""

import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any

import tfpipe


def here() -> dict[str, Any]:
    """Returns versions and hardware, without the import of TensorFlow."""
    return {
        "tfpipe": tfpipe.__version__,
        "git_revision": tfpipe.host.git_revision(),
        "tensorflow": installed("tensorflow") or installed("tensorflow-cpu"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpu": tfpipe.host.cpu_model(),
    }


def changes(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the differences from the environment of a result to the present.

    A version is left out if the result or the present environment lacks the version.
    """
    return [
        f"{name} {stored[name]} is now {value}"
        for name, value in now.items()
        if value is not None and stored.get(name) not in (None, value)
    ]


def installed(package: str) -> str | None:
    """Returns the version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
