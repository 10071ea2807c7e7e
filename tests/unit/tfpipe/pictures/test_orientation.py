"""Every way to store an orientation, against the pixels of Pillow's exif_transpose."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest

from converters.images import jpeg_header, prepare
from converters.images.policy import Policy
from tfpipe.consumers import preprocess
from tfpipe.pictures import orientation, pixels

_PREFIX = b"Exif\0\0"
_XAP = b"http://ns.adobe.com/xap/1.0/\0"


def _exif(turn: int, *, order: str = "<", kind: int = 3, form: str = "H") -> bytes:
    """EXIF data with a text and, after that, an orientation of any TIFF type."""
    numbers = (turn, 1) if form.startswith("2") else (turn,)
    value = struct.pack(order + form, *numbers) if form else bytes(numbers)
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "LH", 8, 2)
    text, after = b"a camera", 8 + 2 + 24 + 4
    entry = struct.pack(order + "HHLL", 0x0110, 2, len(text), after)
    entry += struct.pack(order + "HHL", 0x0112, kind, 1)
    inline = len(value) <= 4
    entry += value.ljust(4, b"\0") if inline else struct.pack(order + "L", after + 8)
    return head + entry + bytes(4) + text + (b"" if inline else value)


def _without(turn: int) -> bytes:
    return _exif(turn).replace(b"\x12\1\3\0", b"\x13\1\3\0")


def _lost_text(turn: int) -> bytes:
    """EXIF data whose text lies behind the end, so that Pillow reads no further."""
    return _exif(turn).replace(struct.pack("<L", 38), struct.pack("<L", 4000))


def _long_text(turn: int) -> bytes:
    """EXIF data whose text is longer than the data, so that Pillow leaves it out."""
    return _exif(turn).replace(struct.pack("<LL", 8, 38), struct.pack("<LL", 9999, 38))


def _text_twice(turn: int) -> bytes:
    """EXIF data whose text has a second, lost entry, which Pillow passes over."""
    exif, lost = _exif(turn), _lost_text(turn)
    head = exif[:8] + struct.pack("<H", 3) + exif[10:22] + lost[10:22] + exif[22:34]
    return head + exif[34:]


def _xmp(turn: int, form: str = 'tiff:Orientation="{}"') -> bytes:
    text = form.format(turn)
    return f"<x:xmpmeta><rdf:Description {text}/></x:xmpmeta>".encode()


_TYPES = {3: "H", 4: "L", 5: "2L", 6: "b", 7: "", 8: "h", 9: "l", 10: "2l", 11: "f"}
_TYPES |= {1: "", 2: "", 12: "d", 13: "L", 16: "Q"}
# Payloads of the APP1 segments of a JPEG, for an orientation.
_SEGMENTS: dict[str, Callable[[int], list[bytes]]] = {
    "little": lambda turn: [_PREFIX + _exif(turn)],
    "big": lambda turn: [_PREFIX + _exif(turn, order=">")],
    "doubled_prefix": lambda turn: [_PREFIX * 2 + _exif(turn)],
    "tripled_prefix": lambda turn: [_PREFIX * 3 + _exif(turn)],
    "then_1": lambda turn: [_PREFIX + _exif(turn), _PREFIX + _exif(1)],
    "after_1": lambda turn: [_PREFIX + _exif(1), _PREFIX + _exif(turn)],
    "then_none": lambda turn: [_PREFIX + _exif(turn), _PREFIX + _without(3)],
    "after_none": lambda turn: [_PREFIX + _without(3), _PREFIX + _exif(turn)],
    "in_two_parts": lambda turn: [
        _PREFIX + _exif(turn, kind=12, form="d")[:30],
        _PREFIX + _exif(turn, kind=12, form="d")[30:],
    ],
    "lost_text": lambda turn: [_PREFIX + _lost_text(turn)],
    "long_text": lambda turn: [_PREFIX + _long_text(turn)],
    "text_twice": lambda turn: [_PREFIX + _text_twice(turn)],
    "nothing": lambda turn: [_PREFIX],
    "xmp": lambda turn: [_XAP + _xmp(turn)],
    "xmp_element": lambda turn: [
        _XAP + _xmp(turn, "<tiff:Orientation>{}</tiff:Orientation>")
    ],
    "xmp_twice": lambda turn: [_XAP + _xmp(3), _XAP + _xmp(turn)],
    "xmp_and_exif": lambda turn: [_XAP + _xmp(3), _PREFIX + _exif(turn)],
    "xmp_and_exif_without": lambda turn: [_PREFIX + _without(3), _XAP + _xmp(turn)],
    "xmp_and_exif_of_text": lambda turn: [
        _PREFIX + _exif(turn, kind=2, form=""),
        _XAP + _xmp(turn),
    ],
    **{
        f"type_{kind}{order}": lambda turn, kind=kind, form=form, order=order: [
            _PREFIX + _exif(turn, order=order, kind=kind, form=form)
        ]
        for kind, form in _TYPES.items()
        for order in "<>"
    },
}


def _picture() -> PIL.Image.Image:
    """Three corners of four differ, and sides end with whole blocks."""
    image = np.full((16, 32, 3), 128, np.uint8)
    image[:8, :8], image[:8, 24:], image[8:, :8] = 255, 0, 60
    return PIL.Image.fromarray(image)


def _jpeg(segments: list[bytes]) -> bytes:
    out = io.BytesIO()
    _picture().save(out, "JPEG", quality=95, subsampling=0)
    written = [b"\xff\xe1" + struct.pack(">H", len(s) + 2) + s for s in segments]
    data = out.getvalue()
    return data[:2] + b"".join(written) + data[2:]


def _png(kind: bytes, content: bytes, *, after: bool) -> bytes:
    out = io.BytesIO()
    _picture().save(out, "PNG")
    data = out.getvalue()
    check = struct.pack(">L", zlib.crc32(kind + content))
    chunk = struct.pack(">L", len(content)) + kind + content + check
    cut = len(data) - 12 if after else 33
    return data[:cut] + chunk + data[cut:]


def _profile(name: bytes, exif: bytes) -> bytes:
    """A profile as ImageMagick writes it into a text of a PNG."""
    content = b"\nexif\n%8d\n%s\n" % (len(exif), exif.hex().encode())
    return name + b"\0\0" + zlib.compress(content)


def _xmp_text(turn: int) -> bytes:
    return b"XML:com.adobe.xmp\0\0\0\0\0" + _xmp(turn)


# A chunk of a PNG, for an orientation.
_CHUNKS: dict[str, Callable[[int], tuple[bytes, bytes]]] = {
    "exif": lambda turn: (b"eXIf", _exif(turn)),
    "exif_long": lambda turn: (b"eXIf", _exif(turn, order=">", kind=4, form="L")),
    "exif_with_prefix": lambda turn: (b"eXIf", _PREFIX + _exif(turn)),
    "profile": lambda turn: (
        b"zTXt",
        _profile(b"Raw profile type exif", _PREFIX + _exif(turn)),
    ),
    "profile_app1": lambda turn: (
        b"zTXt",
        _profile(b"Raw profile type APP1", _PREFIX + _exif(turn)),
    ),
    "xmp": lambda turn: (b"iTXt", _xmp_text(turn)),
}


def _other(kind: str, turn: int) -> bytes:
    exif = PIL.Image.Exif()
    exif[orientation.TAG] = turn
    options = {"lossless": True} if kind == "WEBP" else {}
    out = io.BytesIO()
    _picture().save(out, kind, exif=exif, **options)
    return out.getvalue()


def _files(turn: int) -> dict[str, bytes]:
    """Files of every way to store an orientation, by the name of the way."""
    return {
        **{f"jpeg_{way}": _jpeg(make(turn)) for way, make in _SEGMENTS.items()},
        **{
            f"png_{way}_{after}": _png(*make(turn), after=after)
            for way, make in _CHUNKS.items()
            for after in (False, True)
        },
        **{kind: _other(kind, turn) for kind in ("TIFF", "WEBP", "PNG", "AVIF")},
    }


def _transposed(data: bytes) -> np.ndarray:
    with PIL.Image.open(io.BytesIO(data)) as image:
        return np.asarray(PIL.ImageOps.exif_transpose(image).convert("RGB"), np.int32)


def _differ(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether pixels differ by more than a JPEG of high quality loses."""
    return one.shape != other.shape or float(np.abs(one - other).mean()) > 8


@pytest.mark.filterwarnings("ignore")  # Pillow warns about damaged EXIF data
@pytest.mark.parametrize("turn", [*range(1, 9), 0, 9])
def test_every_way_is_turned_as_pillow_turns_it(turn: int) -> None:
    for lossless in (False, True):
        policy = Policy(exif_orientation="apply", lossless_rotation=lossless)
        for way, data in _files(turn).items():
            right = _transposed(data)
            stored = prepare.prepare(data, policy)
            assert isinstance(stored, prepare.Prepared), way
            with PIL.Image.open(io.BytesIO(stored.encoded)) as image:
                got = np.asarray(image.convert("RGB"), np.int32)
            assert not _differ(got, right), f"{way} of {turn}: {stored.decision}"
            assert (stored.height, stored.width) == right.shape[:2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("turn", range(1, 9))
def test_preprocess_turns_every_way_alike(turn: int) -> None:
    for choice in ("apply", "keep"):
        policy = {"exif_orientation": choice}
        for way, data in _files(turn).items():
            stored = prepare.prepare(data, Policy(exif_orientation=choice))
            assert isinstance(stored, prepare.Prepared)
            encoded, height, width = preprocess._stored(data, policy)
            both = []
            for jpeg in (stored.encoded, encoded):
                with PIL.Image.open(io.BytesIO(jpeg)) as image:
                    both.append(np.asarray(image.convert("RGB"), np.int32))
            assert not _differ(*both), f"{way} of {turn}"
            assert (stored.height, stored.width) == (height, width)


def test_the_ways_say_what_they_are_meant_to_say() -> None:
    turned = {
        way: jpeg_header.read_header(_jpeg(make(6))).orientation
        for way, make in _SEGMENTS.items()
    }

    texts = {f"type_{kind}{order}" for kind in (1, 2, 7) for order in "<>"}
    unread = {"after_1", "after_none", "lost_text", "nothing", "tripled_prefix"}
    unread |= {"xmp_and_exif_of_text", *texts}
    assert {way for way, value in turned.items() if value != 6} == unread


def test_exif_data_cut_anywhere_is_no_orientation() -> None:
    exif = _exif(8)
    assert orientation.read(exif, b"") == 8
    for cut in range(30):
        assert orientation.read(exif[:cut], b"") == 1


def test_damaged_profile_of_a_png_is_no_orientation() -> None:
    data = _png(b"tEXt", b"Raw profile type exif\0\nexif\n 8\nnot hex\n", after=False)
    with PIL.Image.open(io.BytesIO(data)) as image:
        image.load()
        assert pixels.read_orientation(image) == 1
