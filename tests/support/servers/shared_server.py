"""A server that all test processes of a session share, and that ends after the last.

In: the name of a module with a function `serve(folder)`, a context
manager that yields what users must know. Out: the same, in every process that asks.

A user holds a shared lock on `users`. The server runs in a process of its own, the
keeper, which waits for the exclusive lock. The kernel frees the locks of a process that
crashes, so the keeper also ends then.
"""

import contextlib
import fcntl
import importlib
import json
import pathlib
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[3]
START_SECONDS = 120.0


def session_folder(factory: pytest.TempPathFactory, name: str) -> pathlib.Path:
    """Returns the folder that all workers of a session have for one server."""
    base = factory.getbasetemp()
    is_worker = base.name.startswith("popen-")  # a folder for each worker of xdist
    return (base.parent if is_worker else base) / name


@contextlib.contextmanager
def shared(
    module: str, folder: pathlib.Path, *arguments: str, prefix: Sequence[str] = ()
) -> Iterator[Any]:
    """Starts the server of a module, unless another process did, and uses it.

    Args:
        module: The module.
        folder: A folder of the server alone.
        *arguments: Further arguments of `serve`.
        prefix: What runs a command where the server shall run, such as on a host.
    """
    folder.mkdir(exist_ok=True)
    ready = folder / "ready.json"
    with open(folder / "users", "a") as users:
        with open(folder / "start", "a") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            if not ready.exists():
                command = (sys.executable, "-m", __spec__.name, module, str(folder))
                _start([*prefix, *command, *arguments], folder, ready)
        yield json.loads(ready.read_text())


def _start(command: list[str], folder: pathlib.Path, ready: pathlib.Path) -> None:
    with open(folder / "keeper.log", "ab") as log:
        keeper = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C ends the tests, and these the keeper
        )
    end = time.monotonic() + START_SECONDS
    while not ready.exists():
        if keeper.poll() is not None or time.monotonic() > end:
            keeper.kill()
            text = (folder / "keeper.log").read_text()[-4000:]
            raise RuntimeError(f"{shlex.join(command)} did not start:\n{text}")
        time.sleep(0.05)


def keep(module: str, folder: pathlib.Path, *arguments: str) -> None:
    """Runs the server until no process uses it any more."""
    serve = importlib.import_module(module).serve
    ready, partial = folder / "ready.json", folder / "ready.partial"
    with open(folder / "users", "a") as users, serve(folder, *arguments) as document:
        partial.write_text(json.dumps(document))
        partial.rename(ready)
        fcntl.flock(users, fcntl.LOCK_EX)
        ready.unlink()


if __name__ == "__main__":
    keep(sys.argv[1], pathlib.Path(sys.argv[2]), *sys.argv[3:])
