"""tfpipe reads data sets, states, caches and results of released versions."""

import itertools
import json
import pathlib
import shutil

import pytest
import tensorflow as tf

import tfpipe
from benchmarks.results import collection
from converters import verify
from converters.checks import shard
from tests.support.data import released
from tfpipe import tuning

VERSIONS = sorted(path.name for path in released.RELEASED.iterdir())
# The line about a disk cache: rows of 0.1.0 have no digest, so they are not trusted.
DISK_CACHE_LINES = {"0.1.0": "it is dropped and filled again"}


@pytest.fixture(params=VERSIONS)
def folder(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the files of a release."""
    files = released.RELEASED / request.param
    return shutil.copytree(files, tmp_path / request.param)


@pytest.fixture
def expected(folder: pathlib.Path) -> dict[str, object]:
    """The values that the release itself read from its files."""
    return json.loads((folder / "expected.json").read_text())


def test_data_sets_subsets_and_states_give_the_same_records(folder, expected) -> None:
    source = released.source_over(folder)
    state = tfpipe.State.from_json((folder / "state.json").read_text())
    subset = released.source_over(folder, subset=folder / "subset.parquet")

    assert released.read(source) == expected["order"]
    assert state.digest == source.digest
    assert released.read(source, state) == expected["rest"]
    assert sorted(itertools.chain(*released.read(subset))) == expected["subset"]


@pytest.mark.parametrize("level", [n for n in shard.LEVELS if n != "source"])
def test_data_sets_are_whole(folder, level) -> None:
    options = verify.VerifyOptions(
        data_dir=str(folder / "set"), level=level, num_workers=1
    )

    assert verify.verify(options).faults == []


def test_growing_data_sets_are_read(folder, expected) -> None:
    if not (grown := folder / "grown").exists():
        assert expected["grown"] == 0
        return
    source = tfpipe.TFRecordSource(grown, "train", generation="latest")

    assert source.index.num_records("train") == expected["grown"]


def test_tunings_and_results_are_read(folder) -> None:
    results = collection.read([folder / "results"])

    assert tuning.read_saved(folder / "tuning.json")["tuning"]["num_parallel_reads"]
    assert results.left_out == []
    assert (len(results.groups), len(results.inputs)) == (1, 1)


def test_no_byte_of_a_shard_cache_is_fetched_again(folder, expected) -> None:
    cache = tfpipe.ShardCache(folder / "shard_cache")
    source = released.source_over(folder, shard_cache=cache)

    assert released.read(source) == expected["order"]
    assert source.cache_statistics().bytes_from_server == 0


@pytest.mark.skipif(
    tf.version.VERSION != "2.17.1",
    reason="the stored rows are of TensorFlow 2.17.1; another one makes its own",
)
def test_a_disk_cache_is_used_as_it_is_or_filled_again(
    folder, expected, monkeypatch, capfd
) -> None:
    monkeypatch.chdir(folder)  # the release read "set"
    source = released.source_over(pathlib.Path())

    order = released.read(source, cache=tfpipe.Cache("disk", "cache"))

    assert order == expected["order"]
    line = DISK_CACHE_LINES.get(folder.name, "6 of 6 records there")
    assert line in capfd.readouterr().err
