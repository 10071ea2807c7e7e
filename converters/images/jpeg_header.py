"""Reads and checks the header of a JPEG, without decoding the image.

In: bytes that begin like a JPEG; the rest may be any bytes. Out: a `Header`: size,
components, coding process, EXIF orientation, Adobe marker, and whether the file is
whole. The same headers are accepted as by libjpeg-turbo, with which TensorFlow decodes
the records: fill bytes and junk before a marker are skipped, reserved markers are
faults. The content of the scans is not read, only the start of the first scan and the
EOI marker. A JPEG with bytes after its last EOI marker is read to its end.
"""

import re
from typing import NamedTuple

from tfpipe.pictures import orientation

MAGIC = b"\xff\xd8\xff"
EOI = b"\xff\xd9"

BASELINE, EXTENDED, PROGRESSIVE = 0xC0, 0xC1, 0xC2
# Arithmetic coding: TensorFlow decodes it, hardware decoders do not.
ARITHMETIC = frozenset({0xC9, 0xCA})
_PROGRESSIVE = frozenset({PROGRESSIVE, 0xCA})
# libjpeg's own limit of a side, in pixels.
MAX_SIDE = 65500

# More than any encoder writes, and few enough to read in a second.
_MAX_MARKERS = 1_000_000
# Number of scans that encoders write into a progressive JPEG.
SCANS_OF_ONE_DECODE = 10

_SOS, _SOS_MARKER = 0xDA, b"\xff\xda"
# Frame headers are C0 to CF without DHT (C4), JPG (C8) and DAC (CC).
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_DECODABLE = ARITHMETIC | {BASELINE, EXTENDED, PROGRESSIVE}
# COM and APPn: libjpeg passes over a length of 0 or 1, and over no more bytes.
_NOTES = frozenset({0xFE, *range(0xE0, 0xF0)})
# DHT, DAC, DQT, DNL, DRI, COM and APPn: a length, followed by that many bytes.
_SEGMENTS = _NOTES | {0xC4, 0xCC, 0xDB, 0xDC, 0xDD}
# Markers without a length: the stuffed zero, TEM and the restart markers.
_BARE = frozenset({0x00, 0x01, *range(0xD0, 0xD8)})
_APP1, _APP14, _TEM = 0xE1, 0xEE, 0x01
_EXIF, _XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
# The codes of a scan end at a marker other than stuffed zero, restart and fill byte.
_END_OF_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


class BadImageError(Exception):
    """The reason why an image cannot be stored.

    Args:
        reason: Name of the reason in snake case, by which rejects are counted.
        detail: An explanation of one line.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Header(NamedTuple):
    """Facts from the markers of a JPEG before its first scan.

    Attributes:
        height: Height in pixels as stored, before EXIF orientation.
        width: Width in pixels.
        num_components: 1, 3 or 4.
        process: Second byte of the frame marker: BASELINE, PROGRESSIVE ...
        orientation: EXIF orientation, 1 to 8, also from XMP; 1 if there is none.
        adobe_transform: Color transform in the Adobe marker (0 none, 1 YCbCr, 2 YCCK);
            None without that marker.
        scan: Offset of the codes of the first scan in bytes.
        whole: Whether an EOI marker follows the first scan, with any bytes after it.
            Without such bytes only the end is looked at, else each scan: see `has_end`.
        multi_scan: Whether the JPEG is progressive, or has components in separate
            scans. Decoders keep all coefficients of such a JPEG in memory.
    """

    height: int
    width: int
    num_components: int
    process: int
    orientation: int
    adobe_transform: int | None
    scan: int
    whole: bool
    multi_scan: bool


def read_header(data: bytes) -> Header:
    """Reads the header of a JPEG (ITU-T T.81, annex B).

    Args:
        data: Content of the file; begins with MAGIC.

    Raises:
        BadImageError: "truncated" if the data ends before its first scan, "undecodable"
            if libjpeg would refuse it.
    """
    try:
        return _walk(data)
    except IndexError:
        raise BadImageError(
            "truncated",
            f"a JPEG must have a header and a scan, got {len(data)} bytes that end "
            "before the scan: the file is cut short",
        ) from None


def _walk(data: bytes) -> Header:
    """Reads one marker after another; raises IndexError where the data ends."""
    frame, adobe_transform = 0, None
    # As Pillow has it: EXIF segments are parts of one, the last XMP segment counts.
    exif: list[bytes] = []
    xmp = b""
    position = 2
    for _ in range(_MAX_MARKERS):
        if data[position] != 0xFF:
            position = _next_marker(data, position)
        marker = data[position + 1]
        if marker in _SEGMENTS:
            if marker == _APP1:
                end = position + 2 + (data[position + 2] << 8 | data[position + 3])
                if data.startswith(_EXIF, position + 4):
                    exif.append(data[position + (10 if exif else 4) : end])
                elif data.startswith(_XMP, position + 4):
                    xmp = data[position + 4 + len(_XMP) : end]
            elif marker == _APP14 and data.startswith(b"Adobe", position + 4):
                adobe_transform = data[position + 15]
        elif marker in _FRAMES and not frame:
            frame = position
        elif marker == 0xFF:  # fill byte
            position += 1
            continue
        elif marker in _BARE:
            position += 2
            continue
        elif marker != _SOS or not frame:
            raise _undecodable(f"got marker 0x{marker:02x} at byte {position}")
        length = data[position + 2] << 8 | data[position + 3]
        if length < 2 and marker not in _NOTES:
            raise _undecodable(f"got a segment length of {length} at byte {position}")
        if marker == _SOS:
            turned = orientation.read(b"".join(exif), xmp)
            return _header(data, frame, turned, adobe_transform, position)
        position += 2 + max(length, 2)
    raise _undecodable(f"got {_MAX_MARKERS:,} markers before its first scan")


def _next_marker(data: bytes, position: int) -> int:
    """Returns the offset of the next 0xFF; libjpeg skips the bytes before it."""
    found = data.find(b"\xff", position)
    return len(data) if found < 0 else found


def has_end(data: bytes, scan: int) -> bool:
    """Whether a decoder that goes from scan to scan reaches an EOI marker.

    A file that was cut and has another file behind it does not: the other file begins
    with a marker that no JPEG may have after a scan. `Header.whole` is quicker, because
    it trusts an EOI marker in the last two bytes.

    Args:
        data: Content of the file.
        scan: Offset of its first scan, as in `Header`.
    """
    position = scan
    while found := _END_OF_SCAN.search(data, position):
        position = found.start()
        if (marker := data[position + 1]) == EOI[1]:
            return True
        position += 2
        if marker in _SEGMENTS or marker == _SOS:
            position += int.from_bytes(data[position : position + 2], "big")
        elif marker != _TEM:
            return False
    return False


def count_scans(data: bytes, scan: int) -> int:
    """Counts the scans up to the EOI marker, at most a million.

    Up to SCANS_OF_ONE_DECODE the result may be too large, but never too small.

    Args:
        data: Content of the file.
        scan: Offset of its first scan, as in `Header`.
    """
    # A quick upper bound: every scan has an SOS marker, and segments may hold its bytes
    # by chance. The codes of a scan never do.
    most = 1 + data.count(_SOS_MARKER, scan)
    if most <= SCANS_OF_ONE_DECODE:
        return most
    count, position = 1, scan
    for _ in range(_MAX_MARKERS):
        found = _END_OF_SCAN.search(data, position)
        if found is None or data.startswith(EOI, found.start()):
            return count
        position = found.start()
        count += data.startswith(_SOS_MARKER, position)
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return _MAX_MARKERS


def _header(
    data: bytes, frame: int, turned: int, adobe_transform: int | None, sos: int
) -> Header:
    """Reads the frame header at `frame` and the scan header at `sos`, and checks both.

    Raises:
        BadImageError: "undecodable".
    """
    process, bits, num_components = data[frame + 1], data[frame + 4], data[frame + 9]
    height = data[frame + 5] << 8 | data[frame + 6]
    width = data[frame + 7] << 8 | data[frame + 8]
    if process not in _DECODABLE or bits != 8 or num_components not in (1, 3, 4):
        raise _undecodable(
            f"got frame type 0x{process:02x} with {num_components} components of "
            f"{bits} bits; baseline or progressive with 1, 3 or 4 components of 8 bits "
            "can be stored"
        )
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        raise _undecodable(
            f"got {width}x{height} pixels, where each side must be 1 to {MAX_SIDE}"
        )
    scan = sos + 2 + (data[sos + 2] << 8 | data[sos + 3])
    last = data.rfind(EOI, scan)
    whole = last >= 0 and (last == len(data) - 2 or has_end(data, scan))
    parts = sos + 4 < len(data) and data[sos + 4] != num_components
    return Header(
        height,
        width,
        num_components,
        process,
        turned,
        adobe_transform,
        scan,
        whole,
        process in _PROGRESSIVE or parts,
    )


def _undecodable(got: str) -> BadImageError:
    return BadImageError("undecodable", f"a JPEG must be one that decodes, {got}")
