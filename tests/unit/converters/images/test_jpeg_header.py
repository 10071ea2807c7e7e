"""converters.images.jpeg_header: EXIF orientation, and the end of the file."""

import struct
from collections.abc import Callable

import pytest

from converters.images import jpeg_header
from tests.support.data.jpegs import many_scans
from tests.support.data.trees import make_jpeg


@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_in_either_byte_order_and_cut_anywhere(order: str) -> None:
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entries = [
        (0x0110, 2, 4, b"\x12\1\3\0"),
        (0x0112, 3, 1, struct.pack(order + "HH", 8, 0)),
    ]
    exif = mark + struct.pack(order + "IH", 8, len(entries))
    for tag, kind, count, value in entries:
        exif += struct.pack(order + "HHI", tag, kind, count) + value

    assert jpeg_header.exif_orientation(b"?" + exif, 1, 1 + len(exif)) == 8
    for cut in range(len(exif) - 3):
        assert jpeg_header.exif_orientation(exif[:cut], 0, cut) == 1
        assert jpeg_header.exif_orientation(exif, 0, cut) == 1


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
