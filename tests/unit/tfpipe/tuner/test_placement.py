"""tfpipe.tuner.placement: where a cache may stand."""

import dataclasses

import pytest

import tfpipe
from tfpipe.tuner import placement


@pytest.fixture(scope="module")
def pipelines(data_dir):
    crop = tfpipe.RandomCrop(image_size=16)
    train = tfpipe.Pipeline(
        tfpipe.TFRecordSource(data_dir, "train"),
        [
            tfpipe.Interleave(),
            tfpipe.Map(tfpipe.Parse(label_base=1, as_converted=True), crop),
        ],
    )
    return {
        "train": train,
        "eval": tfpipe.imagenet_eval(data_dir, image_size=16, batch_size=2),
    }


@pytest.fixture(scope="module")
def sizes(pipelines):
    return {name: placement.sizes(each) for name, each in pipelines.items()}


def names(pipeline):
    """Each stage, a map as the names of its ops."""
    return [
        [type(op).__name__ for op in stage.ops]
        if isinstance(stage, tfpipe.Map)
        else type(stage).__name__
        for stage in pipeline.stages
    ]


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("train", [0]),  # after Parse it would be the same; RandomCrop is random
        ("eval", [0, 2]),  # after CenterCrop; Select drops record_id
    ],
)
def test_positions_end_before_the_first_random_op(sizes, name, positions):
    assert list(sizes[name]) == positions


def test_no_cache_for_what_is_not_of_records():
    pipeline = tfpipe.Pipeline(
        tfpipe.SyntheticSource(batch_size=2), [tfpipe.Prefetch()]
    )

    assert list(placement.sizes(pipeline)) == []


@pytest.mark.parametrize(
    ("num_ops", "expected"),
    [
        (0, ["Cache", "Batch", ["Parse", "CenterCrop", "Select"]]),
        (2, [["Parse", "CenterCrop"], "Cache", ["Select"], "Batch"]),
        (3, [["Parse", "CenterCrop", "Select"], "Cache", "Batch"]),
    ],
)
def test_a_cache_after_ops_ends_whole_batches(pipelines, num_ops, expected):
    place = placement.Placement(where="ram", num_ops=num_ops)

    made = placement.with_cache(pipelines["eval"], place)

    found = names(made)
    found.remove("AssertCardinality")  # anywhere between reading and the first batch
    assert found == ["Interleave", *expected, "Prefetch"]
    assert made.paths["whole_batches"].value == ("no" if num_ops else "yes")
    assert placement.of_pipeline(made) == place
    assert "Cache" not in names(placement.with_cache(made, None))
    assert placement.of_pipeline(placement.without_cache(made)) is None


def test_a_cache_is_moved_not_doubled(pipelines):
    first = placement.Placement(where="ram", num_ops=0)
    second = dataclasses.replace(first, num_ops=2)

    made = placement.with_cache(placement.with_cache(pipelines["eval"], first), second)

    assert names(made).count("Cache") == 1
    assert placement.of_pipeline(made) == second


def test_so_many_ops_must_be_there(pipelines):
    with pytest.raises(ValueError, match="at most the 3 ops of all maps, got 4"):
        placement.num_bytes(pipelines["eval"], 4)


def test_the_size_is_that_of_a_full_cache(pipelines):
    pixels = 7 * 16 * 16 * 3

    encoded = placement.num_bytes(pipelines["eval"], 0)
    decoded = placement.num_bytes(pipelines["eval"], 2)

    assert pixels <= decoded <= pixels + 7 * 64
    assert encoded > 0


@pytest.fixture(scope="module")
def labels(data_dir):
    """The labels of two epochs, without and with a cache between ops of the map."""
    pipeline = tfpipe.Pipeline(
        tfpipe.TFRecordSource(data_dir, "validation"),
        [
            tfpipe.Interleave(),
            tfpipe.Map(
                tfpipe.Parse(label_base=1, as_converted=True),
                lambda example: {**example, "label": 2 * example["label"]},
                tfpipe.Select("label"),
            ),
        ],
    )
    place = placement.Placement(where="ram", num_ops=2)
    return [
        [int(example["label"]) for example in made.to_numpy(num_epochs=2)]
        for made in (pipeline, placement.with_cache(pipeline, place))
    ]


def test_elements_stay_what_they_are(labels):
    plain, cached = labels

    assert cached == plain
    assert len(plain) == 2 * 7


@pytest.fixture(scope="module")
def bare(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", seed=3, window_size=7)
    return tfpipe.Pipeline(source, [tfpipe.Interleave()])


@pytest.fixture(scope="module")
def first_window(bare):
    return [int(record["record_id"]) for record in bare.build().take(7)]


def test_first_window_comes_again_and_again_where_there_is_a_cache(bare, first_window):
    cached = placement.with_cache(bare, placement.Placement(where="ram", num_ops=0))

    again = placement.of_first_window(cached, 99).build(num_epochs=None)

    assert [int(record["record_id"]) for record in again.take(21)] == first_window * 3
    first = placement.of_first_window(cached, 3).source
    assert first.window_size == 3 * first.batch_size


def test_a_pipeline_without_a_cache_keeps_all_windows(bare):
    assert placement.of_first_window(bare, 8) is bare
