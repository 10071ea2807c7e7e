import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe.reading import order
from tfpipe.shards import index
from tfpipe.shards.ranges import by_shard
from tfpipe.stages import philox

NUM_TRAIN_RECORDS = 24


def windows(source, state=None, num_epochs=1):
    dataset = source(state or tfpipe.State(), num_epochs)
    return list(dataset.as_numpy_iterator())


def passed_on(window):
    """The numbers of the records that a window passes on, in order."""
    ranges = zip(window["first_record"], window["num_records"], strict=True)
    records = np.concatenate([np.arange(count) + first for first, count in ranges])
    if "shuffle_seed" in window:
        seed = tuple(window["shuffle_seed"].tolist())
        records = records[philox.shuffled(len(records), seed)]
    return records[window["skip"] :][: window["take"]].tolist()


def record_ids(source, state=None, num_epochs=1):
    """Numbers of all real records, in order."""
    return [
        number
        for window in windows(source, state, num_epochs)
        for number in passed_on(window)
        if window["is_real"]
    ]


def epoch(number):
    return tfpipe.State(epoch=number)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, r"seed must be .* from 0 to 2\*\*64 - 1, got -1"),
        (
            {"seed": 2**64},
            r"seed must be .* from 0 to 2\*\*64 - 1, got 18446744073709551616",
        ),
        ({"block_length": 0}, "block_length must be a whole number >= 1, got 0"),
        ({"window_size": 0}, "window_size must be a whole number >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
        ({"shuffle": True}, "shuffle must be one of none, window, full, got True"),
        ({"rank": 1}, "rank must be 0 to num_ranks - 1 = 0, got 1"),
        ({"num_ranks": 25}, "24 records cannot give 25 ranks a batch of 1 each"),
        ({"batch_size": 25}, "24 records cannot give 1 rank a batch of 25 each"),
        ({"remainder": "keep"}, "remainder must be one of drop, pad, got 'keep'"),
    ],
)
def test_wrong_arguments_are_refused_when_the_source_is_made(
    data_dir, arguments, message
):
    with pytest.raises(ValueError, match=message):
        tfpipe.TFRecordSource(data_dir, "train", **arguments)


def test_unknown_split_is_refused(data_dir):
    with pytest.raises(
        tfpipe.errors.BadIndexError, match=r"'test'.*one of train, validation"
    ):
        tfpipe.TFRecordSource(data_dir, "test")


def test_folder_without_an_index_is_refused(tmp_path):
    with pytest.raises(tfpipe.errors.BadIndexError, match=r"index\.json is missing"):
        tfpipe.TFRecordSource(tmp_path, "train")


def test_missing_shard_is_refused(copy_dir):
    (copy_dir / "train-00002-of-00003").unlink()

    with pytest.raises(tfpipe.errors.BadIndexError, match="train-00002-of-00003"):
        tfpipe.TFRecordSource(copy_dir, "train")


def test_short_shard_is_refused(copy_dir):
    shard = copy_dir / "train-00000-of-00003"
    shard.write_bytes(shard.read_bytes()[:-1])

    with pytest.raises(
        tfpipe.errors.BadIndexError, match="train-00000-of-00003 must have"
    ):
        tfpipe.TFRecordSource(copy_dir, "train")


def test_missing_catalog_is_named(copy_dir):
    (copy_dir / index.CATALOG_NAME).unlink()

    with pytest.raises(
        tfpipe.errors.BadIndexError, match=r"catalog\.parquet cannot be read"
    ):
        tfpipe.TFRecordSource(copy_dir, "train")


def test_catalog_of_another_conversion_is_refused(copy_dir):
    path = copy_dir / index.INDEX_NAME
    document = json.loads(path.read_text())
    document["splits"]["train"][0]["num_records"] += 1
    path.write_text(json.dumps(document))

    with pytest.raises(
        tfpipe.errors.BadIndexError,
        match=r"catalog\.parquet in .* the 25 records of split 'train', got 24",
    ):
        tfpipe.TFRecordSource(copy_dir, "train")


@pytest.mark.parametrize("shuffle", ["none", "window", "full"])
def test_element_spec_is_that_of_a_window(data_dir, shuffle):
    def spec(dtype, *shape):
        return tf.TensorSpec(shape, dtype)

    dataset = tfpipe.TFRecordSource(data_dir, "train", shuffle=shuffle)(epoch(0), 1)

    seed = {} if shuffle == "none" else {"shuffle_seed": spec(tf.int64, 2)}
    assert dataset.element_spec == seed | {
        "path": spec(tf.string, None),
        "byte_offset": spec(tf.int64, None),
        "num_records": spec(tf.int64, None),
        "first_record": spec(tf.int64, None),
        "record_byte_offset": spec(tf.int64, None),
        "record_num_bytes": spec(tf.int64, None),
        "skip": spec(tf.int64),
        "take": spec(tf.int64),
        "is_real": spec(tf.bool),
        "has_right_lengths": spec(tf.bool),
        "epoch_seed": spec(tf.int64, None),
    }


def test_windows_are_those_of_order(data_dir):
    options = {"seed": 3, "num_ranks": 2, "block_length": 5, "window_size": 7}
    source = tfpipe.TFRecordSource(data_dir, "train", rank=1, **options)
    catalog = index.load_catalog(data_dir, "train", ["byte_offset"])
    paths = [str(data_dir / f"train-0000{shard}-of-00003") for shard in range(3)]
    place = order.EpochPosition(epoch=4)
    of = order.Order(shard_sizes=np.array([8, 8, 8]), **options)
    numbers = of.windows(1, place)
    assert len(numbers) == 2

    for number, window in zip(numbers, windows(source, epoch(4)), strict=True):
        expected = of.window(1, place, number)
        shard, ranges = by_shard(expected.ranges, of.shard_sizes)
        assert [path.decode() for path in window["path"]] == [paths[s] for s in shard]
        assert window["first_record"].tolist() == ranges.first.tolist()
        assert window["num_records"].tolist() == ranges.length.tolist()
        offsets = catalog["byte_offset"]
        assert window["byte_offset"].tolist() == offsets[ranges.first].tolist()
        records = offsets[expected.ranges.records()]
        assert window["record_byte_offset"].tolist() == records.tolist()
        assert passed_on(window) == expected.records().tolist()
        assert window["is_real"]
        seed = order.epoch_seed(seed=3, epoch=4)
        assert window["epoch_seed"].tolist() == [seed] * window["take"]


@pytest.mark.parametrize(
    ("num_ranks", "shuffle"),
    [(3, "none"), (5, "window")],
)
def test_ranks_cover_the_split(data_dir, num_ranks, shuffle):
    sources = [
        tfpipe.TFRecordSource(
            data_dir,
            "train",
            rank=rank,
            num_ranks=num_ranks,
            remainder="pad",
            shuffle=shuffle,
            batch_size=2,
            window_size=4,
        )
        for rank in range(num_ranks)
    ]

    shares = [windows(source) for source in sources]

    real = [w for w in itertools.chain(*shares) if w["is_real"]]
    records = itertools.chain.from_iterable(map(passed_on, real))
    assert sorted(records) == list(range(NUM_TRAIN_RECORDS))
    for source, share in zip(sources, shares, strict=True):
        taken = sum(window["take"] for window in share)
        assert source.num_records(epoch(0), 1) == taken == source.steps_per_epoch * 2


@pytest.mark.parametrize(
    ("remainder", "num_ranks", "batch_size", "num_steps"),
    [("drop", 1, 5, 4), ("pad", 1, 5, 5), ("drop", 5, 3, 1), ("pad", 5, 3, 2)],
)
def test_steps_follow_from_ranks_batch_and_remainder(
    data_dir, remainder, num_ranks, batch_size, num_steps
):
    source = tfpipe.TFRecordSource(
        data_dir,
        "train",
        num_ranks=num_ranks,
        remainder=remainder,
        batch_size=batch_size,
    )

    assert source.steps_per_epoch == num_steps
    assert source.num_steps(epoch(7), 3) == 3 * num_steps
    assert source.num_steps(epoch(0), None) is None
    assert source.num_records(epoch(0), 2) == 2 * num_steps * batch_size
    assert source.num_records(epoch(0), None) is None


def test_steps_made_are_not_counted_again(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=5)

    assert source.num_steps(tfpipe.State(step=3), 1) == 1
    assert source.num_steps(tfpipe.State(step=3), 2) == 1 + 4
    assert source.num_records(tfpipe.State(step=3), 2) == 5 * (1 + 4)


def test_start_after_the_end_of_an_epoch_is_refused(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=5)

    with pytest.raises(ValueError, match=r"epoch has 4 steps .* a start at step 5"):
        source(tfpipe.State(step=5), 1)


def test_without_shuffle_every_epoch_is_in_disk_order(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", shuffle="none", window_size=9)

    assert record_ids(source, epoch(0)) == list(range(NUM_TRAIN_RECORDS))
    assert record_ids(source, epoch(1)) == list(range(NUM_TRAIN_RECORDS))


@pytest.mark.parametrize("shuffle", ["window", "full"])
def test_epochs_differ_in_order_and_in_epoch_seed(data_dir, shuffle):
    source = tfpipe.TFRecordSource(data_dir, "train", shuffle=shuffle, block_length=4)

    assert record_ids(source, epoch(0)) != record_ids(source, epoch(1))
    first, second = (windows(source, epoch(number))[0] for number in (0, 1))
    assert first["epoch_seed"].tolist() != second["epoch_seed"].tolist()
    assert first["shuffle_seed"].tolist() != second["shuffle_seed"].tolist()


@pytest.mark.parametrize("is_cached", [False, True])
def test_endless_epochs_have_an_infinite_cardinality(data_dir, tmp_path, is_cached):
    options = {"shard_cache": tfpipe.ShardCache(tmp_path)} if is_cached else {}
    source = tfpipe.TFRecordSource(data_dir, "train", **options)

    assert source(epoch(3), None).cardinality() == tf.data.INFINITE_CARDINALITY
    assert source(epoch(3), 2).cardinality() == 2 * source(epoch(3), 1).cardinality()


def test_epochs_follow_each_other(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", seed=1, window_size=10)
    alone = [record_ids(source, epoch(number)) for number in (3, 4, 5)]
    joined = list(itertools.chain(*alone))

    assert record_ids(source, epoch(3), num_epochs=3) == joined
    endless = source(epoch(3), None)
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
    taken = [passed_on(window) for window in endless.take(9).as_numpy_iterator()]
    assert list(itertools.chain(*taken)) == joined


def test_a_source_names_the_shards_of_its_split_alone(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train")

    assert source.shards == index.load(data_dir).splits["train"]
    assert source.paths == [str(data_dir / shard.name) for shard in source.shards]
    assert source.split_index.shard_sizes.tolist() == [8, 8, 8]


def test_paths_of_windows_are_read_from_the_folder_given(copy_dir):
    (window,) = windows(tfpipe.TFRecordSource(str(copy_dir), "train"))

    assert {path.decode() for path in window["path"]} == {
        str(copy_dir / f"train-0000{shard}-of-00003") for shard in range(3)
    }


def test_largest_seed_and_epoch_work(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", seed=2**64 - 1)

    assert sorted(record_ids(source, epoch(2**62))) == list(range(NUM_TRAIN_RECORDS))


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_synthetic_batches_are_as_specified(dtype):
    source = tfpipe.SyntheticSource(
        batch_size=4, steps_per_epoch=3, image_size=(5, 7), num_classes=10, dtype=dtype
    )

    dataset = source(tfpipe.State(), 2)

    assert dataset.element_spec == {
        "image": tf.TensorSpec([4, 5, 7, 3], dtype),
        "label": tf.TensorSpec([4], tf.int32),
    }
    assert dataset.cardinality() == 6
    for batch in dataset:
        assert 0 <= tf.reduce_min(batch["label"]) <= tf.reduce_max(batch["label"]) < 10
        assert 200 < tf.reduce_max(tf.cast(batch["image"], tf.float32)) <= 255


@pytest.mark.parametrize(
    ("state", "shuffle", "starts"),
    [
        # 24 records on 2 ranks: 10 of 12 records in an epoch, in windows of 4.
        (tfpipe.State(), "window", [0, 4, 8, 10, 14, 18, 20]),
        (tfpipe.State(epoch=1, step=1), "window", [0, 3, 5, 9, 13, 15, 19]),
        (tfpipe.State(), "none", [0, 4, 8, 10, 14, 18, 20]),
    ],
)
def test_starts_of_windows_are_where_the_dataset_begins_one(
    data_dir, state, shuffle, starts
):
    source = tfpipe.TFRecordSource(
        data_dir,
        "train",
        **{"rank": 1, "num_ranks": 2, "batch_size": 5, "window_size": 4},
        shuffle=shuffle,
    )

    found = list(itertools.islice(source.window_starts(state), len(starts)))

    taken = [len(passed_on(window)) for window in windows(source, state, 4)]
    assert found == starts
    assert found == np.cumsum([0, *taken])[: len(starts)].tolist()


def test_synthetic_data_have_no_windows():
    assert list(tfpipe.SyntheticSource(batch_size=2).window_starts(epoch(0))) == []


def test_synthetic_batches_depend_on_the_seed_alone():
    def image(seed, number):
        source = tfpipe.SyntheticSource(batch_size=2, image_size=5, seed=seed)
        return next(source(epoch(number), 1).as_numpy_iterator())["image"].tolist()

    assert image(seed=1, number=0) == image(seed=1, number=5)
    assert image(seed=1, number=0) != image(seed=2, number=0)


def test_synthetic_source_goes_on_from_a_state():
    source = tfpipe.SyntheticSource(batch_size=2, steps_per_epoch=3, image_size=5)
    state = source.advance(epoch(4), 5)

    assert (state.epoch, state.step) == (5, 2)
    assert source.num_steps(state, 2) == source(state, 2).cardinality() == 4
    assert source.num_steps(state, None) is None
    assert source(state, None).cardinality() == tf.data.INFINITE_CARDINALITY
    default = tfpipe.SyntheticSource(batch_size=2)
    assert (default.steps_per_epoch, default.image_size) == (1000, 224)
    assert (default.num_classes, default.dtype) == (1000, "uint8")


@pytest.mark.parametrize(
    "name", ["batch_size", "steps_per_epoch", "image_size", "num_classes"]
)
def test_synthetic_source_refuses_zero(name):
    with pytest.raises(
        ValueError, match=f"SyntheticSource.{name} must be a whole number >= 1, got 0"
    ):
        tfpipe.SyntheticSource(**{"batch_size": 1, name: 0})


def test_synthetic_source_ends_at_its_end():
    source = tfpipe.SyntheticSource(batch_size=2, steps_per_epoch=3, image_size=5)

    assert len(list(source(tfpipe.State(step=3), 1))) == 0
    assert len(list(source(tfpipe.State(step=3), 2))) == 3
    continued = source.continued(tfpipe.State(step=3), 1)
    assert [len(list(continued)) for _ in range(2)] == [0, 3]
    for num_epochs in (1, 2, None):
        with pytest.raises(ValueError, match=r"has 3 steps, got a start at step 4"):
            source(tfpipe.State(step=4), num_epochs)
