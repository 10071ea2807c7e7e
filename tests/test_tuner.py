"""tfpipe.tuner: searches on real pipelines, small ones."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe import placement, tuner, tuning


@dataclasses.dataclass(frozen=True)
class Work:
    """An op that takes some milliseconds of CPU and leaves the example as it is."""

    def __call__(self, example):
        matrix = tf.fill([400, 400], tf.cast(example["label"], tf.float32))
        product = tf.linalg.matmul(matrix, tf.linalg.matmul(matrix, matrix))
        zero = tf.cast(tf.reduce_sum(product) < -1.0, tf.int32)
        return example | {"label": example["label"] + zero}


def decoded_again_and_again(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=4)
    return tfpipe.Pipeline(
        source,
        [
            tfpipe.Interleave(),
            tfpipe.Map(
                tfpipe.Parse(label_base=1),
                tfpipe.CenterCrop(image_size=8),
                Work(),
                num_parallel_calls=1,
            ),
            tfpipe.Map(tfpipe.Select("image", "label")),
            tfpipe.Batch(4),
        ],
    )


@pytest.mark.slow
def test_a_cache_of_what_is_costly_is_found_kept_and_loaded(data_dir, tmp_path):
    pipeline = decoded_again_and_again(data_dir)

    found = tfpipe.search_tuning(pipeline, time_limit=40, ram_budget_bytes=10**9)

    assert found.setting.cache == placement.Placement(where="ram", num_ops=3)
    assert found.ratio > 2
    assert found.given_ratio > 2
    names = [trial.name for trial in found.trials]
    assert {"as given", "AUTOTUNE", "from the costs"} <= set(names)
    assert "times AUTOTUNE" in str(found)
    path = tmp_path / "tuning.json"
    found.save(path)
    loaded = tfpipe.load_tuned(path, pipeline)
    assert str(loaded) == str(found.pipeline)
    assert json.loads(path.read_text())["evidence"]["ratio_to_autotune"] == found.ratio
    plain = [batch["label"].tolist() for batch in pipeline.to_numpy()]
    assert [batch["label"].tolist() for batch in loaded.to_numpy()] == plain


@pytest.mark.slow
def test_a_cache_that_does_not_fit_is_told_and_not_used(data_dir, tmp_path):
    pipeline = decoded_again_and_again(data_dir)
    found = tfpipe.search_tuning(
        pipeline,
        time_limit=20,
        ram_budget_bytes=100,
        disk_budget_bytes=10**9,
        cache_dir=tmp_path,
    )

    told = {trial.name: trial.error for trial in found.trials if trial.error}

    assert set(told) == {
        "cache of encoded records in RAM",
        "cache of the result of 3 ops in RAM",
    }
    assert all("0 MB are allowed" in error for error in told.values())
    assert found.setting.cache is None or found.setting.cache.where == "disk"


@pytest.mark.slow
def test_what_cannot_be_run_as_given_is_tuned_all_the_same(data_dir):
    pipeline = decoded_again_and_again(data_dir)
    cache = tfpipe.Cache("ram", max_bytes=1)
    stages = [*pipeline.stages[:1], cache, *pipeline.stages[1:]]
    given = dataclasses.replace(pipeline, stages=stages)

    found = tfpipe.search_tuning(given, time_limit=20)

    assert found.given_ratio is None
    assert "could not be run" in found.sentence
    (trial,) = [trial for trial in found.trials if trial.name == "as given"]
    assert "max_bytes must be >=" in trial.error


@pytest.mark.slow
def test_every_setting_of_the_grid_can_be_tried():
    def numbers(state, num_epochs):
        return tf.data.Dataset.range(10**9).map(lambda x: {"x": x})

    pipeline = tfpipe.Pipeline(numbers, [tfpipe.Batch(8)])

    found = tfpipe.search_tuning(pipeline, exhaustive=True, cpu_budget=2)

    tried = [trial for trial in found.trials if " of 2" in trial.name]
    assert len({trial.name for trial in tried}) == 2  # batches ahead
    assert np.isfinite(found.ratio)


def test_a_tuning_for_something_else_is_not_used(data_dir, tmp_path):
    pipeline = tfpipe.imagenet_train(data_dir, image_size=8, batch_size=2)
    other = tfpipe.imagenet_train(data_dir, image_size=16, batch_size=2)
    path = tmp_path / "tuning.json"
    tfpipe.Tuning(num_parallel_maps=3).save(
        path, made_for=tuning.made_for(pipeline.fingerprint)
    )

    assert tfpipe.load_tuned(path, pipeline).tuning.num_parallel_maps == 3
    with pytest.warns(UserWarning, match="made for pipeline"):
        loaded = tfpipe.load_tuned(path, other)
    assert str(loaded) == str(other)


@pytest.mark.parametrize("values", [{"time_limit": 0}, {"num_local_ranks": 0}])
def test_wrong_values_are_refused_before_any_work(values):
    pipeline = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=1), [])

    with pytest.raises(ValueError, match="time_limit must be > 0 and num_local_ranks"):
        tfpipe.tune(pipeline, **values)


@pytest.mark.parametrize(("is_ours", "num_closed"), [(True, 1), (False, 0)])
def test_own_caches_of_what_cannot_be_built_are_closed(
    data_dir, monkeypatch, is_ours, num_closed
):
    def refuse(example):
        raise ValueError("not this")

    closed = []
    monkeypatch.setattr(tfpipe.Cache, "close", lambda cache: closed.append(cache))
    pipeline = placement.with_cache(
        decoded_again_and_again(data_dir), placement.Placement(where="ram", num_ops=3)
    )
    stages = [*pipeline.stages, tfpipe.Map(refuse)]

    with pytest.raises(ValueError, match="not this"):
        tuner._runner(dataclasses.replace(pipeline, stages=stages), is_ours=is_ours)

    assert len(closed) == num_closed
