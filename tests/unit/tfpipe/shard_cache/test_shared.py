"""Several hosts, each with its own shard cache, and a folder that they share."""

import contextlib
import dataclasses
import errno
import itertools
import os
import pathlib
import shutil
import threading

import numpy as np
import pytest

import tfpipe
from tests.support.data.shards import ScriptedFiles, make_shards, read_records
from tfpipe.shard_cache import fetch, leases, pieces as cuts, shared
from tfpipe.shards.ranges import RecordRanges

EVERYTHING = RecordRanges(np.array([0]), np.array([150]))


@pytest.fixture(autouse=True)
def _small_and_fast(monkeypatch):
    monkeypatch.setattr(cuts, "_MOST_BYTES", 9000)
    monkeypatch.setattr(fetch, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(shared, "_FIRST_PAUSE", 0.001)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_shards(tmp_path_factory.mktemp("data"), [80, 0, 70])


@pytest.fixture
def host(tmp_path, made):
    """Function (files, options of the cache) -> the split, opened by a new host."""
    opened, numbers = [], itertools.count()

    def open_split(files=None, *, of=made, name=None, **options):
        cache = tfpipe.ShardCache(
            tmp_path / (name or f"host{next(numbers)}"),
            **{"shared_directory": tmp_path / "shared"} | options,
        )
        files = files or ScriptedFiles(str(of.folder))
        opened.append(
            cache.open(files, of.folder, of.split, of.shards, of.byte_offsets)
        )
        return opened[-1]

    yield open_split
    for cache in opened:
        cache.close()


def read_all(cache, made):
    return read_records(made, EVERYTHING, cache.bring(EVERYTHING))


def files_of(folder, pattern="*/*-*"):
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def test_a_job_fetches_each_byte_once_and_each_host_has_it(host, made, tmp_path):
    caches = [host() for _ in range(3)]
    for cache in caches:
        assert read_all(cache, made) == list(made.data)

    found = [cache.statistics() for cache in caches]
    assert [each.bytes_from_server for each in found] == [made.num_bytes, 0, 0]
    assert [each.bytes_from_shared for each in found] == [0] + [made.num_bytes] * 2
    assert [each.bytes_fetched for each in found] == [made.num_bytes] * 3
    # Pieces alone are left, without a lease.
    names = [path.name for path in files_of(tmp_path / "shared")]
    pieces = caches[0].pieces
    ends = zip(pieces.start.tolist(), pieces.stop.tolist(), strict=True)
    assert sorted(names) == sorted(f"{start}-{stop}" for start, stop in ends)


def test_hosts_at_once_fetch_each_byte_once(host, made):
    caches = [host() for _ in range(3)]
    read = []
    threads = [
        threading.Thread(target=lambda c=cache: read.append(read_all(c, made)))
        for cache in caches
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert read == [list(made.data)] * 3
    fetched = [cache.statistics().bytes_from_server for cache in caches]
    assert sum(fetched) == made.num_bytes


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


HARM = {
    "removed": pathlib.Path.unlink,
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "flipped": flip,
    "of another piece": lambda path: path.write_bytes(
        next(other for other in path.parent.iterdir() if other != path).read_bytes()
    ),
}


@pytest.mark.parametrize("harm", HARM)
def test_damage_in_the_shared_folder_costs_a_fetch(host, made, tmp_path, capsys, harm):
    read_all(host(), made)
    first, path = files_of(tmp_path / "shared")[0], files_of(tmp_path / "shared")[1]
    assert path.parent == first.parent
    num_bytes = path.stat().st_size
    HARM[harm](path)

    second = host()
    assert read_all(second, made) == list(made.data)
    assert second.statistics().bytes_from_server == num_bytes
    third = host()
    assert read_all(third, made) == list(made.data)
    assert third.statistics().bytes_from_server == 0
    said = capsys.readouterr().err
    assert said.count("was damaged in the shared folder") == (harm != "removed")


FAILING = [
    *(errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EDQUOT, errno.ENOSPC),
    *(errno.EROFS, errno.EACCES, errno.ETIMEDOUT),
]


@pytest.mark.parametrize("code", FAILING)
@pytest.mark.parametrize("call", ["read_bytes", "write_bytes", "rename"])
def test_a_shared_folder_that_fails_costs_fetches_alone(
    host, made, tmp_path, monkeypatch, capsys, code, call
):
    caches, right = [host(), host()], getattr(pathlib.Path, call)

    def failing(path, *arguments):
        if tmp_path / "shared" in path.parents:
            raise OSError(code, os.strerror(code), str(path))
        return right(path, *arguments)

    monkeypatch.setattr(pathlib.Path, call, failing)
    for cache in caches:
        assert read_all(cache, made) == list(made.data)
        # Without renames pieces are published, but leases stay.
        if call != "rename":
            assert cache.statistics().bytes_from_server == made.num_bytes
    said = capsys.readouterr().err
    assert f": {os.strerror(code)}. Pieces come from the store meanwhile" in said
    assert said.count("cannot be") <= 2 * len(caches)


@pytest.mark.parametrize("shared_directory", [None, "shared"])
def test_more_shards_cost_the_new_bytes_alone(
    host, made, tmp_path, tmp_path_factory, monkeypatch, shared_directory
):
    """A later generation: the first shards stay, and pieces may be cut elsewhere."""
    first = dataclasses.replace(
        made, shards=made.shards[:1], byte_offsets=made.byte_offsets[:80]
    )
    folder = shared_directory and tmp_path / shared_directory
    opened = []
    for number, content in enumerate((first, made)):
        cache = host(of=content, name="one", shared_directory=folder)
        num_records = len(content.byte_offsets)
        ranges = RecordRanges(np.array([0]), np.array([num_records]))
        assert read_records(content, ranges, cache.bring(ranges)) == list(
            made.data[:num_records]
        )
        opened.append(cache.statistics())
        if number == 0 and not shared_directory:
            monkeypatch.setattr(cuts, "_MOST_BYTES", 4000)

    sizes = [made.shards[0].num_bytes, made.num_bytes - made.shards[0].num_bytes]
    assert [each.bytes_from_server for each in opened] == sizes
    assert [each.bytes_from_shared for each in opened] == [0, 0]


def test_a_damaged_copy_in_the_cache_is_fetched_again(host, made, tmp_path):
    first = dataclasses.replace(
        made, shards=made.shards[:1], byte_offsets=made.byte_offsets[:80]
    )
    cache = host(of=first, name="one", shared_directory=None)
    ranges = RecordRanges(np.array([0]), np.array([80]))
    (path, *_) = cache.bring(ranges)
    flip(pathlib.Path(path))

    again = host(name="one", shared_directory=None)
    assert read_all(again, made) == list(made.data)
    size = int(again.pieces.stop[0] - again.pieces.start[0])
    new = made.num_bytes - made.shards[0].num_bytes
    assert new < again.statistics().bytes_from_server < new + 3 * size


def test_a_full_shared_folder_is_still_read(host, made, tmp_path, monkeypatch):
    assert read_all(host(shared_max_bytes=made.num_bytes // 2), made)

    def full(path, content, right=pathlib.Path.write_bytes):
        if tmp_path / "shared" in path.parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        right(path, content)

    monkeypatch.setattr(pathlib.Path, "write_bytes", full)
    cache = host(num_connections=1)
    assert read_all(cache, made) == list(made.data)
    assert cache.statistics().bytes_from_shared > 0.4 * made.num_bytes


def test_a_removed_folder_is_made_again(host, made, tmp_path):
    for _ in range(2):
        cache = host()
        shutil.rmtree(tmp_path / "shared")
        assert read_all(cache, made) == list(made.data)
        assert cache.statistics().bytes_from_server == made.num_bytes
    assert read_all(host(), made) == list(made.data)


def test_damage_in_the_store_is_not_shared(host, made, tmp_path, tmp_path_factory):
    damaged = make_shards(tmp_path_factory.mktemp("damaged"), [80, 0, 70])
    path = damaged.folder / damaged.shards[0].name
    content = bytearray(path.read_bytes())
    content[int(damaged.byte_offsets[3]) + 50] ^= 1
    path.write_bytes(content)
    for _ in range(2):
        cache = host(of=damaged, time_limit=2)
        read = read_all(cache, damaged)
        assert [a == b for a, b in zip(read, made.data, strict=True)].count(False) == 1
        assert not cache.are_sound(EVERYTHING)

    # All but the damaged piece is shared.
    assert len(files_of(tmp_path / "shared")) == len(cache.pieces) - 1


def test_the_start_of_a_split_is_kept_up_to_the_limit(host, made, tmp_path):
    most = made.num_bytes // 2
    caches = [host(shared_max_bytes=most) for _ in range(2)]
    for cache in caches:
        assert read_all(cache, made) == list(made.data)

    kept = sum(path.stat().st_size for path in files_of(tmp_path / "shared"))
    assert most - 9000 < kept <= most
    assert caches[1].statistics().bytes_from_server == made.num_bytes - kept


def test_pieces_of_an_owner_that_hangs_come_from_the_store(host, made):
    """The owner lives and keeps its lease; half of the time limit passes."""
    hang = threading.Event()

    def wait(name, start, content):
        hang.wait()
        return content

    owner = host(ScriptedFiles(str(made.folder), change=wait))
    thread = threading.Thread(target=read_all, args=(owner, made))
    thread.start()
    while owner.downloader._wishes._in_flight == {}:
        pass
    cache = host(time_limit=0.4)

    with contextlib.closing(cache):
        assert read_all(cache, made) == list(made.data)
    hang.set()
    thread.join()


def test_pieces_of_a_dead_host_are_taken_over(host, made, tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "STALE_SECONDS", 0.05)
    cache = host()
    for piece in range(len(cache.pieces)):
        path = cache._fetcher.shared.path(piece)
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".lease").write_text(f"{'0' * 32} 5\n")
        path.with_name(f"{piece}.lease.{'0' * 32}.part").write_text("x")

    assert read_all(cache, made) == list(made.data)
    assert len(files_of(tmp_path / "shared")) == len(cache.pieces)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shared_directory": "s3://bucket/x"}, "shared_directory.*URL cannot"),
        ({"shared_directory": ""}, "shared_directory must be a folder, got ''"),
        ({"shared_directory": 3}, "shared_directory must be a folder, got 3"),
        ({"shared_directory": "c"}, "must be another folder than directory"),
        ({"shared_max_bytes": 5}, "must have a shared_directory, got 5 without"),
        (
            {"shared_directory": "d", "shared_max_bytes": 0},
            "must be a whole number >= 1",
        ),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        tfpipe.ShardCache("c", **options)


def test_a_file_is_no_shared_folder(host, tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ValueError, match="shared_directory must be a folder in which"):
        host(shared_directory=tmp_path / "file")
