"""Own files are always removed; of a data set, shards are chosen and checked."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.storage_probe import probe_files


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that this process makes and removes."""

    @contextlib.contextmanager
    def make(parent: pathlib.Path) -> Iterator[pathlib.Path]:
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            yield pathlib.Path(folder)

    monkeypatch.setattr(probe_files, "own_folder", make)


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with so little room that own files have 1 MiB."""
    usage = shutil.disk_usage("/")
    room = usage._replace(free=170 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)


@pytest.mark.usefixtures("little_room")
def test_own_files_are_there_and_removed_at_the_end(tmp_path: pathlib.Path) -> None:
    with probe_files.opened(str(tmp_path)) as files:
        sizes = {os.path.getsize(name) for name in files.files}
        small = {os.path.getsize(name) for name in files.names}
        contents = {pathlib.Path(name).read_bytes() for name in files.files}
        assert {pathlib.Path(n).parent.parent for n in files.names} == {tmp_path}

    assert sizes == {1 << 20}
    assert (files.num_bytes, len(files.files)) == (16 << 20, 16)
    assert len(contents) == 16, "a store that drops copies must keep each"
    assert (small, len(files.names)) == ({4096}, 256)
    assert (files.is_own, files.mean_record_bytes) == (True, None)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_own_files_are_removed_after_an_error(
    tmp_path: pathlib.Path, error: type[BaseException]
) -> None:
    (tmp_path / "others").write_text("stays")

    with pytest.raises(error), probe_files.opened(str(tmp_path)):
        raise error

    assert [path.name for path in tmp_path.iterdir()] == ["others"]


@pytest.mark.usefixtures("little_room")
def test_own_files_are_removed_if_the_disk_is_full(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)

    with (
        pytest.raises(OSError, match="No space left"),
        probe_files.opened(str(tmp_path)),
    ):
        pass

    assert not list(tmp_path.iterdir())


def test_location_must_be_a_folder_with_room(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(
            ValueError, match=r"must be a folder or a URL, got .*gone: no such folder"
        ),
        probe_files.opened(str(tmp_path / "gone")),
    ):
        pass
    usage = shutil.disk_usage("/")._replace(free=100 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with (
        pytest.raises(ValueError, match="must have 168 MB free"),
        probe_files.opened(str(tmp_path)),
    ):
        pass
    assert not list(tmp_path.iterdir())


def _data_set(folder: pathlib.Path, **sizes: int) -> dict[str, Any]:
    shards = [
        {"name": name, "num_bytes": size, "num_records": 2 if size else 0}
        for name, size in sizes.items()
    ]
    for name, size in sizes.items():
        (folder / name).write_bytes(bytes(size))
    index = {"name": "photos", "splits": {"train": shards[:2], "test": shards[2:]}}
    (folder / "index.json").write_text(json.dumps(index))
    return index


def test_shards_of_a_data_set_are_read_and_nothing_is_written(
    tmp_path: pathlib.Path,
) -> None:
    _data_set(tmp_path, a=100, b=0, c=50)
    before = sorted(tmp_path.iterdir())

    with probe_files.opened(str(tmp_path)) as files:
        assert sorted(tmp_path.iterdir()) == before

    a, c = str(tmp_path / "a"), str(tmp_path / "c")
    assert files.pieces == [(a, 0, 100), (c, 0, 50)]  # b has no records
    assert files.names == [a, c]
    assert files.mean_record_bytes == 37.5
    assert str(tmp_path) not in json.dumps(files.as_json())


def _index_of(name: object) -> str:
    shard = {"name": name, "num_bytes": 9, "num_records": 1}
    return json.dumps({"splits": {"train": [shard]}})


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "is not the index of a data set"),
        ("[]", "is not the index of a data set"),
        ('{"splits": {"train": [{"name": "a"}]}}', "'num_records'"),
        (_index_of("../a"), "no plain name"),
        (_index_of(7), "is not the index of a data set"),
        ('{"splits": {}}', "must name a shard with records, got none"),
    ],
)
def test_wrong_index_is_named(tmp_path: pathlib.Path, index: str, message: str) -> None:
    (tmp_path / "index.json").write_text(index)

    with pytest.raises(ValueError, match=message), probe_files.opened(str(tmp_path)):
        pass


def test_shard_of_another_size_is_named(tmp_path: pathlib.Path) -> None:
    _data_set(tmp_path, a=100, b=20)
    (tmp_path / "b").write_bytes(bytes(19))

    with (
        pytest.raises(ValueError, match=r"b must have 20 bytes .* got 19"),
        probe_files.opened(str(tmp_path)),
    ):
        pass


def test_sample_is_spread_over_a_large_data_set() -> None:
    small = [1000] * 50
    large = [1 << 30] * 100

    assert probe_files.sample(small) == list(range(50))
    assert probe_files.sample(large) == [0, 25, 50, 75]
    assert probe_files.sample([1 << 40] * 3) == [0], "one at least"
    assert len(probe_files.sample([1] * 5000)) == 1024, "files that a process may open"


def test_pieces_cover_a_file_once() -> None:
    size = 2 * probe_files.PIECE_BYTES + 5

    found = probe_files.cut([("a", size), ("b", 3)])

    assert [stop - start for _, start, stop in found[:3]] == [*[64 << 20] * 2, 5]
    assert found[0][1] == 0
    assert all(a[2] == b[1] for a, b in itertools.pairwise(found[:3]))
    assert found[3] == ("b", 0, 3)


@pytest.mark.usefixtures("little_room")
def test_room_for_writes_is_given_when_asked(tmp_path: pathlib.Path) -> None:
    _data_set(tmp_path, a=100, b=0, c=50)

    with probe_files.opened(str(tmp_path), writes=True) as files:
        folder = pathlib.Path(str(files.write_folder))
        assert (folder.parent, files.write_bytes) == (tmp_path, 17 << 20)
        assert files.num_bytes == 150, "the shards are read all the same"

    assert not folder.exists()
    with (
        pytest.raises(ValueError, match="--write must have a folder, got s3://bucket"),
        probe_files.opened("s3://bucket/a", writes=True),
    ):
        pass


def test_hosts_read_each_byte_of_a_data_set_once(tmp_path: pathlib.Path) -> None:
    _data_set(tmp_path, a=100, b=20, c=50)
    with probe_files.opened(str(tmp_path)) as files:
        parts = [files.part(rank, 2).pieces for rank in range(2)]

        assert sorted([*parts[0], *parts[1]]) == sorted(files.pieces)
        assert files.part(3, 4) == files, "too few pieces"
        own = dataclasses.replace(files, is_own=True)
        assert own.part(1, 2) == own


def test_relative_folder_is_the_same_for_other_processes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _data_set(tmp_path, a=100)
    monkeypatch.chdir(tmp_path)

    with probe_files.opened(".") as files:
        assert files.files == [str(tmp_path / "a")]
