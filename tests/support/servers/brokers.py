"""Brokers of messages on this host: Redis of Debian's package, and NATS of a wheel.

A broker keeps its data in a folder, and can be killed and started again.
"""

import contextlib
import pathlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.servers.s3_server import free_ports

_START_SECONDS = 60.0
PROGRAMS = {"redis": "redis-server", "nats": "nats-server"}


def require(kind: str) -> None:
    """Skips a test where the program of a broker is not installed."""
    if shutil.which(PROGRAMS[kind]) is None:
        pytest.skip(f"{PROGRAMS[kind]} is not installed")


class BrokerProcess:
    """A broker that keeps its messages.

    Args:
        kind: "redis" or "nats".
        folder: Folder of its data, made if it is missing.
        *arguments: More arguments of the program.
    """

    def __init__(self, kind: str, folder: pathlib.Path, *arguments: str) -> None:
        folder.mkdir(exist_ok=True)
        (self.port,) = free_ports(1)
        at = ["-p", str(self.port)]
        self._command = {
            "redis": [
                *("redis-server", "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--dir", str(folder), "--appendonly", "yes", "--save", ""),
                *("--appendfsync", "always"),
            ],
            "nats": ["nats-server", "-a", "127.0.0.1", *at, "-js", "-sd", str(folder)],
        }[kind] + [*arguments]
        self._log = folder / "log"
        self.url = f"{kind}://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Starts the server, and waits until it takes connections."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.05)
        raise RuntimeError(self._log.read_text()[-2000:])

    def kill(self) -> None:
        """Ends the server with SIGKILL."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def running(
    kind: str, folder: pathlib.Path, *arguments: str
) -> Iterator[BrokerProcess]:
    """Starts a broker, and kills it at the end of the block."""
    broker = BrokerProcess(kind, folder, *arguments)
    try:
        yield broker
    finally:
        broker.kill()
