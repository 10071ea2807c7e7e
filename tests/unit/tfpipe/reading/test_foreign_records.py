"""Records of other tools: the native op makes the batches of TensorFlow's reading."""

import re

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.foreign import make_image, write_shard
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import make_jpeg
from tests.unit.tfpipe.reading.test_read_ahead import (
    assert_equal,
    batches,
    both,
)

pytestmark = needs_native

# Records of TFDS have these keys, and no sizes.
TFDS = tfpipe.Parse(image_key="image", label_key="label", label_base=0)
# The keys of the Inception scripts are those of `Parse`.
INCEPTION = tfpipe.Parse(label_base=1)


def tfds_record(number, image):
    return {"image": image, "label": number, "image/id": b"%d" % number}


def inception_record(number, image, **sides):
    return {
        "image/encoded": image,
        "image/class/label": number + 1,
        **{f"image/{name}": side for name, side in sides.items()},
    }


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Two data sets of 12 records of other tools: JPEGs, PNGs and a broken image."""
    sizes = [{"width": 20 + number, "height": 30 - number} for number in range(12)]
    images = [make_jpeg(number, **size) for number, size in enumerate(sizes)]
    for number in (2, 9):
        images[number] = make_image(number, **sizes[number])
    images[6] = images[6][:200]
    numbered = [*enumerate(images)]
    root = tmp_path_factory.mktemp("foreign")
    tfds = [tfds_record(*item) for item in numbered]
    write_shard(root / "tfds/train.tfrecord", tfds)
    # Some records state their sides, some state 0, and others nothing.
    stated = (lambda size: size, lambda _: {"width": 0, "height": 0}, lambda _: {})
    inception = [
        inception_record(*item, **stated[item[0] % 3](sizes[item[0]]))
        for item in numbered
    ]
    write_shard(root / "inception/train.tfrecord", inception)
    return root


@pytest.mark.parametrize(
    ("name", "parse", "options"),
    [
        ("tfds", TFDS, {"with_record_id": True}),
        ("inception", INCEPTION, {"dtype": "float32", "batch_size": 1}),
        (
            "tfds",
            tfpipe.Parse(
                image_key="image",
                label_key="label",
                multi_label=True,
                label_base=0,
                num_classes=12,
                extra={"image/id": "string"},
            ),
            {"with_boxes": True},
        ),
    ],
)
def test_batches_are_those_of_tensorflow(foreign, name, parse, options):
    """With PNGs, a broken image and sizes that are not stated, for two epochs."""
    options = {"parse": parse, "on_error": "skip", "max_faults": 3} | options
    options |= {"files": "*.tfrecord"}
    native, stock = both(tfpipe.imagenet_train, foreign / name, **options)

    assert native.paths["reading"].value == "native"
    found, expected = (batches(one, num_epochs=2) for one in (native, stock))
    assert native.faults.num_faults_by_reason == {"decode": 1}
    assert_equal(found, expected, rows=lambda batch: batch["mask"] > 0)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"image": make_image(1, "GIF")}, "must be JPEG or PNG, got' b'GIF"),
        ({"label": []}, "label must be one int64"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(tmp_path, broken, said):
    sound = tfds_record(0, make_jpeg(0))
    write_shard(tmp_path / "train.tfrecord", [sound, sound | broken])
    source = tfpipe.TFRecordSource(
        tmp_path, "train", batch_size=2, files="*.tfrecord", reading="native"
    )
    pipeline = tfpipe.imagenet_train(source, parse=TFDS, image_size=8)

    with pytest.raises(tf.errors.UnknownError):
        batches(pipeline)
    found = str(pipeline.faults.error())
    assert re.search(f"record 1 of the split at byte [0-9]+:[^$]*{said}", found), found


def test_a_wrong_size_is_that_of_its_record_alone(tmp_path):
    """A record without a size must not change how another record is cropped."""
    sides = {"width": 40, "height": 40}
    records = [
        inception_record(0, make_jpeg(0, **sides), width=20, height=20),
        inception_record(1, make_jpeg(1, **sides)),
    ]
    crops = []
    for name, kept in (("alone", records[:1]), ("beside", records)):
        write_shard(tmp_path / name / "train.tfrecord", kept)
        pipeline = tfpipe.imagenet_train(
            tfpipe.TFRecordSource(
                tmp_path / name,
                "train",
                files="*.tfrecord",
                batch_size=len(kept),
                shuffle="none",
            ),
            parse=INCEPTION,
            image_size=8,
        )
        crops.append(batches(pipeline)[0]["image"][0])
    np.testing.assert_array_equal(*crops)
