"""Image functions, uint8 image -> uint8 image, equal to Pillow's of the same name.

In and out: uint8 [height, width, 3], 0..255, RGB. The tone functions equal Pillow's
`ImageOps` and `ImageEnhance` bit for bit, so that a recipe which was published for
Pillow trains on the same pixels here. These functions draw no random numbers; the ops
in `augment` draw them and call these functions.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

# 65536 times the luma weights of ITU-R BT.601, as Pillow rounds them.
_LUMA = (19595.0, 38470.0, 7471.0)

Number: TypeAlias = float | tf.Tensor


def autocontrast(image: tf.Tensor) -> tf.Tensor:
    """Stretches each channel to 0..255; equals `ImageOps.autocontrast`."""
    flat = tf.reshape(image, [-1, 3])
    # float64, as in Pillow: in float32 the brightest value can come out as 254.
    low = tf.cast(tf.reduce_min(flat, 0), tf.float64)
    high = tf.cast(tf.reduce_max(flat, 0), tf.float64)
    scale = tf.where(high > low, 255.0 / (high - low), 1.0)
    offset = tf.where(high > low, -low * scale, 0.0)
    width = tf.shape(image)[1]
    stretched = _rows(tf.cast(image, tf.float64)) * tf.tile(scale, [width])
    return tf.reshape(_to_uint8(stretched + tf.tile(offset, [width])), tf.shape(image))


def equalize(image: tf.Tensor) -> tf.Tensor:
    """Spreads each channel's values evenly over 0..255; equals `ImageOps.equalize`."""
    # Index of each value in a table with 256 values for each channel.
    offsets = tf.tile(tf.constant([0, 256, 512]), [tf.shape(image)[1]])
    places = _rows(tf.cast(image, tf.int32)) + offsets
    counts = tf.raw_ops.DenseBincount(
        input=tf.reshape(places, [-1]), size=3 * 256, weights=tf.zeros([0], tf.int32)
    )
    counts = tf.reshape(counts, [3, 256])
    values = tf.range(256)
    last = tf.reduce_max(tf.where(counts > 0, values, 0), 1)
    rest = tf.reduce_sum(counts, 1) - tf.gather(counts, last, batch_dims=1)
    step = rest[:, None] // 255
    sums = tf.cumsum(counts, axis=1, exclusive=True) + step // 2
    table = tf.where(step > 0, tf.minimum(sums // tf.maximum(step, 1), 255), values)
    table = tf.reshape(tf.cast(table, tf.uint8), [-1])
    return tf.reshape(tf.gather(table, places), tf.shape(image))


def invert(image: tf.Tensor) -> tf.Tensor:
    """Inverts each value; equals `ImageOps.invert`."""
    return 255 - image


def posterize(image: tf.Tensor, bits: int) -> tf.Tensor:
    """Keeps the highest `bits` of each value, 1..8; equals `ImageOps.posterize`."""
    return tf.bitwise.bitwise_and(image, tf.constant(256 - (1 << (8 - bits)), tf.uint8))


def solarize(image: tf.Tensor, threshold: int) -> tf.Tensor:
    """Inverts values from `threshold`, 0..256, on; equals `ImageOps.solarize`."""
    if threshold > 255:
        return tf.identity(image)
    # tf.where takes six times as long.
    return tf.bitwise.bitwise_xor(image, 255 * tf.cast(image >= threshold, tf.uint8))


def solarize_add(image: tf.Tensor, addition: int) -> tf.Tensor:
    """Adds `addition`, 0..127, to values below 128, so that no value passes 255.

    Pillow has no such function; it is from the AutoAugment code (Cubuk et al. 2018).
    """
    return image + addition * tf.cast(image < 128, tf.uint8)


def brightness(image: tf.Tensor, factor: Number) -> tf.Tensor:
    """Scales values, factor 0 gives black; equals `ImageEnhance.Brightness`."""
    return _blend(tf.constant(0.0), tf.cast(image, tf.float32), factor)


def contrast(image: tf.Tensor, factor: Number) -> tf.Tensor:
    """Scales distances from the mean luma; equals `ImageEnhance.Contrast`."""
    pixels = tf.cast(image, tf.float32)
    # int64: float32 is not exact for the sum of the lumas of a large image.
    total = tf.reduce_sum(tf.cast(_luma(pixels), tf.int64))
    count = tf.size(image, tf.int64)
    mean = (2 * total + count) // (2 * count)
    return _blend(tf.cast(mean, tf.float32), pixels, factor)


def color(image: tf.Tensor, factor: Number) -> tf.Tensor:
    """Scales distances from a pixel's luma, 0 is gray; equals `ImageEnhance.Color`."""
    pixels = tf.cast(image, tf.float32)
    return _blend(_luma(pixels), pixels, factor)


def sharpness(image: tf.Tensor, factor: Number) -> tf.Tensor:
    """Scales distances from a smoothed image; equals `ImageEnhance.Sharpness`.

    The image must have at least 2 x 2 pixels.
    """
    pixels = tf.cast(image, tf.float32)
    rows = pixels[:-2] + pixels[1:-1] + pixels[2:]
    box = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    inner = pixels[1:-1, 1:-1]
    smooth = tf.floor((box + 4.0 * inner + 6.5) / 13.0)
    # Pillow leaves the outermost pixels unsmoothed.
    change = tf.pad(inner - smooth, [[1, 1], [1, 1], [0, 0]])
    return _to_uint8(pixels - change + factor * change)


def rotate(image: tf.Tensor, degrees: Number, *, fill: int) -> tf.Tensor:
    """Turns the image counterclockwise about its center.

    Equals `Image.rotate` with the nearest pixel.
    """
    angle = tf.cast(degrees, tf.float32) * (math.pi / 180.0)
    cos, sin = tf.cos(angle), tf.sin(angle)
    size = tf.cast(tf.shape(image), tf.float32)
    x, y = size[1] / 2.0, size[0] / 2.0
    return affine(
        image,
        [cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y],
        fill=fill,
    )


def affine(image: tf.Tensor, matrix: Sequence[Number], *, fill: int) -> tf.Tensor:
    """Maps pixels by a matrix; equals `Image.transform(AFFINE)` with the nearest pixel.

    [1, level, 0, 0, 1, 0] moves rows to the left by `level` times the distance from the
    top; [1, 0, 0, level, 1, 0] moves columns up by `level` times the distance from the
    left.

    Args:
        image: uint8 [height, width, 3].
        matrix: a, b, c, d, e, f: the pixel at (x, y) is taken from (ax + by + c,
            dx + ey + f), with x to the right, y down, and the center of the first
            pixel at (1/2, 1/2).
        fill: Value, 0..255, of pixels that are taken from outside of the image.
    """
    a, b, c, d, e, f = (tf.cast(value, tf.float32) for value in matrix)
    # In the kernel the center of the first pixel is at (0, 0).
    c, f = c + (a + b - 1.0) / 2.0, f + (d + e - 1.0) / 2.0
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=image[None],
        transforms=tf.stack([a, b, c, d, e, f, 0.0, 0.0])[None],
        output_shape=tf.shape(image)[:2],
        fill_value=float(fill),
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )
    return tf.ensure_shape(moved[0], image.shape)


def translate(image: tf.Tensor, up: Number, left: Number, *, fill: int) -> tf.Tensor:
    """Moves the image; equals `affine` for [1, 0, left, 0, 1, up], by copying."""
    size = tf.shape(image)[:2]
    moved = tf.cast(tf.floor(tf.stack([up, left]) + 0.5), tf.int32)
    moved = tf.clip_by_value(moved, -size, size)
    start, stop = tf.maximum(moved, 0), size + tf.minimum(moved, 0)
    kept = image[start[0] : stop[0], start[1] : stop[1]]
    margins = tf.pad(tf.stack([size - stop, start], 1), [[0, 1], [0, 0]])
    padded = tf.pad(kept, margins, constant_values=fill)
    return tf.ensure_shape(padded, image.shape)


def paste(
    image: tf.Tensor, patch: tf.Tensor, top: tf.Tensor, left: tf.Tensor
) -> tf.Tensor:
    """Puts a patch, uint8 [rows, columns, 3], into the image at (top, left)."""
    bottom, right = top + tf.shape(patch)[0], left + tf.shape(patch)[1]
    rows = image[top:bottom]
    rows = tf.concat([rows[:, :left], patch, rows[:, right:]], 1)
    pasted = tf.concat([image[:top], rows, image[bottom:]], 0)
    return tf.ensure_shape(pasted, image.shape)


def _rows(image: tf.Tensor) -> tf.Tensor:
    """Reshapes [height, width, 3] to [height, width * 3].

    Arithmetic with an operand as long as a row takes a fifth of the time that it takes
    with an operand of three values.
    """
    return tf.reshape(image, [tf.shape(image)[0], -1])


def _luma(pixels: tf.Tensor) -> tf.Tensor:
    """Returns the gray value of each float32 pixel, three times, in whole numbers.

    The values equal Pillow's exactly: every sum of whole numbers is below 2**24.
    """
    weights = tf.tile(tf.constant(_LUMA)[:, None], [1, 3])
    weighted = tf.matmul(tf.reshape(pixels, [-1, 3]), weights)
    return tf.reshape(tf.floor((weighted + 32768.0) / 65536.0), tf.shape(pixels))


def _blend(start: tf.Tensor, end: tf.Tensor, factor: Number) -> tf.Tensor:
    """Blends from start (factor 0) to end (1) or beyond; equals `Image.blend`."""
    return _to_uint8(start + factor * (end - start))


def _to_uint8(values: tf.Tensor) -> tf.Tensor:
    """Clips to 0..255 and drops the fraction: Pillow does not round."""
    low, high = tf.constant(0.0, values.dtype), tf.constant(255.0, values.dtype)
    return tf.cast(tf.clip_by_value(values, low, high), tf.uint8)
