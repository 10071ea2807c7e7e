import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.trees import make_jpeg
from tfpipe.shards import image_record
from tfpipe.shards.example import bytes_feature, encode_example

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
        "is_real": tf.constant(True),
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
    dataset = tfpipe.Map(op)(tf.data.Dataset.from_tensors(example))
    return next(dataset.as_numpy_iterator())


def over_seeds(function):
    """Returns the values of a function of a seed for the first records of an epoch."""
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
    (tfpipe.Normalize.caffe(), decoded()),
    (tfpipe.Normalize.inception(), decoded("float32")),
    (tfpipe.ToNCHW(), decoded()),
    (tfpipe.OneHot(10, smoothing=0.1), decoded()),
    (tfpipe.Reseed(tfpipe.Flip(), 1), decoded(seed=(0, 0))),
    (tfpipe.Reseed(tfpipe.Flip(), 1), decoded(seed=(0, 2))),
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
        "mask": tf.float32,
        "seed": tf.int64,
    }
    values = {name: np.asarray(value).tolist() for name, value in example.items()}
    assert values == {
        "encoded": JPEG,
        "height": 32,
        "width": 40,
        "label": 4,
        "record_id": 12,
        "mask": 1.0,
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
    data = encode_example({"image/encoded": bytes_feature(JPEG)})

    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"image/class/label .*is required"
    ):
        tfpipe.Parse(label_base=1)(raw_record(b"".join(data)))


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


@pytest.mark.parametrize("shape", [[5, 4, 3], [2, 5, 4, 3], [0, 5, 4, 3], [4, 3]])
@pytest.mark.parametrize("op", [tfpipe.Normalize(), tfpipe.Normalize.caffe()])
def test_normalize_takes_images_and_batches(op, shape):
    count = int(np.prod(shape))
    image = tf.reshape(tf.cast(tf.range(count), tf.uint8), shape)

    result = op({"image": image})["image"]

    expected = (image.numpy() - np.array(op.mean)) / np.array(op.std)
    assert result.shape == shape
    np.testing.assert_allclose(
        result, expected[..., ::-1] if op.bgr else expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("op", "mode"),
    [
        (tfpipe.Normalize(), "torch"),
        (tfpipe.Normalize.caffe(), "caffe"),
        (tfpipe.Normalize.inception(), "tf"),
    ],
)
def test_normalize_equals_keras(op, mode):
    preprocess = tf.keras.applications.imagenet_utils.preprocess_input
    example = decoded()

    image = op(example)["image"]

    expected = preprocess(example["image"].numpy(), "channels_last", mode)
    np.testing.assert_allclose(image, expected, rtol=1e-5, atol=1e-5)


def test_normalize_keeps_a_static_shape():
    dataset = tf.data.Dataset.from_tensors(decoded()).map(tfpipe.Normalize())

    assert dataset.element_spec["image"] == tf.TensorSpec([32, 40, 3], tf.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_cast_rounds_normalized_pixels_to_the_nearest(dtype):
    normalized = tfpipe.Normalize()(decoded())

    image = tfpipe.Cast(dtype)(normalized)["image"]

    bits = {"float32": 24, "bfloat16": 8, "float16": 11}[dtype]
    np.testing.assert_allclose(
        tf.cast(image, tf.float32), normalized["image"], rtol=2**-bits, atol=1e-7
    )


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
@pytest.mark.parametrize("leading", [[], [2]])
def test_to_nchw_moves_the_channels(dtype, leading):
    image = tf.cast(tf.reshape(tf.range(2 * 60), [2, 4, 5, 3]), dtype)
    image = image if leading else image[0]

    result = tfpipe.ToNCHW()({"image": image})["image"]

    assert (result.shape, result.dtype) == ([*leading, 3, 4, 5], dtype)
    np.testing.assert_array_equal(result, np.moveaxis(image.numpy(), -1, -3))


@pytest.mark.parametrize("label", [3, [0, 3], [[1], [2]]])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_one_hot_smooths_labels(label, smoothing):
    op = tfpipe.OneHot(4, smoothing=smoothing)

    rows = op({"label": tf.constant(label)})["label"]

    expected = (1 - smoothing) * np.eye(4)[label] + smoothing / 4
    assert rows.dtype == tf.float32
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    np.testing.assert_allclose(rows.numpy().sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize("label", [-1, 4, [0, 1000]])
def test_one_hot_refuses_an_unknown_label_also_in_a_map(label):
    example = {"label": tf.constant(label)}

    message = "labels must be 0 to 3; num_classes has to fit"
    for apply in (lambda op, e: op(e), in_map):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            apply(tfpipe.OneHot(4), example)


def test_reseed_draws_other_numbers_for_each_salt():
    salted = [
        over_seeds(
            lambda seed, op=op: op({"image": tf.range(2)[None, :, None], "seed": seed})[
                "image"
            ]
        )[:, 0, 0, 0]
        for op in [tfpipe.Reseed(tfpipe.Flip(), salt) for salt in (0, 1, 2, -1)]
    ]

    np.testing.assert_array_equal(salted[0], flips())
    assert np.abs(np.corrcoef(salted) - np.eye(4)).max() < 0.2
    assert 0.4 < np.mean(salted) < 0.6


def test_reseed_restores_the_seed_and_takes_ops_that_drop_it():
    example = decoded()
    drop = tfpipe.Select("label")

    assert tfpipe.Reseed(tfpipe.Flip(), 5)(example)["seed"] is example["seed"]
    assert list(tfpipe.Reseed(drop, 5)(example)) == ["label"]


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
        (
            "Normalize",
            {"std": (1, 0, 1)},
            r"std must be 3 finite numbers > 0, got \(1, 0, 1",
        ),
        ("Normalize", {"mean": (1, 2)}, r"mean must be 3 finite numbers, got \(1, 2\)"),
        ("OneHot", {"num_classes": 0}, "num_classes must be .* >= 1, got 0"),
        (
            "OneHot",
            {"num_classes": 9, "smoothing": 1},
            "smoothing must be .* < 1, got 1",
        ),
        (
            "Cast",
            {"dtype": "int8"},
            "one of uint8, float32, bfloat16, float16, got 'int8'",
        ),
    ],
)
def test_wrong_arguments_are_refused_when_the_op_is_made(op, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(tfpipe, op)(**options)
