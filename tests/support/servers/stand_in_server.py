"""A process in place of a server, to see when `shared_server` starts and ends it."""

import contextlib
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def serve(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Runs `sleep`; its process must not outlive the keeper."""
    process = subprocess.Popen(["sleep", "60"])
    try:
        yield {"pid": process.pid}
    finally:
        process.kill()
        process.wait()
