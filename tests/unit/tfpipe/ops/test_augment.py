import functools
import itertools

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.trees import make_jpeg
from tfpipe.ops import augment, pil_functions
from tfpipe.ops.basic import op_seed

IMAGE = tf.image.decode_jpeg(make_jpeg(0))  # 32 x 40
GRAY = tf.fill([32, 40, 3], tf.constant(100, tf.uint8))

ColorJitter, Cutout = tfpipe.ColorJitter, tfpipe.Cutout
DistortColor, RandAugment = tfpipe.DistortColor, tfpipe.RandAugment
RandomErasing = tfpipe.RandomErasing

OPS = [
    ColorJitter(),
    ColorJitter(hue=0.1),
    DistortColor(),
    DistortColor(fast=False),
    RandAugment(num_ops=1, translation=10),
    RandAugment(num_ops=3, magnitude=4.5, operations=["Rotate", "Cutout", "Color"]),
    Cutout(size=12),
    RandomErasing(),
    RandomErasing(probability=1, fill=(1, 2, 3)),
]


def seed(number):
    return tf.stack([tf.constant(7, tf.int64), tf.cast(number, tf.int64)])


def over_seeds(op, image, num_seeds, *, num_parallel_calls=None):
    """The images that an op makes of one image for the first records of an epoch."""
    dataset = tf.data.Dataset.range(num_seeds)
    dataset = dataset.map(lambda number: {"image": image, "seed": seed(number)})
    dataset = dataset.map(op, num_parallel_calls=num_parallel_calls)
    if num_parallel_calls is None:
        assert dataset.element_spec["image"] == tf.TensorSpec(image.shape, tf.uint8)
    return np.array([e["image"] for e in dataset.as_numpy_iterator()])


def eagerly(op, image, num_seeds):
    """As `over_seeds`, without a graph: cheaper for a few images."""
    examples = ({"image": image, "seed": seed(number)} for number in range(num_seeds))
    return np.array([op(example)["image"] for example in examples])


@functools.cache
def made_eagerly(number_of_op):
    """The images that one of OPS makes of IMAGE for the first 12 records."""
    return eagerly(OPS[number_of_op], IMAGE, 12)


def unknown_size(image):
    return tf.raw_ops.PlaceholderWithDefault(input=image, shape=[None, None, 3])


def draws(op, shape, number):
    return tf.random.stateless_uniform(shape, op_seed(op, seed(number))).numpy()


# Each kind of op in both maps; graphs take long to make.
KNOWN_SIZE = [OPS[number] for number in (1, 2, 5, 6, 8)]
UNKNOWN_SIZE = [OPS[number] for number in (0, 3, 6, 7)]


@pytest.mark.parametrize("op", KNOWN_SIZE, ids=str)
def test_op_does_the_same_eagerly_and_in_a_map(op):
    eager = made_eagerly(OPS.index(op))

    np.testing.assert_array_equal(over_seeds(op, IMAGE, 12), eager)
    assert len({image.tobytes() for image in eager}) > 4


def mapped_with_unknown_size(op, num_seeds):
    """As `over_seeds`, in parallel; the op does not know the size of the image."""
    return over_seeds(
        lambda example: op(example | {"image": unknown_size(example["image"])}),
        IMAGE,
        num_seeds,
        num_parallel_calls=8,
    )


@pytest.mark.parametrize("op", UNKNOWN_SIZE, ids=str)
def test_op_does_the_same_to_images_of_unknown_size_in_parallel(op):
    mapped = mapped_with_unknown_size(op, 12)

    np.testing.assert_array_equal(mapped, made_eagerly(OPS.index(op)))


@pytest.mark.parametrize("op", OPS, ids=str)
def test_op_keeps_type_and_shape_of_any_image_and_what_it_does_not_know(op):
    for number, shape in enumerate([[2, 5, 3], [31, 7, 3]] * 2):
        image = tf.image.resize(IMAGE, shape[:2], method="nearest")
        example = {"image": image, "seed": seed(number), "extra": tf.constant("kept")}
        before = dict(example)

        result = op(example)

        found = result["image"]
        assert (found.dtype, found.shape) == (tf.uint8, shape)
        assert result.keys() == example.keys()
        assert all(example[name] is before[name] for name in before)

    example["image"] = tf.cast(image, tf.float32)
    with pytest.raises(ValueError, match=r"uint8, got float32: .* before Normalize"):
        op(example)


@pytest.mark.parametrize("number", range(6))
def test_color_jitter_equals_pillow_in_its_order(number):
    op = ColorJitter(brightness=0.4, contrast=0.6, saturation=1.5)
    orders, strengths = draws(op, [2, 4], number)
    changes = [
        (PIL.ImageEnhance.Brightness, np.float32(0.6) + np.float32(0.8) * strengths[0]),
        (PIL.ImageEnhance.Contrast, np.float32(0.4) + np.float32(1.2) * strengths[1]),
        (PIL.ImageEnhance.Color, np.float32(2.5) * strengths[2]),
    ]

    result = op({"image": IMAGE, "seed": seed(number)})["image"]

    expected = PIL.Image.fromarray(IMAGE.numpy())
    for place in np.argsort(orders[:3]):
        change, factor = changes[place]
        expected = change(expected).enhance(float(factor))
    # The last bit of a factor may differ.
    difference = np.abs(result.numpy().astype(int) - np.asarray(expected))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.02


def test_color_jitter_has_uniform_factors():
    op = ColorJitter(brightness=0.4, contrast=0, saturation=0)

    values = over_seeds(op, GRAY, 300)[:, 0, 0, 0]

    assert 59 <= values.min() < 65
    assert 135 < values.max() <= 140
    assert 97 < values.mean() < 103
    assert 20 < values.std() < 26  # 80 / sqrt(12) = 23


def test_color_jitter_turns_the_hue_both_ways():
    op = ColorJitter(brightness=0, contrast=0, saturation=0, hue=0.1)
    red = tf.constant([[[200, 0, 0]]], tf.uint8)

    images = over_seeds(op, red, 60)[:, 0, 0]

    assert (images[:, 0] == 200).all()
    assert 0.3 < (images[:, 1] > 0).mean() < 0.7
    assert 0.3 < (images[:, 2] > 0).mean() < 0.7
    assert 100 < images[:, 1:].max() <= 120  # 0.1 of the circle is 0.6 of the value


def test_color_jitter_of_no_strength_changes_nothing():
    op = ColorJitter(brightness=0, contrast=0, saturation=0)

    np.testing.assert_array_equal(eagerly(op, IMAGE, 2), [IMAGE, IMAGE])


@pytest.mark.parametrize("fast", [True, False])
def test_distort_color_equals_tensorflow_in_its_order(fast):
    op = DistortColor(fast=fast)
    seen = set()
    for number in range(12):
        ordering, shift, saturation, hue, contrast = draws(op, [5], number)
        case = int(4 * ordering)
        changes = {
            "b": functools.partial(
                tf.image.adjust_brightness, delta=(2 * shift - 1) * 32 / 255
            ),
            "s": functools.partial(
                tf.image.adjust_saturation, saturation_factor=0.5 + saturation
            ),
            "h": functools.partial(tf.image.adjust_hue, delta=0.4 * hue - 0.2),
            "c": functools.partial(
                tf.image.adjust_contrast, contrast_factor=0.5 + contrast
            ),
        }
        slow = ["bshc", "sbch", "chbs", "hscb"]
        expected = tf.image.convert_image_dtype(IMAGE, tf.float32)
        for name in (["bs", "sb", "sb", "sb"] if fast else slow)[case]:
            expected = changes[name](expected)

        result = op({"image": IMAGE, "seed": seed(number)})["image"]

        expected = 255 * tf.clip_by_value(expected, 0, 1)
        np.testing.assert_allclose(tf.cast(result, tf.float32), expected, atol=0.51)
        seen.add(case)
    assert seen == {0, 1, 2, 3}


# What RandAugment's operations do at magnitude 9, in the numbers of the reference.
AT_9 = {
    "AutoContrast": [pil_functions.autocontrast],
    "Equalize": [pil_functions.equalize],
    "Invert": [pil_functions.invert],
    "Rotate": [
        lambda x, s=s: pil_functions.rotate(x, s * 27, fill=128) for s in (-1, 1)
    ],
    "Posterize": [lambda x: pil_functions.posterize(x, 3)],
    "Solarize": [lambda x: pil_functions.solarize(x, 230)],
    "SolarizeAdd": [lambda x: pil_functions.solarize_add(x, 99)],
    "Color": [lambda x: pil_functions.color(x, 1.72)],
    "Contrast": [lambda x: pil_functions.contrast(x, 1.72)],
    "Brightness": [lambda x: pil_functions.brightness(x, 1.72)],
    "Sharpness": [lambda x: pil_functions.sharpness(x, 1.72)],
    "ShearX": [
        lambda x, s=s: pil_functions.affine(x, [1, s * 0.27, 0, 0, 1, 0], fill=128)
        for s in (-1, 1)
    ],
    "ShearY": [
        lambda x, s=s: pil_functions.affine(x, [1, 0, 0, s * 0.27, 1, 0], fill=128)
        for s in (-1, 1)
    ],
    "TranslateX": [
        lambda x, s=s: pil_functions.translate(x, 0.0, s * 9.0, fill=128)
        for s in (-1, 1)
    ],
    "TranslateY": [
        lambda x, s=s: pil_functions.translate(x, s * 9.0, 0.0, fill=128)
        for s in (-1, 1)
    ],
    "Identity": [tf.identity],
}


def test_randaugment_draws_every_operation_equally_often_at_its_strength():
    """The one graph of all operations; the size of the image is unknown in it."""
    name_of = {
        change(IMAGE).numpy().tobytes(): name
        for name, changes in AT_9.items()
        for change in changes
    }
    assert len(name_of) == 11 + 2 * 5

    results = mapped_with_unknown_size(OPS[4], 510)

    np.testing.assert_array_equal(results[:12], made_eagerly(4))
    assert {*name_of} <= {image.tobytes() for image in results}  # signs both ways
    names = [name_of.get(image.tobytes(), "Cutout") for image in results]
    counts = {name: names.count(name) for name in augment.OPERATIONS}
    assert sum(counts.values()) == 510
    assert 12 <= min(counts.values()) <= max(counts.values()) <= 52  # of 30


def test_randaugment_applies_its_operations_one_after_the_other():
    op = RandAugment(num_ops=2, operations=["Invert"])

    np.testing.assert_array_equal(eagerly(op, IMAGE, 2), [IMAGE, IMAGE])


def test_randaugment_cuts_out_a_gray_square():
    op = RandAugment(num_ops=1, magnitude=5, cutout=10, operations=["Cutout"])

    changed = np.any(over_seeds(op, GRAY, 50) == 128, axis=-1)

    assert changed.sum((1, 2)).max() == 10 * 10


@pytest.mark.parametrize("magnitude", [0, 10])
def test_randaugment_has_every_operation_at_every_magnitude(magnitude):
    for name in augment.OPERATIONS:
        op = RandAugment(num_ops=1, magnitude=magnitude, operations=[name])

        result = op({"image": IMAGE, "seed": seed(1)})["image"]

        assert tf.reduce_max(result) > 0


def rectangles(images, background):
    """[n, 4]: top, left, height, width of what differs; checks that it is one."""
    found = []
    for changed in np.any(images != background, axis=-1):
        rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
        if len(rows) == 0:
            found.append((0, 0, 0, 0))
            continue
        height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert changed.sum() == height * width
        found.append((rows[0], columns[0], height, width))
    return np.array(found)


def test_cutout_fills_a_square_around_a_point_of_the_image():
    op = Cutout(size=12, fill=(1, 2, 3))

    images = over_seeds(op, GRAY, 300)

    top, left, height, width = rectangles(images, 100).T
    filled = images[np.arange(300), top, left]
    assert (filled == [1, 2, 3]).all()
    assert (height.max(), width.max()) == (12, 12)
    assert (height.min(), width.min()) == (6, 6)  # half of it, at an edge
    assert {0, 20, 25} <= set(top)  # the last center is 31, 6 rows below 25
    assert 0.5 < (height == 12).mean() < 0.8  # 21 centers of 32
    assert 0.6 < (width == 12).mean() < 0.85  # 29 centers of 40


@pytest.mark.parametrize("probability", [0, 0.3])
def test_random_erasing_erases_that_share_of_the_images(probability):
    op = RandomErasing(probability=probability, fill=(0, 0, 0))

    changed = np.any(over_seeds(op, GRAY, 300) != 100, axis=(1, 2, 3))

    assert abs(changed.mean() - probability) < 0.08


def test_random_erasing_has_area_and_ratio_in_range():
    op = RandomErasing(probability=1, fill=(0, 0, 0), area=(0.1, 0.3), ratio=(0.5, 2))
    image = tf.fill([100, 120, 3], tf.constant(100, tf.uint8))

    top, left, height, width = rectangles(over_seeds(op, image, 300), 100).T

    area, ratio = height * width / 12000, height / width
    assert 0.095 < area.min() < 0.11
    assert 0.29 < area.max() < 0.305
    assert 0.48 < ratio.min() < 0.53
    assert 1.9 < ratio.max() < 2.1
    assert 0.4 < (ratio > 1).mean() < 0.6
    assert top.min() == left.min() == 0
    assert ((top + height).max(), (left + width).max()) == (100, 120)


def test_random_erasing_fills_with_other_noise_for_each_image():
    op = RandomErasing(probability=1, area=(1, 1), ratio=(1, 1))
    image = tf.fill([50, 50, 3], tf.constant(100, tf.uint8))

    first, second = eagerly(op, image, 2).astype(float)

    for noise in (first, second):
        assert 125 < noise.mean() < 130
        assert 72 < noise.std() < 76  # 256 / sqrt(12) = 73.9
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.05


def test_random_erasing_leaves_an_image_in_which_nothing_fits():
    op = RandomErasing(probability=1, area=(0.9, 1), ratio=(3, 4))

    np.testing.assert_array_equal(eagerly(op, IMAGE, 2), [IMAGE, IMAGE])


def test_ops_of_one_kind_draw_alike_and_others_with_another_salt():
    op = Cutout(size=6)
    ops = [op, *(tfpipe.Reseed(op, salt) for salt in (0, 1, 2))]
    examples = [{"image": GRAY, "seed": seed(n)} for n in range(15)]
    images = np.array([[one(e)["image"] for e in examples] for one in ops])

    alone, *places = (rectangles(made, 100)[:, :2].ravel() for made in images)

    np.testing.assert_array_equal(places[0], alone)
    for first, second in itertools.combinations(places, 2):
        assert (first == second).mean() < 0.2


@pytest.mark.parametrize(
    ("op", "options", "message"),
    [
        (
            ColorJitter,
            {"contrast": -0.1},
            "contrast must be a finite number >= 0, got -0.1",
        ),
        (
            ColorJitter,
            {"hue": 0.6},
            "hue must be a finite number from 0 to 0.5, got 0.6",
        ),
        (RandAugment, {"num_ops": 0}, "num_ops must be a whole number >= 1, got 0"),
        (RandAugment, {"magnitude": 11}, "magnitude must be .* from 0 to 10, got 11"),
        (RandAugment, {"cutout": -1}, "cutout must be .* >= 0, got -1"),
        (RandAugment, {"operations": ["Flip"]}, r"some of AutoContrast, .*'Flip'"),
        (RandAugment, {"operations": []}, r"some of AutoContrast, .*got \[\]"),
        (Cutout, {"size": 0}, "Cutout.size must be a whole number >= 1, got 0"),
        (Cutout, {"size": 1, "fill": (0, 0)}, r"Cutout.fill must be 3 .* got \(0, 0\)"),
        (Cutout, {"size": 1, "fill": (0, 0, 256)}, r"from 0 to 255, got \(0, 0, 256\)"),
        (
            RandomErasing,
            {"probability": 1.1},
            "probability must be .* from 0 to 1, got 1.1",
        ),
        (RandomErasing, {"max_attempts": 0}, "max_attempts must be .* >= 1, got 0"),
        (RandomErasing, {"area": (0, 1)}, r"RandomErasing.area .* got \(0, 1\)"),
        (RandomErasing, {"ratio": (2, 1)}, r"RandomErasing.ratio .* got \(2, 1\)"),
        (RandomErasing, {"fill": (1, 1)}, r"RandomErasing.fill .* got \(1, 1\)"),
    ],
)
def test_wrong_arguments_are_refused_when_the_op_is_made(op, options, message):
    with pytest.raises(ValueError, match=message):
        op(**options)
