"""Fixtures that all system tests of a session share, because they start slowly."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.support.data.made_once import made_once
from tests.support.faults.bad_proxy import BadProxy
from tests.support.processes import wheel
from tests.support.processes.rank_pool import RankPool
from tests.support.processes.warm_python import WarmPython
from tests.support.servers import browser, shared_mount
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
