import base64
import dataclasses
import functools
import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.native_op import each_crop_op, native_op, on_both_ops  # noqa: F401
from tests.support.data.trees import make_jpeg
from tfpipe.ops.crop import crop_image, scaled_crop_box

NUM_SEEDS = 300

# 61 x 69, a gradient, with luma sampled 4x1 (4:1:1), 4x2 and 2x4 times as densely as
# chroma, which Pillow does not write.
SAMPLED = {
    "4x1": base64.b64decode(
        "/9j/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRk"
        "xOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09P"
        "T09PT09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAA9AEUDAUEAAhEBAxEB/8QAGQABAQ"
        "EBAQEAAAAAAAAAAAAAAgADBAUG/8QAFxABAQEBAAAAAAAAAAAAAAAAAAEDAv/EABYBAQEBAAAA"
        "AAAAAAAAAAAAAAUGAP/EABkRAAMBAQEAAAAAAAAAAAAAAAACBBIBEf/aAAwDAQACEQMRAD8A+I"
        "mbSZnMzma4oY0zGkzOZnMzmYOhh6ZhzNJDtCejgmbSZnMzmaloYh5mNJmczOZnMwdDD0zDmaSH"
        "aE9HBM2kzOZnM1JQxDTMaTM5mczOZhKGH5mHM0kN0J6OCZtJmczOZqWhiGmY0mZzM5mczB0MPT"
        "MOZpIdoT0cEzaTM5mczUtDEPMxpMzmZzM5mDoYemYczSQ7Qno4Jm0mZzM5mpKGIaZjSZnMzmZz"
        "MJQw/Mw5mkhuhPRwTNpMzmZzNS0MQ0zGkzOZnMzmYOhh6ZhzNJDtCmjz5zGk5hzmHOIpaOkNN0"
        "0nEOcw5zDnMCUdH5ujnESQ30T9P//Z"
    ),
    "4x2": base64.b64decode(
        "/9j/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRk"
        "xOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09P"
        "T09PT09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAA9AEUDAUIAAhEBAxEB/8QAGQABAQ"
        "EBAQEAAAAAAAAAAAAAAgADBAEG/8QAFxABAQEBAAAAAAAAAAAAAAAAAAEDAv/EABcBAQEBAQAA"
        "AAAAAAAAAAAAAAUHAwb/xAAXEQADAQAAAAAAAAAAAAAAAAAAAwQT/9oADAMBAAIRAxEAPwD4iZ"
        "tJmczOZvZm0mZzM5m7ShpnMwwmZzM5mczKZnMzmZzMHQ0emYc8zSTrmaSHaimhwTNpMzmZzN7M"
        "2kzOZnMzlDSfTMMJmczOZnMymZzM5mczCUNH5mHPM0k65mkhuonocEzaTM5mczezNpMzmZzM5Q"
        "0n8zDCZnMzmZzMpmczOZnMwlDR6ZhzzNJOuZpIbqKaHBM2kzOZnM1OY0nMOcw5xDtDCfzMMZmc"
        "zOZnM3s4hzmHOYc5gShg9MwwmaSdU4iSG6Ceh//Z"
    ),
    "2x4": base64.b64decode(
        "/9j/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRk"
        "xOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09P"
        "T09PT09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAA9AEUDASQAAhEBAxEB/8QAGQAAAw"
        "EBAQAAAAAAAAAAAAAAAgMEAAUG/8QAFxABAQEBAAAAAAAAAAAAAAAAAQADAv/EABcBAQEBAQAA"
        "AAAAAAAAAAAAAAQFBgf/xAAXEQADAQAAAAAAAAAAAAAAAAAAAwQB/9oADAMBAAIRAxEAPwDxBn"
        "MM55nMM55nMM55nMM7ZMqJi6DgmcZnUGcZnUGcZnUGcZnCZUPXQcIzjM6gzjM6gzjM6gzjM4LK"
        "Sgug4JnGZ1BnGZ1BnGZ1BnGZwWUj10HBM7VZnarM7VZnaLtIvKCAzmGc8zmGc8zmGc45JhyVJl"
        "JyldBwjOMzqDOMzqDOMznnJGcEFlI9dBwzOMzqDOMzqDOMznnBGckJlJQXQcIzjM6gzjM6gzjM"
        "55yRnJBZSPXQcIztVmdqsztVHBaLtIvKD//Z"
    ),
}
SAMPLED_SIZE = (61, 69)


def gradient(mode="RGB", size=SAMPLED_SIZE, **options):
    """A smooth image as a JPEG of that mode, height x width."""
    y, x = np.mgrid[: size[0], : size[1]]
    pixels = np.stack([x * 3, y * 4, 255 - 2 * x - y], -1).clip(0, 255)
    image = PIL.Image.fromarray(pixels.astype(np.uint8)).convert(mode)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90, **options)
    return out.getvalue()


KINDS = SAMPLED | {
    "4:4:4": gradient(subsampling=0),
    "4:2:2": gradient(subsampling=1),
    "4:2:0": gradient(subsampling=2),
    "gray": gradient("L"),
    "cmyk": gradient("CMYK"),
    "progressive": gradient(subsampling=2, progressive=True),
    "progressive gray": gradient("L", progressive=True),
}
each_kind = pytest.mark.parametrize("jpeg", KINDS.values(), ids=KINDS)

# Crop boxes of a 61 x 69 image: all of it, each corner, the middle, one pixel.
CROP_BOXES = [
    (0, 0, 61, 69),
    (0, 0, 33, 35),
    (0, 34, 33, 35),
    (28, 0, 33, 35),
    (28, 34, 33, 35),
    (7, 11, 50, 51),
    (60, 68, 1, 1),
]


def encoded(jpeg=None, *, height=32, width=40, seed=(3, 4)):
    return {
        "encoded": tf.constant(jpeg or make_jpeg(0)),
        "height": tf.constant(height),
        "width": tf.constant(width),
        "label": tf.constant(9),
        "seed": tf.constant(seed, tf.int64),
    }


def in_map(function, *elements):
    dataset = tf.data.Dataset.from_tensors(elements).map(function)
    return next(dataset.as_numpy_iterator())


def crop_boxes(op, *, height, width):
    """int [NUM_SEEDS, 4]: top, left, height, width, of the records of an epoch."""
    seeds = [[7, number] for number in range(NUM_SEEDS)]
    batch = {
        "height": tf.fill([NUM_SEEDS], height),
        "width": tf.fill([NUM_SEEDS], width),
        "seed": tf.constant(seeds, tf.int64),
    }
    return op.window(batch).numpy()


@functools.cache
def full(jpeg, ratio=1):
    """All pixels of an image, decoded at 1 / ratio of its size."""
    # Scaled without smooth upsampling, as crop_image does.
    return tf.image.decode_jpeg(
        jpeg,
        channels=3,
        ratio=ratio,
        dct_method="INTEGER_ACCURATE",
        fancy_upscaling=ratio == 1,
    ).numpy()


@functools.cache
def stock_crop(jpeg, crop_box, size, quality):
    """The crop box of a JPEG as TensorFlow's own kernels make it."""
    box = tf.constant(crop_box)
    return crop_image(jpeg, box, size, quality=quality, crop_op="stock").numpy()


def part(pixels, crop_box):
    top, left, height, width = crop_box
    return pixels[top : top + height, left : left + width]


def resized(pixels, size):
    sides = [size, size] if isinstance(size, int) else size
    return np.asarray(tf.round(tf.image.resize(pixels, sides)), np.uint8)


def psnr(one, other):
    error = np.mean((np.asarray(one, float) - np.asarray(other, float)) ** 2)
    return 10 * np.log10(255**2 / error) if error else np.inf


# test_native compares the native op with the stock ones, for all kinds and crop boxes.
@each_kind
def test_exact_crop_equals_full_decode_crop_resize(jpeg):
    decoded = full(jpeg)
    for crop_box in CROP_BOXES:
        image = stock_crop(jpeg, crop_box, 16, "exact")

        expected = resized(part(decoded, crop_box), 16)
        assert image.dtype == np.uint8
        # Smooth upsampling of chroma looks past the crop box, where it is cut off.
        columns = slice(2, -2) if crop_box[3] > 16 else slice(None)
        np.testing.assert_array_equal(
            image[:, columns], expected[:, columns], err_msg=str(crop_box)
        )
        assert psnr(image, expected) > 30


@each_kind
@pytest.mark.parametrize("size", [4, 16])
def test_fast_crop_equals_scaled_decode_crop_resize(jpeg, size):
    for crop_box in CROP_BOXES:
        times = min(crop_box[2:]) // size
        ratio = max(ratio for ratio in (1, 2, 4, 8) if ratio <= max(times, 1))

        image = stock_crop(jpeg, crop_box, size, "fast")

        expected = exact = stock_crop(jpeg, crop_box, size, "exact")
        if ratio > 1:
            scaled = scaled_crop_box(tf.constant(crop_box), ratio).numpy()
            expected = resized(part(full(jpeg, ratio), scaled), size)
        np.testing.assert_array_equal(image, expected, err_msg=str(crop_box))
        if size == 16:
            assert psnr(image, exact) > 28


@on_both_ops
def test_crop_does_the_same_eagerly_and_in_a_graph():
    """One dataset holds all crops: a dataset for each takes 0.3 s."""
    flip = tf.constant(True)
    options = {
        "4x2": {},
        "gray": {"flip": flip},
        "cmyk": {"flip": flip, "dtype": "float32"},
        "progressive": {"flip": tf.constant(False), "quality": "exact"},
    }

    def crops(crop_box):
        return tuple(
            crop_image(KINDS[kind], crop_box, 16, **given)
            for kind, given in options.items()
        )

    crop_box = tf.constant((13, 29, 33, 40))
    for mapped, eager in zip(in_map(crops, crop_box), crops(crop_box), strict=True):
        np.testing.assert_array_equal(mapped, eager)


@on_both_ops
@pytest.mark.parametrize("quality", ["fast", "exact"])
def test_tiny_images_are_resized_up(quality):
    for size in [(1, 1), (1, 9), (9, 1), (2, 3), (15, 31)]:
        for subsampling in (0, 1, 2):
            jpeg = gradient(size=size, subsampling=subsampling)

            image = crop_image(jpeg, tf.constant([0, 0, *size]), 8, quality=quality)

            np.testing.assert_array_equal(image, resized(full(jpeg), 8))


@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
def test_scaled_crop_box_is_the_smallest_that_covers(ratio):
    length = 19
    begin, end = np.triu_indices(length + 1, 1)
    whole = np.full_like(begin, length)
    crop_boxes = tf.constant([begin, 0 * begin, end - begin, whole], tf.int32)

    top, left, height, width = scaled_crop_box(crop_boxes, ratio).numpy()

    most = -(-length // ratio)
    assert ((begin - top * ratio >= 0) & (begin - top * ratio < ratio)).all()
    beyond = (top + height) * ratio - end
    assert ((beyond >= 0) & (beyond < ratio)).all()
    assert (top + height).max() <= most
    assert {*zip(left.tolist(), width.tolist(), strict=True)} == {(0, most)}


@on_both_ops
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_flip_mirrors_the_result(flip, dtype):
    jpeg, crop_box = KINDS["4:4:4"], tf.constant((3, 5, 30, 40))
    plain = crop_image(jpeg, crop_box, 16, dtype=dtype).numpy()

    image = crop_image(jpeg, crop_box, 16, flip=tf.constant(flip), dtype=dtype)

    expected = plain[:, ::-1] if flip else plain
    assert not np.allclose(plain, plain[:, ::-1], atol=3)
    np.testing.assert_allclose(image, expected, atol=1e-3)


@on_both_ops
@pytest.mark.parametrize("kind", ["4:4:4", "gray"])
def test_float_pixels_are_those_before_rounding(kind):
    crop_box = tf.constant((3, 5, 30, 40))

    pixels = crop_image(KINDS[kind], crop_box, 16, dtype="float32").numpy()

    assert pixels.dtype == np.float32
    assert (pixels % 1 != 0).any()
    rounded = crop_image(KINDS[kind], crop_box, 16)
    np.testing.assert_array_equal(np.rint(pixels), rounded)


@on_both_ops
@pytest.mark.parametrize(
    ("jpeg", "crop_box"),
    [
        (b"no image", (0, 0, 1, 1)),
        (KINDS["4:4:4"], (0, 0, 70, 69)),
        (KINDS["4:4:4"], (0, 60, 15, 15)),
    ],
)
@pytest.mark.parametrize("quality", ["fast", "exact"])
def test_crop_refuses_what_is_no_crop_box_of_a_jpeg(jpeg, crop_box, quality):
    with pytest.raises(tf.errors.InvalidArgumentError, match="JPEG"):
        crop_image(jpeg, tf.constant(crop_box), 16, quality=quality)


@on_both_ops
@pytest.mark.parametrize(
    "op",
    [
        tfpipe.RandomCrop(image_size=8),
        tfpipe.RandomScaleCrop(image_size=8, short_side=(8, 12)),
    ],
)
def test_flip_of_a_crop_equals_the_op(op):
    mirrored = set()
    for number in range(12):
        example = encoded(seed=(0, number))
        plain = op(example)

        image = dataclasses.replace(op, flip=True)(example)["image"]

        expected = tfpipe.Flip()(plain)["image"]
        np.testing.assert_array_equal(image, expected)
        mirrored.add(bool(np.any(expected != plain["image"])))
    assert mirrored == {True, False}


@pytest.mark.parametrize(("height", "width"), [(400, 600), (600, 400), (90, 70)])
def test_random_scale_crop_box_is_a_square_of_the_drawn_scale(height, width):
    op = tfpipe.RandomScaleCrop(image_size=224)
    short = min(height, width)

    top, left, side, other = crop_boxes(op, height=height, width=width).T

    assert (side == other).all()
    assert round(short * 224 / 512) <= side.min() < short * 0.47
    assert short * 0.83 < side.max() <= round(short * 224 / 256)
    assert top.min() >= 0
    assert left.min() >= 0
    assert (top + side).max() <= height
    assert (left + side).max() <= width
    # Uniform over the places left: half of the boxes begin in the first half.
    for begin, free in ((top, height - side), (left, width - side)):
        assert 0.4 < (begin < free / 2).mean() < 0.6
    # S is uniform, so 224 / 512 * short is as likely as its whole neighborhood in S.
    scale = short * 224 / side
    assert abs(np.mean(scale) - 384) < 15


@pytest.mark.parametrize("sides", [(120, 40), (40, 120), (50, 64)])
@pytest.mark.parametrize(("height", "width"), [(400, 600), (600, 400), (90, 300)])
def test_crop_boxes_have_the_aspect_ratio_of_a_result_that_is_no_square(
    height, width, sides
):
    scale = min(height / sides[0], width / sides[1])  # the largest box of that ratio
    largest = np.multiply(sides, scale)
    random = tfpipe.RandomScaleCrop(image_size=sides, short_side=(60, 90))
    center = tfpipe.CenterCrop(image_size=sides, fraction=0.5)

    drawn = crop_boxes(random, height=height, width=width)
    top, left, *extents = crop_boxes(center, height=height, width=width)[0]

    shares = drawn[:, 2:] / largest
    np.testing.assert_allclose(shares[:, 0], shares[:, 1], atol=1 / largest.min())
    assert min(sides) / 90 - 0.02 < shares.min() < min(sides) / 80
    assert min(sides) / 65 < shares.max() < min(sides) / 60 + 0.02
    assert drawn[:, :2].min() >= 0
    assert ((drawn[:, :2] + drawn[:, 2:]).max(0) <= (height, width)).all()
    np.testing.assert_allclose(extents, largest / 2, atol=0.51)
    assert (top, left) == tuple(np.subtract((height, width), extents) // 2)


@on_both_ops
def test_a_scaled_decode_covers_both_sides_of_a_result_that_is_no_square():
    jpeg = gradient(size=(160, 400), subsampling=0)
    whole = tf.constant((0, 0, 160, 400))
    for sides, ratio in {(40, 50): 4, (80, 50): 2, (20, 150): 2, (90, 20): 1}.items():
        image = crop_image(jpeg, whole, sides)

        np.testing.assert_array_equal(image, resized(full(jpeg, ratio), sides))


def test_random_scale_crop_of_one_scale_always_has_the_same_side():
    op = tfpipe.RandomScaleCrop(image_size=224, short_side=(256, 256))

    sides = crop_boxes(op, height=512, width=700)[:, 2:]

    assert {tuple(side) for side in sides} == {(448, 448)}


def test_random_scale_crop_box_stays_within_one_pixel():
    op = tfpipe.RandomScaleCrop(image_size=8, short_side=(8, 16))

    assert {tuple(box) for box in crop_boxes(op, height=1, width=1)} == {(0, 0, 1, 1)}


@on_both_ops
def test_center_crop_is_near_resizing_first_and_cropping_then():
    """The square of whole pixels differs by less than half a pixel of the result."""
    jpeg = gradient(size=(97, 131), subsampling=0)
    crop = tfpipe.CenterCrop(image_size=28, quality="exact")

    image = crop(encoded(jpeg, height=97, width=131))["image"].numpy().astype(float)

    scaled = tf.image.resize(full(jpeg), [32, round(131 / 97 * 32)]).numpy()
    left = (scaled.shape[1] - 28) // 2
    reference = scaled[2:30, left : left + 28]
    step = np.abs(np.diff(scaled, axis=1)).max()  # between neighboring pixels
    assert np.abs(image - reference).max() <= 0.75 * step


@on_both_ops
def test_resize_takes_the_whole_image():
    jpeg = KINDS["4:2:0"]
    op = tfpipe.Resize(image_size=40)

    image = op(encoded(jpeg, height=61, width=69))["image"]

    np.testing.assert_array_equal(image, resized(full(jpeg), 40))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_batch_is_normalized_in_a_compiled_function(dtype):
    """The way of uint8 to the device: pixels in, what the model takes out."""
    normalize = tfpipe.Normalize()
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3))
    batch = {"image": tf.cast(pixels, dtype), "label": tf.range(4)}

    result = tf.function(normalize, jit_compile=True)(batch)

    expected = (pixels - np.array(normalize.mean)) / np.array(normalize.std)
    assert result["image"].shape == (4, 8, 8, 3)
    np.testing.assert_allclose(result["image"], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(result["label"], batch["label"])


@pytest.mark.parametrize(
    ("area", "ratio"),
    [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.5, 0.6), (0.9, 1.1)), ((0.1, 0.2), (2, 2))],
)
def test_random_crop_box_is_inside_with_area_and_ratio_in_range(area, ratio):
    op = tfpipe.RandomCrop(image_size=8, area=area, ratio=ratio)

    top, left, height, width = crop_boxes(op, height=1000, width=1500).T

    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= 1000).all()
    assert (left + width <= 1500).all()
    share = height * width / 1.5e6
    assert area[0] - 0.002 <= share.min() < share.max() <= area[1] + 0.002
    ratios = width / height  # of whole pixels, hence the tolerance
    assert ratio[0] - 0.005 <= ratios.min() <= ratios.max() <= ratio[1] + 0.005


def test_random_crop_boxes_reach_small_and_large_areas_and_both_ratios():
    op = tfpipe.RandomCrop(image_size=8)

    _, _, height, width = crop_boxes(op, height=1000, width=1500).T

    share = height * width / 1.5e6
    assert share.min() < 0.12
    assert share.max() > 0.8
    assert 0.4 < (width > height).mean() < 0.7


def test_random_crop_box_depends_on_each_half_of_the_seed():
    op = tfpipe.RandomCrop(image_size=8)

    def drawn(*seed):
        return tuple(op.window(encoded(height=500, width=500, seed=seed)).numpy())

    assert drawn(1, 2) == drawn(1, 2)
    assert len({drawn(1, 2), drawn(1, 3), drawn(2, 2), drawn(2, 1)}) == 4


@on_both_ops
@pytest.mark.parametrize("seed", [(0, 0), (0, 1), (-5, 2), (2**62, 10**6)])
def test_random_crop_equals_decode_crop_resize(seed):
    jpeg = make_jpeg(1, height=90, width=70)
    example = encoded(jpeg, height=90, width=70, seed=seed)
    op = tfpipe.RandomCrop(image_size=24, quality="exact")
    top, left, height, width = op.window(example).numpy()

    result = op(example)

    image = tf.image.decode_jpeg(jpeg, dct_method="INTEGER_ACCURATE")
    crop = image[top : top + height, left : left + width]
    expected = tf.round(tf.image.resize(crop, [24, 24]))
    assert result["image"].dtype == tf.uint8
    np.testing.assert_array_equal(result["image"], expected)
    assert sorted(result) == ["image", "label", "seed"]


@pytest.mark.parametrize(("height", "width"), [(10, 500), (500, 10), (1, 1)])
def test_random_crop_takes_the_whole_image_if_no_crop_box_fits(height, width):
    op = tfpipe.RandomCrop(image_size=8, area=(0.9, 1.0))

    result = crop_boxes(op, height=height, width=width)

    assert {tuple(crop_box) for crop_box in result} == {(0, 0, height, width)}


@on_both_ops
@pytest.mark.parametrize(
    ("height", "width", "fraction", "crop_box"),
    [
        (32, 40, 0.875, [2, 6, 28, 28]),  # landscape
        (40, 32, 0.875, [6, 2, 28, 28]),  # portrait
        (33, 40, 1.0, [0, 3, 33, 33]),
        (500, 375, 0.875, [86, 23, 328, 328]),
        (1, 1, 0.875, [0, 0, 1, 1]),
        (2, 9, 0.1, [0, 4, 1, 1]),  # never less than a pixel
    ],
)
def test_center_crop_equals_decode_crop_resize(height, width, fraction, crop_box):
    jpeg = make_jpeg(2, height=height, width=width)
    example = encoded(jpeg, height=height, width=width)
    op = tfpipe.CenterCrop(image_size=16, fraction=fraction, quality="exact")

    result = op(example)

    assert op.window(example).numpy().tolist() == crop_box
    top, left, side, _ = crop_box
    image = tf.image.decode_jpeg(jpeg, dct_method="INTEGER_ACCURATE")
    crop = image[top : top + side, left : left + side]
    expected = tf.round(tf.image.resize(crop, [16, 16]))
    assert result["image"].dtype == tf.uint8
    np.testing.assert_array_equal(result["image"], expected)
    assert sorted(result) == ["image", "label", "seed"]


@on_both_ops
@pytest.mark.parametrize(
    "op", [tfpipe.RandomCrop(image_size=8), tfpipe.CenterCrop(image_size=8)]
)
def test_grayscale_becomes_three_equal_channels(op):
    image = op(encoded(make_jpeg(3, mode="L")))["image"]

    assert image.shape == [8, 8, 3]
    assert np.ptp(image.numpy().astype(int), axis=-1).max() == 0
    assert np.ptp(image.numpy()) > 0


@on_both_ops
@pytest.mark.parametrize(
    "op", [tfpipe.RandomCrop(image_size=8), tfpipe.CenterCrop(image_size=8)]
)
def test_crops_have_a_static_shape_in_a_graph(op):
    dataset = tf.data.Dataset.from_tensors(encoded()).map(op)

    assert dataset.element_spec["image"] == tf.TensorSpec([8, 8, 3], tf.uint8)


@pytest.mark.parametrize("dtype", [tf.uint8, tf.float32, tf.bfloat16])
def test_a_type_of_tensorflow_is_a_dtype_by_its_name(dtype):
    crop = tfpipe.Resize(image_size=8, dtype=dtype)

    assert crop == tfpipe.Resize(image_size=8, dtype=dtype.name)


def test_crops_print_their_own_fields_after_the_size():
    shared = "quality='fast', dtype='uint8', normalize=None, layout='NHWC'"
    options = {"image_size": 8, "crop_op": "stock"}

    wide = repr(tfpipe.Resize(image_size=[8, 12], crop_op="stock"))
    assert (
        wide
        == f"Resize(image_size=(8, 12), {shared}, crop_op='stock', jpeg_only=False)"
    )
    assert tfpipe.Resize(image_size=(8, 8), crop_op="stock") == tfpipe.Resize(**options)
    assert [repr(op(**options)) for op in (tfpipe.RandomCrop, tfpipe.Resize)] == [
        "RandomCrop(image_size=8, area=(0.08, 1.0), ratio=(0.75, 1.3333333333333333), "
        f"max_attempts=10, flip=False, {shared}, crop_op='stock', jpeg_only=False)",
        f"Resize(image_size=8, {shared}, crop_op='stock', jpeg_only=False)",
    ]


@pytest.mark.parametrize(
    ("op", "options", "message"),
    [
        (
            "RandomCrop",
            {"image_size": 0},
            "RandomCrop.image_size must be a whole number from 1 to 16384, got 0",
        ),
        ("RandomCrop", {"area": (0, 1)}, r"RandomCrop.area must be .*, got \(0, 1\)"),
        ("RandomCrop", {"area": (0.5, 0.4)}, r"got \(0.5, 0.4\)"),
        ("RandomCrop", {"area": (0.5, 1.1)}, r"got \(0.5, 1.1\)"),
        ("RandomCrop", {"ratio": (0, 1)}, r"RandomCrop.ratio must be .*, got \(0, 1\)"),
        ("RandomCrop", {"ratio": (2, 1)}, r"got \(2, 1\)"),
        (
            "RandomCrop",
            {"max_attempts": 0},
            "max_attempts must be a whole number >= 1, got 0",
        ),
        (
            "CenterCrop",
            {"image_size": 0},
            "CenterCrop.image_size must be a whole number from 1 to 16384, got 0",
        ),
        ("CenterCrop", {"fraction": 0}, "CenterCrop.fraction must be .*, got 0"),
        ("CenterCrop", {"fraction": 1.5}, "CenterCrop.fraction must be .*, got 1.5"),
        (
            "CenterCrop",
            {"quality": "best"},
            "one of fast, exact, got 'best'",
        ),
        ("Resize", {"dtype": "int8"}, "one of uint8, float32, bfloat16, got 'int8'"),
        ("Resize", {"layout": "HWC"}, "layout must be one of NHWC, NCHW, got 'HWC'"),
        (
            "Resize",
            {"normalize": tfpipe.Normalize()},
            "normalize must come with dtype float32 or bfloat16, got uint8",
        ),
        (
            "Resize",
            {"image_size": -1},
            "Resize.image_size must be a whole number from 1 to 16384, got -1",
        ),
        (
            "Resize",
            {"image_size": (8, 0)},
            r"Resize.image_size must be 2 whole numbers from 1 to 16384, got \(8, 0\)",
        ),
        (
            "RandomScaleCrop",
            {"image_size": (9, 12), "short_side": (8, 9)},
            r"2 whole numbers >= 9, got \(8, 9\)",
        ),
        (
            "RandomScaleCrop",
            {"short_side": (7, 9)},
            r"2 whole numbers >= 8, got \(7, 9\)",
        ),
        ("RandomScaleCrop", {"short_side": (9, 8)}, r"low <= high, got \(9, 8\)"),
    ],
)
def test_wrong_arguments_are_refused_when_the_op_is_made(op, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(tfpipe, op)(**{"image_size": 8} | options)
