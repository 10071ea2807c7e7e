import itertools
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe import index, order

NUM_TRAIN_RECORDS = 24


@pytest.fixture
def copy_dir(data_dir, tmp_path):
    """A copy of the data set, to be damaged."""
    return shutil.copytree(data_dir, tmp_path / "copy")


def extents(source, epoch=0):
    return list(source(epoch).as_numpy_iterator())


def record_ids(source, epoch=0):
    return [
        int(extent["first_record"]) + number
        for extent in extents(source, epoch)
        for number in range(extent["num_records"])
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, r"TFRecordSource\.seed must be 0 to 2\*\*64 - 1, got -1"),
        ({"seed": 2**64}, r"seed must be 0 to 2\*\*64 - 1, got 18446744073709551616"),
        ({"block_length": 0}, r"TFRecordSource\.block_length must be >= 1, got 0"),
        ({"rank": 1}, "rank must be 0 to num_ranks - 1 = 0, got 1"),
        ({"num_ranks": 25}, "24 records cannot be shared by 25 ranks"),
        ({"remainder": "pad"}, "remainder must be 'drop' or 'keep', got 'pad'"),
    ],
)
def test_wrong_arguments_are_refused_when_the_source_is_made(
    data_dir, arguments, message
):
    with pytest.raises(ValueError, match=message):
        tfpipe.TFRecordSource(data_dir, "train", **arguments)


def test_unknown_split_is_refused(data_dir):
    with pytest.raises(tfpipe.BadIndexError, match=r"'test'.*one of train, validation"):
        tfpipe.TFRecordSource(data_dir, "test")


def test_folder_without_an_index_is_refused(tmp_path):
    with pytest.raises(tfpipe.BadIndexError, match=r"index\.json is missing"):
        tfpipe.TFRecordSource(tmp_path, "train")


def test_missing_shard_is_refused(copy_dir):
    (copy_dir / "train-00002-of-00003").unlink()

    with pytest.raises(tfpipe.BadIndexError, match="train-00002-of-00003"):
        tfpipe.TFRecordSource(copy_dir, "train")


def test_short_shard_is_refused(copy_dir):
    shard = copy_dir / "train-00000-of-00003"
    shard.write_bytes(shard.read_bytes()[:-1])

    with pytest.raises(tfpipe.BadIndexError, match="train-00000-of-00003 must have"):
        tfpipe.TFRecordSource(copy_dir, "train")


def test_missing_catalog_is_named(copy_dir):
    (copy_dir / index.CATALOG_NAME).unlink()

    with pytest.raises(tfpipe.BadIndexError, match=r"catalog\.parquet cannot be read"):
        tfpipe.TFRecordSource(copy_dir, "train")


def test_catalog_of_another_conversion_is_refused(copy_dir):
    path = copy_dir / index.INDEX_NAME
    document = json.loads(path.read_text())
    document["splits"]["train"][0]["num_records"] += 1
    path.write_text(json.dumps(document))

    with pytest.raises(
        tfpipe.BadIndexError,
        match=r"catalog\.parquet in .* the 25 records of split 'train', got 24",
    ):
        tfpipe.TFRecordSource(copy_dir, "train")


def test_element_spec_is_that_of_an_extent(data_dir):
    integer = tf.TensorSpec([], tf.int64)

    assert tfpipe.TFRecordSource(data_dir, "train")(0).element_spec == {
        "path": tf.TensorSpec([], tf.string),
        "byte_offset": integer,
        "num_records": integer,
        "first_record": integer,
        "epoch_seed": integer,
    }


def test_extents_are_those_of_order(data_dir):
    source = tfpipe.TFRecordSource(
        data_dir, "train", seed=3, rank=1, num_ranks=2, block_length=5
    )
    layout = order.Layout(
        np.array([8, 8, 8]),
        index.load_catalog(data_dir, "train", ["byte_offset"])["byte_offset"],
    )
    expected = order.epoch_extents(
        layout, seed=3, epoch=4, rank=1, num_ranks=2, block_length=5
    )
    paths = [str(data_dir / f"train-0000{shard}-of-00003") for shard in range(3)]

    result = extents(source, epoch=4)

    assert [e["path"].decode() for e in result] == [paths[s] for s in expected.shard]
    for name in ("byte_offset", "num_records", "first_record"):
        assert [e[name] for e in result] == getattr(expected, name).tolist()
    assert {e["epoch_seed"] for e in result} == {order.epoch_seed(seed=3, epoch=4)}


@pytest.mark.parametrize("num_ranks", [1, 3, 5])
def test_ranks_cover_the_split(data_dir, num_ranks):
    sources = [
        tfpipe.TFRecordSource(
            data_dir, "train", rank=rank, num_ranks=num_ranks, remainder="keep"
        )
        for rank in range(num_ranks)
    ]

    shares = [record_ids(source) for source in sources]

    assert sorted(itertools.chain(*shares)) == list(range(NUM_TRAIN_RECORDS))
    assert [source.num_records for source in sources] == [len(s) for s in shares]


@pytest.mark.parametrize(
    ("remainder", "num_ranks", "batch_size", "num_steps"),
    [("drop", 1, 5, 4), ("keep", 1, 5, 5), ("drop", 5, 3, 1), ("keep", 5, 3, 2)],
)
def test_steps_follow_from_ranks_batch_and_remainder(
    data_dir, remainder, num_ranks, batch_size, num_steps
):
    source = tfpipe.TFRecordSource(
        data_dir, "train", num_ranks=num_ranks, remainder=remainder
    )

    assert source.steps_per_epoch(batch_size) == num_steps


def test_without_shuffle_every_epoch_is_in_disk_order(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", shuffle=False, block_length=3)

    assert record_ids(source, epoch=0) == list(range(NUM_TRAIN_RECORDS))
    assert record_ids(source, epoch=1) == list(range(NUM_TRAIN_RECORDS))


def test_epochs_differ_in_order_and_in_epoch_seed(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", block_length=1)

    assert record_ids(source, epoch=0) != record_ids(source, epoch=1)
    assert extents(source, 0)[0]["epoch_seed"] != extents(source, 1)[0]["epoch_seed"]


def test_epoch_as_int_and_as_tensor_agree(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", block_length=2)
    in_graph = tf.data.Dataset.range(7, 8).flat_map(source)

    expected = extents(source, epoch=7)

    assert extents(source, tf.constant(7, tf.int64)) == expected
    assert list(in_graph.as_numpy_iterator()) == expected


def test_largest_seed_and_epoch_work(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", seed=2**64 - 1)

    assert sorted(record_ids(source, epoch=2**62)) == list(range(NUM_TRAIN_RECORDS))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
def test_synthetic_examples_are_as_specified(dtype):
    source = tfpipe.SyntheticSource(
        num_records=3, image_size=5, num_classes=10, dtype=dtype
    )

    dataset = source(0)

    assert dataset.element_spec == {
        "image": tf.TensorSpec([5, 5, 3], dtype),
        "label": tf.TensorSpec([], tf.int32),
    }
    assert dataset.cardinality() == 3
    for example in dataset:
        assert 0 <= example["label"] < 10
        assert 200 < tf.reduce_max(tf.cast(example["image"], tf.float32)) <= 255


def test_synthetic_examples_depend_on_the_seed_alone():
    def image(seed, epoch):
        source = tfpipe.SyntheticSource(num_records=1, image_size=5, seed=seed)
        return next(source(epoch).as_numpy_iterator())["image"].tolist()

    assert image(seed=1, epoch=0) == image(seed=1, epoch=tf.constant(5))
    assert image(seed=1, epoch=0) != image(seed=2, epoch=0)


@pytest.mark.parametrize("name", ["num_records", "image_size", "num_classes"])
def test_synthetic_source_refuses_zero(name):
    with pytest.raises(ValueError, match=f"SyntheticSource.{name} must be >= 1, got 0"):
        tfpipe.SyntheticSource(**{"num_records": 1, name: 0})
