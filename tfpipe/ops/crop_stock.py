"""Decodes and resizes a crop box of a JPEG image by TensorFlow's own kernels.

In: JPEG bytes and a crop box. Out: the pixels that `crop.crop_image` describes. The
native op makes the same pixels, by the same arithmetic in the same order.
"""

import tensorflow as tf

from tfpipe.ops import other_formats
from tfpipe.ops.basic import Normalize, ToNCHW

# Factors by which libjpeg can decode smaller: the scales of its inverse DCT.
_RATIOS = (1, 2, 4, 8)


def crop(
    encoded: tf.Tensor,
    crop_box: tf.Tensor,
    *flips: tf.Tensor,
    sides: tuple[int, int],
    fast: bool,
    dtype: str,
    normalize: Normalize | None,
    layout: str,
    jpeg_only: bool,
) -> tf.Tensor:
    """Returns the pixels of one image; `crop.crop_image` describes the arguments.

    `sides` are height and width of the result in pixels. `flips` has one bool [], or
    nothing for an image that is never mirrored.
    """

    def of_jpeg() -> tf.Tensor:
        if fast:
            return _decode_scaled(encoded, crop_box, sides)
        return _decode(encoded, crop_box, ratio=1)

    if jpeg_only:
        pixels = of_jpeg()
    else:
        pixels = other_formats.crop_box_pixels(encoded, crop_box, of_jpeg)
    # Mirrored while a pixel is still 3 bytes: floats would cost three times as much.
    if dtype != "uint8":
        pixels = _mirror(pixels, *flips)
    # tf.image.resize would add a dozen small ops to this kernel, 4 % of the whole cost.
    resized = tf.raw_ops.ResizeBilinear(
        images=pixels[tf.newaxis],
        size=sides,
        half_pixel_centers=True,
    )
    image = tf.reshape(resized, [*sides, 3])
    if dtype == "uint8":
        image = _round(image)
        image = _mirror(image, *flips)
    if normalize is not None:
        image = normalize({"image": image})["image"]
    if dtype == "bfloat16":
        image = tf.cast(image, tf.bfloat16)
    return image if layout == "NHWC" else ToNCHW()({"image": image})["image"]


def scaled_crop_box(crop_box: tf.Tensor, ratio: int) -> tf.Tensor:
    """Returns the crop box within an image that is decoded at 1 / ratio of its size.

    The result is the smallest box that covers the given one. Each edge moves out by
    less than a scaled pixel, so the center moves by less than half of one. The box
    stays within the scaled image, whose sides are ceil(size / ratio).

    Args:
        crop_box: int32 [4], top, left, height, width.
        ratio: 1, 2, 4 or 8.

    Returns:
        int32 [4], top, left, height, width.
    """
    begin = crop_box[:2] // ratio
    end = (crop_box[:2] + crop_box[2:] + ratio - 1) // ratio
    return tf.concat([begin, end - begin], 0)


def _decode_scaled(
    encoded: tf.Tensor, crop_box: tf.Tensor, sides: tuple[int, int]
) -> tf.Tensor:
    times = tf.minimum(crop_box[2] // sides[0], crop_box[3] // sides[1])
    # The ratio is an attribute of the op, so each ratio needs an op of its own.
    return tf.switch_case(
        sum(tf.cast(times >= ratio, tf.int32) for ratio in _RATIOS[1:]),
        [
            lambda ratio=ratio: _decode(
                encoded,
                scaled_crop_box(crop_box, ratio) if ratio > 1 else crop_box,
                ratio,
            )
            for ratio in _RATIOS
        ],
    )


def _decode(encoded: tf.Tensor, crop_box: tf.Tensor, ratio: int) -> tf.Tensor:
    return tf.raw_ops.DecodeAndCropJpeg(
        contents=encoded,
        crop_window=crop_box,
        channels=3,
        ratio=ratio,
        # INTEGER_FAST, the default, is 3 % faster at most where there is AVX2, and
        # 44 dB away.
        dct_method="INTEGER_ACCURATE",
        # In a scaled crop of 4x2 or 2x4 chroma, libjpeg-turbo before 3.0 makes noise
        # when it upscales smoothly; scaled down, hardly anything is left to upscale.
        fancy_upscaling=ratio == 1,
    )


def _round(image: tf.Tensor) -> tf.Tensor:
    """Equals tf.cast(tf.round(image), tf.uint8) for 0..255, at half the cost.

    The scale of the quantization is 1 for the range 0..255.
    """
    quantized, _, _ = tf.raw_ops.QuantizeV2(
        input=image,
        min_range=0.0,
        max_range=255.0,
        T=tf.quint8,
        mode="SCALED",
        round_mode="HALF_TO_EVEN",
    )
    return tf.bitcast(quantized, tf.uint8)


def _mirror(image: tf.Tensor, *flips: tf.Tensor) -> tf.Tensor:
    for flip in flips:
        image = tf.cond(
            flip, lambda image=image: tf.reverse(image, [1]), lambda image=image: image
        )
    return image
