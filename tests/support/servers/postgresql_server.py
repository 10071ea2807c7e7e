"""A PostgreSQL server of Debian's package on this host, for tests of tables."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator

USER, PASSWORD = "reader", "se:cret/%"


def programs() -> pathlib.Path | None:
    """Returns the folder of PostgreSQL's programs; None if it is not installed."""
    if found := shutil.which("initdb"):
        return pathlib.Path(found).parent
    return max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), default=None)


@contextlib.contextmanager
def running() -> Iterator[int]:
    """Starts a server with a password for its user, and yields its port."""
    # pytest's folders are closed to the user that the server runs as.
    with (
        tempfile.TemporaryDirectory(prefix="tfpipe-postgresql-") as folder,
        _running(pathlib.Path(folder)) as port,
    ):
        yield port


@contextlib.contextmanager
def _running(folder: pathlib.Path) -> Iterator[int]:
    bin_dir = programs()
    assert bin_dir is not None
    data, password = folder / "data", folder / "password"
    data.mkdir()
    password.write_text(PASSWORD)
    ahead: list[str] = []
    if os.getuid() == 0:  # the server refuses to run as root
        ahead = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        for path in (folder, data, password):
            os.chown(path, 65534, 65534)
    words = ["-U", USER, f"--pwfile={password}", "--auth=scram-sha-256", "-E", "UTF8"]
    _run([*ahead, bin_dir / "initdb", "-D", data, "--no-sync", *words])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = f"-p {port} -k {data} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [*ahead, bin_dir / "pg_ctl", "-D", data, "-w"]
    _run([*control, "-o", settings, "-l", data / "log", "start"])
    try:
        yield port
    finally:
        _run([*control, "-m", "immediate", "stop"])


def _run(words: list[object]) -> None:
    done = subprocess.run(
        list(map(str, words)),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=120,
        cwd="/",
        text=True,
    )
    assert done.returncode == 0, done.stdout
