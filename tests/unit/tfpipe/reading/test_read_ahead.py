import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.presets import preset_over
from tests.support.faults import damage
from tests.unit.tfpipe.ops.test_boxes import boxes_dir  # noqa: F401
from tfpipe.shards import records

pytestmark = needs_native

SMALL = {"image_size": 8, "batch_size": 4, "block_length": 3, "window_size": 10}


def both(preset, folder, **options):
    """The same pipeline, its records read by the native op and by TensorFlow."""
    return [
        preset_over(preset, folder, reading=reading, **(SMALL | options))
        for reading in ("native", "tensorflow")
    ]


def batches(pipeline, **build):
    return [*pipeline.build(**build).as_numpy_iterator()]


def assert_equal(found, expected, rows=None):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            some = ... if rows is None else rows(other)
            np.testing.assert_array_equal(one[name][some], other[name][some], name)


EXTRA = {"image/filename": "string", "image/channels": ("int64", [1])}


@pytest.mark.parametrize(
    ("preset", "options", "build"),
    [
        (
            tfpipe.imagenet_train,
            {
                "with_boxes": tfpipe.ParseBoxes(max_boxes=3),
                "parse": tfpipe.Parse(extra=EXTRA),
            },
            {"epoch": 1, "num_epochs": 2, "start_step": 1},
        ),
        (
            tfpipe.imagenet_eval,
            {
                **{"split": "train", "batch_size": 3, "rank": 1, "num_ranks": 2},
                "parse": tfpipe.Parse(multi_label=True, extra=EXTRA),
                "on_error": "skip",
            },
            {},
        ),
    ],
)
def test_epochs_are_equal_with_all_features_of_a_record(
    boxes_dir,  # noqa: F811
    preset,
    options,
    build,
):
    """TensorFlow parses what the native op leaves of a record without its image."""
    native, stock = both(preset, boxes_dir, with_record_id=True, **options)

    assert native.paths["reading"].value == "native"
    found, expected = batches(native, **build), batches(stock, **build)
    assert_equal(found, expected)
    assert {*EXTRA, "record_id"} <= {*found[0]}
    assert "boxes" not in found[0] or any(batch["boxes"].any() for batch in found)


def test_a_subset_on_ranks_is_equal(data_dir):
    numbers = np.array([3, 4, 11, 12, 13, 20, 22, 23])
    source = tfpipe.TFRecordSource(data_dir, "train")
    subset = tfpipe.Subset.of_records(source.index, "train", numbers)
    options = {"shuffle": "full", "rank": 1, "num_ranks": 2, "dtype": "float32"}
    native, stock = both(tfpipe.imagenet_train, data_dir, subset=subset, **options)

    assert_equal(batches(native), batches(stock))


def damage_each_kind(folder):
    """Damages a record in each way; returns their numbers by the reason to expect."""
    places = damage.places(folder)
    damage.flip(places[2][0], places[2][1] + 8)  # the length's CRC
    damage.flip(places[5][0], places[5][1] + records.HEADER_BYTES + 40)
    path, offset, *_ = places[10]
    whole = bytearray(path.read_bytes())
    huge = (1 << 60).to_bytes(8, "little")
    whole[offset : offset + 12] = huge + records._masked(
        records.google_crc32c.value(huge)
    )
    path.write_bytes(whole)
    damage.spoil_jpeg(folder, 14)
    return {"header": 1, "crc": 1, "cut": 1, "decode": 1}


def test_damaged_records_cost_only_themselves(copy_dir, capfd):
    reasons = damage_each_kind(copy_dir)
    options = {"on_error": "skip", "with_record_id": True, "max_faults": 4}
    native, stock = both(tfpipe.imagenet_train, copy_dir, **options)

    found, expected = batches(native), batches(stock)

    assert native.faults.num_faults_by_reason == reasons
    assert native.faults.faults == stock.faults.faults
    assert [b["mask"].tolist() for b in found] == [b["mask"].tolist() for b in expected]
    assert_equal(found, expected, rows=lambda batch: batch["mask"] > 0)


def test_an_error_names_the_record_as_tensorflow_does(copy_dir):
    place = damage.places(copy_dir)[5]
    damage.flip(place[0], place[1] + records.HEADER_BYTES + 40)

    said = []
    for pipeline in both(tfpipe.imagenet_train, copy_dir):
        with pytest.raises(tf.errors.UnknownError) as caught:
            batches(pipeline)
        said.append(str(pipeline.faults.error()))
        assert f"{place[0]}: record 5 of the split at byte {place[1]}" in said[-1]
        assert said[-1] in caught.value.message
    assert said[0] == said[1]


def test_a_shard_that_vanishes_or_is_cut_or_replaced(copy_dir, tmp_path):
    """Also one that is open already: the file at the path counts."""
    options = {"on_error": "skip", "max_faults": 24, "shuffle": "none"}
    native, stock = both(tfpipe.imagenet_train, copy_dir, **options)
    dataset = native.build()
    before = [*dataset.as_numpy_iterator()]
    path = damage.places(copy_dir)[0][0]
    sound = path.read_bytes()
    shutil.copyfile(path, other := tmp_path / "other")
    other.replace(path)

    assert_equal([*dataset.as_numpy_iterator()], before)
    path.write_bytes(sound[: len(sound) // 2])
    found, expected = [*dataset.as_numpy_iterator()], batches(stock)
    assert native.faults.num_faults_by_reason == stock.faults.num_faults_by_reason
    assert_equal(found, expected, rows=lambda batch: batch["mask"] > 0)
    path.unlink()
    with pytest.raises(tf.errors.OpError, match="No such file"):
        [*dataset.as_numpy_iterator()]
