"""The state of the page cache on real mounts: each is said as it is, or refused."""

import contextlib
import errno
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest

from benchmarks.distributed.ranks import Ranks
from benchmarks.page_cache import labels, reads, states
from benchmarks.page_cache.reads import EpochReads
from benchmarks.page_cache.states import CacheStatus, OpenFiles, PageCache
from benchmarks.system import mounts
from benchmarks.system.machine import Host

Mount = Callable[[pathlib.Path], AbstractContextManager[pathlib.Path]]

_FILE_BYTES = 4 << 20
_SFTP_SERVER = pathlib.Path("/usr/lib/openssh/sftp-server")
_ZRAM = pathlib.Path("/sys/class/zram-control")
_BLKIO = pathlib.Path("/sys/fs/cgroup/blkio")


def _do(*words: object) -> None:
    """Runs a command; skips the test if this machine cannot."""
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True)
    except OSError as error:
        pytest.skip(f"{words[0]} is missing: {error}")
    if done.returncode:
        pytest.skip(f"{words[0]} fails here: {done.stderr.decode().strip()}")


@contextlib.contextmanager
def _mounted(folder: pathlib.Path, *words: object) -> Iterator[pathlib.Path]:
    point = folder / "mount"
    point.mkdir()
    _do(*words, point)
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)


@contextlib.contextmanager
def _tmpfs(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    with _mounted(folder, "mount", "-t", "tmpfs", "-o", "size=32m", "none") as point:
        yield point


@contextlib.contextmanager
def _loop(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(24 << 20)
    _do("mkfs.ext4", "-q", "-F", image)
    with _mounted(folder, "mount", "-o", "loop", image) as point:
        yield point


@contextlib.contextmanager
def _loop_on_tmpfs(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    with _tmpfs(folder) as memory, _loop(memory) as point:
        yield point


@contextlib.contextmanager
def _zram(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    try:
        number = (_ZRAM / "hot_add").read_text().strip()
    except OSError as error:
        pytest.skip(f"no device of zram can be made: {error}")
    try:
        size = pathlib.Path(f"/sys/block/zram{number}/disksize")
        size.write_text(str(24 << 20))
        _do("mkfs.ext4", "-q", "-F", f"/dev/zram{number}")
        with _mounted(folder, "mount", f"/dev/zram{number}") as point:
            yield point
    finally:
        end = time.monotonic() + 20
        while not _is_removed(number):  # the kernel may still hold it
            assert time.monotonic() < end, f"zram{number} stays busy"
            time.sleep(0.1)


def _is_removed(number: str) -> bool:
    try:
        (_ZRAM / "hot_remove").write_text(number)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


@contextlib.contextmanager
def _sshfs(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """A mount of sshfs whose server is a child, so that no sshd is needed."""
    if not _SFTP_SERVER.exists():
        pytest.skip(f"{_SFTP_SERVER} is missing")
    program = folder / "ssh"
    program.write_text(f"#!/bin/sh\nexec {_SFTP_SERVER}\n")
    program.chmod(0o755)
    (folder / "far").mkdir()
    place = f"host:{folder / 'far'}"
    with _mounted(folder, "sshfs", "-o", f"ssh_command={program}", place) as point:
        yield point


class Case(NamedTuple):
    """A mount, and the truth about it.

    Attributes:
        mount: Makes the mount.
        is_memory: Whether memory is the storage.
        beneath: Words of the storage beneath the page cache.
        keeps_pages: Whether files that were read stay in the page cache.
    """

    mount: Mount
    is_memory: bool
    beneath: tuple[str, ...]
    keeps_pages: bool = True


CASES = {
    "tmpfs": Case(_tmpfs, True, ("tmpfs",)),
    "loop": Case(_loop, False, ("page cache of the file beneath the loop device",)),
    "loop on tmpfs": Case(_loop_on_tmpfs, True, ("loop device", "on tmpfs")),
    "zram": Case(_zram, True, ("zram",)),
    "sshfs": Case(_sshfs, False, ("the program behind fuse.sshfs",), keeps_pages=False),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    if os.geteuid():
        pytest.skip("only root mounts")
    return CASES[request.param]


@pytest.fixture
def file(case: Case, tmp_path: pathlib.Path) -> Iterator[str]:
    with case.mount(tmp_path) as folder:
        path = folder / "shard"
        with open(path, "wb") as file:
            file.write(os.urandom(_FILE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        yield str(path)


def _prepare(state: str, file: str) -> CacheStatus:
    (status,) = states.prepare(state, [file], Ranks(), drops_all=False)
    return status


def _label_of_reading(file: str, status: CacheStatus) -> str:
    """Reads a file as an epoch does, and returns the label of the epoch."""
    with contextlib.closing(open(file, "rb", buffering=0)) as opened:
        held = OpenFiles([file])
        before = reads.snapshot(held)
        while opened.read(1 << 20):
            pass
        after = reads.snapshot(held)
    epoch = EpochReads(
        epoch=0,
        cache=PageCache.of_files([file]),
        host=Host.here(),
        consumed_bytes=_FILE_BYTES,
        before=before,
        after=after,
    )
    (joined,) = labels.join([[epoch]], [status])
    return joined.label


def test_storage_beneath_the_page_cache_is_named(case: Case, file: str) -> None:
    status = _prepare("as_is", file)

    assert status.is_memory is case.is_memory
    for words in case.beneath:
        assert words in status.beneath
    assert status.caveat, "no figure of the mount may stand without it"
    assert ("are in memory" in status.caveat) is case.is_memory


def test_cold_is_had_or_refused(case: Case, file: str) -> None:
    if case.is_memory:
        with pytest.raises(ValueError, match="memory is its storage"):
            _prepare("cold", file)
        return

    status = _prepare("cold", file)

    assert (status.resident_bytes or 0) == 0
    assert _label_of_reading(file, status) in ("cold", "unknown")


def test_warm_is_had_or_refused(case: Case, file: str) -> None:
    if not case.keeps_pages:
        with pytest.raises(ValueError, match="drops the pages of a file"):
            _prepare("warm", file)
        return

    status = _prepare("warm", file)

    assert status.resident_bytes == _FILE_BYTES
    assert _label_of_reading(file, status) == "warm"


_READ = """
import os, sys
from benchmarks.system import probes
before = probes.own_storage_bytes()
with open(sys.argv[1], "rb", buffering=0) as file:
    while file.read(1 << 20):
        pass
print(probes.own_storage_bytes() - before)
"""


def test_throttled_disk_gives_every_byte_of_a_cold_file(tmp_path: pathlib.Path) -> None:
    """A limit of the control group makes reads slow, and changes no count."""
    if mounts.beneath(tmp_path) != mounts.Beneath():
        pytest.skip("the folder of tests is on no disk")
    group = _BLKIO / f"tfpipe-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of blkio can be made: {error}")
    try:
        number = os.stat(tmp_path).st_dev
        disk = f"{os.major(number)}:{os.minor(number)}"
        try:
            limit = group / "blkio.throttle.read_bps_device"
            limit.write_text(f"{disk} {32 << 20}")
        except OSError as error:
            pytest.skip(f"the disk {disk} cannot be throttled: {error}")
        path = tmp_path / "shard"
        with open(path, "wb") as file:
            file.write(os.urandom(_FILE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        status = _prepare("cold", str(path))

        join = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        done = subprocess.run(
            ["sh", "-ec", join, "sh", sys.executable, "-c", _READ, str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        group.rmdir()

    assert (status.resident_bytes, status.counts_reads) == (0, True)
    assert int(done.stdout) >= _FILE_BYTES
    assert status.caveat == ""
