"""Real object stores, HDFS and web servers on this host, each started in one way.

In: an empty folder. Out: a store with its URL, and the variables with which a process
uses the store. A store whose program is not installed is no store here: `installed`
has the others. The programs come from wheels (SeaweedFS, rclone, fake-gcs-server,
moto), from npm (Azurite), from Debian (nginx) and from jars (HDFS).
"""

import base64
import contextlib
import dataclasses
import email.utils
import hashlib
import hmac
import importlib.util
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import obstore
from obstore.store import S3Store

from tests.support.servers import hdfs_server, s3_server
from tests.support.servers.s3_server import BUCKET, KEY, SECRET, die_with_parent
from tfpipe.location.files import Files

START_SECONDS = 60.0
# The public account of Azurite, from Azure's documentation.
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoG"
    "MGw=="
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Store:
    """A store that runs.

    Attributes:
        name: Name of the server.
        url: URL of a bucket, a container or a root folder.
        variables: Variables of the environment with which a process uses the store.
        copy: Copies the files of a local folder to a new folder of the store, where
            the store takes no files by its URL; None otherwise.
    """

    name: str
    url: str
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    copy: Callable[[pathlib.Path, str], None] | None = None


def _seaweedfs(folder: pathlib.Path) -> Iterator[Store]:
    with s3_server.serve(folder) as document:
        yield _s3("seaweedfs", document["address"])


def _moto(folder: pathlib.Path) -> Iterator[Store]:
    command = [_program("moto_server"), "-H", "127.0.0.1", "-p", "{port}"]
    with started(command, folder) as port:
        store = _s3("moto", f"http://127.0.0.1:{port}")
        _make_bucket(store)
        yield store


def _rclone(folder: pathlib.Path) -> Iterator[Store]:
    (folder / "data" / BUCKET).mkdir(parents=True)
    command = [_program("rclone"), "serve", "s3", f"--auth-key={KEY},{SECRET}"]
    command += ["--addr=127.0.0.1:{port}", str(folder / "data")]
    with started(command, folder) as port:
        yield _s3("rclone", f"http://127.0.0.1:{port}")


def _s3(name: str, address: str) -> Store:
    variables = s3_server.environment(address)
    return Store(name=name, url=f"s3://{BUCKET}", variables=variables)


def _make_bucket(store: Store) -> None:
    bucket = S3Store(
        BUCKET,
        endpoint=store.variables["AWS_ENDPOINT_URL"],
        access_key_id=KEY,
        secret_access_key=SECRET,
        client_options={"allow_http": True},
    )
    url = obstore.sign(bucket, "PUT", "", timedelta(minutes=1))
    urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()


def _azurite(folder: pathlib.Path) -> Iterator[Store]:
    command = [_program("azurite-blob"), "--blobHost=127.0.0.1", "--blobPort={port}"]
    command += [f"--location={folder / 'data'}", "--skipApiVersionCheck", "--silent"]
    with started(command, folder) as port:
        endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
        _make_container(endpoint)
        connection = f"AccountName={_ACCOUNT};AccountKey={_ACCOUNT_KEY}"
        connection = f"{connection};BlobEndpoint={endpoint}"
        yield Store(
            name="azurite",
            url=f"abfss://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net",
            variables={"AZURE_STORAGE_CONNECTION_STRING": connection},
        )


def _make_container(endpoint: str) -> None:
    """Sends the request that obstore has not, signed as Azure's documentation says."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True)}
    headers["x-ms-version"] = "2021-08-06"
    lines = ["PUT", *[""] * 11, *(f"{name}:{text}" for name, text in headers.items())]
    lines += [f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}", "restype:container"]
    key, text = base64.b64decode(_ACCOUNT_KEY), "\n".join(lines).encode()
    sign = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{sign}"
    url = f"{endpoint}/{BUCKET}?restype=container"
    request = urllib.request.Request(url, method="PUT", headers=headers)
    urllib.request.urlopen(request).close()


def _fake_gcs(folder: pathlib.Path) -> Iterator[Store]:
    (folder / "data" / BUCKET).mkdir(parents=True)
    command = [_program("fake-gcs-server"), "-scheme=http", "-host=127.0.0.1"]
    command += ["-port={port}", "-public-host=127.0.0.1:{port}"]
    command += [f"-filesystem-root={folder / 'data'}", "-log-level=error"]
    with started(command, folder) as port:
        upload = f"http://127.0.0.1:{port}/upload/storage/v1/b/{BUCKET}/o"

        # The server takes files by Google's JSON API, and obstore has the XML API.
        def copy(source: pathlib.Path, name: str) -> None:
            for path, below in _files_in(source):
                quoted = urllib.parse.quote(f"{name}/{below}", safe="")
                url = f"{upload}?uploadType=media&name={quoted}"
                urllib.request.urlopen(url, data=path.read_bytes()).close()

        variables = {"STORAGE_EMULATOR_HOST": f"127.0.0.1:{port}"}
        yield Store(
            name="fake-gcs-server",
            url=f"gs://{BUCKET}",
            variables=variables,
            copy=copy,
        )


_NGINX = """
user root; worker_processes 1;
daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {folder}/1; proxy_temp_path {folder}/2;
  fastcgi_temp_path {folder}/3; uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
  server {{ listen 127.0.0.1:{{port}}; root {folder}/data; }} }}
"""


def _nginx(folder: pathlib.Path) -> Iterator[Store]:
    (folder / "data").mkdir()
    folder.chmod(0o755)
    text = _NGINX.format(folder=folder)
    command = [_program("nginx"), "-c", str(folder / "nginx.conf")]
    with started(command, folder, config=(folder / "nginx.conf", text)) as port:

        def copy(source: pathlib.Path, name: str) -> None:
            shutil.copytree(source, folder / "data" / name)

        yield Store(name="nginx", url=f"http://127.0.0.1:{port}", copy=copy)


_CDN = """
user root; worker_processes 1;
daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{ client_body_temp_path {folder}/1; proxy_temp_path {folder}/2;
  fastcgi_temp_path {folder}/3; uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
  log_format sent $body_bytes_sent;
  proxy_cache_path {folder}/cache keys_zone=cdn:1m max_size=1g;
  server {{ listen unix:{folder}/origin; root {data};
    access_log {folder}/sent sent; }}
  server {{ listen 127.0.0.1:{{port}}; access_log off;
    location / {{
      proxy_pass http://unix:{folder}/origin:; proxy_http_version 1.1;
      slice 64k; proxy_set_header Range $slice_range;
      proxy_cache cdn; proxy_cache_key $uri$slice_range; proxy_cache_lock on;
      proxy_cache_valid 200 206 1h; }} }} }}
"""


@contextmanager
def cdn(data: pathlib.Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """Runs nginx as a web server of a folder, and nginx as a CDN before the server.

    Yields:
        The URL of the CDN, and a function that returns the bytes that the web server
        sent so far. The CDN caches slices of 64 kB.
    """
    with tempfile.TemporaryDirectory() as name:  # the path of a socket is short
        folder = pathlib.Path(name)
        text = _CDN.format(folder=folder, data=data)
        command = [_program("nginx"), "-c", str(folder / "nginx.conf")]
        with started(command, folder, config=(folder / "nginx.conf", text)) as port:
            yield (
                f"http://127.0.0.1:{port}",
                lambda: sum(map(int, (folder / "sent").read_text().split())),
            )


def _hdfs(folder: pathlib.Path) -> Iterator[Store]:
    with hdfs_server.serve(folder) as address:
        yield Store(name="hdfs", url=f"hdfs://{address}")


# The stores, and what says whether each is installed.
_STORES: dict[str, tuple[Callable[[pathlib.Path], Iterator[Store]], Callable[[], bool]]]
_STORES = {
    "seaweedfs": (_seaweedfs, lambda: True),
    "fake-gcs-server": (_fake_gcs, lambda: bool(_program("fake-gcs-server"))),
    "rclone": (_rclone, lambda: bool(_program("rclone"))),
    "moto": (_moto, lambda: bool(_program("moto_server"))),
    "azurite": (_azurite, lambda: bool(_program("azurite-blob"))),
    "nginx": (_nginx, lambda: bool(_program("nginx"))),
    "hdfs": (_hdfs, hdfs_server.is_installed),
}
NAMES = tuple(_STORES)


def is_installed(name: str) -> bool:
    """Returns whether the program of a store is on this host."""
    return _STORES[name][1]()


@contextmanager
def running(name: str, folder: pathlib.Path) -> Iterator[Store]:
    """Starts the store of this name, and ends it after the block.

    Args:
        name: One of `NAMES`.
        folder: An empty folder for its data.
    """
    yield from _STORES[name][0](folder)


def upload(store: Store, source: pathlib.Path, name: str) -> str:
    """Copies the files of a local folder to a new folder of the store.

    Returns:
        The URL of the new folder. The variables of the store must be set.
    """
    url = f"{store.url}/{name}"
    if store.copy is not None:
        store.copy(source, name)
        return url
    files = Files(url)
    for path, below in _files_in(source):
        files.upload(below, path)
    return url


def _files_in(folder: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [(path, path.relative_to(folder).as_posix()) for path in paths]


def _program(name: str) -> str:
    """Returns the path of a program, or "" if it is not installed."""
    beside = pathlib.Path(sys.executable).parent / name
    if beside.exists():
        return str(beside)
    module = importlib.util.find_spec(f"{name.replace('-', '_')}_python_wrapper")
    if module and module.origin:
        found = pathlib.Path(module.origin).parent.rglob(f"{name}-linux-*")
        return next((str(path) for path in found if path.is_file()), "")
    return shutil.which(name) or shutil.which(name, path="/usr/sbin") or ""


@contextmanager
def started(
    command: Sequence[str],
    folder: pathlib.Path,
    *,
    config: tuple[pathlib.Path, str] | None = None,
) -> Iterator[int]:
    """Starts a server on a free port of 127.0.0.1, and kills it after the block.

    The kernel kills the server when its parent dies. Another process may take the port
    before the server does: another port is tried then.

    Args:
        command: Program and arguments; `{port}` stands for the port.
        folder: Folder for the log.
        config: A file to write before, and its text with `{port}`.

    Yields:
        The port.
    """
    for attempt in range(3):
        (port,) = s3_server.free_ports(1)
        if config is not None:
            config[0].write_text(config[1].replace("{port}", str(port)))
        with open(folder / "server.log", "ab") as log:
            process = subprocess.Popen(
                [part.replace("{port}", str(port)) for part in command],
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        try:
            if not _answers(process, port) and attempt < 2:
                continue
            yield port
            return
        finally:
            process.kill()
            process.wait()


def _answers(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Waits until a server takes connections; returns False if it ends."""
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        time.sleep(0.02)
    if process.poll() is None:
        raise RuntimeError(f"{process.args!r} does not listen on {port}")
    return False
