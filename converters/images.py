"""What an image file really is, from its bytes, and what is stored for it.

In: the bytes of a file that calls itself a JPEG. Out: JPEG bytes that TensorFlow's
decode_and_crop_jpeg takes, height, width and the decision that was made. JPEGs of one
or three components are stored byte for byte after a look at the header only; what is
really another format, or CMYK, is decoded and stored as an RGB JPEG of quality 95.
"""

import io
from typing import NamedTuple

import PIL.Image

REENCODE_QUALITY = 95

_SOI = b"\xff\xd8"
_PROGRESSIVE_MARKER = 0xC2
# Frame headers are C0 to CF without DHT (C4), JPG (C8) and DAC (CC).
_SOF_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Markers without a length: TEM and the restart markers.
_BARE_MARKERS = frozenset({0x01, *range(0xD0, 0xD8)})


class Header(NamedTuple):
    """What the frame header of a JPEG says."""

    height: int
    width: int
    num_components: int
    progressive: bool


class Prepared(NamedTuple):
    """What is stored for an image."""

    encoded: bytes
    height: int
    width: int
    decision: str


def prepare(data: bytes) -> Prepared:
    """Decides what to store for a file.

    Decisions: "kept" for a baseline color JPEG, "kept_grayscale", "kept_progressive";
    "reencoded_cmyk" and "reencoded_<format>" for what is stored as another JPEG.

    Raises:
        ValueError: If the bytes are no image, or a JPEG without a usable header.
    """
    if not data.startswith(_SOI):
        return _reencode(data)
    header = read_header(data)
    if header.num_components == 4:
        return _reencode(data)
    decision = "kept"
    if header.num_components == 1:
        decision = "kept_grayscale"
    elif header.progressive:
        decision = "kept_progressive"
    return Prepared(data, header.height, header.width, decision)


def read_header(data: bytes) -> Header:
    """Reads the frame header of a JPEG (ITU-T T.81, B.2.2) without decoding it.

    Raises:
        ValueError: If there is none, or its size is zero.
    """
    position = len(_SOI)
    while position + 4 <= len(data):
        if data[position] != 0xFF:
            raise ValueError(f"JPEG marker expected at byte {position}")
        marker = data[position + 1]
        if marker == 0xFF:  # fill byte
            position += 1
        elif marker in _BARE_MARKERS:
            position += 2
        elif marker in _SOF_MARKERS:
            return _frame_header(data, position)
        elif marker == 0xDA:
            break
        else:
            position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    raise ValueError("JPEG has no frame header; the file is cut short or damaged")


def _frame_header(data: bytes, position: int) -> Header:
    fields = data[position + 4 : position + 10]
    if len(fields) < 6:
        raise ValueError("JPEG ends inside its frame header")
    height, width = (int.from_bytes(fields[i : i + 2], "big") for i in (1, 3))
    num_components = fields[5]
    if height == 0 or width == 0 or num_components not in (1, 3, 4):
        raise ValueError(
            "JPEG must have a size above zero and 1, 3 or 4 components, "
            f"got {width}x{height} and {num_components}"
        )
    progressive = data[position + 1] == _PROGRESSIVE_MARKER
    return Header(height, width, num_components, progressive)


def _reencode(data: bytes) -> Prepared:
    try:
        with PIL.Image.open(io.BytesIO(data)) as image:
            kind = "cmyk" if image.mode == "CMYK" else str(image.format).lower()
            rgb = image.convert("RGB")
    except (OSError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        raise ValueError(f"not an image: {error}") from error
    out = io.BytesIO()
    # 4:4:4, as most of ImageNet is: no color detail is lost.
    rgb.save(out, "JPEG", quality=REENCODE_QUALITY, subsampling=0)
    return Prepared(out.getvalue(), rgb.height, rgb.width, f"reencoded_{kind}")
