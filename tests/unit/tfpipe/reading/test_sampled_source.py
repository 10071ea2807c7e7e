"""Sampling in pipelines: what is delivered from a data set of unbalanced classes."""

import collections
import itertools
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.trees import SYNSETS, convert
from tests.unit.tfpipe.reading.test_source import passed_on, windows
from tfpipe.shards import index

COUNTS = {0: 6, 1: 3, 2: 2, 3: 1}
NUM_RECORDS = sum(COUNTS.values())
BALANCED = tfpipe.Sampling(balance=1.0, num_draws=24)


@pytest.fixture(scope="module")
def unbalanced(raw_dir, tmp_path_factory):
    """2 shards of 12 images, COUNTS in each class."""
    folder = tmp_path_factory.mktemp("unbalanced")
    raw = pathlib.Path(shutil.copytree(raw_dir, folder / "raw"))
    for synset, count in zip(SYNSETS, COUNTS.values(), strict=True):
        for path in sorted((raw / "train" / synset).iterdir())[count:]:
            path.unlink()
    convert(raw, folder / "data", num_train_shards=2, num_validation_shards=1)
    return folder / "data"


def make_source(data_dir, **options):
    options = {"batch_size": 4, "window_size": 7, "sampling": BALANCED} | options
    return tfpipe.TFRecordSource(data_dir, "train", **options)


def make_pipeline(data_dir, *before_batch, **options):
    """Batches of labels, record numbers and seeds of random ops."""
    source = make_source(data_dir, **options)
    ops = (
        tfpipe.Parse(label_base=1, as_converted=True),
        tfpipe.Select("label", "record_id", "seed", "mask"),
    )
    stages = [tfpipe.Interleave(), *before_batch, tfpipe.AssertCardinality()]
    return tfpipe.Pipeline(
        source, [*stages, tfpipe.Map(*ops), tfpipe.Batch(source.batch_size)]
    )


def elements(pipeline, **options):
    """(label, record, its seed) of each real element."""
    names = ("label", "record_id", "seed", "mask")
    dataset = pipeline.build(**options)
    shape = [pipeline.source.batch_size, 2]
    assert dataset.element_spec["seed"] == tf.TensorSpec(shape, tf.int64)
    return [
        (int(label), int(record), tuple(seed))
        for batch in dataset.as_numpy_iterator()
        for label, record, seed, mask in zip(*(batch[n] for n in names), strict=True)
        if mask
    ]


def drawn(source, state=None, num_epochs=1):
    """As `elements`, from the windows of a source: no record is read."""
    labels = index.load_catalog(source.data_dir, "train", ["label"])["label"] - 1
    return [
        (int(labels[record]), record, (seed, record))
        for window in windows(source, state, num_epochs)
        if window["is_real"]
        for record, seed in zip(
            passed_on(window), window["epoch_seed"].tolist(), strict=True
        )
    ]


@pytest.fixture(scope="module")
def two_epochs(unbalanced):
    """The elements of two epochs of balanced classes."""
    return elements(make_pipeline(unbalanced), num_epochs=2)


def test_balanced_classes_are_delivered_equally_often_each_epoch(
    unbalanced, two_epochs
):
    labels = index.load_catalog(unbalanced, "train", ["label"])["label"] - 1
    assert np.bincount(labels).tolist() == [*COUNTS.values()]

    for epoch in (two_epochs[:24], two_epochs[24:]):
        assert collections.Counter(label for label, _, _ in epoch) == dict.fromkeys(
            COUNTS, 6
        )
        times = collections.Counter(record for _, record, _ in epoch)
        assert [times[record] for record in range(NUM_RECORDS)] == [
            6 // COUNTS[label] for label in labels
        ]
    assert all(labels[record] == label for label, record, _ in two_epochs)
    assert len({seed for _, _, seed in two_epochs}) == 48


def test_weights_by_name_and_by_record(unbalanced):
    only = make_source(
        unbalanced,
        sampling=tfpipe.Sampling(
            class_weights={SYNSETS[0]: 1, 1: 0, 2: 3.0, SYNSETS[3]: 0}, num_draws=24
        ),
    )
    weights = np.arange(NUM_RECORDS)
    by_record = make_source(
        unbalanced,
        sampling=tfpipe.Sampling(record_weights=weights, num_draws=132),
    )

    found = collections.Counter(label for label, _, _ in drawn(only))
    assert found == {0: 12, 2: 12}
    found = collections.Counter(record for _, record, _ in drawn(by_record))
    assert [found[record] for record in range(NUM_RECORDS)] == (2 * weights).tolist()


def test_copies_of_a_record_are_augmented_differently(unbalanced):
    pipeline = tfpipe.imagenet_train(
        make_source(unbalanced), image_size=8, with_record_id=True, crop_op="stock"
    )
    images = collections.defaultdict(set)
    for batch in pipeline.build().as_numpy_iterator():
        for record, image in zip(batch["record_id"], batch["image"], strict=True):
            images[int(record)].add(image.tobytes())

    assert sorted(map(len, images.values())) == [1] * 6 + [2] * 3 + [3] * 2 + [6]


@pytest.mark.parametrize("step", [2, 6])  # within a window; at the end of an epoch
def test_a_resumed_run_gets_the_rest(unbalanced, two_epochs, step):
    source = make_source(unbalanced)
    state = source.advance(tfpipe.State(), step)

    rest = drawn(source, state, 2 if step < 6 else 1)

    assert rest == two_epochs[4 * step :]


def test_three_ranks_read_the_rest_of_two(unbalanced, two_epochs):
    def on_ranks(num_ranks, batch_size, state, num_steps=None):
        found = []
        for rank in range(num_ranks):
            ranks = {"rank": rank, "num_ranks": num_ranks, "batch_size": batch_size}
            count = num_steps and num_steps * batch_size
            found += drawn(make_source(unbalanced, **ranks), state)[:count]
        return found

    state = make_source(unbalanced, num_ranks=2, batch_size=3).advance(
        tfpipe.State(), 2
    )
    before = on_ranks(2, 3, tfpipe.State(), 2)
    after = on_ranks(3, 2, state)

    assert sorted(before + after) == sorted(two_epochs[:24])


def test_a_batch_may_be_larger_than_the_data(unbalanced):
    sampling = tfpipe.Sampling(balance=0.5, num_draws=100)
    source = make_source(unbalanced, sampling=sampling, batch_size=50)

    assert source.steps_per_epoch == 2
    assert len(set(drawn(source))) == 100


def test_steps_records_and_windows_count_the_draws(unbalanced):
    source = make_source(unbalanced, num_ranks=2, rank=1, batch_size=5)

    assert source.steps_per_epoch == 2
    assert source.num_records(tfpipe.State(), 3) == 30
    taken = [int(window["take"]) for window in source(tfpipe.State(), 2)]
    starts = itertools.islice(source.window_starts(tfpipe.State()), len(taken))
    assert list(starts) == [0, *itertools.accumulate(taken[:-1])]
    assert sum(taken) == 20


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_a_cache_changes_nothing(unbalanced, remainder):
    options = {"remainder": remainder, "batch_size": 5}
    cached = make_pipeline(unbalanced, tfpipe.Cache("ram"), **options)

    found = elements(cached, num_epochs=2)

    assert found == drawn(make_source(unbalanced, **options), num_epochs=2)
    assert len(found) == {"drop": 40, "pad": 48}[remainder]


def test_a_damaged_record_is_skipped_as_often_as_it_is_drawn(unbalanced, tmp_path):
    copy = pathlib.Path(shutil.copytree(unbalanced, tmp_path / "data"))
    shard = copy / "train-00000-of-00002"
    content = bytearray(shard.read_bytes())
    content[40] ^= 1  # of record 0
    shard.write_bytes(content)
    source = make_source(copy, on_error="skip")
    pipeline = tfpipe.imagenet_train(source, image_size=8, with_record_id=True)
    times = np.bincount(source.order._draws(0).records)

    batches = list(pipeline.build().as_numpy_iterator())

    mask = np.concatenate([batch["mask"] for batch in batches])
    records = np.concatenate([batch["record_id"] for batch in batches])
    assert (mask == 0).sum() == times[0]
    assert np.bincount(records[mask == 1]).tolist()[1:] == times.tolist()[1:]


def test_a_mixture_of_a_sampled_set_resumes(unbalanced, data_dir):
    parts = [
        tfpipe.Pipeline(
            make_source(folder, batch_size=1, sampling=sampling),
            [
                tfpipe.Interleave(),
                tfpipe.Map(tfpipe.Parse(label_base=1, as_converted=True)),
            ],
        )
        for folder, sampling in ((unbalanced, BALANCED), (data_dir, None))
    ]
    mixture = tfpipe.Mixture(parts, [1, 1], batch_size=4)
    pipeline = tfpipe.Pipeline(
        mixture,
        [
            tfpipe.Map(tfpipe.Select("label", "record_id", "seed", "mask")),
            tfpipe.Batch(4),
        ],
    )
    whole = elements(pipeline)
    assert mixture.steps_per_epoch == 12
    labels = [label for label, _, _ in whole[::2]]
    assert np.bincount(labels).tolist() == [6, 6, 6, 6]
    state = mixture.advance(tfpipe.State(), 5)
    assert elements(pipeline, state=state) == whole[20:]


def test_a_state_of_another_sampling_is_refused(unbalanced):
    def digest(**options):
        return make_source(unbalanced, **options).digest

    state = make_source(unbalanced).advance(tfpipe.State())
    other = tfpipe.Sampling(balance=0.5, num_draws=24)

    with pytest.raises(ValueError, match="must be of the same data, seed and shuff"):
        make_source(unbalanced, sampling=other).advance(state)
    assert digest() == digest(sampling=tfpipe.Sampling(balance=1, num_draws=24))
    assert len({digest(), digest(sampling=other), digest(sampling=None)}) == 3


def test_without_labels_the_remedy_is_named(unbalanced, tmp_path):
    copy = pathlib.Path(shutil.copytree(unbalanced, tmp_path / "data"))
    (copy / index.INDEX_NAME).unlink()
    (copy / index.CATALOG_NAME).unlink()

    with pytest.raises(tfpipe.errors.BadIndexError, match="give weights of records"):
        make_source(copy)
    weights = tfpipe.Sampling(record_weights=np.ones(NUM_RECORDS))
    assert make_source(copy, sampling=weights).steps_per_epoch == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": "none"}, 'must be "window" or "full" with sampling'),
        ({"batch_size": 25}, "24 records cannot give 1 rank a batch of 25 each"),
        (
            {"sampling": tfpipe.Sampling(record_weights=[1] * 11)},
            "each of the 12 records of the split, got 11",
        ),
        (
            {"sampling": tfpipe.Sampling(class_weights={"cat": 1})},
            "the label of a class, 0 to 999, or the name of one class, got 'cat'",
        ),
    ],
)
def test_a_source_refuses_what_does_not_fit(unbalanced, options, message):
    with pytest.raises(ValueError, match=message):
        make_source(unbalanced, **options)


def test_evaluation_refuses_sampling(unbalanced):
    with pytest.raises(ValueError, match="sampling=None for evaluation"):
        tfpipe.imagenet_eval(make_source(unbalanced, remainder="pad"), image_size=8)


def test_ranks_must_sample_alike(unbalanced):
    values = []
    for rank, power in enumerate((1.0, 0.5)):
        sampling = tfpipe.Sampling(balance=power)
        part = make_pipeline(unbalanced, rank=rank, num_ranks=2, sampling=sampling)
        with pytest.raises(tfpipe.errors.TfpipeError) as raised:
            # The first rank is told that it is alone, and refuses that.
            tfpipe.preflight(part, lambda value: values.append(value) or values)

    assert "balance=1.0" in str(raised.value)
    assert "balance=0.5" in str(raised.value)


def test_seeds_of_first_copies_are_those_without_sampling(unbalanced, two_epochs):
    sampled = {(record, seed) for _, record, seed in two_epochs[:24]}
    once = drawn(make_source(unbalanced, sampling=None))

    assert {(record, seed) for _, record, seed in once} < sampled
