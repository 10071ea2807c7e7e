"""Rare JPEGs: both ops make the same pixels of them, or both refuse them."""

import base64
import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.support.data.native_op import (  # noqa: F401
    each_crop_op,
    native_op,
    needs_native,
    on_both_ops,
)
from tfpipe.native import entry_points
from tfpipe.ops.crop import crop_image

SIDE = 24
WHOLE = (0, 0, SIDE, SIDE)
CROP_BOXES = [WHOLE, (5, 3, 17, 20), (8, 16, 16, 8), (23, 23, 1, 1)]

Y, X = np.mgrid[:SIDE, :SIDE]
INKS = np.stack([X * 10, Y * 9, 255 - 5 * X - 5 * Y, 4 * np.maximum(X, Y)], -1)


def saved(mode="RGB", size=None, **options):
    """The inks as a JPEG, by default of 24 x 24 pixels."""
    pixels = INKS.astype(np.uint8)
    if mode == "CMYK":
        image = PIL.Image.fromarray(pixels, "CMYK")
    else:
        image = PIL.Image.fromarray(pixels[..., :3]).convert(mode)
    out = io.BytesIO()
    (image.resize(size) if size else image).save(out, "JPEG", **options)
    return out.getvalue()


def segments(jpeg):
    """Splits a JPEG into the segments of its header; the last one holds the scan."""
    found, at = [jpeg[:2]], 2
    while jpeg[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        found.append(jpeg[at:end])
        at = end
    return [*found, jpeg[at:]]


def without(jpeg, marker):
    """Leaves out the segments of a marker."""
    return b"".join(part for part in segments(jpeg) if part[1] != marker)


def changed(jpeg, marker, offset, new):
    """Replaces bytes of the first segment of a marker."""
    parts = segments(jpeg)
    (number, *_) = (n for n, part in enumerate(parts) if part[1] in marker)
    part = bytearray(parts[number])
    part[offset : offset + len(new)] = new
    return b"".join([*parts[:number], bytes(part), *parts[number + 1 :]])


def frame(jpeg, offset, *new):
    """Replaces bytes of the frame header: 1 its kind, 4 bits, 5 height, 7 width."""
    return changed(jpeg, (0xC0, 0xC2), offset, bytes(new))


def transform(jpeg, number):
    """Replaces the color transform in Adobe's marker: 0 none, 1 YCbCr, 2 YCCK."""
    return changed(jpeg, (0xEE,), 15, bytes([number]))


BASE = saved(quality=90)
CMYK = saved("CMYK", quality=90)
RGB = saved(keep_rgb=True, quality=90)

INKED = {
    "CMYK": CMYK,
    "CMYK 4:2:0": saved("CMYK", subsampling=2),
    "CMYK progressive": saved("CMYK", progressive=True),
    "CMYK without Adobe's marker": without(CMYK, 0xEE),
    "YCCK": transform(CMYK, 2),
    "YCCK 4:2:0": transform(saved("CMYK", subsampling=2), 2),
    "YCCK of an unknown transform": transform(CMYK, 7),
}
COLORED = {
    "baseline": BASE,
    "RGB": RGB,
    "RGB without Adobe's marker": without(RGB, 0xEE),
    "YCbCr with Adobe's marker": transform(RGB, 1),
    "extended sequential": frame(BASE, 1, 0xC1),
    "progressive with restarts": saved(progressive=True, restart_marker_rows=1),
    "progressive gray with restarts": saved(
        "L", progressive=True, restart_marker_blocks=2
    ),
    "16-bit quantization": saved(qtables=[[n * 5 + 3 for n in range(64)]] * 2),
    "without Huffman tables": without(BASE, 0xC4),
    "bytes after the end": BASE + b"what follows the end does no harm",
    "zeros after the end": BASE + bytes(5000),
    "two images, one after the other": BASE + saved(quality=10),
    "progressive, then another": saved(progressive=True) + BASE,
    "fill bytes": BASE[:2] + b"".join(b"\xff\xff" + x for x in segments(BASE)[1:]),
    "junk between segments": BASE[:2] + b"junk".join(segments(BASE)[1:]),
    "thumbnail in the header": saved(exif=b"Exif\0\0" + saved("L", size=(8, 8))),
    "long comment": saved(comment=b"\xff\xd8" * 30_000),
}


# Images of 24 x 24 pixels in forms that Pillow does not write, from the encoder of
# libjpeg-turbo 3. Names say the sampling: luma 1x2 and 3x1, or chroma more densely than
# luma, 2x1 and 1x2.
MADE = {
    "arithmetic": base64.b64decode(
        "/9j/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLD"
        "AxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
        "MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/yQARCAAYABgDASIAAhEBAxEB/8wACgAQEA"
        "UBEBEF/9oADAMBAAIRAxEAPwD/ALa4OhaQvm0caox361kFYTdfhkFJfMH+SPFEyPKSUKeVCDFz"
        "fLiew+4Bi6K1O5rgB8wgPb681XFYeDUwZkS59dezpdqg3rtuaVitFJz/2Q=="
    ),
    "arithmetic progressive": base64.b64decode(
        "/9j/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLD"
        "AxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
        "MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/ygARCAAYABgDASIAAhEBAxEB/8wABgAQAR"
        "D/2gAMAwEAAhADEAAAAf8AbJN+83f6Z1SPmFl/3e3W7HrH4kD/zAAEEAX/2gAIAQEAAQUCEqHN"
        "R4JK/8wABBEF/9oACAEDAQE/ARWnl2vT8Sd1g5GQ/8wABBEF/9oACAECAQE/ATh+f6s14kHer5"
        "b/zAAEEAX/2gAIAQEABj8CwP/MAAQQBf/aAAgBAQABPyHq/9oADAMBAAIAAwAAABBKikL/zAAE"
        "EQX/2gAIAQMBAT8QUBwxuPD/zAAEEQX/2gAIAQIBAT8Qp1vTY56A/8wABBAF/9oACAEBAAE/EK"
        "gTr9VKrG7/2Q=="
    ),
    "non-interleaved": base64.b64decode(
        "/9j/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLD"
        "AxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
        "MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/wAARCAAYABgDASIAAhEBAxEB/8QAFgABAQ"
        "EAAAAAAAAAAAAAAAAABQEH/8QAGBAAAgMAAAAAAAAAAAAAAAAAAAMEITH/2gAIAQEAAD8AzVEH"
        "KE0QcoURByiIg5QmiDlCaIOUREHKFEQcoTRByj//xAAVAQEBAAAAAAAAAAAAAAAAAAAGBP/EAB"
        "sRAAEFAQEAAAAAAAAAAAAAAAADBAUhMRIi/9oACAECEQA/AGMjLbYMcS3vSCRcqXYMcOVO9P/E"
        "ABUBAQEAAAAAAAAAAAAAAAAAAAcD/8QAHREAAQQCAwAAAAAAAAAAAAAAAAECBCEDBRMjMf/aAA"
        "gBAxEAPwCWpneWIUWd1pYK6nK6hCi5X8aH/9k="
    ),
    "4:4:0": base64.b64decode(
        "/9j/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLD"
        "AxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
        "MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/wAARCAAYABgDARIAAhEBAxEB/8QAGAAAAw"
        "EBAAAAAAAAAAAAAAAAAAUGAQf/xAAYEAACAwAAAAAAAAAAAAAAAAAAAwQhMf/EABcBAQEBAQAA"
        "AAAAAAAAAAAAAAUGBwP/xAAaEQACAgMAAAAAAAAAAAAAAAAABANhAgVR/9oADAMBAAIRAxEAPw"
        "DmqIOUUyIOUaAxtrB1HrFiIOUUyIOUAs7aynUesWog5RSog5QCxtrKZR6zEQcoDiwzJ0wpSXMa"
        "Ig5QATDMnSmUlyGaIOUACwzJ0p1Jsz//2Q=="
    ),
    "3:1": base64.b64decode(
        "/9j/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLD"
        "AxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
        "MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/wAARCAAYABgDATEAAhEBAxEB/8QAFgABAQ"
        "EAAAAAAAAAAAAAAAAABQEH/8QAGBAAAgMAAAAAAAAAAAAAAAAAAAMEITH/xAAVAQEBAAAAAAAA"
        "AAAAAAAAAAAFBv/EABkRAAIDAQAAAAAAAAAAAAAAAAAxAwQFBv/aAAwDAQACEQMRAD8AzVEHKE"
        "0QcoURByi12bbGuenREQcoTRByhNEHKJjZtsH56dERByhREHKE0Qcomdm2wjnp0f/Z"
    ),
    "dense chroma": base64.b64decode(
        "/9j/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLD"
        "AxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
        "MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/wAARCAAYABgDAREAAiEBAxIB/8QAFQABAQ"
        "AAAAAAAAAAAAAAAAAABgX/xAAdEAABBAIDAAAAAAAAAAAAAAAAAQMEIgUTISMx/8QAFwEAAwEA"
        "AAAAAAAAAAAAAAAAAAUHA//EABwRAAICAgMAAAAAAAAAAAAAAAAEAwUBIzFRYf/aAAwDAQACEQ"
        "MRAD8AJQMF5QoDFt6IWbb03qZ+BPUz8CFjBdaUELFt6BWlZ9eBOrPrwXoERnipiwzJ2ImGZOyS"
        "1M/ACFiIzrSohYZk7AoSs+vAH//Z"
    ),
    "lossless gray": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/wwALCAAYABgBAREA/8QAFgABAQEAAAAAAAAAAAAAAAAABA"
        "AI/9oACAEBAAEAAM/qUpSlKUpSlKUpSlKUpSpSlKUpSlKUpSlKUpSlKVKUpSlKUpSlKUpSlKUp"
        "SpSlKUpSlKUpSlKUpSlKVKUpSlKUpSlKUpSlKUpSpSlKUpSlKUpSlKUpSlKVKUpSlKUpSlKUpS"
        "lKUpSpSlKUpSlKUpSlKUpSlKVKUpSlKUpSlKUpSlKUpSpSlKUpSlKUpSlKUpSlKVKUpSlKUpSl"
        "KUpSlKUpSpSlKUpSlKUpSlKUpSlKVKUpSlKUpSlKUpSlKUpSpSlKUpSlKUpSlKUpSlKVKUpSlK"
        "UpSlKUpSlKUpSpSlKUpSlKUpSlKUpSlKVKUpSlKUpSlKUpSlKUpSpSlKUpSlKUpSlKUpSlKVKU"
        "pSlKUpSlKUpSlKUpSpSlKUpSlKUpSlKUpSlKVKUpSlKUpSlKUpSlKUpSpSlKUpSlKUpSlKUpSl"
        "KVKUpSlKUpSlKUpSlKUpSpSlKUpSlKUpSlKUpSlKV//9k="
    ),
    "12 bits": base64.b64decode(
        "/9j/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLD"
        "AxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
        "MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/wQARDAAYABgDAREAAhEBAxEB/8QAFgABAQ"
        "EAAAAAAAAAAAAAAAAACQUL/8QAGhAAAAcAAAAAAAAAAAAAAAAAAAcIJTRDUf/EABcBAQEBAQAA"
        "AAAAAAAAAAAAAAkKCwj/xAAaEQABBQEAAAAAAAAAAAAAAAAIACMzQVEH/9oADAMBAAIRAxEAPw"
        "DNgIlDUZqysamhEFlK/trj4UO2wOZaTUiUNRmrKwEZEFlK/tqmcUO2wOZaTYiUNRmvKwEREFlK"
        "/tqmcUO2wOZankShqM1ZWFJIgspX9tY2Qodtgcy0mxEoajNWVgIyILKV/bVNAodtgcy0mpEoaj"
        "NWVgIyILGV/bVM4odtgcy1PIlDUZqysKSRBZSv7axshQ7bA5lpNiJQ1GasrAREQWUr+2qZxQ7b"
        "A5lpNiJQ1GasrARkQWUr+2qZxQ7bA5lr/9k="
    ),
    "two components": base64.b64decode(
        "/9j/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLD"
        "AxNDQ0Hyc5PTgyPC4zNDL/wAAOCAAYABgCABEAAREA/8QAFgABAQEAAAAAAAAAAAAAAAAABwAI"
        "/8QAGBAAAgMAAAAAAAAAAAAAAAAAAAUVQmL/2gAKAgAAAQAAPwAiQ1B6EyKCGpQmRQQ1KEyZfQ"
        "1EiEyKCGpQmRQQ1KEyZfQ1EmEyKCGpQmRQQ1KEyf/Z"
    ),
}
UNREAD = ("lossless gray", "12 bits", "two components")

# Images that both ops refuse, and a part of the native op's message.
BAD = "The JPEG data are bad: "
REFUSED = {
    "12 bits": (MADE["12 bits"], "must have 8 bits a value, got 12"),
    "12 bits in the header alone": (frame(BASE, 4, 12), "8 bits a value, got 12"),
    "two components": (MADE["two components"], BAD),
    "lossless gray": (MADE["lossless gray"], BAD),
    "side too long": (frame(BASE, 7, 0xFF, 0xFF), BAD + "Maximum supported image"),
    "without quantization tables": (without(BASE, 0xDB), BAD),
    "without a frame": (without(BASE, 0xC0), BAD),
    "without an end": (BASE[:-2], BAD + "Premature end"),
    "two frames": (
        b"".join(part * (1 + (part[1] == 0xC0)) for part in segments(BASE)),
        BAD,
    ),
    "baseline said to be progressive": (frame(BASE, 1, 0xC2), BAD),
}
# Frame headers that do not fit the data: lossless, hierarchical, arithmetic.
REFUSED |= {
    f"said to be of kind {kind:x}": (frame(BASE, 1, kind), BAD)
    for kind in (0xC3, 0xC5, 0xC6, 0xC7, 0xC8, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF)
}


def overflowing(pixels):
    """Divided by 1 and multiplied by 255: many products have more than 16 bits."""
    out = io.BytesIO()
    image = PIL.Image.fromarray(pixels.astype(np.uint8))
    image.save(out, "JPEG", qtables=[[1] * 64], subsampling=0)
    return changed(out.getvalue(), (0xDB,), 5, bytes([255] * 64))


# Odd images: only the agreement of both ops is certain.
ODD = {
    "junk after the start": BASE[:2] + b"junk" + BASE[2:],
    "progressive said to be baseline": frame(saved(progressive=True), 1, 0xC0),
    "said to be arithmetic": frame(BASE, 1, 0xC9),
    "a second start within": BASE[:-2] + BASE,
    "wider than the data": frame(BASE, 7, 0xFF, 0xDC),
    "higher than the data": frame(BASE, 5, 0xFF, 0xDC),
    "large products": overflowing(INKS[..., :3]),
    "large products in the first rows": overflowing(INKS[[0] * SIDE, :, :3]),
}


def pillow(jpeg):
    """The image as Pillow decodes it; inks become colors as in TensorFlow."""
    with PIL.Image.open(io.BytesIO(jpeg)) as image:
        if image.mode != "CMYK":
            return np.asarray(image.convert("RGB"))
        # Pillow always takes inks as inverted, as Adobe writes them.
        inks = np.asarray(image).astype(int)
        inks = 255 - inks if b"Adobe" in jpeg else inks
        return inks[..., :3] * inks[..., 3:] // 255


READABLE = INKED | COLORED | MADE
for unread in UNREAD:
    del READABLE[unread]


def test_pixels_are_those_that_pillow_decodes():
    """The pixels of the stock op; `test_both_ops_do_the_same` has the native one."""
    for name, jpeg in READABLE.items():
        for quality in ("fast", "exact"):
            image = outcome(jpeg, WHOLE, SIDE, quality, "stock")

            np.testing.assert_array_equal(image, pillow(jpeg), err_msg=name)


@on_both_ops
def test_images_that_no_op_can_read_are_refused(request, capfd):
    for name, (jpeg, reason) in REFUSED.items():
        for quality in ("fast", "exact"):
            with pytest.raises(tf.errors.InvalidArgumentError, match="JPEG data") as e:
                crop_image(jpeg, tf.constant(WHOLE), SIDE, quality=quality)
            if "native" in request.node.callspec.id:
                assert reason in e.value.message, name


def outcome(jpeg, crop_box, size, quality, crop_op, table=None):
    """The pixels, or None if the op refuses the image."""
    try:
        image = crop_image(
            jpeg,
            tf.constant(crop_box),
            size,
            quality=quality,
            crop_op=crop_op,
            entry_points=table,
        )
    except tf.errors.InvalidArgumentError:
        return None
    return image.numpy()


OF_ANOTHER_IMAGE = entry_points.find(BASE, distance=1).table


def assert_alike(name, crop_boxes, size):
    jpeg = ALL[name]
    tables = [entry_points.find(jpeg, distance=1).table, OF_ANOTHER_IMAGE]
    for quality in ("fast", "exact"):
        stock = [outcome(jpeg, box, size, quality, "stock") for box in crop_boxes]
        if any(image is None for image in stock):  # the op would refuse a whole batch
            for table in (None, *tables):
                native = [
                    outcome(jpeg, box, size, quality, "native", table)
                    for box in crop_boxes
                ]
                np.testing.assert_equal(native, stock, err_msg=name)
        else:
            options = {"quality": quality, "crop_op": "native"}
            encoded = tf.fill([len(crop_boxes)], jpeg)
            for table in (None, *tables):
                native = crop_image(
                    encoded,
                    tf.constant(crop_boxes),
                    size,
                    entry_points=None
                    if table is None
                    else tf.fill(encoded.shape, table),
                    **options,
                )
                np.testing.assert_equal(native.numpy(), np.stack(stock), err_msg=name)


ALL = READABLE | {name: jpeg for name, (jpeg, _) in REFUSED.items()} | ODD


@needs_native
@pytest.mark.parametrize("names", [sorted(ALL)[n::4] for n in range(4)])
def test_both_ops_do_the_same(names):
    for name in names:
        assert_alike(name, CROP_BOXES, 4)
        assert_alike(name, [WHOLE], 24)


ONE_PIXEL = {
    "4:2:0": saved(size=(1, 1)),
    "4:4:4": saved(size=(1, 1), subsampling=0),
    "gray": saved("L", size=(1, 1)),
    "progressive": saved(size=(1, 1), progressive=True),
    "restarts": saved(size=(1, 1), restart_marker_blocks=1),
    "CMYK": saved("CMYK", size=(1, 1)),
}


@on_both_ops
def test_one_pixel_fills_the_image():
    for name, jpeg in ONE_PIXEL.items():
        for size in (1, 8):
            image = crop_image(jpeg, tf.constant((0, 0, 1, 1)), size).numpy()

            np.testing.assert_array_equal(
                image, np.tile(pillow(jpeg), (size, size, 1)), err_msg=name
            )


@on_both_ops
@pytest.mark.parametrize(
    ("size", "crop_box"),
    [((65500, 3), (0, 65497, 3, 3)), ((3, 65500), (65497, 0, 3, 3))],
    ids=["wide", "high"],
)
def test_the_longest_side_is_read_to_its_end(size, crop_box):
    jpeg = saved(size=size, subsampling=0)

    image = crop_image(jpeg, tf.constant(crop_box), 3)

    np.testing.assert_array_equal(image, pillow(jpeg)[-3:, -3:])
