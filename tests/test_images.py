"""converters.images: what an image file really is, and what is stored for it."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from converters import images
from tests.conftest import make_jpeg


def _saved(mode: str = "RGB", kind: str = "JPEG", **options: object) -> bytes:
    pixels = np.linspace(0, 255, 24 * 36 * 3).reshape(24, 36, 3).astype(np.uint8)
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).convert(mode).save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "decision"),
    [
        (_saved(), "kept"),
        (_saved(subsampling=2), "kept"),
        (_saved(optimize=True, restart_marker_rows=1), "kept"),
        (_saved(exif=b"Exif\0\0" + b"x" * 300), "kept"),
        (_saved("L"), "kept_grayscale"),
        (_saved(progressive=True), "kept_progressive"),
    ],
)
def test_jpeg_is_stored_byte_for_byte(data: bytes, decision: str) -> None:
    assert images.prepare(data) == (data, 24, 36, decision)


@pytest.mark.parametrize(
    ("data", "decision"),
    [
        (_saved("CMYK"), "reencoded_cmyk"),
        (_saved(kind="PNG"), "reencoded_png"),
        (_saved(kind="GIF"), "reencoded_gif"),
        (_saved(kind="WEBP", lossless=True), "reencoded_webp"),
        (_saved(kind="BMP"), "reencoded_bmp"),
    ],
)
def test_other_images_become_jpegs_of_the_same_picture(
    data: bytes, decision: str
) -> None:
    prepared = images.prepare(data)

    assert prepared[1:] == (24, 36, decision)
    stored = tf.io.decode_and_crop_jpeg(prepared.encoded, [0, 0, 24, 36]).numpy()
    original = np.asarray(PIL.Image.open(io.BytesIO(data)).convert("RGB"))
    assert np.abs(stored.astype(int) - original).mean() < 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"these are no pixels", "not an image"),
        (b"\x89PNG\r\n\x1a\n", "not an image"),
        (_saved()[:100], "no frame header"),
        (b"\xff\xd8", "no frame header"),
        (b"\xff\xd8abcdef", "marker expected at byte 2"),
    ],
)
def test_what_is_no_image_is_an_error(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        images.prepare(data)


def test_zero_height_is_an_error() -> None:
    data = bytearray(make_jpeg(0))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 7] = b"\0\0"

    with pytest.raises(ValueError, match="got 40x0 and 3"):
        images.read_header(bytes(data))


def test_fill_bytes_before_a_marker_are_skipped() -> None:
    data = make_jpeg(0)

    header = images.read_header(data[:2] + b"\xff\xff" + data[2:])

    assert header == images.Header(32, 40, 3, False)
