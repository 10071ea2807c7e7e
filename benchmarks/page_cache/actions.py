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
from benchmarks.page_cache.files import OpenFiles, evict_file
from benchmarks.system import child_process, mounts, probes

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


_TRIAL_BYTES = 1 << 20


def trial(files: Sequence[str]) -> dict[str, Any]:
    """Evicts the first megabyte of one of the files, reads it and opens the file anew.

    The megabyte is evicted again if it was not in memory before.

    Returns:
        counts_reads: whether read_bytes of /proc/self/io grew by the megabyte; None if
        the bytes may not have left the page cache. keeps_pages: whether the megabyte
        was in the page cache after the read, and after the file was opened anew; None
        if the kernel does not tell. beneath, is_memory: see `mounts.Beneath`.
    """
    path = next((path for path in files if os.stat(path).st_size), None)
    if path is None:
        return {}
    below = mounts.beneath(path)
    below_it = {"beneath": below.text, "is_memory": below.is_memory}
    if below.is_memory:
        return below_it
    held = OpenFiles([path])
    num_bytes = min(_TRIAL_BYTES, held.num_bytes)
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        # Without it the kernel reads beyond the megabyte.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        was_out = held.resident_bytes(num_bytes) == 0
        evict_file(descriptor, num_bytes)
        is_out = held.resident_bytes(num_bytes) == 0
        before = probes.own_storage_bytes()
        os.pread(descriptor, num_bytes, 0)
        counted = probes.own_storage_bytes() - before >= num_bytes
        kept = held.resident_bytes(num_bytes)
        os.close(os.open(path, os.O_RDONLY))
        again = held.resident_bytes(num_bytes)
        if was_out:
            evict_file(descriptor, num_bytes)
    return {
        **below_it,
        "counts_reads": counted if counted or is_out else None,
        "keeps_pages": None if kept is None else kept == again == num_bytes,
    }


if __name__ == "__main__":
    print(json.dumps(perform(sys.argv[1], json.load(sys.stdin))))
