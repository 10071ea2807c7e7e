"""Caches of version 1 are used on. `test_released` reads a cache that 0.1.0 filled."""

import errno
import fcntl
import pathlib

import numpy as np
import pytest

from tests.support.data.shards import MadeShards, make_shards
from tests.unit.tfpipe.shard_cache.test_directory import (
    _small_pieces,  # noqa: F401
    check_bytes,
    content_of,
    fetch,
)
from tfpipe.shard_cache import directory as directories, upgrade
from tfpipe.shard_cache.directory import Directory
from tfpipe.shard_cache.store import COUNTER_BYTES, PRESENT

PIECES = [0, 2]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return make_shards(tmp_path_factory.mktemp("data"), [20, 0, 13], record_bytes=1400)


def make_old(path: pathlib.Path, shards: MadeShards) -> pathlib.Path:
    """Makes a cache of version 1 with some pieces; returns the folder of its store."""
    directory = Directory(path, None)
    store, user = directory.open(content_of(shards))
    fetch(directory, store, shards, PIECES)
    user.close()
    directory.close()
    folder = store.folder.rename(path / ("0" * 32))
    marks = (folder / "marks").read_bytes()
    (folder / "marks").write_bytes(marks[COUNTER_BYTES:])
    (path / "version").write_text(f"{upgrade.VERSION}\n")
    return folder


def open_cache(path: pathlib.Path, shards):
    directory = Directory(path, None)
    return directory, directory.open(content_of(shards))[0]


def require_all_pieces(path: pathlib.Path, shards) -> None:
    directory, store = open_cache(path, shards)
    assert np.flatnonzero(store.marks == PRESENT).tolist() == PIECES
    assert store.num_bytes() == store.costs[PIECES].sum()
    check_bytes(shards, store)
    assert [f.name for f in path.iterdir() if f.is_dir()] == [store.folder.name]
    directory.close()


def test_pieces_stay(shards, tmp_path, capfd):
    make_old(tmp_path, shards)

    require_all_pieces(tmp_path, shards)

    assert "earlier version of tfpipe: its pieces are kept" in capfd.readouterr().err
    assert (tmp_path / "version").read_text() == f"{directories.VERSION}\n"
    require_all_pieces(tmp_path, shards)
    assert capfd.readouterr().err == ""


def test_a_killed_upgrade_goes_on(shards, tmp_path):
    assert upgrade.upgrade([make_old(tmp_path, shards)])

    require_all_pieces(tmp_path, shards)


def test_a_store_in_use_stays_as_it_is(shards, tmp_path):
    folder = make_old(tmp_path, shards)
    before = (folder / "marks").read_bytes()
    with open(folder / "users" / "0", "xb") as user:
        fcntl.flock(user, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="Another version of tfpipe made it"):
            Directory(tmp_path, None)
    assert (folder / "marks").read_bytes() == before

    require_all_pieces(tmp_path, shards)


@pytest.mark.parametrize("name", ["marks", "layout.npy", "manifest.json", "claims"])
def test_a_damaged_store_is_filled_again(shards, tmp_path, name):
    folder = make_old(tmp_path, shards)
    (folder / name).unlink()

    _, store = open_cache(tmp_path, shards)

    assert not (store.marks == PRESENT).any()
    assert not folder.exists()


def test_a_failing_disk_costs_no_store(shards, tmp_path, monkeypatch):
    folder = make_old(tmp_path, shards)

    def fail(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(upgrade.atomic, "write", fail)
        with pytest.raises(ValueError, match="Input/output error"):
            Directory(tmp_path, None)
    assert folder.exists()

    require_all_pieces(tmp_path, shards)
