import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.native_op import (  # noqa: F401
    each_crop_op,
    native_op,
    needs_native,
    on_both_ops,
)
from tests.support.data.presets import preset_over
from tests.unit.tfpipe.ops.test_crop import KINDS, SAMPLED_SIZE, in_map
from tests.unit.tfpipe.stages.test_faults import flip, joined, places, spoil_jpeg
from tfpipe.native import op, selection
from tfpipe.ops import stateless_random
from tfpipe.ops.crop import crop_image

BATCH = {
    "encoded": tf.constant([KINDS[kind] for kind in ("4:2:0", "gray", "cmyk", "2x4")]),
    "crop_box": tf.constant(
        [(0, 0, 61, 69), (7, 11, 50, 51), (60, 68, 1, 1), (28, 34, 33, 35)]
    ),
    "flip": tf.constant([False, True, True, False]),
}
SIZES = {
    "height": tf.fill([4], SAMPLED_SIZE[0]),
    "width": tf.fill([4], SAMPLED_SIZE[1]),
    "seed": tf.constant([[5, number] for number in range(4)], tf.int64),
}
BOXES = {
    "boxes": tf.constant(np.tile([[0.1, 0.2, 0.6, 0.5]], (4, 1, 1)), tf.float32),
    "box_label": tf.range(4)[:, tf.newaxis],
}


def split(batch):
    """Its examples."""
    return [
        dict(zip(batch, values, strict=True))
        for values in zip(*batch.values(), strict=True)
    ]


def stacked(examples):
    return {name: np.stack([e[name] for e in examples]) for name in examples[0]}


@on_both_ops
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"quality": "exact", "dtype": "float32"},
        {"dtype": "bfloat16", "normalize": tfpipe.Normalize(), "layout": "NCHW"},
    ],
    ids=str,
)
def test_crops_of_a_batch_are_those_of_its_examples(options):
    def crop(encoded, crop_box, flip):
        return crop_image(encoded, crop_box, (12, 9), flip=flip, **options)

    expected = np.stack([crop(**example) for example in split(BATCH)])

    np.testing.assert_array_equal(crop(**BATCH), expected)
    if not options:  # the graph of the op below covers the other ones
        np.testing.assert_array_equal(in_map(crop, *BATCH.values()), expected)


@on_both_ops
def test_nothing_is_mirrored_without_a_flip():
    still = BATCH | {"flip": tf.fill([4], False)}

    images = crop_image(BATCH["encoded"], BATCH["crop_box"], 8)

    expected = np.stack([crop_image(image_size=8, **one) for one in split(still)])
    np.testing.assert_array_equal(images, expected)


@needs_native
def test_a_batch_of_no_images_has_a_shape():
    empty = (tf.zeros([0], tf.string), tf.zeros([0, 4], tf.int32))

    assert crop_image(*empty, 8, crop_op="native").shape == (0, 8, 8, 3)


@needs_native
def test_many_threads_write_each_image_in_its_place():
    many = {name: tf.repeat(value, 40, axis=0) for name, value in BATCH.items()}

    images = crop_image(image_size=24, crop_op="native", **many)

    one = crop_image(image_size=24, crop_op="native", **BATCH)
    np.testing.assert_array_equal(images, np.repeat(one, 40, axis=0))


@needs_native
def test_the_first_image_that_is_damaged_is_named():
    damaged = tf.tensor_scatter_nd_update(
        BATCH["encoded"], [[1], [3]], [b"no image", b""]
    )

    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="Image 1 of the batch: The JPEG data are bad: Not a JPEG file",
    ):
        crop_image(damaged, BATCH["crop_box"], 8, crop_op="native")


@needs_native
@pytest.mark.parametrize(
    ("name", "value"),
    [("crop_box", tf.zeros([3, 4], tf.int32)), ("flip", tf.fill([4, 1], False))],
)
def test_shapes_that_do_not_fit_are_refused(name, value):
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have the shape of"):
        crop_image(image_size=8, crop_op="native", **BATCH | {name: value})


@on_both_ops
@pytest.mark.parametrize(
    "op",
    [
        tfpipe.RandomCrop(image_size=8, flip=True),
        tfpipe.RandomScaleCrop(image_size=(8, 11), short_side=(8, 12), flip=True),
        tfpipe.CenterCrop(image_size=(11, 8)),
        tfpipe.Resize(image_size=8),
    ],
    ids=lambda op: type(op).__name__,
)
def test_ops_do_to_a_batch_what_they_do_to_its_examples(op):
    batch = SIZES | {"encoded": BATCH["encoded"], "label": tf.range(4)} | BOXES
    op = dataclasses.replace(op)  # with the crop_op of the test

    expected = stacked([op(example) for example in split(batch)])

    assert sorted(expected) == ["box_label", "boxes", "image", "label", "seed"]
    dataset = tf.data.Dataset.from_tensors(batch).map(op)
    (mapped,) = dataset.as_numpy_iterator()
    for name, values in expected.items():
        np.testing.assert_array_equal(mapped[name], values)
    spec = tf.TensorSpec([4, *op.sides, 3], tf.uint8)
    assert dataset.element_spec["image"] == spec


@needs_native
@pytest.mark.parametrize(
    ("area", "ratio", "max_attempts"),
    [
        ((0.08, 1.0), (3 / 4, 4 / 3), 10),
        ((0.05, 1.0), (0.75, 1.33), 100),
        ((0.9, 1.0), (0.3, 3.0), 3),
        ((0.001, 0.002), (1.0, 1.0), 1),
    ],
)
def test_crop_boxes_are_those_that_tensorflow_draws(area, ratio, max_attempts):
    random = np.random.default_rng(0)
    heights, widths = random.integers(1, 900, (2, 100)).astype(np.int32)
    heights[:4], widths[:4] = (1, 1, 13000, 40000), (1, 5000, 13000, 9)
    options = {"area": area, "ratio": ratio, "max_attempts": max_attempts}
    seeds = random.integers(-(2**63), 2**63 - 1, (100, 2))
    values = [tf.constant(value) for value in (heights, widths, seeds)]

    def draw(*values):
        return stateless_random.random_crop_box(*values, crop_op="stock", **options)

    native = stateless_random.random_crop_box(*values, crop_op="native", **options)

    np.testing.assert_array_equal(native, in_map(draw, *values))
    assert len(np.unique(native, axis=0)) > 80


@needs_native
def test_sizes_that_no_image_has_give_all_of_it():
    seed = tf.constant([[1, 2]] * 3, tf.int64)
    height, width = tf.constant([0, -5, 2**31 - 1]), tf.constant([9, 9, 2**31 - 1])

    crop_boxes = stateless_random.random_crop_box(
        height, width, seed, area=(0.1, 1), ratio=(1, 1), max_attempts=9,
        crop_op="native",
    )  # fmt: skip

    assert crop_boxes.numpy().tolist() == [
        [0, 0, *size] for size in zip(height.numpy(), width.numpy(), strict=True)
    ]


@needs_native
def test_numbers_are_those_that_tensorflow_draws():
    seeds = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, (50, 2))

    def draw(seeds):
        return stateless_random.uniform(seeds, 7, crop_op="stock")

    native = stateless_random.uniform(tf.constant(seeds), 7, crop_op="native")

    np.testing.assert_array_equal(native, in_map(draw, seeds))
    one = stateless_random.uniform(tf.constant(seeds[3]), 7, crop_op="native")
    np.testing.assert_array_equal(one, native[3])


def batches(preset, data_dir, **options):
    defaults = {"image_size": 12, "batch_size": 5, "with_record_id": True}
    pipeline = preset_over(preset, data_dir, **defaults | options)
    dataset = pipeline.build()
    return pipeline, dataset, list(dataset.as_numpy_iterator())


def darkened(example):
    """An op of a user, with Python's `if` on a tensor and a new feature."""
    mean = tf.reduce_mean(tf.cast(example["image"], tf.float32))
    image = example["image"]
    if mean > 100.0:
        image //= 2
    return example | {"image": image, "mean": mean}


def uneven(example):
    """An op of a user that leaves features of many shapes and kinds, and no seed."""
    rest = {name: value for name, value in example.items() if name != "seed"}
    rows = example["image"][: example["label"] + 1]
    return rest | {"rows": rows, "ragged": tf.RaggedTensor.from_row_lengths([1], [1])}


def planar(image_size, dtype, quality):
    """A recipe of a user: channels first."""
    shared = {"image_size": image_size, "dtype": dtype, "quality": quality}
    crop = tfpipe.RandomScaleCrop(**shared, short_side=(16, 24), layout="NCHW")
    return tfpipe.recipes.Recipe(
        train=(crop,), evaluate=(crop,), normalize=tfpipe.Normalize()
    )


# The ops are compared above, so that each pipeline runs on one of them.
EQUAL = {
    "stock and colors": (
        tfpipe.imagenet_train,
        {
            "crop_op": "stock",
            "whole_batches": True,
            "recipe": tfpipe.recipes.inception,
            "dtype": "float32",
        },
    ),
    "faults": (
        tfpipe.imagenet_train,
        {"recipe": tfpipe.recipes.vgg, "dtype": "float32", "on_error": "skip"},
    ),
    "encoded": (tfpipe.imagenet_train, {"recipe": None}),
    "planar alone": (
        tfpipe.imagenet_train,
        {"recipe": planar, "batch_size": 1, "cache": tfpipe.Cache("ram")},
    ),
    "padded, own ops": (
        tfpipe.imagenet_eval,
        {
            "ops": [uneven, tfpipe.OneHot(4), darkened],
            "dtype": "float16",
            "with_boxes": True,
        },
    ),
}


@needs_native
@pytest.mark.parametrize(("preset", "options"), EQUAL.values(), ids=EQUAL)
def test_whole_batches_are_the_same_batches(preset, options, data_dir):
    pipeline, dataset, whole = batches(preset, data_dir, **options)

    _, other, single = batches(preset, data_dir, **options | {"whole_batches": False})

    assert pipeline.paths["whole_batches"].value == "yes"
    assert len(whole) == len(single) > 0
    assert dataset.element_spec == other.element_spec
    assert dataset.cardinality() == len(single)
    for one, two in zip(whole, single, strict=True):
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])


@pytest.fixture(scope="module")
def spoilt_dir(data_dir, tmp_path_factory):
    """The data set with two images that cannot be decoded, and a wrong CRC."""
    folder = shutil.copytree(data_dir, tmp_path_factory.mktemp("spoilt") / "copy")
    for number in (5, 13):
        spoil_jpeg(folder, number)
    path, offset, _, _ = places(folder)[20]
    flip(path, offset + 50)
    return folder


@needs_native
def test_a_damaged_image_is_named(spoilt_dir):
    with pytest.raises(tf.errors.UnknownError, match="record 5 of the split at byte"):
        batches(tfpipe.imagenet_eval, spoilt_dir, split="train", batch_size=12)


@needs_native
@pytest.mark.parametrize("kernel", ["native", "stock", "not built"])
def test_ops_that_take_examples_run_on_each_of_a_damaged_batch(
    spoilt_dir, kernel, monkeypatch
):
    """Each damaged image costs its record alone."""
    if kernel == "not built":
        monkeypatch.setattr(op, "load", lambda: (None, "nobody built it"))
        monkeypatch.setenv(selection.BUILDS, "0")
        kernel = "auto"
    options = {"crop_op": kernel}
    options |= {"recipe": tfpipe.recipes.inception, "ops": [darkened], "batch_size": 12}
    options |= {"on_error": "skip", "dtype": "float32"}

    one, _, whole = batches(tfpipe.imagenet_train, spoilt_dir, **options)

    options["whole_batches"] = False
    two, _, single = batches(tfpipe.imagenet_train, spoilt_dir, **options)
    assert one.faults.num_faults_by_reason == two.faults.num_faults_by_reason
    assert {(f.record_id, f.reason) for f in one.faults.faults} == {
        (5, "decode"),
        (13, "decode"),
        (20, "crc"),
    }
    for name in ("image", "label", "record_id"):
        of_each = [
            dict(
                zip(
                    joined(found, "record_id")[joined(found, "mask") == 1].tolist(),
                    joined(found, name)[joined(found, "mask") == 1],
                    strict=True,
                )
            )
            for found in (whole, single)
        ]
        assert sorted(of_each[0]) == [n for n in range(24) if n not in (5, 13, 20)]
        assert of_each[0].keys() == of_each[1].keys()
        for number, value in of_each[0].items():
            np.testing.assert_array_equal(value, of_each[1][number])


def test_examples_of_a_batch_may_get_and_lose_features():
    batch = {"seed": tf.zeros([3, 2], tf.int64), "value": tf.constant([1, 5, 3])}
    batch |= {"name": tf.constant(["a", "b", "c"])}

    def op(example):
        return {"twice": [2 * example["value"], 0], "name": example["name"] + "!"}

    dataset = tf.data.Dataset.from_tensors(batch).map(tfpipe.EachExample(op))

    (found,) = dataset.as_numpy_iterator()
    assert found["twice"].tolist() == [[2, 0], [10, 0], [6, 0]]
    assert found["name"].tolist() == [b"a!", b"b!", b"c!"]


def test_only_batches_of_records_have_examples():
    with pytest.raises(ValueError, match=r"must get seed, got value: .* after Parse"):
        tfpipe.EachExample(darkened)({"value": tf.zeros([2])})
