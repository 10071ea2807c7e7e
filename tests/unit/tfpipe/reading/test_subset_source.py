"""Subsets in pipelines: what is delivered of a data set of which some are chosen."""

import collections
import os
import pathlib

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import tfpipe
from tests.support.data.cached import DECODE, Note, as_list, make, noted
from tests.support.faults.damage import flip
from tests.unit.tfpipe.reading.test_order import leftover
from tests.unit.tfpipe.reading.test_source import passed_on, record_ids, windows
from tfpipe.reading.order import EpochPosition, Order, Phase
from tfpipe.reading.source import windows_of
from tfpipe.shards import index, records, subset

NUM_RECORDS = 24
CHOSEN = [1, 2, 3, 9, 12, 14, 15]  # none of the third shard
OTHERS = [*CHOSEN[1:], 16]  # as many records


def choose(data_dir, numbers, *, weight=None):
    known = index.load(data_dir)
    return tfpipe.Subset.of_records(known, "train", numbers, weights=weight)


def source_of(data_dir, numbers=CHOSEN, **options):
    weight = options.pop("weight", None)
    options = {"window_size": 5, "block_length": 2, "seed": 3} | options
    view = choose(data_dir, numbers, weight=weight)
    return tfpipe.TFRecordSource(data_dir, "train", subset=view, **options)


def elements(source, **options):
    """(record id, data) of each real element."""
    dataset = tfpipe.Pipeline(source, [tfpipe.Interleave()]).build(**options)
    return [
        (int(one["record_id"]), one["record"])
        for one in dataset.as_numpy_iterator()
        if one["is_real"]
    ]


@pytest.fixture(scope="module")
def everything(data_dir):
    """The data of each record of the split, read without tfpipe's reading."""
    shards = sorted(data_dir.glob("train-*-of-*"))
    return [record.data for path in shards for record in records.read(path)]


subsets = st.sets(st.integers(0, NUM_RECORDS - 1), min_size=1).map(sorted)


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=25, deadline=None, derandomize=True)
def test_elements_are_those_found_by_reading_everything(data, data_dir, everything):
    numbers = data.draw(subsets)
    shuffle = data.draw(st.sampled_from(["none", "window", "full"]))
    window_size = data.draw(st.sampled_from([1, 3, 1024]))

    source = source_of(data_dir, numbers, shuffle=shuffle, window_size=window_size)
    of_source, order = windows_of(source), source.order
    elements = [
        of_source.features(0, order.window(0, EpochPosition(), number))
        for number in order.windows(0, EpochPosition())
    ]
    found = [
        (number, window["path"][extent], int(offset))
        for window in elements
        for extent, number, offset in _places(window)
    ]

    assert sorted(number for number, _, _ in found) == numbers
    read = {
        number: _data_at(pathlib.Path(os.fsdecode(path)), offset)
        for number, path, offset in found
    }
    assert read == {number: everything[number] for number in numbers}


def _places(window):
    extent = np.repeat(np.arange(len(window["path"])), window["num_records"])
    starts = np.cumsum(window["num_records"]) - window["num_records"]
    numbers = np.arange(len(extent)) + (window["first_record"] - starts)[extent]
    return zip(extent, numbers.tolist(), window["record_byte_offset"], strict=True)


def _data_at(path, offset):
    with open(path, "rb") as file:
        file.seek(offset)
        content = file.read()
    pread = lambda size, start: content[start : start + size]  # noqa: E731
    return next(records.read_from(pread, len(content))).data


@pytest.mark.parametrize("shuffle", ["none", "window", "full"])
def test_records_come_through_the_reader_with_their_numbers_in_the_split(
    data_dir, everything, shuffle
):
    source = source_of(data_dir, shuffle=shuffle, batch_size=2, remainder="pad")
    wanted = {number: everything[number] for number in CHOSEN}

    found = elements(source, num_epochs=2)

    for epoch in (found[:7], found[7:]):
        assert len(epoch) == 7
        assert dict(epoch) == wanted
    order = [number for number, _ in found]
    assert (order == CHOSEN * 2) == (shuffle == "none")
    # A run that is resumed goes on, and another number of ranks reads what is left.
    state = source.advance(tfpipe.State(), 2)
    assert record_ids(source, state) == order[4:7]
    ranks = [
        source_of(data_dir, shuffle=shuffle, remainder="pad", rank=rank, num_ranks=3)
        for rank in range(3)
    ]
    rest = [number for one in ranks for number in record_ids(one, state)]
    assert sorted(rest) == sorted(order[4:7])


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=80, deadline=None, derandomize=True)
def test_every_epoch_of_any_ranks_covers_the_subset_exactly(data):
    sizes = np.array(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6)))
    hypothesis.assume(sizes.sum())
    some = st.sets(st.integers(0, int(sizes.sum()) - 1), min_size=1)
    chosen = np.array(sorted(data.draw(some)))
    shard = np.searchsorted(np.cumsum(sizes), chosen, side="right")
    options = {
        "shard_sizes": np.bincount(shard, minlength=len(sizes)),
        "chosen": chosen,
        "seed": data.draw(st.integers(0, 9)),
        "shuffle": data.draw(st.sampled_from(["none", "window", "full"])),
        "block_length": data.draw(st.integers(1, 4)),
        "window_size": data.draw(st.integers(1, 7)),
        "remainder": "pad",
    }
    first, later = (
        Order(num_ranks=data.draw(st.integers(1, 4)), batch_size=2, **options)
        for _ in range(2)
    )
    num_steps = data.draw(st.integers(0, first.num_steps()))

    place = EpochPosition(1, (Phase(first.num_ranks, 2 * num_steps),))
    read = _read(first, EpochPosition(1), num_steps * 2) + _read(later, place)

    assert sorted(read) == chosen.tolist()
    assert leftover(later, 1, place.phases).tolist() == sorted(_read(later, place))


def _read(order, place, count=None):
    found = []
    for rank in range(order.num_ranks):
        windows = [order.window(rank, place, n) for n in order.windows(rank, place)]
        real = [n for one in windows if one.real for n in one.records().tolist()]
        found += real[:count]
    return found


def test_random_ops_of_a_record_have_the_seeds_that_they_have_without_a_subset(
    data_dir,
):
    """A seed is the seed of the epoch and the number of the record: see Parse."""

    def seeds(source):
        return {
            (epoch, number, seed)
            for epoch in range(2)
            for window in windows(source, tfpipe.State(epoch=epoch))
            for number, seed in zip(
                passed_on(window), window["epoch_seed"].tolist(), strict=True
            )
        }

    whole = seeds(tfpipe.TFRecordSource(data_dir, "train", seed=3))

    assert seeds(source_of(data_dir)) == {one for one in whole if one[1] in CHOSEN}


def test_digest_is_that_of_the_records_and_not_of_the_file(data_dir, tmp_path):
    path = tmp_path / "subset.parquet"
    subset.write(choose(data_dir, CHOSEN), path)
    known = index.load(data_dir)
    rows = {"split": np.array(["validation"], object)}
    rows |= {"shard": np.array([0]), "record": np.array([0])}
    sources = [
        tfpipe.TFRecordSource(data_dir, "train", subset=path),
        tfpipe.TFRecordSource(data_dir, "train", subset=str(path)),
        tfpipe.TFRecordSource(data_dir, "train", subset=choose(data_dir, CHOSEN)),
        tfpipe.TFRecordSource(data_dir, "train", subset=choose(data_dir, OTHERS)),
        tfpipe.TFRecordSource(data_dir, "train"),
    ]
    digests = [source.digest for source in sources]
    assert len(set(digests[:3])) == 1
    assert len(set(digests)) == 3
    with pytest.raises(ValueError, match="state must be of the same data"):
        sources[3].position(sources[0].advance(tfpipe.State(), 1))
    # The source keeps what it has read.
    path.unlink()
    assert sources[0].in_order().order.num_records == len(CHOSEN)
    assert "Subset(7 records" in repr(sources[0])

    of_validation = subset.choose(rows, known)
    for wrong, error, message in [
        (path, tfpipe.errors.BadSubsetError, "does not exist"),
        (
            of_validation,
            tfpipe.errors.BadSubsetError,
            "'train', got records of 'validation'",
        ),
        (CHOSEN, ValueError, "TFRecordSource.subset must be the path of a subset or"),
        ("s3://bucket/subset.parquet", ValueError, "TFRecordSource.subset must be"),
    ]:
        with pytest.raises(error, match=message):
            tfpipe.TFRecordSource(data_dir, "train", subset=wrong)
    with pytest.raises(ValueError, match="7 records cannot give 2 ranks a batch of 4"):
        source_of(data_dir, batch_size=4, num_ranks=2)


def test_shard_without_a_chosen_record_is_never_opened(copy_dir):
    """The bytes of two shards are gone: any read of them would end the pipeline."""
    for name in ("train-00000-of-00003", "train-00002-of-00003"):
        size = (copy_dir / name).stat().st_size
        (copy_dir / name).write_bytes(bytes(size))
    source = source_of(copy_dir, [8, 10, 15], batch_size=3)

    pipeline = tfpipe.imagenet_train(source, image_size=8, with_record_id=True)

    (batch,) = pipeline.build()
    assert sorted(batch["record_id"].numpy().tolist()) == [8, 10, 15]
    assert source.locate(15)[0].endswith("train-00001-of-00003")


def test_stand_ins_for_damaged_records_come_from_the_subset(copy_dir):
    options = {"batch_size": 7, "window_size": 3, "remainder": "pad"}
    source = source_of(copy_dir, on_error="skip", **options)
    for number in (3, 12):
        path, offset = source.locate(number)
        flip(pathlib.Path(path), offset + 100)

    pipeline = tfpipe.imagenet_eval(source, image_size=8, with_record_id=True)

    (batch,) = pipeline.build()
    pairs = zip(batch["record_id"].numpy(), batch["mask"].numpy(), strict=True)
    pairs = [(int(number), int(mask)) for number, mask in pairs]
    assert sorted(n for n, mask in pairs if mask) == sorted({*CHOSEN} - {3, 12})
    assert {n for n, mask in pairs if not mask} < set(CHOSEN)
    assert [fault.record_id for fault in pipeline.faults.faults] == [3, 12]


@pytest.fixture(scope="module")
def decoded(data_dir):
    """The examples of the subset, decoded without a cache."""
    return as_list(make(data_dir, tfpipe.Map(*DECODE), **_view(data_dir)).build())


@pytest.mark.parametrize("where", ["ram", "disk"])
def test_cache_holds_the_subset_alone_and_each_record_is_made_once(
    data_dir, tmp_path, decoded, where
):
    note = Note(str(tmp_path / "log"))
    folder = [tmp_path / "cache"] if where == "disk" else []
    cache = tfpipe.Cache(where, *folder)
    stages = tfpipe.Map(*DECODE, note), cache
    pipeline = make(data_dir, *stages, **_view(data_dir))

    assert as_list(pipeline.build(num_epochs=2))[:7] == decoded

    assert sorted(noted(note.path)) == CHOSEN
    assert "7 of 7 records" in cache.describe()
    cache.close()


def _view(data_dir, numbers=CHOSEN):
    return {"subset": choose(data_dir, numbers), "batch_size": 1}


def test_weights_of_the_subset_and_of_the_split_draw_its_records(data_dir):
    by_column = tfpipe.Sampling(record_weights="weight", num_draws=12)
    by_split = tfpipe.Sampling(
        record_weights=np.arange(NUM_RECORDS), num_draws=sum(CHOSEN)
    )
    balanced = tfpipe.Sampling(balance=1.0, num_draws=8)
    weight = [0, 1, 2, 3, 0, 4, 2]

    def times(sampling, **options):
        source = source_of(data_dir, sampling=sampling, window_size=64, **options)
        windows = [source.order.window(0, EpochPosition(), 0)]
        return collections.Counter(n for w in windows for n in w.records().tolist())

    drawn = dict(zip(CHOSEN, weight, strict=True))
    assert times(by_column, weight=weight) == {n: w for n, w in drawn.items() if w}
    assert times(by_split) == {number: number for number in CHOSEN}
    labels = index.load_catalog(data_dir, "train", ["label"])["label"]
    by_class = collections.Counter()
    for number, count in times(balanced).items():
        by_class[int(labels[number])] += count
    assert set(by_class.values()) == {8 // len(by_class)}
    with pytest.raises(ValueError, match="needs a source with a subset that has a col"):
        source_of(data_dir, sampling=by_column)
    with pytest.raises(ValueError, match="must be one of weight, got"):
        tfpipe.Sampling(record_weights="x")


def test_facts_of_a_pipeline_are_those_of_the_subset(data_dir):
    labels = index.load_catalog(data_dir, "train", ["label"])["label"] - 1
    sizes = index.load_catalog(data_dir, "train", ["height", "width", "filename"])
    source = source_of(data_dir, shuffle="none")
    pipeline = tfpipe.imagenet_train(source, image_size=8)

    wanted = collections.Counter(labels[CHOSEN].tolist())
    assert {k: n for k, n in pipeline.class_counts.items() if n} == wanted
    assert pipeline.steps_per_epoch == len(CHOSEN)
    assert pipeline.record_names() == sizes["filename"][CHOSEN].tolist()
    short = np.minimum(sizes["height"], sizes["width"])
    known = source.split_index
    assert known.median_short_side == np.median(short)
    path, offset = source.locate(9)
    (first,) = known.first_records(2, numbers=np.array([9, 20]))
    assert first[0] == path
    assert first[1].data == _data_at(pathlib.Path(path), offset)
    assert first[1].byte_offset == offset
