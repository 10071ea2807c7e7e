"""The shard cache on a folder whose answers the tests change: no wrong byte is used."""

import collections
import contextlib
import errno
import gc
import itertools
import os
import pathlib
import re
import threading
import time

import numpy as np
import pytest

import tfpipe
from tests.support.data.shards import ScriptedFiles, make_shards, read_records
from tfpipe import errors
from tfpipe.reading.order import EpochPosition, Order
from tfpipe.shard_cache import (
    disk,
    downloader,
    fetch,
    open_cache,
    pieces as cuts,
    publish,
    store,
)
from tfpipe.shard_cache.store import PRESENT, PieceStore
from tfpipe.shards import index, records
from tfpipe.shards.ranges import RecordRanges

WINDOW = 16
EVERYTHING = RecordRanges(np.array([0]), np.array([150]))


@pytest.fixture(autouse=True)
def _small_and_fast(monkeypatch):
    monkeypatch.setattr(cuts, "_MOST_BYTES", 9000)
    monkeypatch.setattr(fetch, "_FIRST_PAUSE_SECONDS", 0.001)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_shards(tmp_path_factory.mktemp("data"), [80, 0, 70])


@pytest.fixture
def opened(tmp_path, made):
    """Function (files, options of the cache) -> the opened split."""
    caches = []

    def open_split(files=None, *, of=made, **options):
        cache = tfpipe.ShardCache(tmp_path / "cache", **options)
        files = files or ScriptedFiles(str(of.folder))
        caches.append(
            cache.open(files, of.folder, of.split, of.shards, of.byte_offsets)
        )
        return caches[-1]

    yield open_split
    for cache in caches:
        cache.close()


def windows(made):
    order = Order(shard_sizes=made.sizes, window_size=WINDOW, block_length=8)
    for epoch in itertools.count():
        for number in order.windows(0, EpochPosition(epoch)):
            yield order.window(0, EpochPosition(epoch), number).ranges


def read_epochs(cache, made, num_epochs):
    reader = cache.reader(lambda: windows(made))
    for ranges in itertools.islice(windows(made), num_epochs * 10):
        paths = reader.next_window(ranges)
        expected = [made.data[record] for record in ranges.records()]
        assert read_records(made, ranges, paths) == expected
    reader.close()


def test_every_window_has_right_records_and_each_byte_comes_once(opened, made):
    files = ScriptedFiles(str(made.folder))
    cache = opened(files)

    read_epochs(cache, made, 3)

    assert len(set(files.asked)) == len(files.asked) == len(cache.pieces)
    found = cache.statistics()
    assert found.bytes_from_server == made.num_bytes
    assert found.bytes_wanted == 3 * made.num_bytes
    # A piece may be fetched for one window and be there for the next.
    assert found.bytes_from_cache >= 2 * made.num_bytes
    assert found.num_requests == len(files.asked)
    again = opened(files)
    read_epochs(again, made, 1)
    assert again.statistics().bytes_from_cache == made.num_bytes
    assert again.statistics().num_requests == 0


def test_a_small_cache_reads_the_same(opened, made):
    cache = opened(max_bytes=110_000)

    read_epochs(cache, made, 3)

    found = cache.statistics()
    assert not found.is_reading_through
    assert made.num_bytes < found.bytes_from_server < 3 * made.num_bytes


def test_wrong_bytes_are_named_and_fetched_again(opened, made, capsys):
    wrong = itertools.count()

    def change(name, start, content):
        if start == 0 and next(wrong) < 2:
            content = bytearray(content)
            content[20 + next(wrong)] ^= 1
        return bytes(content)

    cache = opened(ScriptedFiles(str(made.folder), change=change))

    assert read_records(made, EVERYTHING, cache.bring(EVERYTHING)) == list(made.data)

    assert cache.statistics().num_faults == 1
    said = capsys.readouterr().err
    wanted = (
        r"bytes 0 to \d+ came back wrong, at record 0: the CRC of the data is wrong"
    )
    assert re.search(wanted, said)
    assert "It is fetched again." in said
    assert cache.are_sound(EVERYTHING)


def test_what_is_damaged_in_the_store_is_kept_as_it_is(
    opened, made, tmp_path_factory, capsys
):
    damaged = make_shards(tmp_path_factory.mktemp("damaged"), [80, 0, 70])
    path = damaged.folder / damaged.shards[0].name
    content = bytearray(path.read_bytes())
    place = int(damaged.byte_offsets[3]) + 50
    content[place] ^= 1
    path.write_bytes(content)
    cache = opened(of=damaged, time_limit=2)

    found = read_records(damaged, EVERYTHING, cache.bring(EVERYTHING))

    assert [a == b for a, b in zip(found, damaged.data, strict=True)].count(False) == 1
    assert found[3] != damaged.data[3]
    assert not cache.are_sound(EVERYTHING)
    assert cache.are_sound(RecordRanges(np.array([100]), np.array([20])))
    said = capsys.readouterr().err
    assert "at record 3" in said
    assert "The store itself has this damage" in said
    assert cache.statistics().num_faults == 3


def _flip(path):
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def _relabel(path):
    """Another record of the same length, with right CRCs."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    path.write_bytes(b"".join(records.frame([bytes(size)])) + content[size + 16 :])


@pytest.mark.parametrize("change", [_flip, _relabel, pathlib.Path.unlink])
@pytest.mark.parametrize("new_index", ["{}", None])
def test_a_data_set_replaced_while_it_is_read_is_named_as_that(
    change, new_index, opened, tmp_path_factory
):
    """Damage, another digest and a missing shard alike, and it is no damage."""
    of = make_shards(tmp_path_factory.mktemp("replaced"), [20])
    cache = opened(of=of, time_limit=5)
    change(of.folder / of.shards[0].name)
    path = of.folder / "index.json"
    path.unlink() if new_index is None else path.write_text(new_index)

    with pytest.raises(errors.RemoteError) as raised:
        list(cache.fill())

    assert f"{of.folder} was replaced while it was read" in str(raised.value)
    assert "Start the run again." in str(raised.value)


@pytest.mark.parametrize("num_connections", [1, 2, 5])
def test_all_connections_are_used_and_no_more(opened, made, num_connections):
    """There are more threads: some of them write what came."""
    numbers, changed = [0, 0], threading.Condition()  # requests now, most of them

    def change(name, start, content):
        with changed:
            numbers[0] += 1
            numbers[1] = max(numbers)
            changed.notify_all()
            changed.wait_for(lambda: numbers[1] >= num_connections, timeout=10)
        with changed:
            numbers[0] -= 1
        return content

    files = ScriptedFiles(str(made.folder), change=change)
    cache = opened(files, num_connections=num_connections)

    assert read_records(made, EVERYTHING, cache.bring(EVERYTHING)) == list(made.data)
    assert numbers == [0, num_connections]


def test_bytes_that_never_agree_are_an_error_in_time(opened, made):
    random = np.random.default_rng(0)
    files = ScriptedFiles(
        str(made.folder), change=lambda name, start, right: random.bytes(len(right))
    )
    cache = opened(files, time_limit=0.05)

    start = time.monotonic()
    with pytest.raises(
        tfpipe.errors.RemoteError,
        match=r"came back wrong, at record .* \d times in \d+\.\d s",
    ) as raised:
        cache.bring(EVERYTHING)

    stated = re.search(r"(\d+\.\d) s", str(raised.value))
    assert stated
    assert float(stated[1]) <= time.monotonic() - start + 0.05


def test_a_store_that_fails_is_an_error_and_later_none(opened, made):
    is_down = True

    def change(name, start, content):
        if is_down:
            raise errors.RemoteError("the store is down")
        return content

    cache = opened(ScriptedFiles(str(made.folder), change=change))
    with pytest.raises(tfpipe.errors.RemoteError, match="the store is down"):
        cache.bring(EVERYTHING)
    is_down = False

    # Requests that began before may still fail now.
    assert read_records(made, EVERYTHING, cache.bring(EVERYTHING)) == list(made.data)


def test_a_store_that_stalls_is_an_error_in_time(opened, made, monkeypatch):
    monkeypatch.setattr(downloader, "_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(downloader, "_EXIT_SECONDS", 0.01)
    never = threading.Event()

    def stall(name, start, content):
        never.wait()
        return content

    cache = opened(ScriptedFiles(str(made.folder), change=stall), time_limit=0.1)
    with pytest.raises(
        tfpipe.errors.RemoteError, match=r"within 0\.1 s, but none came"
    ):
        cache.bring(EVERYTHING)
    cache.close()
    # The claims of the stalled requests have ended.
    assert read_records(made, EVERYTHING, opened().bring(EVERYTHING)) == list(made.data)
    never.set()


def exchanged(made, folder):
    """The same data set with another record of the same length, right CRCs and all."""
    other = make_shards(folder, [80, 0, 70])
    path = other.folder / other.shards[0].name
    content = bytearray(path.read_bytes())
    offset = int(made.byte_offsets[5])
    new = b"".join(records.frame([bytes(len(made.data[5]))]))
    content[offset : offset + len(new)] = new
    path.write_bytes(content)
    return other


def test_a_file_that_others_harm_does_not_blame_the_store(made, tmp_path, monkeypatch):
    """The fetched bytes have the digest; the file on the local disk never has."""
    monkeypatch.setattr(publish.Publisher, "_is_right", lambda self, shard: False)
    cache = tfpipe.ShardCache(tmp_path / "cache")

    cache.fill(made.folder)


def test_a_shard_with_another_digest_is_not_used(
    opened, made, tmp_path, tmp_path_factory, capsys
):
    other = exchanged(made, tmp_path_factory.mktemp("exchanged"))
    cache = tfpipe.ShardCache(tmp_path / "cache")

    with pytest.raises(
        tfpipe.errors.BadIndexError, match="fetched twice with another one"
    ):
        cache.fill(other.folder)

    said = capsys.readouterr().err
    assert "is fetched again" in said
    assert "has another digest again, and is not used." in said
    split = opened(of=other)
    # It may have been repaired, so it is fetched anew, and refused again.
    with pytest.raises(tfpipe.errors.BadIndexError, match=made.shards[0].name):
        for _ in split.fill():
            pass
    good = RecordRanges(np.array([80]), np.array([70]))
    assert read_records(made, good, split.bring(good)) == list(made.data[80:])
    with pytest.raises(tfpipe.errors.BadIndexError, match=made.shards[0].name):
        split.bring(EVERYTHING)


def test_a_shard_that_came_with_another_digest_once_is_fetched_again_and_published(
    opened, made, tmp_path, tmp_path_factory, capsys
):
    """A server may have had an older file of the shard while the pieces came."""
    other = exchanged(made, tmp_path_factory.mktemp("exchanged"))
    name, old = made.shards[0].name, (other.folder / made.shards[0].name).read_bytes()
    asked = collections.Counter()

    def change(shard, start, content):
        asked[shard, start] += 1
        if shard == name and asked[shard, start] == 1:
            return old[start : start + len(content)]
        return content

    cache = opened(ScriptedFiles(str(made.folder), change=change))
    for _ in cache.fill():
        pass

    assert {path.name for path in (tmp_path / "cache").rglob("published/*")} == {
        shard.name for shard in made.shards if shard.num_records
    }
    assert read_records(made, EVERYTHING, cache.bring(EVERYTHING)) == list(made.data)
    said = capsys.readouterr().err
    assert said.count("is fetched again") == 1
    assert "is not used" not in said


def test_a_full_disk_reads_through_memory_and_says_so_once(
    opened, made, monkeypatch, capsys
):
    num_left = 8

    def write(store, piece, content, right=PieceStore.write, **options):
        nonlocal num_left
        num_left -= 1
        if num_left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        right(store, piece, content, **options)

    monkeypatch.setattr(PieceStore, "write", write)
    cache = opened()

    read_epochs(cache, made, 2)

    assert cache.statistics().is_reading_through
    assert capsys.readouterr().err.count("is full") == 1


REMEDIES = {
    errno.ENOSPC: "Free some room there, or give a folder on another disk.",
    errno.EDQUOT: "Free some room there, or give a folder on another disk.",
    errno.EROFS: "Its disk is read-only: mount the disk for writing, or give another.",
    errno.EACCES: "Give a folder that this user can write to, one for each user.",
    errno.EPERM: "Give a folder that this user can write to, one for each user.",
    errno.EIO: "Its disk fails: look at the disk, or give a folder on another one.",
}


@pytest.mark.parametrize("code", REMEDIES, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    "where",
    ["directory._prepare", "directory.User", "users.User.take_row", "metadata.bring"],
)
def test_a_disk_that_cannot_be_used_is_named_with_a_remedy(
    code, where, made, tmp_path, monkeypatch
):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(f"tfpipe.shard_cache.{where}", fail)
    # The index of a folder is not brought, that of a URL is.
    is_url = where == "metadata.bring"
    place = "http://127.0.0.1:1/data" if is_url else made.folder
    folder = tmp_path / "cache"

    with pytest.raises(ValueError, match=re.escape(REMEDIES[code])) as raised:
        tfpipe.ShardCache(folder).fill(place)

    told = f"directory must be usable as a cache, got {folder}: {os.strerror(code)}. "
    assert told in str(raised.value)


def test_an_error_of_a_write_that_is_no_full_disk_names_the_file_and_a_remedy(
    opened, monkeypatch
):
    for code in (errno.EINVAL, errno.ESTALE, errno.EMFILE, errno.ENOMEM, errno.EFBIG):

        def fail(*_, code=code, **__):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(PieceStore, "write", fail)
        said = rf"{os.strerror(code)}: .*/cache/.*{re.escape(disk.remedy(code))}$"
        with pytest.raises(OSError, match=said):
            opened().bring(EVERYTHING)


@pytest.mark.parametrize("code", REMEDIES, ids=errno.errorcode.get)
def test_a_disk_that_fails_while_it_is_filled_is_said_with_a_remedy(
    code, opened, made, monkeypatch, capsys
):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(PieceStore, "write", fail)

    read_epochs(opened(), made, 1)

    said = capsys.readouterr().err
    assert said.count("the disk of ") == said.count(REMEDIES[code]) == 1


def test_pieces_that_do_not_fit_come_through_memory(opened, made):
    cache = opened(max_bytes=60_000)

    assert read_records(made, EVERYTHING, cache.bring(EVERYTHING)) == list(made.data)
    assert cache.statistics().is_reading_through


def test_a_budget_that_leaves_too_much_to_memory_is_refused(opened, made, monkeypatch):
    monkeypatch.setattr(open_cache, "_MEMORY_BYTES", 10_000)
    cache = opened(max_bytes=60_000)

    with pytest.raises(
        ValueError, match=r"must be >= \d+, got 60000: 3 windows of each of 1 readers"
    ):
        cache.reader(lambda: windows(made))


def test_half_a_cache_is_enough_if_a_window_is_the_data_set(opened, made, capsys):
    """A window has each piece; three windows have no more."""
    cache = opened(max_bytes=made.num_bytes // 2)
    reader = cache.reader(lambda: itertools.repeat(EVERYTHING, 4))

    for _ in range(4):
        paths = reader.next_window(EVERYTHING)
        assert read_records(made, EVERYTHING, paths) == list(made.data)
    reader.close()

    assert "the rest is read through memory" in capsys.readouterr().err
    # The pieces for which there is room stay, as with the best choice of victims.
    num_kept = int((cache.store.marks >= PRESENT).sum())
    assert num_kept > 3
    assert cache.statistics().num_requests == 4 * len(cache.pieces) - 3 * num_kept


def test_a_reader_that_goes_on_elsewhere_plans_anew(opened, made):
    cache = opened()
    reader = cache.reader(lambda: windows(made))
    for first in (0, 40, 40, 100, 3):
        ranges = RecordRanges(np.array([first]), np.array([20]))
        paths = reader.next_window(ranges)
        expected = list(made.data[first : first + 20])
        assert read_records(made, ranges, paths) == expected


def test_after_an_error_the_same_window_comes_again(opened, made):
    failing = set(range(30, 90))
    num_asked = itertools.count()

    def change(name, start, content):
        if next(num_asked) in failing:
            raise errors.RemoteError("the store is down")
        return content

    files = ScriptedFiles(str(made.folder), change=change)
    cache = opened(files, num_connections=1, max_bytes=90_000)
    plans = []

    def upcoming():
        plans.append(position)
        return itertools.islice(windows(made), position, None)

    position = num_errors = 0
    reader = cache.reader(upcoming)
    expected = list(itertools.islice(windows(made), 50))
    while position < len(expected):
        try:
            paths = reader.next_window(expected[position])
        except tfpipe.errors.RemoteError:
            num_errors += 1
            continue
        found = read_records(made, expected[position], paths)
        assert found == [made.data[n] for n in expected[position].records()]
        position += 1
    assert num_errors > 10
    assert plans == [0]  # the plan held


def test_readers_are_few_and_can_be_closed(opened, made):
    cache = opened()
    readers = [cache.reader(lambda: windows(made)) for _ in range(8)]
    with pytest.raises(ValueError, match="at most 8 readers"):
        cache.reader(lambda: windows(made))
    readers[0].close()
    readers[0].close()
    cache.reader(lambda: windows(made))


def test_as_many_readers_as_before_begin_on_a_disk_that_is_full(
    opened, made, monkeypatch
):
    cache = opened()
    for reader in [cache.reader(lambda: windows(made)) for _ in range(2)]:
        reader.close()

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tfpipe.shard_cache.users.allocate", fail)
    readers = [cache.reader(lambda: windows(made)) for _ in range(2)]
    with pytest.raises(ValueError, match="No space left on device"):
        cache.reader(lambda: windows(made))
    readers[0].close()
    cache.reader(lambda: windows(made))


def test_a_cache_that_is_dropped_ends_its_threads(opened, made, tmp_path):
    cache = tfpipe.ShardCache(tmp_path / "cache").open(
        ScriptedFiles(str(made.folder)), "", "train", made.shards, made.byte_offsets
    )
    cache.bring(EVERYTHING)
    threads = cache.downloader._threads
    assert any((tmp_path / "cache").rglob("users/*"))
    del cache
    gc.collect()

    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
    assert not any((tmp_path / "cache").rglob("users/*"))


def test_what_is_damaged_and_has_no_room_is_told_too(made, tmp_path, tmp_path_factory):
    damaged = make_shards(tmp_path_factory.mktemp("damaged"), [80, 0, 70])
    path = damaged.folder / damaged.shards[0].name
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    cache = tfpipe.ShardCache(tmp_path / "cache", max_bytes=1)
    opened = cache.open(
        ScriptedFiles(str(damaged.folder)),
        damaged.folder,
        "train",
        damaged.shards,
        damaged.byte_offsets,
    )
    with contextlib.closing(opened):
        opened.bring(EVERYTHING)
        assert not opened.are_sound(EVERYTHING)
        assert opened.statistics().is_reading_through


def test_fill_brings_and_publishes_all_that_fits(made, tmp_path):
    cache = tfpipe.ShardCache(tmp_path / "cache")
    seen = []

    filled = cache.fill(made.folder, on_progress=lambda *now: seen.append(now))

    assert filled.num_bytes_fetched == filled.num_bytes_present == made.num_bytes
    assert seen[-1] == (made.num_bytes, made.num_bytes)
    names = {path.name for path in (tmp_path / "cache").rglob("published/*")}
    assert names == {s.name for s in made.shards if s.num_records}
    assert cache.fill(made.folder, "train").num_bytes_fetched == 0
    small = tfpipe.ShardCache(tmp_path / "small", max_bytes=70_000)
    part = small.fill(made.folder)
    assert 40_000 < part.num_bytes_present < 70_000
    assert small.fill(made.folder).num_bytes_fetched == 0
    with pytest.raises(tfpipe.errors.BadIndexError, match="Unknown split 'test'"):
        cache.fill(made.folder, "test")


def _watch_writes(monkeypatch):
    """Returns a list that gets `is_direct` of each write to a store."""
    written, write = [], store.write

    def watch(descriptor, content, offset, *, is_direct):
        written.append(is_direct)
        write(descriptor, content, offset, is_direct=is_direct)

    monkeypatch.setattr(store, "write", watch)
    return written


def test_fill_reads_no_file_again_and_writes_past_the_page_cache(
    made, tmp_path, monkeypatch
):
    written = _watch_writes(monkeypatch)
    monkeypatch.setattr(publish.Publisher, "_is_right", lambda self, shard: False)
    cache = tfpipe.ShardCache(tmp_path / "cache", num_connections=5)
    cache.fill(made.folder)
    assert set(written) == {True}
    names = {path.name for path in (tmp_path / "cache").rglob("published/*")}
    assert names == {s.name for s in made.shards if s.num_records}


def test_pieces_that_are_read_at_once_stay_in_the_page_cache(opened, made, monkeypatch):
    written = _watch_writes(monkeypatch)
    read_epochs(opened(), made, 1)
    assert set(written) == {False}


def test_hosts_fill_their_parts_of_a_split(made, tmp_path):
    """With room for all, with room for some, and with a shared folder."""
    filled = []
    for host in range(2):
        cache = tfpipe.ShardCache(
            tmp_path / f"{host}",
            max_bytes=(None, 30_000)[host],
            shared_directory=tmp_path / "shared",
        )
        source = tfpipe.TFRecordSource(
            *(made.folder, "train"),
            shard_cache=cache,
            rank=host,
            num_ranks=2,
            window_size=8,
            affinity=3,
            hosts=(0, 1),
        )
        seen: list[tuple[int, int]] = []
        filled.append(source.fill_cache(lambda *now, to=seen: to.append(now)))
        assert seen[-1] == (filled[-1].num_bytes_present, filled[-1].num_bytes_total)
        source.close_cache()
    whole, part = filled

    assert whole.num_bytes_present == whole.num_bytes_total
    assert part.num_bytes_present < part.num_bytes_total
    kept = [p for p in (tmp_path / "shared").rglob("*") if p.is_file() and not p.suffix]
    assert sum(path.stat().st_size for path in kept) == made.num_bytes
    third = tfpipe.ShardCache(tmp_path / "3", shared_directory=tmp_path / "shared")
    assert third.fill(made.folder).num_bytes_fetched == 0


def test_a_source_without_a_cache_has_none_to_fill(made):
    source = tfpipe.TFRecordSource(made.folder, "train")

    with pytest.raises(ValueError, match="fill_cache must have a ShardCache, got none"):
        source.fill_cache()


def test_a_missing_shard_is_named(opened, made, tmp_path_factory):
    other = make_shards(tmp_path_factory.mktemp("missing"), [80, 0, 70])
    (other.folder / other.shards[2].name).unlink()

    with pytest.raises(tfpipe.errors.MissingFileError, match=other.shards[2].name):
        opened(of=other).bring(EVERYTHING)


def test_a_wrong_catalog_is_named_with_its_folder(made, tmp_path):
    cache = tfpipe.ShardCache(tmp_path / "cache")
    files = ScriptedFiles(str(made.folder))

    with pytest.raises(tfpipe.errors.BadIndexError, match=re.escape(str(made.folder))):
        cache.open(files, made.folder, "train", made.shards, made.byte_offsets[:-1])
    assert index.CATALOG_NAME in (made.folder / index.INDEX_NAME).read_text()
