"""tfpipe.tuner.search by real clocks: two searches on small pipelines."""

import dataclasses
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.artificial import decoded_again_and_again
from tfpipe import host
from tfpipe.tuner import lanes, placement, search


@pytest.fixture(scope="module")
def found(data_dir):
    """A search where a cache of what is costly fits.

    The cache saves most of the work, so that short turns tell it.
    """
    pipeline = decoded_again_and_again(data_dir)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "_TURN_SECONDS", 0.05)
        return pipeline, tfpipe.search_tuning(
            pipeline, time_limit=40, ram_budget_bytes=10**9
        )


def test_a_cache_of_what_is_costly_is_found(found):
    _, result = found

    assert result.setting.cache == placement.Placement(where="ram", num_ops=3)
    assert result.ratio > 2
    assert result.given_ratio > 2
    names = [trial.name for trial in result.trials]
    assert {"as given", "AUTOTUNE", "most calls"} <= set(names)


def test_the_setting_that_was_found_is_loaded_and_gives_the_same_elements(
    found, tmp_path
):
    pipeline, result = found
    path = tmp_path / "tuning.json"

    result.save(path)

    loaded = tfpipe.load_tuned(path, pipeline)
    assert str(loaded) == str(result.pipeline)
    plain = [batch["label"].tolist() for batch in pipeline.to_numpy()]
    assert [batch["label"].tolist() for batch in loaded.to_numpy()] == plain


def test_a_pipeline_that_cannot_be_run_as_given_is_tuned_within_its_budgets(
    data_dir, tmp_path, monkeypatch
):
    # The budgets do not ask which setting is fastest.
    monkeypatch.setattr(lanes, "_TURN_SECONDS", 0.02)
    monkeypatch.setattr(search, "_MOST_WAIT_SECONDS", 0.0)
    pipeline = decoded_again_and_again(data_dir)
    cache = tfpipe.Cache("ram", max_bytes=1)
    stages = [*pipeline.stages[:1], cache, *pipeline.stages[1:]]
    given = dataclasses.replace(pipeline, stages=stages)

    result = tfpipe.search_tuning(
        given,
        time_limit=6,
        ram_budget_bytes=100,
        disk_budget_bytes=10**9,
        cache_dir=tmp_path,
    )

    told = {trial.name: trial.error for trial in result.trials if trial.error}
    assert "max_bytes must be >=" in told.pop("as given")
    assert all("0 MB are allowed" in error for error in told.values())
    assert result.given_ratio is None
    assert result.setting.cache is None or result.setting.cache.where == "disk"


def test_the_time_limit_holds_whatever_the_source_does_beside_busy_processes():
    """An element takes longer than the limit, or each a good part of it."""
    end = threading.Event()

    def pipeline(seconds):
        def wait(number):
            end.wait(seconds)
            return number

        def numbers(state, num_epochs):
            numbers = tf.data.Dataset.range(10**9).map(
                lambda x: tf.ensure_shape(tf.numpy_function(wait, [x], tf.int64), [])
            )
            return numbers.map(lambda x: {"x": x})

        return tfpipe.Pipeline(numbers, [tfpipe.Batch(2)])

    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(host.num_cores())
    ]
    try:
        for seconds in (1000.0, 0.3):
            given, start = pipeline(seconds), time.monotonic()
            found = tfpipe.search_tuning(given, time_limit=4)
            # 10 % is the promise; a tenth of a second more for threads that wait.
            assert time.monotonic() - start < 1.1 * 4 + 0.1
            assert found.pipeline is given
            assert any("host was busy" in note for note in found.notes)
            assert "stays" in found.sentence
    finally:
        end.set()
        for loop in loops:
            loop.kill()
            loop.wait()
