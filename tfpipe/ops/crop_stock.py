"""A window of a JPEG image as pixels, by the kernels that every TensorFlow has.

In: JPEG bytes and a window. Out: its pixels. `crop.crop_image` says what they are; this
is the one way to make them, `native` is the other. Each does the same arithmetic in
the same order.
"""

import tensorflow as tf

from tfpipe.ops.basic import Normalize, ToNCHW

# How much smaller libjpeg can decode: scales of its inverse DCT.
_RATIOS = (1, 2, 4, 8)


def crop(
    encoded: tf.Tensor,
    window: tf.Tensor,
    flip: tf.Tensor | None,
    *,
    image_size: int,
    fast: bool,
    dtype: str,
    normalize: Normalize | None,
    layout: str,
) -> tf.Tensor:
    """As `crop.crop_image`, of whose arguments these are."""
    if fast:
        pixels = _decode_scaled(encoded, window, image_size)
    else:
        pixels = _decode(encoded, window, ratio=1)
    # Mirrored where a pixel is 3 bytes: floats would cost three times as much.
    if flip is not None and dtype != "uint8":
        pixels = _mirror(pixels, flip)
    # The kernel itself: tf.image.resize adds a dozen small ops, 4 % of the whole.
    resized = tf.raw_ops.ResizeBilinear(
        images=pixels[tf.newaxis],
        size=[image_size, image_size],
        half_pixel_centers=True,
    )
    image = tf.reshape(resized, [image_size, image_size, 3])
    if dtype == "uint8":
        image = _round(image)
        image = image if flip is None else _mirror(image, flip)
    if normalize is not None:
        image = normalize({"image": image})["image"]
    if dtype == "bfloat16":
        image = tf.cast(image, tf.bfloat16)
    return image if layout == "NHWC" else ToNCHW()({"image": image})["image"]


def scaled_window(window: tf.Tensor, ratio: int) -> tf.Tensor:
    """The window in an image that is decoded at 1 / ratio of its size.

    The smallest that covers it: each edge moves out by less than a scaled pixel. Its
    center so moves by less than half of one, and it never leaves the scaled image,
    which is ceil(size / ratio).

    Args:
        window: int32 [4], top, left, height, width.
        ratio: 1, 2, 4 or 8.

    Returns:
        int32 [4], top, left, height, width.
    """
    begin = window[:2] // ratio
    end = (window[:2] + window[2:] + ratio - 1) // ratio
    return tf.concat([begin, end - begin], 0)


def _decode_scaled(encoded: tf.Tensor, window: tf.Tensor, image_size: int) -> tf.Tensor:
    times = tf.minimum(window[2], window[3]) // image_size
    # The ratio is an attribute of the op, so there is one op for each.
    return tf.switch_case(
        sum(tf.cast(times >= ratio, tf.int32) for ratio in _RATIOS[1:]),
        [
            lambda ratio=ratio: _decode(
                encoded, scaled_window(window, ratio) if ratio > 1 else window, ratio
            )
            for ratio in _RATIOS
        ],
    )


def _decode(encoded: tf.Tensor, window: tf.Tensor, ratio: int) -> tf.Tensor:
    return tf.raw_ops.DecodeAndCropJpeg(
        contents=encoded,
        crop_window=window,
        channels=3,
        ratio=ratio,
        # INTEGER_FAST, the default, is 3 % faster at most where there is AVX2, and
        # 44 dB away.
        dct_method="INTEGER_ACCURATE",
        # libjpeg-turbo before 3.0 makes noise of a scaled crop of 4x2 or 2x4 chroma
        # with it; scaled down there is next to nothing to upscale.
        fancy_upscaling=ratio == 1,
    )


def _round(image: tf.Tensor) -> tf.Tensor:
    """Equals tf.cast(tf.round(image), tf.uint8) for 0..255, in one op of half the cost.

    With the range 0..255 the scale of quantization is 1.
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


def _mirror(image: tf.Tensor, flip: tf.Tensor) -> tf.Tensor:
    return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)
