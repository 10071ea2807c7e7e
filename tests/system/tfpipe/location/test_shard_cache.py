"""The shard cache with real processes, real disks and a real S3 server."""

import collections
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

import tfpipe
from tests.support.data import belady
from tests.support.data.shards import make_shards, read_records
from tests.support.faults.bad_proxy import Fault
from tests.support.servers.web_server import serve
from tfpipe.location.files import Files
from tfpipe.reading.order import EpochPosition, Order
from tfpipe.shard_cache import pieces as cuts
from tfpipe.shards.ranges import RecordRanges

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
        place = EpochPosition(epoch)
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
            [sys.executable, "-m", "tests.support.processes.shard_cache_worker", job],
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
    # A folder that is being made has a name with a dot, and vanishes from it.
    return sum(file.stat().st_blocks * 512 for file in path.glob("[!.]*/shards/*"))


def test_each_piece_is_fetched_once_a_host_by_whoever_asks_first(workers, made):
    job = {"num_ranks": 3, "num_epochs": 3, "pause": 0.03, "begin_with": 3}
    ranks = [workers.start(rank, **job) for rank in range(3)]

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
    for process in killed:  # nobody takes over what another was about to fetch
        process.send_signal(signal.SIGSTOP)
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


@pytest.fixture
def on_s3(made, s3_folder, monkeypatch):
    """Function () -> the shards in a cache of a folder on a real server."""
    monkeypatch.setattr(cuts, "_MOST_BYTES", PIECE_BYTES)
    files = Files(s3_folder)
    for path in made.folder.iterdir():
        files.upload(path.name, path)
    return s3_folder


EVERYTHING = RecordRanges(np.array([0]), np.array([sum(SIZES)]))


def open_on_s3(made, url, **options):
    cache = tfpipe.ShardCache(**options)
    files = Files(url)
    return cache.open(files, made.folder, made.split, made.shards, made.byte_offsets)


def test_a_bad_connection_never_gives_a_wrong_byte(
    made, on_s3, bad_proxy, tmp_path, capfd
):
    bad_proxy.faults = [
        Fault(kind="alter", times=3, after=30),
        Fault(kind="truncate", times=3, after=1000),
        Fault(kind="reset", times=3),
        Fault(kind="status", times=3),
        Fault(kind="delay", times=3, seconds=0.1),
    ]
    opened = open_on_s3(made, on_s3, directory=tmp_path / "cache")

    with contextlib.closing(opened):
        paths = opened.bring(EVERYTHING)
        assert read_records(made, EVERYTHING, paths) == list(made.data)
        num_requests = bad_proxy.num_requests()
        assert opened.statistics().num_faults == 3
        assert num_requests > len(opened.pieces)
        assert opened.bring(EVERYTHING) == paths
        assert bad_proxy.num_requests() == num_requests
    assert capfd.readouterr().err.count("came back wrong") == 3


def test_each_byte_comes_once_from_the_server(made, on_s3, bad_proxy, tmp_path):
    cache = tfpipe.ShardCache(tmp_path / "cache")

    filled = cache.fill(on_s3)

    names = [f"*{shard.name}" for shard in made.shards]
    sent = [bad_proxy.num_bytes(name) for name in names]
    assert sent == [shard.num_bytes for shard in made.shards]
    assert filled.num_bytes_fetched == filled.num_bytes_present == made.num_bytes
    assert cache.fill(on_s3).num_bytes_fetched == 0
    assert [bad_proxy.num_bytes(name) for name in names] == sent


def test_a_server_that_stalls_is_an_error_in_the_stated_time(
    made, on_s3, bad_proxy, tmp_path
):
    bad_proxy.faults = [Fault(kind="stall", after=100)]
    opened = open_on_s3(made, on_s3, directory=tmp_path / "cache", time_limit=2)

    start = time.monotonic()
    with contextlib.closing(opened):
        with pytest.raises(tfpipe.errors.RemoteError, match="train-0000"):
            opened.bring(EVERYTHING)
        assert time.monotonic() - start < 20
        bad_proxy.faults = []
        assert read_records(made, EVERYTHING, opened.bring(EVERYTHING))


def test_a_cache_of_half_the_data_hits_as_often_as_belady(
    tmp_path, tmp_path_factory, monkeypatch
):
    monkeypatch.setattr(cuts, "_MOST_BYTES", 40_000)
    large = make_shards(tmp_path_factory.mktemp("large"), [400] * 10)
    max_bytes = large.num_bytes // 2
    cache = tfpipe.ShardCache(tmp_path / "cache", max_bytes=max_bytes)
    order = Order(shard_sizes=large.sizes, window_size=128)
    windows = [
        order.window(0, EpochPosition(epoch), number).ranges
        for epoch in range(6)
        for number in order.windows(0, EpochPosition(epoch))
    ]
    opened = cache.open(
        Files(str(large.folder)), "", "train", large.shards, large.byte_offsets
    )
    with contextlib.closing(opened):
        reader = opened.reader(lambda: iter(windows))
        for ranges in windows:
            reader.next_window(ranges)
        found = opened.statistics()
        used = [opened.pieces.of(ranges) for ranges in windows]
        costs = opened.pieces.stop - opened.pieces.start

    best = belady.optimal_hits(used, costs, max_bytes)
    assert 0.3 < best < 0.7
    hits = found.num_pieces_from_cache / found.num_pieces_wanted
    assert hits > best - 0.05


# Python itself may be in a folder that other users cannot enter: all modules are
# imported by root.
READ = """import json, os, sys, tempfile
import tfpipe
data, url, folder, umask, user = sys.argv[1:]


def read(kind, folder):
    place, cache, stages = url, "auto", [tfpipe.Interleave()]
    if kind == "shard cache":
        cache = tfpipe.ShardCache(folder)
    elif kind == "shared folder":
        local = tempfile.mkdtemp(dir=os.path.dirname(data))
        cache = tfpipe.ShardCache(local, shared_directory=folder)
    else:
        place, stages = data, [*stages, tfpipe.Cache("disk", folder)]
    source = tfpipe.TFRecordSource(place, "train", shard_cache=cache)
    assert sum(1 for _ in tfpipe.Pipeline(source, stages).build()) == 20
    figures = source.cache_statistics()
    return 0 if figures is None else figures.bytes_from_server


def tried(kind):
    try:
        return read(kind, os.path.join(folder, kind))
    except (OSError, ValueError) as error:
        return str(error)


KINDS = "shard cache", "shared folder", "disk"
with tempfile.TemporaryDirectory() as first:
    for kind in KINDS:
        read(kind, os.path.join(first, kind))
os.umask(int(umask, 8))
os.setgroups([])
os.setgid(65_533)
os.setuid(int(user))
print(json.dumps([tried(kind) for kind in KINDS]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize("umask", ["002", "022"])
def test_a_second_user_of_a_cache_works_or_is_told(umask: str) -> None:
    """Two users of a group, in a folder that the group may write to."""
    with tempfile.TemporaryDirectory() as name:  # others cannot enter pytest's folders
        folder = pathlib.Path(name)
        folder.chmod(0o777)
        made = make_shards(folder / "data", [20])
        cache = folder / "cache"
        cache.mkdir()
        os.chown(cache, 0, 65_533)
        cache.chmod(0o2775)
        found = []
        with serve(folder / "data") as url:
            for user in (65_531, 65_532):
                command = (sys.executable, "-c", READ, made.folder, url, cache, umask)
                ended = subprocess.run(
                    [*command, str(user)],
                    env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": "/"},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert ended.returncode == 0, ended.stderr
                found.append(json.loads(ended.stdout))

    first, (shard_cache, shared, on_disk) = found
    assert first == [made.num_bytes, made.num_bytes, 0]
    assert shared == 0  # the pieces can be read
    if umask == "002":
        assert (shard_cache, on_disk) == (0, 0)
        return
    for name, told in (("shard cache", shard_cache), ("disk", on_disk)):
        assert f"{cache / name}" in told
        assert "Permission denied" in told
        assert "Give a folder that this user can write to, one for each user." in told
