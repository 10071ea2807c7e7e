"""Servers of the tests of `tfpipe.location`: they start, fail as told, and end."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.faults.bad_proxy import BadProxy, Fault
from tests.support.servers import shared_mount, shared_server
from tests.support.servers.s3_server import BUCKET, S3Server, environment
from tfpipe.location.files import Files


def test_a_read_waits_for_a_killed_server_to_come_back_with_its_files(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = S3Server(tmp_path)
    for name, value in environment(server.address).items():
        monkeypatch.setenv(name, value)
    files = Files(f"s3://{BUCKET}/kept", time_limit=30)
    try:
        server.start()
        files.write("a", b"before")
        server.kill()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(files.read, "a")
            server.start()

            assert answer.result() == b"before"
    finally:
        server.kill()


def test_users_share_a_server_that_ends_with_the_last_also_when_it_is_killed(
    tmp_path: pathlib.Path,
) -> None:
    code = f"""
    import pathlib, time
    from tests.support.servers.shared_server import shared
    module = "tests.support.servers.stand_in_server"
    with shared(module, pathlib.Path({str(tmp_path)!r})) as document:
        print(document["pid"], flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    users = [
        subprocess.Popen(command, cwd=shared_server.ROOT, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    pids = [int(user.stdout.readline()) for user in users if user.stdout]
    users[0].send_signal(signal.SIGKILL)
    users[0].wait()
    time.sleep(0.3)

    assert pids[0] == pids[1]
    assert os.path.exists(f"/proc/{pids[0]}")

    users[1].send_signal(signal.SIGKILL)
    users[1].wait()
    end = time.monotonic() + 10
    while os.path.exists(f"/proc/{pids[0]}") and time.monotonic() < end:
        time.sleep(0.02)

    assert not os.path.exists(f"/proc/{pids[0]}")
    assert not (tmp_path / "ready.json").exists()


def test_the_proxy_counts_requests_and_bytes_by_object(
    s3_folder: str, bad_proxy: BadProxy
) -> None:
    files = Files(s3_folder)
    files.write("shard", bytes(1000))
    bad_proxy.requests.clear()
    files.read_range("shard", 10, 30)
    files.read("shard")

    assert [request.byte_range for request in bad_proxy.requests] == [(10, 30), None]
    assert bad_proxy.num_requests("*/shard") == 2
    assert bad_proxy.num_bytes("*/shard") == 1020
    assert bad_proxy.num_bytes("*/other") == 0


def test_the_proxy_alters_one_byte(s3_folder: str, bad_proxy: BadProxy) -> None:
    files = Files(s3_folder)
    files.write("shard", bytes(200_000))
    bad_proxy.faults.append(Fault(kind="alter", after=150_000, times=1))
    altered, right = files.read("shard"), files.read("shard")

    assert right == bytes(200_000)
    assert altered == bytes(150_000) + b"\xff" + bytes(49_999)


def test_a_mount_is_shared_storage_that_ends(tmp_path: pathlib.Path) -> None:
    if not shared_mount.can_mount():
        pytest.skip("/dev/fuse does not exist")
    content = os.urandom(5 << 20)
    with shared_mount.mounted(tmp_path / "juicefs") as mount:
        (mount / "shard").write_bytes(content)
        mounts = pathlib.Path("/proc/mounts").read_text().splitlines()
        kinds = [line.split()[:3] for line in mounts]

        assert (mount / "shard").read_bytes() == content
        assert [kind for _, where, kind in kinds if where == str(mount)] == [
            "fuse.juicefs"
        ]

    assert not os.path.ismount(mount)
