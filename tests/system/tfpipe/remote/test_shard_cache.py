"""The shard cache with real processes, real disks and a real S3 server."""

import collections
import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from tests.support.shards import make_shards
from tfpipe.reading.order import Order, Place

ROOT = pathlib.Path(__file__).parents[4]
SIZES = [80, 0, 70, 90]
PIECE_BYTES = 9000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_shards(tmp_path_factory.mktemp("data"), SIZES)


def expected_digest(made, *, rank=0, num_ranks=1, num_epochs=1):
    order = Order(
        shard_sizes=made.sizes, window_size=16, block_length=8, num_ranks=num_ranks
    )
    digest = hashlib.sha256()
    for epoch in range(num_epochs):
        place = Place(epoch)
        for number in order.windows(rank, place):
            for record in order.window(rank, place, number).ranges.records():
                digest.update(made.data[record])
    return digest.hexdigest()


class Workers:
    """Starts ranks that read through one cache, and ends them."""

    def __init__(self, made, folder):
        self.cache, self.log = folder / "cache", folder / "log"
        self._job = {
            "folder": str(made.folder),
            "cache": str(self.cache),
            "log": str(self.log),
            "piece_bytes": PIECE_BYTES,
            "num_ranks": 1,
            "num_epochs": 1,
        }

    def start(self, rank=0, **job):
        job = json.dumps(self._job | {"rank": rank} | job)
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.shard_cache_worker", job],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def asked(self):
        """The ranges that were asked for, each with its rank."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(line.partition(" ")[2], int(line.split()[0])) for line in lines]


@pytest.fixture
def workers(made, tmp_path):
    return Workers(made, tmp_path)


def result(process, seconds=60):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1]), err


def blocks(path):
    return sum(file.stat().st_blocks * 512 for file in path.rglob("shards/*"))


def test_each_piece_is_fetched_once_a_host_by_whoever_asks_first(workers, made):
    ranks = [
        workers.start(rank, num_ranks=3, num_epochs=3, pause=0.03) for rank in range(3)
    ]

    found = [result(process)[0] for process in ranks]

    for rank in range(3):
        wanted = expected_digest(made, rank=rank, num_ranks=3, num_epochs=3)
        assert found[rank]["digest"] == wanted
    asked = collections.Counter(name for name, _ in workers.asked())
    assert set(asked.values()) == {1}
    assert len({rank for _, rank in workers.asked()}) > 1
    fetched = sum(each["statistics"]["bytes_from_server"] for each in found)
    assert fetched == made.num_bytes


def test_killed_processes_lose_nothing_and_break_nothing(workers, made):
    killed = [workers.start(pause=0.02, num_connections=3) for _ in range(2)]
    while len(workers.asked()) < 14:
        assert killed[0].poll() is None
        time.sleep(0.005)
    for process in killed:
        process.kill()
        process.communicate()

    found, _ = result(workers.start())

    assert found["digest"] == expected_digest(made)
    # Pieces that were there are kept, and only those that were on their way come twice.
    asked = collections.Counter(name for name, _ in workers.asked())
    assert max(asked.values()) <= 2
    assert found["statistics"]["bytes_from_server"] < made.num_bytes


def test_the_budget_holds_at_each_moment_for_all_processes(workers, made):
    max_bytes = 230_000
    ranks = [
        workers.start(rank, num_ranks=2, num_epochs=6, pause=0.002, max_bytes=max_bytes)
        for rank in range(2)
    ]
    most = 0
    while any(process.poll() is None for process in ranks):
        if workers.cache.exists():
            most = max(most, blocks(workers.cache))
        time.sleep(0.001)

    found = [result(process)[0] for process in ranks]

    assert 100_000 < most <= max_bytes
    for rank in range(2):
        wanted = expected_digest(made, rank=rank, num_ranks=2, num_epochs=6)
        assert found[rank]["digest"] == wanted
        assert not found[rank]["statistics"]["is_reading_through"]


def test_a_full_disk_is_said_once_and_reading_goes_on(workers, made, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    try:
        process = workers.start(
            cache=str(disk / "cache"), max_bytes=1 << 30, num_epochs=3
        )
        found, said = result(process)
    finally:
        subprocess.run(["umount", str(disk)], check=True)

    assert found["digest"] == expected_digest(made, num_epochs=3)
    assert said.count("is full") == 1


def test_a_process_ends_while_the_store_stalls(workers):
    process = workers.start(stall_after=12, num_windows=2, num_connections=2)

    out, err = process.communicate(timeout=30)

    assert process.returncode == 0, err
    assert json.loads(out)["digest"]


def test_two_data_sets_share_a_directory(workers, made, tmp_path_factory):
    other = make_shards(tmp_path_factory.mktemp("other"), [50, 60], seed=3)
    max_bytes = 250_000
    result(workers.start(max_bytes=max_bytes))

    found, said = result(
        workers.start(folder=str(other.folder), max_bytes=max_bytes, num_epochs=2)
    )
    again, _ = result(workers.start(max_bytes=max_bytes))

    assert found["digest"] == expected_digest(other, num_epochs=2)
    assert again["digest"] == expected_digest(made)
    assert "is read by nobody now" in said
    assert blocks(workers.cache) <= max_bytes
    assert found["statistics"]["bytes_from_server"] == other.num_bytes


def test_a_loop_of_kills_leaves_a_cache_that_is_right(workers, made):
    """Each process is killed a little later than the one before it."""
    for number in range(5):
        process = workers.start(pause=0.005, max_bytes=150_000, num_epochs=9)
        before = len(workers.asked())
        while len(workers.asked()) < before + 3 * number and process.poll() is None:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        if workers.cache.exists():
            assert blocks(workers.cache) <= 150_000

    found, _ = result(workers.start(max_bytes=150_000, num_epochs=2))

    assert found["digest"] == expected_digest(made, num_epochs=2)
    with contextlib.suppress(FileNotFoundError):
        users = [path for path in workers.cache.rglob("users/*") if path.is_file()]
        assert len(users) <= 1
    assert os.listdir(workers.cache)
