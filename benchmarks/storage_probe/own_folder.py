"""A new folder that is removed at the end, also after SIGKILL.

In: a parent folder. Out: a folder below. Another process makes the folder, and removes
it as soon as the pipe from this process is closed, by whatever end of this process. The
process has a session of its own: Ctrl-C in a terminal does not reach it.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benchmarks.system import child_process

_PREFIX = "storage-probe-"
# A worker that is still writing may make a file in the folder meanwhile.
_TRIES, _PAUSE_SECONDS = 100, 0.1


@contextlib.contextmanager
def create(parent: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes a folder below another, and removes it with its files at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.storage_probe.own_folder", parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_process.environment(),
        start_new_session=True,
    ) as remover:
        assert remover.stdin is not None
        assert remover.stdout is not None
        folder = _answer(remover.stdout.readline())
        try:
            yield folder
        finally:
            remover.stdin.close()
            _answer(remover.stdout.readline())


def _answer(line: str) -> pathlib.Path:
    if not line:
        raise OSError("The process that makes and removes the probe's folder has died.")
    answer = json.loads(line)
    if "errno" in answer:
        raise OSError(answer["errno"], answer["text"], answer["folder"])
    return pathlib.Path(answer["folder"])


def _tell(folder: str, error: OSError | None = None) -> None:
    fields = {} if error is None else {"errno": error.errno, "text": error.strerror}
    # The reader has ended after SIGKILL.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps({"folder": folder, **fields}).encode() + b"\n")


def _remove(folder: str) -> OSError | None:
    failed: OSError | None = None
    for _ in range(_TRIES):
        try:
            shutil.rmtree(folder)
        except OSError as error:
            failed = error
        if not os.path.exists(folder):
            return None
        time.sleep(_PAUSE_SECONDS)
    return failed


def main() -> int:
    """Makes a folder below the argument; removes it when stdin ends."""
    parent = sys.argv[1]
    try:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    except OSError as error:
        _tell(parent, error)
        return 1
    _tell(folder)
    sys.stdin.read()
    _tell(folder, _remove(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
