"""Fixtures that all system tests of a session share, because they start slowly."""

import pathlib
import uuid
from collections.abc import Iterator

import pytest

from tests.support.data.made_once import made_once
from tests.support.faults.bad_proxy import BadProxy
from tests.support.processes import wheel
from tests.support.processes.rank_pool import RankPool
from tests.support.processes.warm_python import WarmPython
from tests.support.servers import browser, s3_server, shared_mount
from tests.support.servers.shared_server import session_folder, shared


@pytest.fixture(scope="session")
def rank_pool(
    warm_python: WarmPython, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RankPool]:
    """Two Horovod ranks: `rank_pool.run(function, ...)` calls a function on both."""
    folder = tmp_path_factory.mktemp("rank_pool")
    pool = RankPool(folder, python=warm_python.command)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def wheel_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder for PYTHONPATH with what the wheel holds, and `bin/tfpipe`."""
    return made_once(tmp_path_factory, "wheel", wheel.install)


@pytest.fixture(scope="session")
def s3_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an S3 server that all tests of the session share, also by other workers.

    Nobody stops it; a test that wants this makes an `s3_server.S3Server`.
    """
    folder = session_folder(tmp_path_factory, "s3_server")
    with shared("tests.support.servers.s3_server", folder) as document:
        yield document["address"]


@pytest.fixture
def s3_folder(s3_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty folder of its own on `s3_address`; the credentials are set."""
    for name, value in s3_server.environment(s3_address).items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3_server.BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def bad_proxy(s3_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadProxy]:
    """A proxy in front of `s3_address` that fails as told; AWS_ENDPOINT_URL is it."""
    with BadProxy(s3_address) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        yield proxy


@pytest.fixture(scope="session")
def shared_mount_dir(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[pathlib.Path]:
    """A folder on a shared file system, a JuiceFS mount, for the whole session."""
    if not shared_mount.can_mount():
        pytest.skip("/dev/fuse does not exist")
    folder = session_folder(tmp_path_factory, "shared_mount")
    with shared("tests.support.servers.shared_mount", folder) as document:
        yield pathlib.Path(document["folder"])


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Page]:
    """A tab of a real browser."""
    program = browser.find()
    if program is None:
        pytest.skip("No Chromium is installed: apt-get install -y chromium")
    with browser.open_page(program) as page:
        yield page
