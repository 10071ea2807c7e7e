import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.conftest import make_jpeg
from tfpipe import image_record, records

NUM_SEEDS = 300
JPEG = make_jpeg(0)  # 32 x 40
RECORD = b"".join(
    image_record.encode_image(
        image_record.ImageRecord(
            encoded=JPEG,
            height=32,
            width=40,
            label=5,
            synset="n01491361",
            text="tiger shark",
            filename="a.JPEG",
        )
    )
)


def raw_record(data=RECORD):
    return {
        "record": tf.constant(data),
        "record_id": tf.constant(12, tf.int64),
        "epoch_seed": tf.constant(-(2**62), tf.int64),
    }


def encoded(jpeg=JPEG, *, height=32, width=40, seed=(3, 4)):
    return {
        "encoded": tf.constant(jpeg),
        "height": tf.constant(height),
        "width": tf.constant(width),
        "label": tf.constant(9),
        "seed": tf.constant(seed, tf.int64),
    }


def decoded(dtype="uint8", seed=(3, 4)):
    return {
        "image": tf.cast(tf.image.decode_jpeg(JPEG), dtype),
        "label": tf.constant(9),
        "seed": tf.constant(seed, tf.int64),
    }


def in_map(op, example):
    dataset = tf.data.Dataset.from_tensors(example).map(op)
    return next(dataset.as_numpy_iterator())


def over_seeds(function):
    """What a function of a seed gives for the first records of an epoch."""
    dataset = tf.data.Dataset.range(NUM_SEEDS).map(
        lambda number: function(tf.stack([tf.constant(7, tf.int64), number]))
    )
    return np.array(list(dataset.as_numpy_iterator()))


def windows(op, *, height, width):
    """int [NUM_SEEDS, 4]: top, left, height, width."""
    sizes = {"height": tf.constant(height), "width": tf.constant(width)}
    return over_seeds(lambda seed: op.window(sizes | {"seed": seed}))


def flips():
    """Whether the image of each seed is flipped."""
    image = tf.constant([[[0, 0, 0], [1, 1, 1]]], tf.uint8)
    flip = tfpipe.Flip()
    return over_seeds(lambda seed: flip({"image": image, "seed": seed})["image"])[
        :, 0, 0, 0
    ]


OPS = [
    (tfpipe.Parse(label_base=1), raw_record()),
    (tfpipe.RandomCrop(image_size=16), encoded()),
    (tfpipe.CenterCrop(image_size=16), encoded()),
    (tfpipe.Flip(), decoded(seed=(0, 0))),
    (tfpipe.Flip(), decoded(seed=(0, 1))),
    (tfpipe.Normalize(), decoded()),
    (tfpipe.Normalize(), decoded("float32")),
    (tfpipe.Cast("bfloat16"), decoded()),
    (tfpipe.Select("label", "image"), decoded()),
]
each_op = pytest.mark.parametrize(
    ("op", "example"), OPS, ids=[type(op).__name__ for op, _ in OPS]
)


@each_op
def test_op_does_the_same_eagerly_and_in_a_graph(op, example):
    eager = {name: value.numpy() for name, value in op(example).items()}

    mapped = in_map(op, example)

    assert mapped.keys() == eager.keys()
    for name in eager:
        np.testing.assert_array_equal(mapped[name], eager[name])


@each_op
def test_op_leaves_its_input_as_it_is(op, example):
    before = dict(example)

    op(example)

    assert list(example) == list(before)
    assert all(example[name] is before[name] for name in before)


@each_op
def test_op_keeps_features_that_it_does_not_know(op, example):
    result = op(example | {"extra": tf.constant("kept")})

    expected = not isinstance(op, (tfpipe.Parse, tfpipe.Select))
    assert ("extra" in result) is expected


def test_parse_makes_an_example_of_a_record():
    example = tfpipe.Parse(label_base=1)(raw_record())

    assert {name: value.dtype for name, value in example.items()} == {
        "encoded": tf.string,
        "height": tf.int32,
        "width": tf.int32,
        "label": tf.int32,
        "record_id": tf.int64,
        "seed": tf.int64,
    }
    values = {name: np.asarray(value).tolist() for name, value in example.items()}
    assert values == {
        "encoded": JPEG,
        "height": 32,
        "width": 40,
        "label": 4,
        "record_id": 12,
        "seed": [-(2**62), 12],
    }


@pytest.mark.parametrize(
    ("label_base", "label_offset", "label"),
    [(1, 0, 4), (1, 1, 5), (0, 0, 5), (0, 1, 6), (5, 0, 0)],
)
def test_parse_counts_labels_from_the_offset(label_base, label_offset, label):
    op = tfpipe.Parse(label_base=label_base, label_offset=label_offset)

    assert op(raw_record())["label"] == label


def test_parse_names_a_missing_key():
    data = records.encode_example({"image/encoded": records.bytes_feature(JPEG)})

    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"image/class/label .*is required"
    ):
        tfpipe.Parse(label_base=1)(raw_record(b"".join(data)))


@pytest.mark.parametrize(
    ("area", "ratio"),
    [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.5, 0.6), (0.9, 1.1)), ((0.1, 0.2), (2, 2))],
)
def test_random_window_is_inside_with_area_and_ratio_in_range(area, ratio):
    op = tfpipe.RandomCrop(image_size=8, area=area, ratio=ratio)

    top, left, height, width = windows(op, height=1000, width=1500).T

    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= 1000).all()
    assert (left + width <= 1500).all()
    share = height * width / 1.5e6
    assert area[0] - 0.002 <= share.min() < share.max() <= area[1] + 0.002
    ratios = width / height  # of whole pixels, hence the tolerance
    assert ratio[0] - 0.005 <= ratios.min() <= ratios.max() <= ratio[1] + 0.005


def test_random_windows_reach_small_and_large_areas_and_both_ratios():
    op = tfpipe.RandomCrop(image_size=8)

    _, _, height, width = windows(op, height=1000, width=1500).T

    share = height * width / 1.5e6
    assert share.min() < 0.12
    assert share.max() > 0.8
    assert 0.4 < (width > height).mean() < 0.7


def test_random_window_depends_on_each_half_of_the_seed():
    op = tfpipe.RandomCrop(image_size=8)

    def window(*seed):
        return tuple(op.window(encoded(height=500, width=500, seed=seed)).numpy())

    assert window(1, 2) == window(1, 2)
    assert len({window(1, 2), window(1, 3), window(2, 2), window(2, 1)}) == 4


@pytest.mark.parametrize("seed", [(0, 0), (0, 1), (-5, 2), (2**62, 10**6)])
def test_random_crop_equals_decode_crop_resize(seed):
    jpeg = make_jpeg(1, height=90, width=70)
    example = encoded(jpeg, height=90, width=70, seed=seed)
    op = tfpipe.RandomCrop(image_size=24)
    top, left, height, width = op.window(example).numpy()

    result = op(example)

    image = tf.image.decode_jpeg(jpeg, dct_method="INTEGER_ACCURATE")
    crop = image[top : top + height, left : left + width]
    expected = tf.round(tf.image.resize(crop, [24, 24]))
    assert result["image"].dtype == tf.uint8
    np.testing.assert_array_equal(result["image"], expected)
    assert sorted(result) == ["image", "label", "seed"]


@pytest.mark.parametrize(("height", "width"), [(10, 500), (500, 10), (1, 1)])
def test_random_crop_takes_the_whole_image_if_no_window_fits(height, width):
    op = tfpipe.RandomCrop(image_size=8, area=(0.9, 1.0))

    result = windows(op, height=height, width=width)

    assert {tuple(window) for window in result} == {(0, 0, height, width)}


@pytest.mark.parametrize(
    ("height", "width", "fraction", "window"),
    [
        (32, 40, 0.875, [2, 6, 28, 28]),  # landscape
        (40, 32, 0.875, [6, 2, 28, 28]),  # portrait
        (33, 40, 1.0, [0, 3, 33, 33]),
        (500, 375, 0.875, [86, 23, 328, 328]),
        (1, 1, 0.875, [0, 0, 1, 1]),
        (2, 9, 0.1, [0, 4, 1, 1]),  # never less than a pixel
    ],
)
def test_center_crop_equals_decode_crop_resize(height, width, fraction, window):
    jpeg = make_jpeg(2, height=height, width=width)
    example = encoded(jpeg, height=height, width=width)
    op = tfpipe.CenterCrop(image_size=16, fraction=fraction)

    result = op(example)

    assert op.window(example).numpy().tolist() == window
    top, left, side, _ = window
    image = tf.image.decode_jpeg(jpeg, dct_method="INTEGER_ACCURATE")
    crop = image[top : top + side, left : left + side]
    expected = tf.round(tf.image.resize(crop, [16, 16]))
    assert result["image"].dtype == tf.uint8
    np.testing.assert_array_equal(result["image"], expected)
    assert sorted(result) == ["image", "label", "seed"]


@pytest.mark.parametrize(
    "op", [tfpipe.RandomCrop(image_size=8), tfpipe.CenterCrop(image_size=8)]
)
def test_grayscale_becomes_three_equal_channels(op):
    image = op(encoded(make_jpeg(3, mode="L")))["image"]

    assert image.shape == [8, 8, 3]
    assert np.ptp(image.numpy().astype(int), axis=-1).max() == 0
    assert np.ptp(image.numpy()) > 0


@pytest.mark.parametrize(
    "op", [tfpipe.RandomCrop(image_size=8), tfpipe.CenterCrop(image_size=8)]
)
def test_crops_have_a_static_shape_in_a_graph(op):
    dataset = tf.data.Dataset.from_tensors(encoded()).map(op)

    assert dataset.element_spec["image"] == tf.TensorSpec([8, 8, 3], tf.uint8)


def test_flip_mirrors_about_half_of_the_images():
    assert 0.4 < flips().mean() < 0.6


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_flip_mirrors_or_leaves_the_image(dtype):
    seen = set()
    for number in range(12):
        example = decoded(dtype, seed=(0, number))

        image = tfpipe.Flip()(example)["image"]

        mirrored = tf.image.flip_left_right(example["image"])
        seen.add(bool(tf.reduce_all(image == mirrored)))
        expected = mirrored if tf.reduce_all(image == mirrored) else example["image"]
        np.testing.assert_array_equal(image, expected)
    assert seen == {True, False}


def test_flip_is_drawn_independently_of_the_window():
    sides = windows(tfpipe.RandomCrop(image_size=8), height=1000, width=1000)

    correlations = np.corrcoef(np.column_stack([flips(), sides]), rowvar=False)[0, 1:]

    assert np.abs(correlations).max() < 0.2  # 3.5 standard deviations


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize(
    "options", [{}, {"mean": (0.0, 10.0, 127.5), "std": (1.0, 2.0, 127.5)}]
)
def test_normalize_equals_numpy(dtype, options):
    op = tfpipe.Normalize(**options)
    example = decoded(dtype)

    image = op(example)["image"]

    expected = (example["image"].numpy() - np.array(op.mean)) / np.array(op.std)
    assert image.dtype == tf.float32
    np.testing.assert_allclose(image, expected, rtol=1e-5, atol=1e-5)


def test_normalize_centers_imagenet():
    op = tfpipe.Normalize()

    image = op({"image": tf.constant([[[123.675, 116.28, 103.53]]])})["image"]

    np.testing.assert_allclose(image, np.zeros([1, 1, 3]), atol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16", "float16"])
def test_cast_keeps_pixel_values(dtype):
    example = decoded()

    image = tfpipe.Cast(dtype)(example)["image"]

    assert image.dtype == dtype
    np.testing.assert_array_equal(tf.cast(image, tf.uint8), example["image"])


def test_select_keeps_only_the_named():
    assert list(tfpipe.Select("label")(decoded())) == ["label"]


def test_select_names_what_is_missing():
    with pytest.raises(KeyError, match="height"):
        tfpipe.Select("label", "height")(decoded())


@pytest.mark.parametrize(
    ("op", "options", "message"),
    [
        ("RandomCrop", {"image_size": 0}, "RandomCrop.image_size must be >= 1, got 0"),
        ("RandomCrop", {"area": (0, 1)}, r"RandomCrop.area must be .*, got \(0, 1\)"),
        ("RandomCrop", {"area": (0.5, 0.4)}, r"got \(0.5, 0.4\)"),
        ("RandomCrop", {"area": (0.5, 1.1)}, r"got \(0.5, 1.1\)"),
        ("RandomCrop", {"ratio": (0, 1)}, r"RandomCrop.ratio must be .*, got \(0, 1\)"),
        ("RandomCrop", {"ratio": (2, 1)}, r"got \(2, 1\)"),
        ("RandomCrop", {"max_attempts": 0}, "max_attempts must be >= 1, got 0"),
        ("CenterCrop", {"image_size": 0}, "CenterCrop.image_size must be >= 1, got 0"),
        ("CenterCrop", {"fraction": 0}, "CenterCrop.fraction must be .*, got 0"),
        ("CenterCrop", {"fraction": 1.5}, "CenterCrop.fraction must be .*, got 1.5"),
        ("Normalize", {"std": (1, 0, 1)}, r"each std > 0; .*std=\(1, 0, 1\)"),
        ("Normalize", {"mean": (1, 2)}, r"3 values of mean .*mean=\(1, 2\)"),
        (
            "Cast",
            {"dtype": "int8"},
            "one of uint8, float32, bfloat16, float16, got 'int8'",
        ),
    ],
)
def test_wrong_arguments_are_refused_when_the_op_is_made(op, options, message):
    required = {"image_size": 8} if op.endswith("Crop") else {}

    with pytest.raises(ValueError, match=message):
        getattr(tfpipe, op)(**required | options)
