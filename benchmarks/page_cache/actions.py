"""Actions on files in a child process: a dead file server is an error, and no hang.

In: the name of an action, and files. Out: a dict of figures. `run` leaves the child
behind if the action takes too long.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.page_cache import files
from benchmarks.page_cache.trial import trial
from benchmarks.system import child_process

_LAST_SECONDS = 1.0

ACTIONS: Mapping[str, Callable[[Sequence[str]], dict[str, Any]]] = {
    "measure": lambda paths: {**files.measure(paths), **trial(paths)},
    "evict": files.evict,
    "fill": files.fill,
    "drop_caches": files.drop_caches,
}


def run(action: str, paths: Sequence[str], *, timeout_seconds: float) -> dict[str, Any]:
    """Does one of `ACTIONS` in a child process and returns its result.

    Args:
        timeout_seconds: Seconds after which the child is killed and left behind.

    Returns:
        The result of the action, or {"error": reason} if the action fails or takes too
        long. A failure raises nothing.
    """
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.page_cache.actions", action],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=child_process.environment(),
        )
        absolute = [os.path.abspath(path) for path in paths]
        out, err = child.communicate(json.dumps(absolute), timeout_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        # A process may hang within the kernel and not die, so the wait is short.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=_LAST_SECONDS)
        return {"error": f"{action} took longer than {timeout_seconds:g} s."}
    except OSError as error:
        return {"error": f"{action} cannot be started: {error}."}
    if child.returncode:
        lines = err.strip().splitlines() or [f"exit code {child.returncode}"]
        return {"error": f"{action} failed: {lines[-1]}"}
    result: dict[str, Any] = json.loads(out)
    return result


def perform(action: str, paths: Sequence[str]) -> dict[str, Any]:
    """Does one of `ACTIONS` in this process; an error is {"error": reason}."""
    try:
        return ACTIONS[action](paths)
    except (OSError, ValueError) as error:
        return {"error": str(error)}


if __name__ == "__main__":
    print(json.dumps(perform(sys.argv[1], json.load(sys.stdin))))
