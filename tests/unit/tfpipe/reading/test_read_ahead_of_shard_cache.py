"""Records of a shard cache, read by the native op and by TensorFlow: the same."""

import contextlib
import errno
import functools
import os
import pathlib
import shutil

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.presets import preset_over
from tests.support.faults import damage
from tests.unit.tfpipe.reading.test_read_ahead import (
    SMALL,
    assert_equal,
    batches,
    damage_each_kind,
)
from tfpipe.shard_cache import fetch, pieces as cuts
from tfpipe.shard_cache.store import PieceStore
from tfpipe.shards import records

pytestmark = needs_native


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces of a few records, and no pause before damaged bytes are fetched again."""
    monkeypatch.setattr(cuts, "_MOST_BYTES", 3000)
    monkeypatch.setattr(fetch, "_FIRST_PAUSE_SECONDS", 0.0)


def both(folder, caches, *, max_bytes=None, preset=tfpipe.imagenet_train, **options):
    """A pipeline through two caches, read by the native op and by TensorFlow."""
    return [
        preset_over(
            preset,
            folder,
            reading=reading,
            shard_cache=tfpipe.ShardCache(caches / reading, max_bytes=max_bytes),
            **(SMALL | options),
        )
        for reading in ("native", "tensorflow")
    ]


@pytest.mark.parametrize(
    ("preset", "options", "build"),
    [
        (tfpipe.imagenet_train, {}, {"epoch": 1, "num_epochs": 3, "start_step": 1}),
        (
            tfpipe.imagenet_eval,
            {
                **{"rank": 1, "num_ranks": 2, "shuffle": "full", "with_boxes": True},
                "parse": tfpipe.Parse(extra={"image/filename": "string"}),
            },
            {},
        ),
    ],
)
def test_epochs_are_equal_through_a_small_cache(
    data_dir, tmp_path, preset, options, build
):
    """Windows are evicted as soon as they may be, while later batches are made."""
    options = {"window_size": 4, "with_record_id": True} | options
    native, stock = both(data_dir, tmp_path, preset=preset, max_bytes=80_000, **options)

    assert native.paths["reading"].value == "native"
    assert stock.paths["reading"].value == "tensorflow"
    assert_equal(batches(native, **build), batches(stock, **build))
    found, expected = (p.source.cache_statistics() for p in (native, stock))
    assert found.bytes_wanted == expected.bytes_wanted
    assert not found.is_reading_through
    num_bytes = sum(shard.num_bytes for shard in native.source.shards)
    assert build == {} or found.bytes_from_server > num_bytes


def test_damaged_records_cost_only_themselves(copy_dir, tmp_path):
    reasons = damage_each_kind(copy_dir)
    options = {"on_error": "skip", "with_record_id": True, "max_faults": 4}
    native, stock = both(copy_dir, tmp_path, **options)

    found, expected = batches(native), batches(stock)

    assert native.faults.num_faults_by_reason == reasons
    assert native.faults.faults == stock.faults.faults
    assert [b["mask"].tolist() for b in found] == [b["mask"].tolist() for b in expected]
    assert_equal(found, expected, rows=lambda batch: batch["mask"] > 0)


def test_an_error_names_the_record_as_tensorflow_does(copy_dir, tmp_path):
    """test_read_ahead and test_windows have the same text of TensorFlow's reader."""
    place = damage.places(copy_dir)[5]
    damage.flip(place[0], place[1] + records.HEADER_BYTES + 40)
    native, _ = both(copy_dir, tmp_path)

    with pytest.raises(tf.errors.UnknownError):
        batches(native)

    said = str(native.faults.error())
    assert f"{place[0]}: record 5 of the split at byte {place[1]}" in said


def open_in_memory():
    """The number of files in memory that this process has open."""
    count = 0
    for link in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # other threads close their files meanwhile
            count += "memfd:shard" in os.readlink(link)
    return count


def test_windows_in_memory_are_read_and_freed(data_dir, tmp_path, monkeypatch):
    def write(store, piece, content, **_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PieceStore, "write", write)
    native, stock = both(data_dir, tmp_path)
    of_other_tests = open_in_memory()

    found = batches(native, num_epochs=2)

    assert native.source.cache_statistics().is_reading_through
    assert_equal(found, batches(stock, num_epochs=2))
    assert open_in_memory() <= of_other_tests


def flip(path: pathlib.Path) -> None:
    """Changes a bit in the middle of every record of a file, and in its headers."""
    content = bytearray(path.read_bytes())
    for position in range(0, len(content), 97):
        content[position] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "bits": flip,
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "missing": pathlib.Path.unlink,
}


@pytest.fixture(scope="module")
def filled(data_dir, tmp_path_factory):
    """Two full caches, and the batches that filled them, with and without a budget."""

    @functools.cache
    def caches(on_error):
        folder = tmp_path_factory.mktemp("filled")
        pipelines = both(data_dir, folder, on_error=on_error, with_record_id=True)
        return folder, [batches(pipeline) for pipeline in pipelines]

    return caches


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_on_the_local_disk_costs_a_fetch_and_no_record(
    data_dir, tmp_path, capfd, filled, kind, on_error
):
    """The store is sound, so the cache is mended, whoever reads."""
    options = {"on_error": on_error, "with_record_id": True}
    folder, expected = filled(on_error)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)

    for cache in ("native", "tensorflow"):
        kept = sorted((tmp_path / cache).rglob("train-*"))
        assert len(kept) > 0
        for path in kept:
            DAMAGE[kind](path)
    pipelines = both(data_dir, tmp_path, **options)

    capfd.readouterr()
    for pipeline, right in zip(pipelines, expected, strict=True):
        assert_equal(batches(pipeline), right)
        assert pipeline.faults.faults == []
    said = capfd.readouterr().err
    in_place = kind in ("bits", "zeros")
    assert ("no record is lost" in said) == in_place
    # The files are whole again.
    for pipeline, right in zip(
        both(data_dir, tmp_path, **options), expected, strict=True
    ):
        assert_equal(batches(pipeline), right)
    assert "damaged" not in capfd.readouterr().err
