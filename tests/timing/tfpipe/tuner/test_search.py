"""tfpipe.tuner.search by real clocks: two searches on small pipelines."""

import dataclasses

import pytest

import tfpipe
from tests.support.artificial import decoded_again_and_again
from tfpipe.tuner import placement, search


@pytest.fixture(scope="module")
def found(data_dir):
    """A search where a cache of what is costly fits."""
    pipeline = decoded_again_and_again(data_dir)
    return pipeline, tfpipe.search_tuning(
        pipeline, time_limit=5, ram_budget_bytes=10**9
    )


def test_a_cache_of_what_is_costly_is_found(found):
    _, result = found

    assert result.setting.cache == placement.Placement(where="ram", num_ops=3)
    assert result.ratio > 2
    assert result.given_ratio > 2
    names = [trial.name for trial in result.trials]
    assert {"as given", "AUTOTUNE", "from the costs"} <= set(names)


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
    monkeypatch.setattr(search, "_TURN_SECONDS", 0.02)
    pipeline = decoded_again_and_again(data_dir)
    cache = tfpipe.Cache("ram", max_bytes=1)
    stages = [*pipeline.stages[:1], cache, *pipeline.stages[1:]]
    given = dataclasses.replace(pipeline, stages=stages)

    result = tfpipe.search_tuning(
        given,
        time_limit=1,
        ram_budget_bytes=100,
        disk_budget_bytes=10**9,
        cache_dir=tmp_path,
    )

    told = {trial.name: trial.error for trial in result.trials if trial.error}
    assert "max_bytes must be >=" in told.pop("as given")
    assert all("0 MB are allowed" in error for error in told.values())
    assert result.given_ratio is None
    assert result.setting.cache is None or result.setting.cache.where == "disk"
