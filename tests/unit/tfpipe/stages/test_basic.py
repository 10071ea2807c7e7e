import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe.reading import building, order
from tfpipe.stages import basic, interleave as interleave_module, map, shuffle


def numbers(count=5):
    return tf.data.Dataset.range(count)


def as_list(dataset):
    return list(dataset.as_numpy_iterator())


def add_one(x):
    return x + 1


def double(x):
    return x * 2


def read_records(data_dir, interleave, **options):
    """(number, bytes) of each record, from windows of several runs in 3 shards."""
    defaults = {"seed": 1, "block_length": 3, "window_size": 10}
    source = tfpipe.TFRecordSource(data_dir, "train", **defaults | options)
    records = interleave(source(tfpipe.State(epoch=3), 1))
    assert records.element_spec == interleave_module.RECORD_SPEC
    return [(int(e["record_id"]), e["record"]) for e in as_list(records)]


@pytest.mark.parametrize(
    ("shuffle", "num_parallel_reads"),
    [("none", None), ("window", 1), ("window", 8), ("full", 8)],
)
def test_interleave_reads_the_records_of_the_windows_in_their_order(
    data_dir, shuffle, num_parallel_reads
):
    names = [str(data_dir / f"train-0000{shard}-of-00003") for shard in range(3)]
    on_disk = as_list(tf.data.TFRecordDataset(names))
    of = order.Order(
        shard_sizes=np.array([8, 8, 8]),
        seed=1,
        block_length=3,
        window_size=10,
        shuffle=shuffle,
    )
    place = order.EpochPosition(epoch=3)
    windows = [of.window(0, place, number) for number in of.windows(0, place)]

    result = read_records(
        data_dir,
        tfpipe.Interleave(
            num_parallel_reads=num_parallel_reads,
            read_buffer_bytes=num_parallel_reads and 1000,
        ),
        shuffle=shuffle,
    )

    assert result == [
        (number, on_disk[number])
        for window in windows
        for number in window.records().tolist()
    ]
    assert sorted(number for number, _ in result) == list(range(24))


def test_interleave_carries_the_seed_of_the_epoch_and_what_is_real(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", remainder="pad", batch_size=10)

    result = as_list(tfpipe.Interleave()(source(tfpipe.State(epoch=3), 1)))

    seeds = {int(record["epoch_seed"]) for record in result}
    assert seeds == {order.epoch_seed(seed=0, epoch=3)}
    assert [bool(record["is_real"]) for record in result] == [True] * 24 + [False] * 6


def test_asserted_cardinality_is_known():
    unknown = numbers().filter(lambda x: x < 4)

    dataset = tfpipe.AssertCardinality(4)(unknown)

    assert dataset.cardinality() == 4
    assert as_list(dataset) == [0, 1, 2, 3]


@pytest.mark.parametrize("num_elements", [4, 6])
def test_other_cardinality_than_asserted_is_an_error(num_elements):
    dataset = tfpipe.AssertCardinality(num_elements)(numbers())

    with pytest.raises(
        tf.errors.FailedPreconditionError, match=f"contain {num_elements} elements"
    ):
        as_list(dataset)


@pytest.mark.parametrize("num_records", [4, None])
def test_cardinality_left_open_is_what_the_source_says(num_records):
    source = types.SimpleNamespace(num_records=lambda state, num_epochs: num_records)
    run = building.RunFacts(source, [], tfpipe.State(), 1, False)

    count = tf.data.INFINITE_CARDINALITY if num_records is None else num_records
    assert tfpipe.AssertCardinality().at_start(run) == tfpipe.AssertCardinality(count)
    assert tfpipe.AssertCardinality(3).at_start(run).num_elements == 3


def test_map_applies_ops_in_order():
    assert as_list(tfpipe.Map(add_one, double)(numbers())) == [2, 4, 6, 8, 10]
    assert as_list(tfpipe.Map(double, add_one)(numbers())) == [1, 3, 5, 7, 9]


def test_map_keeps_the_order_in_parallel():
    dataset = tfpipe.Map(double, num_parallel_calls=4)(numbers(100))

    assert as_list(dataset) == list(range(0, 200, 2))


def test_map_prints_its_ops():
    stage = tfpipe.Map(tfpipe.Flip(), tfpipe.Select("image"), num_parallel_calls=2)

    assert repr(stage) == "Map(Flip(), Select('image'), num_parallel_calls=2)"


def test_shuffle_depends_on_the_seed():
    def shuffled(seed):
        return as_list(tfpipe.Shuffle(10, seed=seed)(numbers(20)))

    assert sorted(shuffled(1)) == list(range(20))
    assert shuffled(1) == shuffled(1)
    assert shuffled(1) != shuffled(2)


def test_shuffle_is_the_same_on_each_iteration():
    dataset = tfpipe.Shuffle(10)(numbers(20))

    assert as_list(dataset) == as_list(dataset)


def test_shuffle_of_one_changes_nothing():
    assert as_list(tfpipe.Shuffle(1)(numbers())) == [0, 1, 2, 3, 4]


def test_batch_drops_the_remainder():
    dataset = tfpipe.Batch(2)(numbers())

    assert [batch.tolist() for batch in as_list(dataset)] == [[0, 1], [2, 3]]
    assert dataset.element_spec.shape == [2]


def test_batch_keeps_the_remainder_if_told():
    dataset = tfpipe.Batch(2, drop_remainder=False)(numbers())

    assert [batch.tolist() for batch in as_list(dataset)] == [[0, 1], [2, 3], [4]]
    assert dataset.element_spec.shape.as_list() == [None]


def test_prefetch_changes_nothing():
    assert as_list(tfpipe.Prefetch(buffer_size=2)(numbers())) == [0, 1, 2, 3, 4]


def test_take_passes_the_first_elements():
    assert as_list(tfpipe.Take(2)(numbers())) == [0, 1]
    assert as_list(tfpipe.Take(9)(numbers())) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (
            tfpipe.Interleave(),
            tfpipe.Interleave(num_parallel_reads=3, read_buffer_bytes=5),
        ),
        (
            tfpipe.Interleave(num_parallel_reads=1),
            tfpipe.Interleave(num_parallel_reads=1, read_buffer_bytes=5),
        ),
        (tfpipe.Map(double), tfpipe.Map(double, num_parallel_calls=2)),
        (
            tfpipe.Map(double, num_parallel_calls=8),
            tfpipe.Map(double, num_parallel_calls=8),
        ),
        (tfpipe.Prefetch(), tfpipe.Prefetch(buffer_size=4)),
        (tfpipe.Prefetch(buffer_size=1), tfpipe.Prefetch(buffer_size=1)),
    ],
)
def test_tuning_fills_open_knobs_only(stage, expected):
    tuning = tfpipe.Tuning(
        num_parallel_reads=3,
        num_parallel_maps=2,
        prefetch_buffer_size=4,
        read_buffer_bytes=5,
    )

    assert stage.with_tuning(tuning) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: tfpipe.Interleave(num_parallel_reads=0),
            "Interleave.num_parallel_reads must be a whole number >= 1 or None, got 0",
        ),
        (
            lambda: tfpipe.Interleave(read_buffer_bytes=-1),
            "Interleave.read_buffer_bytes must be a whole number >= 1 or None, got -1",
        ),
        (lambda: tfpipe.Map(), "Map must have at least one op"),
        (
            lambda: tfpipe.Map(double, num_parallel_calls=0),
            "Map.num_parallel_calls must be a whole number >= 1 or None or -1, got 0",
        ),
        (
            lambda: tfpipe.Shuffle(0),
            "Shuffle.buffer_size must be a whole number >= 1, got 0",
        ),
        (
            lambda: tfpipe.Batch(0),
            "Batch.batch_size must be a whole number >= 1, got 0",
        ),
        (
            lambda: tfpipe.Prefetch(buffer_size=-2),
            "Prefetch.buffer_size must be a whole number >= 1 or None or -1, got -2",
        ),
        (lambda: tfpipe.Take(0), "Take.count must be a whole number >= 1, got 0"),
    ],
)
def test_wrong_arguments_are_refused_when_the_stage_is_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: tfpipe.Shuffle(10, 1),
        lambda: tfpipe.Batch(2, False),
        lambda: tfpipe.Prefetch(2),
        lambda: tfpipe.Interleave(2),
    ],
)
def test_options_are_keyword_only(make):
    with pytest.raises(TypeError, match="positional argument"):
        make()


def test_stages_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        tfpipe.Batch(2).batch_size = 3


def test_every_stage_takes_a_dataset_and_returns_one():
    """A stage added to the module must be added here, and so tested above."""
    made = [
        tfpipe.AssertCardinality(5),
        tfpipe.Batch(2),
        tfpipe.Map(tf.identity),
        tfpipe.Prefetch(),
        tfpipe.Shuffle(3),
        tfpipe.Take(2),
    ]

    assert all(isinstance(stage(numbers()), tf.data.Dataset) for stage in made)
    classes = {type(stage) for stage in (*made, tfpipe.Interleave())}
    assert classes | {tfpipe.EachExample} == {  # an op, which stands beside Map
        value
        for module in (interleave_module, shuffle, basic, map)
        for value in vars(module).values()
        if dataclasses.is_dataclass(value) and value.__module__ == module.__name__
    }


def test_shuffle_does_not_depend_on_the_global_seed():
    """`Dataset.shuffle` does, and Keras sets it."""
    orders = []
    for seed in (None, 1, 2):
        tf.random.set_seed(seed)
        dataset = tfpipe.Shuffle(5, seed=3)(tf.data.Dataset.range(20))
        orders.append([int(element) for element in dataset])
    tf.random.set_seed(None)

    assert orders[0] == orders[1] == orders[2]
    assert orders[0] != list(range(20))


def test_shuffle_takes_the_largest_seed():
    dataset = tfpipe.Shuffle(5, seed=2**64 - 1)(tf.data.Dataset.range(20))

    assert sorted(int(element) for element in dataset) == list(range(20))
