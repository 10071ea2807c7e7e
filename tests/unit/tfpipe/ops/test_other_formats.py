import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.support.data.foreign import make_image
from tests.support.data.trees import make_jpeg
from tfpipe.native import op as native_op
from tfpipe.ops import other_formats
from tfpipe.ops.crop import crop_image

JPEG, PNG = make_jpeg(1), make_image(1)  # 32 x 40
BOX = [2, 3, 20, 25]
CROP_OPS = ["stock", *(["native"] if native_op.load()[0] else [])]


def in_map(function, *values):
    dataset = tf.data.Dataset.from_tensors(values).map(function)
    return next(dataset.as_numpy_iterator())


@pytest.mark.parametrize("crop_op", CROP_OPS)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_png_gives_the_pixels_of_its_jpeg_alone_and_in_a_mixed_batch(crop_op, dtype):
    """TensorFlow's decoder and Pillow's, which made the PNG, agree on these pixels."""

    def crop(encoded, box, flip):
        options = {"crop_op": crop_op, "dtype": dtype, "flip": flip}
        return crop_image(encoded, box, 16, quality="exact", **options)

    images, flips = [PNG, JPEG, PNG], [False, True, True]
    batch = in_map(crop, tf.constant(images), tf.constant([BOX] * 3), flips)
    singles = tf.data.Dataset.from_tensor_slices(
        ([*images, *[JPEG] * 3], [BOX] * 6, flips * 2)
    )
    alone = list(singles.map(crop).as_numpy_iterator())
    for made, single, of_jpeg in zip(batch, alone[:3], alone[3:], strict=True):
        np.testing.assert_array_equal(made, of_jpeg)
        np.testing.assert_array_equal(single, of_jpeg)


@pytest.mark.parametrize("crop_op", CROP_OPS)
def test_png_is_never_scaled_down_while_it_is_decoded(crop_op):
    png = make_image(1, height=96, width=120)
    fast, exact = (
        crop_image(png, [0, 0, 96, 120], 8, quality=quality, crop_op=crop_op)
        for quality in ("fast", "exact")
    )

    np.testing.assert_array_equal(fast, exact)


@pytest.mark.parametrize("crop_op", CROP_OPS)
@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "I;16"])
def test_png_of_any_mode_becomes_rgb_of_8_bits(crop_op, mode):
    pixels = np.random.default_rng(0).integers(0, 1 << 16, (9, 11), np.uint16)
    image, wanted = PIL.Image.fromarray(pixels), pixels >> 8
    if mode != "I;16":
        image = PIL.Image.fromarray((pixels >> 8).astype(np.uint8)).convert(mode)
        wanted = np.asarray(image.convert("L"))
    out = io.BytesIO()
    image.save(out, "PNG")

    made = crop_image(out.getvalue(), [0, 0, 9, 9], 9, crop_op=crop_op)

    np.testing.assert_array_equal(made, np.repeat(wanted[:, :9, None], 3, 2))


def test_sizes_come_from_the_header_alone_and_in_a_batch():
    images = [make_image(0, height=7, width=300), make_jpeg(0, height=9, width=500)]

    height, width = in_map(other_formats.sizes, tf.constant(images))

    assert (height.tolist(), width.tolist()) == ([7, 9], [300, 500])
    for image, size in zip(images, [(7, 300), (9, 500)], strict=True):
        assert in_map(other_formats.sizes, image) == size


@pytest.mark.parametrize("kind", ["GIF", "BMP", "WebP"])
@pytest.mark.parametrize("crop_op", CROP_OPS)
def test_other_formats_are_refused_by_name(kind, crop_op):
    image = make_image(1, kind)

    for refuse in (
        lambda: crop_image(image, BOX, 8, crop_op=crop_op),
        lambda: other_formats.sizes(tf.constant(image)),
    ):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=rf"(?s)must be JPEG or PNG.*{kind}"
        ):
            refuse()


@pytest.mark.parametrize("crop_op", CROP_OPS)
def test_png_cut_short_and_a_box_outside_are_errors(crop_op):
    for image, box in ((PNG[:99], BOX), (PNG, [30, 0, 9, 9])):
        with pytest.raises(tf.errors.InvalidArgumentError):
            crop_image(image, box, 8, crop_op=crop_op)
