"""Formats that Pillow opens are read by name and content, also by preprocess."""

import io
import zlib

import numpy as np
import PIL.Image
import pytest
from PIL import PngImagePlugin

from converters.checks import record
from converters.images import prepare
from converters.images.policy import Policy
from tfpipe.consumers import preprocess
from tfpipe.pictures import formats
from tfpipe.shards import image_record
from tfpipe.shards.example import Feature

# Suffixes that Pillow registers for formats that it does not decode.
_NOT_IMAGES = {".bufr", ".grib", ".h5", ".hdf", ".iim", ".mpeg", ".mpg", ".pdf"}
_NOT_IMAGES |= {".emf", ".eps", ".palm", ".ps", ".wmf"}
# Modes of each format that Pillow writes, and options with which little is lost.
_WRITTEN = {
    "AVIF": (("RGB",), {"quality": 95}),
    "BLP": (("P",), {}),
    "BMP": (("1", "L", "RGB"), {}),
    "DDS": (("RGB",), {}),
    "DIB": (("L", "RGB"), {}),
    "GIF": (("L", "P"), {}),
    "ICNS": (("RGB",), {}),
    "ICO": (("RGB",), {}),
    "IM": (("L", "RGB"), {}),
    "JPEG2000": (("L", "RGB"), {}),
    "MSP": (("1",), {}),
    "PCX": (("1", "L", "RGB"), {}),
    "PNG": (("1", "L", "P", "RGB", "I;16"), {}),
    "PPM": (("1", "L", "RGB", "I;16"), {}),
    "QOI": (("RGB",), {}),
    "SGI": (("L", "RGB"), {}),
    "TGA": (("1", "L", "LA", "P", "RGB", "RGBA"), {}),
    "TIFF": (("1", "L", "RGB", "I;16", "CMYK"), {}),
    "WEBP": (("RGB",), {"quality": 95}),
    "XBM": (("1",), {}),
}
_WAYS = [
    *(
        (kind, mode, options)
        for kind, (modes, options) in _WRITTEN.items()
        for mode in modes
    ),
    ("TIFF", "RGB", {"big_tiff": True}),
    ("TGA", "RGB", {"compression": "tga_rle"}),
    ("TGA", "RGB", {"orientation": 1}),
    ("JPEG2000", "RGB", {"no_jp2": True}),
]


def _picture() -> PIL.Image.Image:
    down, right = np.mgrid[:64, :64] * 4
    pixels = np.stack([down, right, (down + right) // 2], -1).astype(np.uint8)
    return PIL.Image.fromarray(pixels)


def _written(kind: str, mode: str, options: dict[str, object]) -> bytes:
    image = _picture()
    if mode == "I;16":
        gray = np.asarray(image.convert("L")).astype(np.uint16) * 257
        image = PIL.Image.fromarray(gray)
    else:
        image = image.convert(mode)
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def _right(mode: str) -> np.ndarray:
    gray = mode in ("1", "L", "LA", "I;16")
    image = _picture().convert("1") if mode == "1" else _picture()
    return np.asarray(image.convert("L" if gray else "RGB").convert("RGB"), np.int32)


def _pixels(jpeg: bytes) -> np.ndarray:
    with PIL.Image.open(io.BytesIO(jpeg)) as image:
        # Pillow writes icons for macOS in several sizes, and reads the largest.
        return np.asarray(image.convert("RGB").resize((64, 64)), np.int32)


@pytest.mark.filterwarnings("ignore:IM image format:DeprecationWarning")
@pytest.mark.parametrize(("kind", "mode", "options"), _WAYS)
def test_each_format_is_read_by_converters_and_library(
    kind: str, mode: str, options: dict[str, object]
) -> None:
    data = _written(kind, mode, options)

    assert formats.sniff(data) == kind
    stored = prepare.prepare(data, Policy())
    assert isinstance(stored, prepare.Prepared), stored
    assert stored.decision == f"converted_{kind.lower()}"
    # A palette and one bit a pixel lose more than the JPEG does.
    lost = np.abs(_pixels(stored.encoded) - _right(mode)).mean()
    assert lost < (30 if mode == "P" else 12 if mode == "1" else 6)
    encoded, height, width = preprocess._stored(data, {"exif_orientation": "keep"})
    assert (height, width) == (stored.height, stored.width)
    assert np.abs(_pixels(encoded) - _pixels(stored.encoded)).mean() < 2
    assert prepare.prepare(data, Policy(other_format="skip")) == prepare.Rejected(
        "other_format", f"got an image in {kind}, which --other_format=skip refuses"
    )


def test_every_format_that_pillow_opens_is_read_or_named_as_left_out() -> None:
    PIL.Image.init()
    opened = {
        suffix
        for suffix, kind in PIL.Image.EXTENSION.items()
        if kind in PIL.Image.OPEN and kind not in formats.NOT_READ
    }

    assert opened <= {*formats.JPEG_SUFFIXES, *formats.OTHER_SUFFIXES}
    assert set(PIL.Image.EXTENSION) - opened <= _NOT_IMAGES | {".mpo"}
    assert not _NOT_IMAGES & set(formats.OTHER_SUFFIXES)


def test_texts_and_drawings_are_no_images() -> None:
    for data in (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"%PDF-1.4\n",
        b"\xd7\xcd\xc6\x9a" + bytes(60),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"\x89HDF\r\n\x1a\n" + bytes(60),
        b"\0\0\1\xba" + bytes(60),
        b"name: one\nlabel: two\n",
        b"#define X 1\n",
        b"P6 is the first of the rooms",
        bytes(100),
        *(bytes([n]) * 100 for n in range(1, 255)),
    ):
        assert formats.sniff(data) is None, data[:20]
        assert isinstance(prepare.prepare(data, Policy()), prepare.Rejected)


@pytest.mark.parametrize("megabytes", [2, 63])
def test_a_png_with_a_large_text_is_read_and_checked(megabytes: int) -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("story", "a" * (megabytes << 20), zip=True)
    out = io.BytesIO()
    _picture().save(out, "PNG", pnginfo=info)
    before = PngImagePlugin.MAX_TEXT_CHUNK

    stored = prepare.prepare(out.getvalue(), Policy())
    assert isinstance(stored, prepare.Prepared)
    assert preprocess._stored(out.getvalue(), {"quality": 95})[1:] == (64, 64)
    example = {image_record.ENCODED: Feature("bytes", [out.getvalue()])}
    assert not [*record.size_faults(example), *record.decode_faults(example)]
    assert before == PngImagePlugin.MAX_TEXT_CHUNK


def test_a_text_without_bound_is_not_unpacked() -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("story", "a" * (65 << 20), zip=True)
    out = io.BytesIO()
    _picture().save(out, "PNG", pnginfo=info)

    assert isinstance(prepare.prepare(out.getvalue(), Policy()), prepare.Rejected)


def test_a_picture_in_an_icon_obeys_the_limit_of_pixels() -> None:
    out = io.BytesIO()
    PIL.Image.new("L", (4000, 4000)).save(out, "PNG")
    inner = out.getvalue()
    # An icon that claims 16x16, with a PNG of 16 million pixels in it.
    entry = bytes([16, 16, 0, 0, 1, 0, 8, 0]) + len(inner).to_bytes(4, "little")
    data = b"\0\0\1\0\1\0" + entry + (22).to_bytes(4, "little") + inner

    assert formats.sniff(data) == "ICO"
    rejected = prepare.prepare(data, Policy(max_decoded_pixels=1_000_000))
    assert isinstance(rejected, prepare.Rejected)
    assert rejected.reason == "too_expensive"
    assert "1000000 pixels (--max_decoded_pixels)" in rejected.detail


def test_heic_without_its_plugin_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(formats, "_HEIF_PLUGINS", ("no_such_plugin",))
    monkeypatch.delitem(PIL.Image.OPEN, "HEIF", raising=False)
    data = b"\0\0\0\x18ftypheic\0\0\0\0heicmif1" + zlib.compress(bytes(99))

    rejected = prepare.prepare(data, Policy())
    assert isinstance(rejected, prepare.Rejected)
    assert rejected.reason == "no_decoder"
    with pytest.raises(ValueError, match="format HEIF here: pip install pillow-heif"):
        preprocess._stored(data, {})
