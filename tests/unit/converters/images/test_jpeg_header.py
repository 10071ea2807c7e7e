"""converters.images.jpeg_header: EXIF orientation."""

import struct

import pytest

from converters.images import jpeg_header


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
