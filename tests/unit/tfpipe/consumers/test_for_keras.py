"""Pipeline.for_keras: what Keras gets in each of its epochs, row by row."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.presets import preset_over
from tests.support.faults.damage import spoil_jpeg

BATCH_SIZE = 4
STEPS = 6  # of an epoch of the 24 training records


@dataclasses.dataclass(frozen=True)
class NumberAsLabel:
    """An op that makes a small image, and the number of the record its label."""

    def __call__(self, example):
        number = tf.cast(example["record_id"], tf.int32)
        return {
            "image": tf.zeros([*number.shape, 2, 2, 3], tf.uint8),
            "label": number,
            "mask": tf.cast(example["is_real"], tf.float32),
        }


def make(data_dir, *stages, split="train", map_first=True, **source):
    fields = {"seed": 3, "block_length": 2, "window_size": 7, "batch_size": BATCH_SIZE}
    made = tfpipe.TFRecordSource(data_dir, split, **fields | source)
    last = [tfpipe.Map(NumberAsLabel()), tfpipe.Batch(made.batch_size)]
    return tfpipe.Pipeline(
        made,
        [
            tfpipe.Interleave(),
            *stages,
            tfpipe.AssertCardinality(),
            *(last if map_first else last[::-1]),
            tfpipe.Prefetch(),
        ],
    )


def labels(dataset):
    return [y.tolist() for _, y, *_ in dataset.as_numpy_iterator()]


def built_labels(pipeline, **options):
    return [batch["label"].tolist() for batch in pipeline.to_numpy(**options)]


KINDS = {
    "plain": lambda data_dir: make(data_dir),
    "cache": lambda data_dir: make(data_dir, tfpipe.Cache("ram")),
    "shuffle": lambda data_dir: make(data_dir, tfpipe.Shuffle(9), shuffle="none"),
    "whole batches": lambda data_dir: make(data_dir, map_first=False),
}


@functools.cache
def epochs_built(data_dir, kind):
    """The labels of each of the first 5 epochs, as one dataset delivers them."""
    built = built_labels(KINDS[kind](data_dir), num_epochs=5)
    return [built[begin : begin + STEPS] for begin in range(0, 5 * STEPS, STEPS)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_epoch_of_keras_is_the_next_epoch_of_the_data(data_dir, kind):
    """Two iterators that are open at once read an epoch each."""
    expected = epochs_built(data_dir, kind)[2:]
    dataset = KINDS[kind](data_dir).for_keras(epoch=2)

    assert dataset.cardinality() == STEPS
    assert labels(dataset) == expected[0]
    iterators = [dataset.as_numpy_iterator() for _ in range(2)]
    steps = [[next(each)[1].tolist() for each in iterators] for _ in range(STEPS)]
    assert [[*each] for each in zip(*steps, strict=True)] == expected[1:]
    assert len({str(epoch) for epoch in expected}) == 3


@pytest.mark.parametrize("kind", ["plain", "shuffle"])
def test_first_iteration_finishes_the_interrupted_epoch(data_dir, kind):
    pipeline = KINDS[kind](data_dir)
    state = pipeline.source.advance(tfpipe.State(), STEPS + 4)
    dataset = pipeline.for_keras(state=state)

    # Keras would take another number for that of every epoch.
    assert dataset.cardinality() == STEPS
    _, interrupted, *later, _ = epochs_built(data_dir, kind)
    assert [labels(dataset) for _ in range(3)] == [interrupted[4:], *later]


def test_state_at_the_end_of_an_epoch_begins_the_next_one_and_maybe_more(data_dir):
    pipeline = KINDS["plain"](data_dir)
    dataset = pipeline.for_keras(state=tfpipe.State(step=STEPS), num_epochs=2)

    assert dataset.cardinality() == 2 * STEPS
    later = epochs_built(data_dir, "plain")[1:]
    assert labels(dataset) + labels(dataset) == [*itertools.chain(*later)]


def test_presets_give_normalized_images_or_leave_them_to_a_layer(data_dir):
    pipeline = tfpipe.imagenet_train(data_dir, image_size=8, batch_size=BATCH_SIZE)
    table = [0.5, 1, 2, 4] + [1] * (len(pipeline.class_names) - 4)

    applied = pipeline.for_keras()
    left = pipeline.for_keras(
        device_ops="layer", one_hot=True, class_weights=dict(enumerate(table))
    )

    assert applied.element_spec == (
        tf.TensorSpec([BATCH_SIZE, 8, 8, 3], tf.float32),
        tf.TensorSpec([BATCH_SIZE], tf.int32),
    )
    assert left.element_spec == (
        tf.TensorSpec([BATCH_SIZE, 8, 8, 3], tf.uint8),
        tf.TensorSpec([BATCH_SIZE, 1000], tf.float32),
        tf.TensorSpec([BATCH_SIZE], tf.float32),
    )
    for (x, y), (image, rows, of_rows) in zip(applied, left, strict=True):
        np.testing.assert_array_equal(x, pipeline.on_device({"image": image})["image"])
        assert set(y.numpy().tolist()) <= {0, 1, 2, 3}
        assert rows.numpy().argmax(1).tolist() == y.numpy().tolist()
        assert of_rows.numpy().tolist() == [table[label] for label in y.numpy()]


@pytest.mark.parametrize(("num_ranks", "batch_size"), [(1, 4), (2, 3)])
def test_evaluation_has_each_real_record_once_and_no_other_row(
    data_dir, num_ranks, batch_size
):
    found = []
    for rank in range(num_ranks):
        numbers = {"rank": rank, "num_ranks": num_ranks, "batch_size": batch_size}
        pipeline = make(
            data_dir, split="validation", shuffle="none", remainder="pad", **numbers
        )
        dataset = pipeline.for_keras()
        batches = labels(dataset)
        assert dataset.cardinality() == len(batches)
        assert all(batches)
        found += itertools.chain(*batches)

    assert found == [*range(7)]


def test_a_rank_without_a_record_has_no_batch(data_dir):
    """There are 7 validation records; the first of 9 ranks has none."""
    numbers = {"num_ranks": 9, "shuffle": "none", "remainder": "pad"}
    dataset = make(data_dir, split="validation", **numbers).for_keras()

    assert dataset.cardinality() == 0
    assert labels(dataset) == []


def test_damaged_records_weigh_nothing_in_training_and_have_no_row_in_evaluation(
    copy_dir,
):
    for split, number in (("train", 5), ("validation", 2)):
        spoil_jpeg(copy_dir, number, split)
    options = {"image_size": 8, "batch_size": BATCH_SIZE, "on_error": "skip"}
    train = preset_over(tfpipe.imagenet_train, copy_dir, **options)
    val = preset_over(tfpipe.imagenet_eval, copy_dir, **options)

    weights = [w.numpy().tolist() for _, _, w in train.for_keras()]
    rows = [x.shape[0] for x, _, _ in val.for_keras()]

    assert [len(each) for each in weights] == [BATCH_SIZE] * STEPS
    assert sorted(itertools.chain(*weights)) == [0.0] + [1.0] * 23
    assert sum(rows) == 6
    assert len(val.record_names()) == 6


@dataclasses.dataclass(frozen=True)
class OwnSource:
    """A source of batches that cannot go on in the next iteration."""

    names: tuple[str, ...] = ("image", "label")
    remainder: str = "drop"

    def __call__(self, state, num_epochs):
        batch = {"image": tf.zeros([2, 4, 4, 3]), "label": tf.constant([0, 1])}
        batch = {name: batch[name] for name in self.names}
        return tf.data.Dataset.from_tensors(batch).repeat(num_epochs)


@pytest.mark.parametrize(
    ("own", "options", "message"),
    [
        (OwnSource(), {}, "num_epochs=None, and fit steps_per_epoch"),
        (OwnSource(), {"epoch": 1, "state": tfpipe.State()}, "either state or epoch"),
        (OwnSource(("label",)), {"num_epochs": None}, "hold image, label, got label"),
        (
            OwnSource(remainder="pad"),
            {"num_epochs": None},
            "hold image, label, mask, got image, label",
        ),
        (OwnSource(), {"num_epochs": None, "one_hot": True}, "OneHot\\(num_classes\\)"),
        (OwnSource(), {"num_epochs": None, "class_weights": {1: 2.0}}, "from 0 on"),
        (OwnSource(), {"device_ops": "gpu"}, "device_ops must be one of apply, layer"),
    ],
)
def test_what_keras_could_not_use_is_refused_with_the_remedy(own, options, message):
    with pytest.raises(ValueError, match=message):
        tfpipe.Pipeline(own, []).for_keras(**options)


@pytest.mark.parametrize("weights", [[1.0], {0: 1.0, 1: 2.0}, [1.0] * 99])
@pytest.mark.parametrize("offset", [0, 2])
def test_a_weight_for_each_class_is_needed_at_once(data_dir, weights, offset):
    parse = tfpipe.Parse(label_offset=offset)
    pipeline = tfpipe.imagenet_train(data_dir, batch_size=4, image_size=8, parse=parse)
    count = len(pipeline.class_names)

    with pytest.raises(
        ValueError,
        match=rf"from 0 on, {count:,} weights here, got {len(weights)} weight",
    ):
        pipeline.for_keras(class_weights=weights)
    pipeline.for_keras(class_weights=[1.0] * count)


def test_classes_are_weighed_by_their_names(data_dir):
    pipeline = tfpipe.imagenet_train(data_dir, batch_size=4, image_size=8)
    _, names = zip(*pipeline.source.index.classes, strict=True)
    # Two classes are named "crane".
    keys = [
        synset if names.count(name) > 1 else name
        for synset, name in pipeline.source.index.classes
    ]
    by_name = dict.fromkeys(keys, 1.0) | {names[2]: 5.0}

    for _, labels, weights in pipeline.for_keras(class_weights=by_name):
        assert weights.numpy().tolist() == [1 + 4 * int(label == 2) for label in labels]

    for wrong, message in (
        ({"goldfihs": 1.0}, "0 classes. Did you mean goldfish"),
        ({"crane": 1.0}, "2 classes. Write 'n02012849' or 'n03126707' in its place"),
        ({names[0]: 1.0}, r"1,000 weights here, got 1 weight, .* none for \[1, 2, "),
    ):
        with pytest.raises(ValueError, match=message):
            pipeline.for_keras(class_weights=wrong)


def brighter_if_dark(batch):
    """A device op with control flow of Python, which AutoGraph makes a graph of."""
    if tf.reduce_mean(batch["image"]) < 1:
        batch = batch | {"image": batch["image"] + 2}
    return batch


def test_source_and_device_op_of_ones_own_give_an_endless_dataset():
    pipeline = tfpipe.Pipeline(OwnSource(), [], device_ops=[brighter_if_dark])

    dataset = pipeline.for_keras(num_epochs=None, class_weights=[0.5, 3])

    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    for x, y, weight in dataset.take(2):
        assert x.numpy().min() == x.numpy().max() == 2
        assert y.numpy().tolist() == [0, 1]
        assert weight.numpy().tolist() == [0.5, 3]


def test_synthetic_batches_go_to_keras_too():
    source = tfpipe.SyntheticSource(batch_size=2, steps_per_epoch=3, image_size=4)
    state = tfpipe.State(epoch=1, step=2)

    dataset = tfpipe.Pipeline(source, []).for_keras(state=state, one_hot=True)

    assert [len(labels(dataset)) for _ in range(3)] == [1, 3, 3]


def test_names_are_those_of_the_rows_on_each_rank(data_dir):
    catalog = tfpipe.imagenet_eval(data_dir).record_names()
    for rank, shuffle, epoch in ((0, "none", None), (1, "window", 3)):
        numbers = {"rank": rank, "num_ranks": 2, "remainder": "pad"}
        pipeline = make(data_dir, split="validation", shuffle=shuffle, **numbers)
        rows = itertools.chain(*labels(pipeline.for_keras(epoch=epoch or 0)))
        names = pipeline.record_names(epoch=epoch)
        assert names == [catalog[row] for row in rows]
    assert sorted(catalog) == [f"val/ILSVRC2012_val_{n:08d}.JPEG" for n in range(1, 8)]


def test_names_in_an_order_that_is_not_known_are_refused(data_dir, copy_dir):
    with pytest.raises(ValueError, match="give epoch=0 for the first one"):
        make(data_dir).record_names()
    with pytest.raises(ValueError, match="keep every record in its place, got Shuffle"):
        make(data_dir, tfpipe.Shuffle(9), shuffle="none").record_names()
    with pytest.raises(ValueError, match="source that knows its files"):
        tfpipe.Pipeline(OwnSource(), []).record_names()
    pipeline = make(copy_dir, shuffle="none")
    (copy_dir / "catalog.parquet").unlink()
    with pytest.raises(tfpipe.errors.BadIndexError, match=r"catalog\.parquet"):
        pipeline.record_names()


def test_steps_of_an_epoch_are_known_from_the_source(data_dir):
    pipeline = make(data_dir, batch_size=5)

    assert pipeline.steps_per_epoch == len(list(pipeline.build())) == 4
    with pytest.raises(ValueError, match="steps_per_epoch must come from the source"):
        _ = tfpipe.Pipeline(OwnSource(), []).steps_per_epoch
