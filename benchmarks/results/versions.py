"""Versions and hardware that are known without TensorFlow's import, and their changes.

In: installed packages, and the environment of a stored result. Out: what differs, so
that results of other versions or machines do not stand beside new ones.
"""

import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any

import tfpipe


def here() -> dict[str, Any]:
    """Returns versions and hardware that are known without TensorFlow's import."""
    return {
        "tfpipe": tfpipe.__version__,
        "git_revision": tfpipe.host.git_revision(),
        "tensorflow": installed("tensorflow") or installed("tensorflow-cpu"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpu": tfpipe.host.cpu_model(),
    }


def changes(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns what differs between the environment of a result and the present one.

    A version that either of them does not know is left out.

    Args:
        stored: `environment` of a result.
        now: The result of `here`.
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
