"""Data sets, states, caches and results of released versions are still read."""

import json
import pathlib
import shutil

import pytest
import tensorflow as tf

import tfpipe
from benchmarks.results import collection
from tests.support.data import released
from tfpipe import tuning

VERSIONS = sorted(path.name for path in released.RELEASED.iterdir())


@pytest.fixture(params=VERSIONS)
def folder(request: pytest.FixtureRequest) -> pathlib.Path:
    return released.RELEASED / request.param


def test_data_sets_and_subsets_are_read_in_the_same_order(folder: pathlib.Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())

    assert released.found(folder) == expected


def test_states_tunings_and_results_are_read(folder: pathlib.Path) -> None:
    state = tfpipe.State.from_json((folder / "state.json").read_text())
    read = collection.read([folder / "results"])

    assert (state.epoch, state.step, state.num_ranks) == (1, 2, 2)
    assert tuning.read_saved(folder / "tuning.json")["tuning"]["num_parallel_reads"]
    assert (len(read.left_out), len(read.groups)) == (0, 1)


@pytest.mark.skipif(
    tf.version.VERSION != "2.17.1",
    reason="the stored rows are of TensorFlow 2.17.1; another one makes its own",
)
def test_a_disk_cache_is_used_as_it_is(
    folder: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "cache", tmp_path / "cache")
    before = {p: p.read_bytes() for p in (tmp_path / "cache").rglob("*") if p.is_file()}
    cache = tfpipe.Cache("disk", tmp_path / "cache")

    list(released.pipeline_over(folder, cache=cache).build())

    assert "6 of 6 records there" in capfd.readouterr().err
    after = {p: p.read_bytes() for p in (tmp_path / "cache").rglob("*") if p.is_file()}
    assert after.keys() == before.keys()
