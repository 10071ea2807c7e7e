"""A folder that all test processes of a session share, made by the first that asks.

In: a name, and a function that fills an empty folder. Out: the folder, to be read only.
"""

import fcntl
import pathlib
import shutil
from collections.abc import Callable

import pytest

from tests.support.servers.shared_server import session_folder


def made_once(
    factory: pytest.TempPathFactory,
    name: str,
    make: Callable[[pathlib.Path], object],
) -> pathlib.Path:
    """Returns the folder; the other processes wait until it is complete."""
    folder = session_folder(factory, name)
    folder.mkdir(exist_ok=True)
    content, whole = folder / "content", folder / "whole"
    with open(folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            shutil.rmtree(content, ignore_errors=True)  # of a maker that failed
            content.mkdir()
            make(content)
            whole.touch()
    return content
