"""Whatever others do to a cache while a job reads costs a fetch, and no record.

A table over damage, kinds of cache and ways of reading. A pipeline reads several
epochs; its cache is damaged between batches. All batches are those of an untouched
cache, no record counts as damaged, and a single line names the folder of the cache.
"""

import contextlib
import functools
import itertools
import os
import pathlib
import shutil

import pytest

import tfpipe
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.presets import preset_over
from tests.unit.tfpipe.reading.test_read_ahead import SMALL, assert_equal
from tfpipe.shard_cache import fetch, pieces as cuts

NUM_EPOCHS = 3
# Batches before which the cache is damaged.
DAMAGED_BEFORE = (2, 7, 8)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(cuts, "_MOST_BYTES", 3000)
    monkeypatch.setattr(fetch, "_FIRST_PAUSE_SECONDS", 0.0)


def files_of(folder: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def flip(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    for position in range(0, len(content), 97):
        content[position] ^= 1
    write(path, content)


def write(path: pathlib.Path, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(content)


def of_files(pattern: str, harm, *, most: int | None = None):
    """Harms each file, or the first `most`. The job may have just removed one."""

    def damage(folder: pathlib.Path) -> int:
        num_harmed = 0
        for path in files_of(folder, pattern):
            if num_harmed != most:
                with contextlib.suppress(FileNotFoundError):
                    harm(path)
                    num_harmed += 1
        return num_harmed

    return damage


def remove_folder(folder: pathlib.Path) -> int:
    """Removes a folder whose user may at once make it again."""
    if not folder.exists():
        return 0
    aside = folder.with_name(f"{folder.name} aside")
    folder.rename(aside)
    shutil.rmtree(aside)
    return 1


def halve(path: pathlib.Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace(path: pathlib.Path, content: bytes) -> None:
    """Puts a new file there: a process that still maps the old file keeps it."""
    path.unlink()
    path.write_bytes(content)


SHARDS = "*/shards/train-*"
SHARD_CACHE = {
    "a shard is removed": of_files(SHARDS, pathlib.Path.unlink, most=1),
    "each shard is removed": of_files(SHARDS, pathlib.Path.unlink),
    "each shard is cut": of_files(SHARDS, halve),
    "each shard is empty": of_files(SHARDS, lambda path: os.truncate(path, 0)),
    "bits flip": of_files(SHARDS, flip),
    "bytes are zeros": of_files(SHARDS, lambda p: write(p, bytes(p.stat().st_size))),
    "the folder is removed": remove_folder,
    "a split is removed": lambda folder: sum(
        remove_folder(path) for path in folder.glob("????????*") if path.is_dir()
    ),
}

# The files of `tfpipe.Cache("disk")`, whole in a folder for each content.
ROWS = "????????*/*"
DISK_CACHE = {
    "a file is cut": of_files(ROWS, halve, most=1),
    "each file is cut": of_files(ROWS, halve),
    "each file is empty": of_files(ROWS, lambda path: os.truncate(path, 0)),
    "each file is removed": of_files(ROWS, pathlib.Path.unlink),
    "bits flip": of_files(ROWS, flip),
    "bytes are zeros": of_files(ROWS, lambda p: write(p, bytes(p.stat().st_size))),
    "the folder is removed": remove_folder,
}


def read(pipeline, harm=None):
    """The batches of several epochs; `harm` is called between some of the batches."""
    batches, num_harmed = [], 0
    iterator = pipeline.build(num_epochs=NUM_EPOCHS).as_numpy_iterator()
    for number in itertools.count():
        if harm and number in DAMAGED_BEFORE:
            num_harmed += harm()
        batch = next(iterator, None)
        if batch is None:
            assert num_harmed or not harm
            return batches
        batches.append(batch)


def through_shard_cache(data_dir, folder, reading):
    return preset_over(
        tfpipe.imagenet_train,
        data_dir,
        reading=reading,
        shard_cache=tfpipe.ShardCache(folder),
        **(SMALL | {"with_record_id": True, "window_size": 4}),
    )


def lines_of(capfd, folder) -> list[str]:
    said = capfd.readouterr().err
    return [line for line in said.splitlines() if str(folder) in line]


@pytest.fixture(scope="module")
def untouched(data_dir, tmp_path_factory):
    """The batches through a shard cache that nobody harms, by each way of reading."""
    folder = tmp_path_factory.mktemp("untouched")

    @functools.cache
    def batches(reading):
        return read(through_shard_cache(data_dir, folder / reading, reading))

    return batches


@needs_native
@pytest.mark.parametrize("reading", ["native", "tensorflow"])
@pytest.mark.parametrize("damage", SHARD_CACHE)
def test_a_shard_cache_heals_while_a_job_reads(
    data_dir, tmp_path, capfd, untouched, damage, reading
):
    expected, folder = untouched(reading), tmp_path / "harmed"
    capfd.readouterr()
    pipeline = through_shard_cache(data_dir, folder, reading)

    found = read(pipeline, lambda: SHARD_CACHE[damage](folder))

    assert_equal(found, expected)
    assert pipeline.faults.faults == []
    lines = lines_of(capfd, folder)
    assert len(lines) <= 1
    assert all("no record is lost" in line for line in lines)
    # The cache is whole again.
    assert_equal(read(through_shard_cache(data_dir, folder, reading)), expected)


def without_preset(data_dir, log, cache="auto"):
    source = tfpipe.TFRecordSource(
        data_dir, "train", window_size=4, batch_size=4, shard_cache=cache
    )
    stages = [tfpipe.Interleave(faults=log), tfpipe.Batch(4)]
    return tfpipe.Pipeline(source, stages)


@pytest.fixture(scope="module")
def uncached_records(data_dir):
    return read(without_preset(data_dir, None))


@pytest.mark.parametrize("reading", ["interleave", "interleave with a log"])
@pytest.mark.parametrize("damage", SHARD_CACHE)
def test_records_heal_in_a_pipeline_without_a_preset(
    data_dir, tmp_path, uncached_records, damage, reading
):
    log = tfpipe.FaultLog(0) if reading.endswith("log") else None
    cached = without_preset(data_dir, log, tfpipe.ShardCache(tmp_path / "c"))

    found = read(cached, lambda: SHARD_CACHE[damage](tmp_path / "c"))

    assert_equal(found, uncached_records)


def through_cache(data_dir, cache):
    return tfpipe.imagenet_train(
        data_dir,
        cache=cache,
        with_record_id=True,
        **{key: SMALL[key] for key in ("image_size", "batch_size")},
    )


@pytest.fixture(scope="module")
def uncached(data_dir):
    return read(through_cache(data_dir, None))


@pytest.mark.parametrize("damage", DISK_CACHE)
def test_a_cache_on_disk_heals_while_a_job_reads(
    data_dir, tmp_path, capfd, uncached, damage
):
    capfd.readouterr()
    folder = tmp_path / "harmed"
    cache = tfpipe.Cache("disk", folder)
    pipeline = through_cache(data_dir, cache)

    found = read(pipeline, lambda: DISK_CACHE[damage](folder))

    assert_equal(found, uncached)
    assert pipeline.faults.faults == []
    # Rows with other bytes, and a removed folder.
    said = [line for line in lines_of(capfd, folder) if "records there" not in line]
    assert len(said) <= 2
    # The next run has the right elements, from what is sound and what is made again.
    cache.close()
    assert_equal(read(through_cache(data_dir, tfpipe.Cache("disk", folder))), uncached)


# What a crash of the host, or a hostile neighbor, leaves in a file of a cache.
HARMED_FILES = [
    ("manifest.json", lambda path: path.write_bytes(b"[" * 100_000)),
    ("manifest.json", halve),
    ("layout.npy", flip),
    ("layout.npy", lambda path: write(path, b"\x93NUMPY\1\0v\0{'a': (")),
    ("marks", lambda path: replace(path, b"")),
    ("marks", lambda path: replace(path, path.read_bytes()[:-1])),
    ("claims", lambda path: (path.unlink(), path.mkdir())),
]


@needs_native
@pytest.mark.parametrize(("name", "harm"), HARMED_FILES)
def test_a_harmed_file_of_a_shard_cache_costs_a_fetch(data_dir, tmp_path, name, harm):
    """The next run has the records of the data set, and no fault."""
    expected = read(through_shard_cache(data_dir, tmp_path / "c", "native"))
    for path in files_of(tmp_path / "c", f"*/{name}"):
        harm(path)

    pipeline = through_shard_cache(data_dir, tmp_path / "c", "native")
    found = read(pipeline)

    assert_equal(found, expected)
    assert pipeline.faults.faults == []
