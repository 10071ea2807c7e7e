"""Parts: one split for training and validation, each record in one of the two."""

import numpy as np
import pytest

import tfpipe
from tests.support.data.presets import preset_over
from tfpipe.reading import parts
from tfpipe.shards.subset import Chosen, Subset

SPLIT = {"image_size": 8, "batch_size": 2, "with_record_id": True}


def records(pipeline, **options):
    """The numbers of the real records that a pipeline reads, sorted."""
    read = pipeline.prefix(1).build(**options).as_numpy_iterator()
    return sorted(int(record["record_id"]) for record in read if record["is_real"])


@pytest.mark.parametrize("share", [0.1, 0.25, 1 / 3, 0.5, 0.9])
@pytest.mark.parametrize("num_classes", [1, 7, 400])
def test_each_class_and_the_split_give_their_share(share, num_classes):
    labels = np.random.default_rng(1).integers(num_classes, size=1000)

    chosen = parts.are_for_validation(1000, share, labels)

    assert abs(chosen.sum() - 1000 * share) <= 0.5
    sizes = np.bincount(labels, minlength=num_classes)
    for_validation = np.bincount(labels[chosen], minlength=num_classes)
    assert np.abs(for_validation - sizes * share).max() < 1
    assert 0 < chosen[:100].sum() < 100  # not the first records alone


def test_records_stay_in_their_part_when_others_have_other_labels():
    """The random word of a record depends on its number alone."""
    plain = parts.are_for_validation(1000, 0.2, None)

    assert (plain == parts.are_for_validation(1000, 0.2, np.zeros(1000, int))).all()
    more = parts.are_for_validation(1000, 0.5, None)
    assert (plain & more).sum() < 200, "a larger share is another choice"


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_presets_of_a_fraction_share_the_records_of_one_split(data_dir, num_ranks):
    trained, validated = set(), []
    for rank in range(num_ranks):
        ranks = {"rank": rank, "num_ranks": num_ranks, "validation_fraction": 0.25}
        train = tfpipe.imagenet_train(data_dir, seed=rank, **ranks, **SPLIT)
        val = tfpipe.imagenet_eval(data_dir, **ranks, **SPLIT)
        trained |= {*records(train, num_epochs=2)}
        validated += records(val, epoch=rank)

    assert len(validated) == len({*validated}) == 6
    assert not trained & {*validated}
    assert len(trained) == 18
    assert sum(train.class_counts.values()) == 18
    assert sum(val.class_counts.values()) == len(val.record_names()) * num_ranks == 6


def test_a_part_of_a_subset_keeps_records_in_the_part_of_the_split(data_dir):
    whole = tfpipe.TFRecordSource(data_dir, "train")
    subset = Subset.of_records(whole.index, "train", range(0, 24, 2))
    sources = {
        (name, chosen): tfpipe.TFRecordSource(
            data_dir, "train", part=(name, 0.25), subset=chosen
        )
        for name in ("train", "validation")
        for chosen in (None, subset)
    }

    numbers = {key: {*source.record_numbers} for key, source in sources.items()}

    for name in ("train", "validation"):
        even = {number for number in numbers[name, None] if number % 2 == 0}
        assert numbers[name, subset] == even
    assert len({source.digest for source in sources.values()}) == 4


def test_shards_without_labels_are_parted_too(copy_dir):
    for name in ("index.json", "catalog.parquet"):
        (copy_dir / name).unlink()
    made = [
        preset_over(
            preset,
            copy_dir,
            split="train",
            part=(part, 0.25),
            parse=tfpipe.Parse(label_base=1),
            **SPLIT,
        )
        for preset, part in (
            (tfpipe.imagenet_train, "train"),
            (tfpipe.imagenet_eval, "validation"),
        )
    ]

    train, val = map(records, made)

    assert sorted(train + val) == [*range(24)]
    assert len(val) == 6


def test_a_share_that_gives_no_record_is_refused(data_dir):
    with pytest.raises(ValueError, match="0 records cannot give 1 rank"):
        tfpipe.imagenet_eval(data_dir, validation_fraction=0.001)
    source = tfpipe.TFRecordSource(data_dir, "train")
    with pytest.raises(
        ValueError, match=r"about reading, got validation_fraction=0\.1"
    ):
        tfpipe.imagenet_train(source, validation_fraction=0.1)


def test_all_records_are_those_of_each_shard():
    chosen = Chosen.of_all(np.array([2, 0, 3]))

    assert chosen.shard.tolist() == [0, 0, 2, 2, 2]
    assert chosen.record.tolist() == [0, 1, 0, 1, 2]
