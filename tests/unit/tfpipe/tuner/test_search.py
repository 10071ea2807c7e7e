"""tfpipe.tuner.search: searches on real pipelines, small ones."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe import tuning
from tfpipe.tuner import placement, race, search, space


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


def turns(best, given=None):
    """Rates of the last race, in which AUTOTUNE's is 100 in every round."""

    def made(rates):
        return race.Turns(tuple(rates), (1.0,) * len(rates))

    lanes = {"AUTOTUNE": made([100.0] * len(best)), "the best so far": made(best)}
    return lanes if given is None else lanes | {"as given": made(given)}


@pytest.mark.parametrize(
    ("best", "given", "winner"),
    [
        ([200, 200, 200], [50, 50, 50], "the best so far"),
        ([101, 101, 101], [50, 50, 50], "AUTOTUNE"),  # too little to be taken
        ([200, 200, 200], [900, 900, 900], "as given"),  # as with a cache of its own
        ([101, 101, 101], [101, 101, 101], "as given"),
        ([102, 102, 102], [98, 98, 98], "the best so far"),  # AUTOTUNE is 2 % faster
        ([200, 200, 200], [190, 190, 201], "as given"),  # faster by chance
        ([200, 200, 200], [198, 198, 198], "as given"),
        ([200, 200, 200], None, "the best so far"),
        ([90, 90, 90], None, "AUTOTUNE"),
    ],
)
def test_what_was_given_stays_unless_something_is_faster(best, given, winner):
    assert search.chosen(turns(best, given), may_stay=True) == winner
    if winner == "as given":
        assert search.chosen(turns(best, given), may_stay=False) != winner


def cached_pipeline(pipeline, cache, *, at=1):
    stages = [*pipeline.stages[:at], cache, *pipeline.stages[at:]]
    return dataclasses.replace(pipeline, stages=stages)


def test_what_a_pipeline_takes_beyond_a_budget_is_told(data_dir, tmp_path):
    pipeline = decoded_again_and_again(data_dir)
    in_ram = cached_pipeline(pipeline, tfpipe.Cache("ram"))
    on_disk = cached_pipeline(pipeline, tfpipe.Cache("disk", tmp_path))
    tuning_of_four = tfpipe.Tuning(private_threadpool_size=4)
    four = dataclasses.replace(pipeline, tuning=tuning_of_four)

    def excess(pipeline, **values):
        values = {"num_threads": 64, "ram_bytes": 10**9} | values
        return space.excess(pipeline, tfpipe.Budget(**values))

    assert excess(pipeline) == excess(in_ram) == excess(four) == ""
    assert excess(four, num_threads=3) == "it has 4 threads, 3 are allowed"
    assert "its cache needs 0 MB, 0 are" in excess(in_ram, ram_bytes=99)
    # In a folder that its owner chose, unless a budget says less.
    assert excess(on_disk, ram_bytes=99) == ""
    assert "its cache" in excess(on_disk, disk_bytes=99, cache_dir=tmp_path)


@pytest.mark.parametrize("is_as_given", [True, False])
def test_what_stays_says_so_and_is_loaded_as_it_is(data_dir, tmp_path, is_as_given):
    given = dataclasses.replace(
        decoded_again_and_again(data_dir), tuning=tfpipe.Tuning(num_parallel_reads=2)
    )
    found = tfpipe.Search(
        pipeline=given,
        setting=space.of_pipeline(given),
        autotuned=tfpipe.Setting(tuning=tfpipe.Tuning()),
        trials=[],
        ratio=1.5,
        given_ratio=1.0,
        profile=None,
        fingerprint=given.fingerprint,
        is_as_given=is_as_given,
        given_excess="" if is_as_given else "it has 4 threads, 3 are allowed",
    )
    path = tmp_path / "tuning.json"

    found.save(path)

    said = json.loads(path.read_text())["evidence"]
    assert said["is_as_given"] is is_as_given
    assert said["given_excess"] == found.given_excess
    assert said["sentence"] == found.sentence
    loaded = tfpipe.load_tuned(path, given)
    if is_as_given:
        assert "The pipeline as it was is the fastest" in found.sentence
        assert loaded is given
    else:
        assert "exceeds the budget (it has 4 threads, 3 are" in found.sentence
        assert loaded.stages != given.stages  # its knobs are open
        assert loaded.tuning == given.tuning


@pytest.mark.slow
def test_a_pipeline_whose_own_cache_makes_it_fastest_stays(data_dir, tmp_path):
    """No other one may have a cache: the costly op would run in every epoch."""
    cache = tfpipe.Cache("disk", tmp_path)
    given = cached_pipeline(decoded_again_and_again(data_dir), cache, at=2)

    found = tfpipe.search_tuning(given, time_limit=15, ram_budget_bytes=100)

    assert found.pipeline is given
    assert found.is_as_given
    assert found.ratio > 1.5
    assert "The pipeline as it was is the fastest" in found.sentence
    assert found.setting.cache == placement.of_pipeline(given)


@pytest.mark.slow
def test_what_ends_begins_again():
    source = tfpipe.SyntheticSource(batch_size=2, image_size=8)
    pipeline = tfpipe.Pipeline(source, [tfpipe.Take(3)])

    found = tfpipe.search_tuning(pipeline, time_limit=4)

    assert found.ratio > 0


def test_what_is_empty_is_refused():
    empty = tfpipe.Pipeline(lambda *_: tf.data.Dataset.range(3), [tfpipe.Batch(4)])

    with pytest.raises(ValueError, match="must have at least one element, got none"):
        tfpipe.tune(empty, time_limit=4)


def test_a_place_in_a_folder_can_be_saved(tmp_path):
    placed = placement.Placement(where="disk", num_ops=0, directory=tmp_path)

    saved = json.loads(json.dumps(dataclasses.asdict(placed)))

    assert placement.Placement(**saved) == placed


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"time_limit": 0}, "time_limit must be a finite number > 0, got 0"),
        ({"num_local_ranks": 0}, "num_local_ranks must be .* >= 1, got 0"),
        ({"cpu_budget": 0}, "cpu_budget must be .* >= 1 or None, got 0"),
        ({"ram_budget_bytes": 0}, "ram_budget_bytes must be .* >= 1 or None, got 0"),
        (
            {"ram_budget_bytes": 3, "num_local_ranks": 4},
            "ram_budget_bytes must be .* >= 4 or None, got 3",  # a byte a rank
        ),
        ({"disk_budget_bytes": -1}, "disk_budget_bytes must be .* >= 0, got -1"),
        ({"disk_budget_bytes": 9}, "both disk_bytes and cache_dir or neither"),
    ],
)
def test_wrong_values_are_refused_before_any_work(values, said):
    pipeline = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=1), [])

    with pytest.raises(ValueError, match=said):
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
        search._runner(dataclasses.replace(pipeline, stages=stages), is_ours=is_ours)

    assert len(closed) == num_closed
