"""converters.images.limits: images that are too large to be stored or decoded."""

import io
import pathlib

import PIL.Image
import PIL.TiffImagePlugin
import pytest

from converters.images import (
    jpeg_header,
    policy as image_policy,
    prepare,
    shrink,
)
from tests.support.data.jpegs import many_scans
from tests.support.data.trees import make_jpeg


def _prepare(data: bytes, **options: object) -> prepare.Prepared | prepare.Rejected:
    return prepare.prepare(data, image_policy.Policy(**options))  # type: ignore[arg-type]


def _outcome(data: bytes, **options: object) -> str:
    prepared = _prepare(data, **options)
    if isinstance(prepared, prepare.Rejected):
        return prepared.reason
    return prepared.decision


def _saved(kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    PIL.Image.open(io.BytesIO(make_jpeg(0, height=100, width=80))).save(
        out, kind, **options
    )
    return out.getvalue()


PIXELS = 8000
BASE, PROGRESSIVE = _saved("JPEG"), _saved("JPEG", progressive=True)
PNG = _saved("PNG")


@pytest.mark.parametrize(
    ("data", "options", "decision"),
    [
        (PNG, {}, "converted_png"),
        (BASE, {}, "kept"),
        (BASE, {"quality": 50}, "shrunk"),
        (PROGRESSIVE, {"decode": "full"}, "kept_progressive"),
        (PROGRESSIVE, {"baseline": True}, "converted_progressive"),
    ],
)
def test_limit_of_decoded_pixels_is_inclusive_and_for_decoded_images_only(
    data: bytes, options: dict[str, object], decision: str
) -> None:
    below = _outcome(data, max_decoded_pixels=PIXELS - 1, **options)

    assert _outcome(data, max_decoded_pixels=PIXELS, **options) == decision
    assert below == ("kept" if decision == "kept" else "too_expensive")
    if decision != "kept":
        with pytest.raises(ValueError, match=r"at most 7999 pixels \(--max_decoded_p"):
            _prepare(
                data, max_decoded_pixels=PIXELS - 1, too_expensive="fail", **options
            )


def test_single_scan_that_is_only_looked_at_has_no_limit_of_decoding() -> None:
    assert _outcome(BASE, decode="full", max_decoded_pixels=1) == "kept"
    assert _outcome(PROGRESSIVE, max_decoded_pixels=1) == "kept_progressive"


def test_scans_beyond_ten_count_as_more_pixels() -> None:
    data = many_scans(100, 80, 40)
    header = jpeg_header.read_header(data)

    assert header.multi_scan
    assert jpeg_header.count_scans(data, header.scan) == 50
    assert _outcome(data, max_pixels=5 * PIXELS) == "kept_progressive"
    assert _outcome(data, max_pixels=5 * PIXELS - 1) == "too_expensive"
    # Scans of another image after the end do not count.
    assert (
        jpeg_header.count_scans(
            PROGRESSIVE + data, jpeg_header.read_header(PROGRESSIVE).scan
        )
        == 10
    )


@pytest.mark.parametrize("filler", [b"\xff\xfe\0\2", b"\xff"])
def test_jpeg_with_a_million_markers_is_left_out(
    filler: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of markers alone would keep a conversion busy for minutes."""
    assert jpeg_header._MAX_MARKERS == 1_000_000
    monkeypatch.setattr(jpeg_header, "_MAX_MARKERS", 1_100)

    assert _outcome(BASE[:2] + filler * 1_200 + BASE[2:]) == "undecodable"
    assert _outcome(BASE[:2] + filler * 1_000 + BASE[2:]) == "kept"


def test_scans_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    end = PROGRESSIVE.rfind(b"\xff\xd9")
    segments = PROGRESSIVE[:end] + b"\xff\xda\0\2" * 1_100 + b"\xff\xd9"
    scan = jpeg_header.read_header(segments).scan

    assert jpeg_header.count_scans(segments, scan) == 1_110
    monkeypatch.setattr(jpeg_header, "_MAX_MARKERS", 1_000)
    assert jpeg_header.count_scans(segments, scan) == 1_000
    monkeypatch.undo()
    assert _outcome(many_scans(8, 8, 10_000)) == "too_expensive"


def test_components_in_scans_of_their_own_are_several_scans() -> None:
    assert not jpeg_header.read_header(BASE).multi_scan
    scan = BASE.index(b"\xff\xda")
    # The first scan has one of three components.
    apart = BASE[:scan] + b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + BASE[scan + 14 :]

    assert jpeg_header.read_header(apart).multi_scan


@pytest.mark.parametrize("side", [1, 5, 9, 17, 33, 50, 99])
def test_decoded_pixels_are_those_of_pillow(side: int) -> None:
    data = make_jpeg(0, height=400, width=304)
    height, width = shrink.fit(400, 304, max_side=side, short_side=None) or (0, 0)
    image = PIL.Image.open(io.BytesIO(data))
    gap = shrink.REDUCING_GAP
    image.draft(None, (width * gap, height * gap))

    assert (
        shrink.decoded_pixels(400, 304, (height, width)) == image.height * image.width
    )


def test_large_jpeg_that_is_scaled_down_while_it_is_decoded_is_stored() -> None:
    data = make_jpeg(0, height=400, width=304)
    limit = {"max_decoded_pixels": 50 * 38}

    assert _outcome(data, max_side=16, **limit) == "shrunk"
    assert _outcome(data, max_side=17, **limit) == "too_expensive"


def test_tiles_of_a_tiff_beyond_the_image_count(tmp_path: pathlib.Path) -> None:
    """The tile has no data, so that any decoding fails."""
    tags = PIL.TiffImagePlugin.ImageFileDirectory_v2()
    long = {256: 10, 257: 10, 322: 9_000, 323: 9_000, 324: 8, 325: 1}
    short = {258: (8, 8, 8), 259: 8, 262: 2, 277: 3}
    for tag, value in (long | short).items():
        tags.tagtype[tag] = 4 if tag in long else 3
        tags[tag] = value
    out = io.BytesIO(b"II*\0\x08\0\0\0")
    out.seek(8)
    tags.save(out)
    rejected = _prepare(out.getvalue())

    assert isinstance(rejected, prepare.Rejected)
    assert rejected.reason == "too_expensive"
    assert "got 9000x9000" in rejected.detail


def test_file_size_is_checked_before_the_file_is_read() -> None:
    policy = image_policy.Policy(max_image_bytes=10)
    failing = image_policy.Policy(max_image_bytes=10, too_many_bytes="fail")

    assert prepare.check_bytes(10, policy) is None
    rejected = prepare.check_bytes(11, policy)
    assert rejected is not None
    assert rejected.reason == "too_many_bytes"
    with pytest.raises(ValueError, match=r"at most 10 bytes \(--max_image_bytes\)"):
        prepare.check_bytes(11, failing)
