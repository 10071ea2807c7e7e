"""Images that are no JPEG, and sizes that the record does not state.

In: encoded images. Out: the height and width in their headers; the pixels of a crop box
of a PNG. The first two bytes of an image tell its format. JPEG and PNG are read; GIF,
BMP and WebP are refused with their names. Any other data is left to the JPEG decoder,
which refuses it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfpipe.native import record_op
from tfpipe.ops import stateless_random

# Formats by the first two bytes of their images.
_FORMATS = {b"\x89P": "PNG", b"GI": "GIF", b"BM": "BMP", b"RI": "WebP"}
# Matches those bytes; \C is any byte, as 0x89 is no character.
_OTHER = r"\CP|GI|BM|RI"


def any_other(encoded: tf.Tensor) -> tf.Tensor:
    """Returns whether any image is of a known format that is not JPEG.

    Args:
        encoded: string or variant [] or [n].

    Returns:
        bool [].
    """
    is_other = _is_other(encoded)
    return tf.reduce_any(is_other) if encoded.shape.rank else is_other


def _is_other(encoded: tf.Tensor) -> tf.Tensor:
    # Two ops: a comparison with each format would take 20 us an image.
    return tf.strings.regex_full_match(record_op.image_bytes(encoded, most=2), _OTHER)


def by_format(
    of_jpeg: Callable[..., tf.Tensor],
    of_other: Callable[..., tf.Tensor],
    values: Sequence[tf.Tensor],
) -> tf.Tensor:
    """Calls one function with the JPEGs, and another with images of other formats.

    Args:
        of_jpeg: Takes the values of an image or of a batch, and returns its pixels.
        of_other: Returns the same for images of any format, which it gets as strings.
        values: Encoded images, string or variant [] or [n], and what else the functions
            take.

    Returns:
        The pixels of the image, or of each image in the order of the batch.
    """

    def of_strings(encoded: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
        return of_other(record_op.image_bytes(encoded), *others)

    def mixed() -> tf.Tensor:
        if not values[0].shape.rank:
            return of_strings(*values)
        is_other = _is_other(values[0])
        places = [tf.where(chosen)[:, 0] for chosen in (~is_other, is_other)]
        made = [
            function(*(tf.gather(value, place) for value in values))
            for function, place in zip((of_jpeg, of_strings), places, strict=True)
        ]
        order = tf.argsort(tf.concat(places, 0))
        pixels = tf.gather(tf.concat(made, 0), order)
        return tf.ensure_shape(pixels, values[0].shape + pixels.shape[1:])

    return tf.cond(any_other(values[0]), one_node(mixed), lambda: of_jpeg(*values))


def one_node(branch: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a branch of `tf.cond` as one node of a graph.

    The executor visits every op of a branch that it does not take. To visit the ops of
    a whole crop takes a tenth of the time of a native crop.
    """
    if tf.executing_eagerly():
        return branch
    attributes = {"_noinline": True}
    made: Callable[[], Any] = tf.function(
        branch, autograph=False, experimental_attributes=attributes
    )
    return made


def sizes(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads the height and the width of each image from its header.

    Args:
        encoded: string or variant [] or [n], JPEG or PNG.

    Returns:
        height, width: int32 [] or [n], pixels.

    Raises:
        tf.errors.InvalidArgumentError: If an image is neither JPEG nor PNG.
    """

    def one(encoded: tf.Tensor) -> tf.Tensor:
        return tf.cond(
            any_other(encoded),
            lambda: _png_size(encoded),
            lambda: tf.io.extract_jpeg_shape(encoded)[:2],
        )

    def of_strings() -> tf.Tensor:
        spec, is_batch = tf.TensorSpec([2], tf.int32), encoded.shape.rank > 0
        strings = record_op.image_bytes(encoded)
        return stateless_random.each(one, [strings], spec, is_batch=is_batch)

    if encoded.dtype == tf.string:
        found = of_strings()
    else:
        read = record_op.jpeg_sizes(encoded)
        # What this op cannot read is a PNG, or an error that TensorFlow's ops describe.
        is_all = tf.reduce_all(read > 0)
        found = tf.cond(is_all, lambda: read, one_node(of_strings))
    return found[..., 0], found[..., 1]


def crop_box_pixels(
    encoded: tf.Tensor, crop_box: tf.Tensor, of_jpeg: Callable[[], tf.Tensor]
) -> tf.Tensor:
    """Decodes the crop box of one image.

    A PNG is decoded as a whole. Gray and palettes become RGB, an alpha channel is left
    out, and 16 bits a value become the upper 8.

    Args:
        encoded: string [], JPEG or PNG.
        crop_box: int32 [4], top, left, height, width in pixels, within the image.
        of_jpeg: Returns the pixels if the image is a JPEG.

    Returns:
        uint8 [height, width, 3], the result of `of_jpeg` or the pixels of a PNG.

    Raises:
        tf.errors.InvalidArgumentError: If the image is a GIF, BMP or WebP.
    """

    def of_png() -> tf.Tensor:
        with tf.control_dependencies([_require_png(encoded)]):
            pixels = tf.io.decode_png(encoded, channels=3)
        zero, three = tf.constant([0]), tf.constant([3])
        begin = tf.concat([crop_box[:2], zero], 0)
        return tf.slice(pixels, begin, tf.concat([crop_box[2:], three], 0))

    return tf.cond(any_other(encoded), of_png, of_jpeg)


def _png_size(encoded: tf.Tensor) -> tf.Tensor:
    """Returns int32 [2], height and width: 4 bytes each, in the first chunk."""
    with tf.control_dependencies([_require_png(encoded)]):
        sides = tf.strings.substr(encoded, 16, 8)
    return tf.io.decode_raw(sides, tf.int32, little_endian=False)[::-1]


def _require_png(encoded: tf.Tensor) -> tf.Operation:
    is_of_format = tf.strings.substr(encoded, 0, 2) == tf.constant([*_FORMATS])
    kind = tf.argmax(tf.cast(is_of_format, tf.int32))
    return tf.debugging.Assert(
        kind == 0,
        [
            "The image must be JPEG or PNG, got",
            tf.gather([*_FORMATS.values()], kind),
            "Store it as JPEG or PNG when the records are written.",
        ],
    )
