"""converters.images.jpeg_header: the end of the file."""

from collections.abc import Callable

import pytest
import tensorflow as tf

from converters.images import jpeg_header
from tests.support.data.jpegs import many_scans
from tests.support.data.trees import make_jpeg


def _photo(seed: int) -> bytes:
    """A photo of a few kB, whose second half is all scan."""
    return make_jpeg(seed, height=120, width=160)


@pytest.mark.parametrize(
    ("make", "is_whole"),
    [
        (lambda one, other: one, True),
        (lambda one, other: one + bytes(5000), True),
        (lambda one, other: one + b"SEFT and other trailers of a camera", True),
        (lambda one, other: one + other, True),  # as cameras with two lenses write
        (lambda one, other: one + other + bytes(16), True),
        (lambda one, other: one[: len(one) // 2], False),
        (lambda one, other: one[: len(one) // 2] + bytes(5000), False),
        (lambda one, other: one[: len(one) // 2] + other + bytes(16), False),
        (lambda one, other: one[: len(one) // 2] + other + b"junk", False),
        (lambda one, other: one[:-2] + b"\xff\x01" + one[-2:] + b"junk", True),
    ],
)
def test_bytes_behind_the_end_hide_no_cut(
    make: Callable[[bytes, bytes], bytes], is_whole: bool
) -> None:
    data = make(_photo(1), _photo(2))

    assert jpeg_header.read_header(data).whole is is_whole


def test_a_progressive_photo_with_a_tail_is_whole() -> None:
    data = many_scans(64, 64, 3)

    assert jpeg_header.read_header(data + bytes(99)).whole
    assert not jpeg_header.read_header(data[:-2] + bytes(99)).whole


@pytest.mark.parametrize("length", [b"\0\0", b"\0\1"])
@pytest.mark.parametrize("note", [b"\xff\xfe", b"\xff\xe2", b"\xff\xe0"])
def test_a_note_that_is_too_short_is_passed_over(note: bytes, length: bytes) -> None:
    photo = _photo(3)
    data = photo[:2] + note + length + photo[2:]

    assert jpeg_header.read_header(data)[:3] == tf.io.decode_jpeg(data).shape
