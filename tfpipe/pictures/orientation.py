"""The orientation of an image file, read from its metadata by the rule of Pillow.

In: EXIF data and XMP data. Out: the EXIF orientation, 1 to 8, by which Pillow's
`exif_transpose` turns the image. Damaged metadata count as none. Pillow is not
imported, because the import takes longer than reading ten thousand headers;
`pixels.read_orientation` asks Pillow itself about an image that it opened.
"""

import re
import struct

TAG = 0x0112
# Orientations that need a turn, and those whose rows are columns of the upright image.
TURNED = range(2, 9)
SIDEWAYS = range(5, 9)

_PREFIX = re.compile(rb"(?:Exif\0\0){1,2}")
# Byte orders by the first bytes, with the misspellings that Pillow accepts.
_ORDERS = {b"II*\0": "<", b"II\0*": "<", b"MM\0*": ">", b"MM*\0": ">", b"MM\0+": ">"}
# TIFF types: bytes of a value, and how `struct` reads a number; texts have no number.
_TYPES = {
    **dict.fromkeys((1, 2, 7), (1, "")),
    **{3: (2, "H"), 4: (4, "L"), 5: (8, "2L"), 6: (1, "b"), 8: (2, "h"), 9: (4, "l")},
    **{10: (8, "2l"), 11: (4, "f"), 12: (8, "d"), 13: (4, "L"), 16: (8, "Q")},
}
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


def read(exif: bytes, xmp: bytes) -> int:
    """Returns the orientation, 1 to 8; 1 if there is none or none of these.

    Args:
        exif: EXIF data, with or without the prefix "Exif"; several segments in a row
            without the later prefixes. Empty if there is none.
        xmp: XMP data, which count if the EXIF data have no orientation.
    """
    value = _exif_value(exif) if exif else None
    if value is None and (match := _XMP.search(xmp)):
        value = int(match[1])
    return int(value) if value is not None and value in TURNED else 1


def _exif_value(exif: bytes) -> float | None:
    """Returns the number in the first entry of the orientation.

    Returns:
        0 for an entry without a number; None without an entry before the first damage.
    """
    prefix = _PREFIX.match(exif)
    tiff = exif[prefix.end() :] if prefix else exif
    order = _ORDERS.get(tiff[:4])
    try:
        return _entry_value(tiff, order) if order else None
    except struct.error:  # the data end before the entry
        return None


def _entry_value(tiff: bytes, order: str) -> float | None:
    """As `_exif_value`, after the prefix; raises struct.error where the data end."""
    (first,) = struct.unpack_from(f"{order}L", tiff, 4)
    (num_entries,) = struct.unpack_from(f"{order}H", tiff, first)
    entry = struct.Struct(f"{order}HHLL")
    num_bytes, seen = 0, set[int]()
    for start in range(first + 2, first + 2 + 12 * num_entries, 12):
        tag, kind, num_values, offset = entry.unpack_from(tiff, start)
        size, number_format = _TYPES.get(kind, (0, ""))
        if tag in seen:  # the first sound entry of a tag counts
            continue
        size *= num_values
        if size > 4:
            num_bytes += size
            if num_bytes > len(tiff):
                continue
            if offset + size > len(tiff):
                return None
        else:
            offset = start + 8
        if size:
            seen.add(tag)
        if tag == TAG and size:
            values = struct.unpack_from(order + number_format, tiff, offset)
            if len(values) == 2:
                return float(values[0] / values[1]) if values[1] else 0
            return float(values[0]) if values else 0
    return None
