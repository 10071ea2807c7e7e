import concurrent.futures
import contextlib
import errno
import fcntl
import json
import os
import pathlib
import threading

import numpy as np
import pytest

from tests.support.faults.damage import flip
from tfpipe.cache import folders, store

NUMBERS = store.StoredFeature("image", np.dtype(np.uint8), (2, 3))
LABEL = store.StoredFeature("label", np.dtype(np.int32))
STRING = store.StoredFeature("encoded", np.dtype(object))


def content(name="a", *, num_records=5, string_bytes=1000):
    return folders.CacheContent(
        made_of={"ops": [name], "tfpipe": "0"},
        features=[NUMBERS, LABEL, STRING],
        num_records=num_records,
        string_bytes=string_bytes,
    )


def open_store(directory, *arguments, max_bytes=None, **options):
    return folders.open_store(
        directory, content(*arguments, **options), max_bytes=max_bytes
    )


def columns(*records):
    """Columns of some records: each is told by its number."""
    images = np.array([np.full((2, 3), r) for r in records], np.uint8)
    strings = np.array([bytes((0, r)) * r for r in records] + [None], object)[:-1]
    return [images.reshape(-1, 2, 3), np.array(records, np.int32), strings]


def put(kept, *records):
    kept.put(np.array(records), columns(*records))


def get(kept, *records):
    return [column.tolist() for column in kept.get(np.array(records))]


def expected(*records):
    return [column.tolist() for column in columns(*records)]


@pytest.fixture(params=["ram", "disk"])
def kept(request, tmp_path):
    if request.param == "ram":
        return store.RamStore([NUMBERS, LABEL, STRING], 5)
    return open_store(tmp_path)


def test_store_gives_what_was_put_in_any_order(kept):
    put(kept, 3, 0)
    put(kept, 1)

    assert get(kept, 1, 0, 3, 3) == expected(1, 0, 3, 3)
    assert kept.have.tolist() == [1, 1, 0, 1, 0]
    assert kept.describe().startswith("3 of 5 records there, in ")


def test_records_that_are_there_may_be_put_again(kept):
    put(kept, 3, 0)
    put(kept, 0, 2)

    assert get(kept, 0, 2, 3) == expected(0, 2, 3)


def test_num_bytes_is_that_of_the_arrays_and_the_strings():
    in_files = 5 * (1 + 4 + 6 + 4 + 16)

    assert content().num_bytes == in_files + 1000
    assert sum(store.layout([NUMBERS, LABEL, STRING], 5).values()) == in_files
    flag = store.StoredFeature("flag", np.dtype(np.uint8))
    assert store.num_bytes([flag], 5, string_bytes=0) == 5 * (1 + 4 + 1)


def test_two_that_are_open_see_what_the_other_puts(tmp_path):
    first, second = open_store(tmp_path), open_store(tmp_path)

    put(first, 0, 3)
    put(second, 2, 4)
    put(second, 3)

    assert get(first, 0, 2, 3, 4) == get(second, 0, 2, 3, 4) == expected(0, 2, 3, 4)
    assert len(list(first.folder.glob("*.segment"))) == 2


def test_store_is_gone_on_with_and_complete_when_all_are_there(tmp_path):
    put(open_store(tmp_path), 0, 1, 4)
    kept = open_store(tmp_path)
    assert not kept.is_complete

    put(kept, 2, 3)

    assert kept.is_complete
    assert get(open_store(tmp_path), 0, 1, 2, 3, 4) == expected(0, 1, 2, 3, 4)


def test_strings_beyond_the_size_of_the_shards_are_refused(tmp_path):
    kept = open_store(tmp_path, string_bytes=7)
    put(kept, 3)

    with pytest.raises(OSError, match=r"at most 7 bytes.*, got 8"):
        put(kept, 1)
    assert kept.have.tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("name", ["0.numbers", "1.numbers", "2.*", "crcs", "0.segment"])
def test_each_changed_byte_of_a_row_is_noticed_and_stored_again(tmp_path, name):
    kept = open_store(tmp_path)
    put(kept, 0, 1, 2, 3, 4)
    noticed = 0
    for path in kept.folder.glob(name):
        for offset in range(path.stat().st_size):
            flip(path, offset)
            try:
                assert get(kept, 4, 3, 2, 1, 0) == expected(4, 3, 2, 1, 0)
                # An empty string is anywhere, a longer one ends with the file, and the
                # segment grows by what is stored again.
                assert path.name in ("2.lengths", "2.places", "0.segment")
                flip(path, offset)
            except store.DamagedRowsError as error:
                noticed += 1
                kept.forget(error.rows)
                put(kept, *error.rows.tolist())
            assert get(kept, 0, 1, 2, 3, 4) == expected(0, 1, 2, 3, 4)
    assert noticed >= 4


@pytest.mark.parametrize("size", [0, 4])
def test_a_segment_that_was_cut_or_lost_is_stored_again(tmp_path, size):
    kept = open_store(tmp_path)
    put(kept, 3)
    segment = kept.folder / "0.segment"
    os.truncate(segment, size) if size else segment.unlink()

    other = open_store(tmp_path)
    with pytest.raises(store.DamagedRowsError):
        get(other, 3)
    other.forget(np.array([3]))
    put(other, 3)
    assert get(other, 3) == expected(3)


def fail_segments(monkeypatch, name):
    """Lets the system refuse to read the strings of all stores."""
    read = os.pread

    def pread(descriptor, *arguments):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".segment"):
            raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))
        return read(descriptor, *arguments)

    monkeypatch.setattr(store.os, "pread", pread)


@pytest.mark.parametrize("name", ["EIO", "ESTALE", "EACCES", "ENOTCONN"])
def test_an_unreadable_segment_is_the_cause_of_damaged_rows(
    tmp_path, monkeypatch, name
):
    kept = open_store(tmp_path)
    put(kept, 3)
    with monkeypatch.context() as patched:
        fail_segments(patched, name)
        with pytest.raises(store.DamagedRowsError) as caught:
            get(kept, 3)

    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == getattr(errno, name)
    assert str(kept.folder / "0.segment") in str(caught.value.__cause__)
    flip(kept.folder / "0.segment", 0)
    with pytest.raises(store.DamagedRowsError) as caught:
        get(kept, 3)
    assert caught.value.__cause__ is None


def damage_manifest(folder):
    (folder / "manifest.json").write_text("{")


def cut_manifest(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["num_bytes"]
    (folder / "manifest.json").write_text(json.dumps(manifest))


def list_manifest(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps([*manifest]))


def forget_manifest(folder):
    (folder / "manifest.json").unlink()


def cut_array(folder):
    os.truncate(folder / "0.numbers", 7)


def remove_array(folder):
    (folder / "have").unlink()


def reboot(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["boot_id"] = "another"
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (damage_manifest, "has no readable manifest.json"),
        (cut_manifest, "has no readable manifest.json"),
        (list_manifest, "has no readable manifest.json"),
        (forget_manifest, "has no readable manifest.json"),
        (cut_array, "must have a file 0.numbers of 30 bytes, got 7"),
        (remove_array, "must have a file have of 5 bytes, got None"),
        (reboot, "was not complete when this host was last shut down"),
    ],
)
def test_harmed_store_is_dropped_with_a_word(tmp_path, capfd, harm, words):
    kept = open_store(tmp_path)
    put(kept, 0, 1)
    folder = kept.folder
    del kept
    harm(folder)

    kept = open_store(tmp_path)

    assert kept.have.tolist() == [0] * 5
    err = capfd.readouterr().err
    assert f"cache: {folder} {words}" in err
    assert "it is dropped and filled again" in err
    put(kept, 1)
    assert get(kept, 1) == expected(1)


def test_complete_store_outlives_the_boot(tmp_path):
    kept = open_store(tmp_path)
    put(kept, 0, 1, 2, 3, 4)
    reboot(kept.folder)

    assert open_store(tmp_path).have.tolist() == [1] * 5


def test_a_store_that_cannot_be_opened_is_not_in_use(tmp_path, monkeypatch):
    """Others may remove files between the lock and the opening."""
    folder = open_store(tmp_path).folder
    monkeypatch.setattr(store, "DiskStore", lambda *_, **__: os.stat(tmp_path / "gone"))

    with pytest.raises(FileNotFoundError) as raised:  # keeps the variables
        open_store(tmp_path)

    with open(folder / "in_use") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert raised.tb


def test_harmed_store_that_is_in_use_is_not_dropped(tmp_path):
    kept = open_store(tmp_path)
    put(kept, 0)
    reboot(kept.folder)

    with pytest.raises(OSError, match="in use by another process"):
        open_store(tmp_path)
    assert get(kept, 0) == expected(0)


def test_what_a_killed_process_left_half_made_is_cleared(tmp_path):
    half = tmp_path / f".{content().fingerprint}.tmp"
    half.mkdir()
    (half / "have").write_bytes(b"123")

    open_store(tmp_path)

    assert not half.exists()


@pytest.mark.parametrize(
    "other",
    [content("b"), content(num_records=6), content(string_bytes=1000)],
)
def test_fingerprint_is_that_of_the_content(other):
    assert (other.fingerprint == content().fingerprint) == (other == content())


def test_stale_store_is_explained(tmp_path, capfd):
    first = open_store(tmp_path, "a")
    capfd.readouterr()

    open_store(tmp_path, "b", num_records=6)

    assert capfd.readouterr().err == (
        f"cache: {first.folder} does not fit: it was made with other ops, "
        "num_records.\n"
    )


def names(directory):
    """The ops of the stores that are in a directory."""
    paths = pathlib.Path(directory).glob("*/manifest.json")
    return sorted(json.loads(p.read_text())["content"]["ops"][0] for p in paths)


def open_in_turn(directory, *ops):
    """Opens and closes stores, each later than the one before."""
    for time, name in enumerate(ops):
        folder = open_store(directory, name).folder
        os.utime(folder / "manifest.json", (time, time))


def test_least_recently_opened_are_evicted(tmp_path, capfd):
    open_in_turn(tmp_path, "a", "b", "c", "a")
    capfd.readouterr()

    open_store(tmp_path, "d", max_bytes=3 * content().num_bytes)

    assert names(tmp_path) == ["a", "c", "d"]
    assert f"cache: evicted {tmp_path}" in capfd.readouterr().err


def test_store_in_use_is_not_evicted(tmp_path):
    open_in_turn(tmp_path, "a", "b")
    used = open_store(tmp_path, "a")
    os.utime(used.folder / "manifest.json", (0, 0))

    open_store(tmp_path, "c", max_bytes=2 * content().num_bytes)

    assert names(tmp_path) == ["a", "c"]


def test_max_bytes_that_cannot_be_kept_evicts_none(tmp_path):
    open_in_turn(tmp_path, "a")
    need = content().num_bytes

    with pytest.raises(ValueError, match=rf"must be >= {need} .*, got {need - 1}"):
        open_store(tmp_path, "b", max_bytes=need - 1)

    assert names(tmp_path) == ["a"]


def test_max_bytes_counts_what_is_in_use(tmp_path):
    used = open_store(tmp_path, "a")
    need = content().num_bytes

    with pytest.raises(ValueError, match=rf"must be >= {2 * need} .*{need} bytes that"):
        open_store(tmp_path, "b", max_bytes=2 * need - 1)
    assert used.folder.exists()


def test_disk_that_is_too_small_is_refused(tmp_path, monkeypatch):
    open_in_turn(tmp_path, "a")
    monkeypatch.setattr(folders, "_disk_left", lambda directory: 10)

    with pytest.raises(OSError, match=r"needs \d+ bytes more, the disk has 10"):
        open_store(tmp_path, "b", num_records=1000)

    assert names(tmp_path) == ["a"]


def test_full_disk_evicts_others(tmp_path, monkeypatch):
    open_in_turn(tmp_path, "a", "b")
    left = iter([content().num_bytes - 1] * 2 + [content().num_bytes] * 9)
    monkeypatch.setattr(folders, "_disk_left", lambda directory: next(left))

    open_store(tmp_path, "c")

    assert names(tmp_path) == ["b", "c"]


def test_folders_of_others_are_left_alone(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "notes.txt").touch()

    open_store(tmp_path, max_bytes=content().num_bytes)

    assert (tmp_path / "photos").exists()
    assert (tmp_path / "notes.txt").exists()


def test_open_store_holds_its_lock_until_it_is_gone(tmp_path):
    kept = open_store(tmp_path)
    with open(kept.folder / "in_use", "ab") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

        del kept

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_threads_that_put_the_same_records_keep_each_once(tmp_path, monkeypatch):
    """Both would write if each looked first and only then wrote."""
    size = sum(2 * record for record in range(5))
    kept = open_store(tmp_path, string_bytes=size)
    both_write, append = threading.Barrier(2), store._Segments.append

    def append_with_the_other(self, data):
        with contextlib.suppress(threading.BrokenBarrierError):
            both_write.wait(timeout=0.2)
        return append(self, data)

    monkeypatch.setattr(store._Segments, "append", append_with_the_other)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(put, kept, *range(5)) for _ in range(2)]:
            future.result()

    assert get(kept, *range(5)) == expected(*range(5))
    assert kept.is_complete


def test_full_disk_leaves_the_store_as_it_was(tmp_path, monkeypatch):
    size = sum(2 * record for record in range(5))
    kept = open_store(tmp_path, string_bytes=size)
    put(kept, 1)
    real, fails = os.pwrite, [True]

    def pwrite(descriptor, data, offset):
        if fails:
            real(descriptor, data[:1], offset)  # some of it was written
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            put(kept, 4, 3)
    fails.clear()
    for record in range(5):
        put(kept, record)

    assert get(kept, *range(5)) == expected(*range(5))


def test_store_is_complete_without_what_is_damaged(kept, tmp_path):
    put(kept, 0, 1, 3)

    kept.put_damaged(np.array([2, 3, 4]))

    assert kept.have.tolist() == [1, 1, 2, 1, 2]
    assert "3 of 5 records there, 2 damaged" in kept.describe()
    if isinstance(kept, store.DiskStore):
        assert kept.is_complete
    put(kept, 4, 2)  # they were repaired
    assert kept.have.tolist() == [1] * 5
    assert get(kept, *range(5)) == expected(*range(5))
