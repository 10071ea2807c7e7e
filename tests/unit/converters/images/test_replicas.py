"""converters.images.replicas: other bytes of the same image."""

import io
import threading

import hypothesis
import numpy as np
import PIL.Image
import pytest
from hypothesis import strategies as st
from PIL import JpegImagePlugin

from converters.images import jpeg_header, lossless, replicas, shrink
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.unit.converters.images.test_restart import (
    ALL,
    EXIF,
    LEFT,
    PHOTOGRAPHS,
    _segments,
    each_jpeg,
)
from tests.unit.converters.images.test_turn import SIZES, _jpeg, _planes

_DHT, _SOI = 0xC4, b"\xff\xd8"
# Bytes after the header that must not occur in another copy: the codes of some 20
# symbols.
_RUN = 16


def _vary(encoded, seed, **options):
    varied, left = replicas.vary(encoded, seed=seed, **options)
    assert left == ""
    return varied


def _pixels(encoded):
    with PIL.Image.open(io.BytesIO(encoded)) as image:
        return image.mode, image.size, image.tobytes()


def _scan_bytes(encoded):
    return encoded[jpeg_header.read_header(encoded).scan : -2]


def _join(*segments):
    """Returns a JPEG of segments, each a marker, its content and bytes that follow."""
    parts = [_SOI]
    for marker, content, rest in segments:
        size = (len(content) + 2).to_bytes(2, "big")
        parts += [bytes([0xFF, marker]), size, content, rest]
    return b"".join(parts) + jpeg_header.EOI


def _in_three_scans():
    """Returns a baseline JPEG whose three components have a scan each."""
    planes = [_jpeg("L", (61, 53)), _jpeg("L", (64, 48)), _jpeg("L", (61, 53))]
    planes[1] = planes[0]
    (frame,) = (c for m, c in _segments(planes[0])[0] if m == 0xC0)
    parts = b"".join(bytes([number, 0x11, 0]) for number in (1, 2, 3))
    tables = [(m, c, b"") for m, c in _segments(planes[0])[0] if m in (0xDB, _DHT)]
    scans = [
        (0xDA, bytes([1, number, 0, 0, 63, 0]), _scan_bytes(plane))
        for number, plane in enumerate(planes, 1)
    ]
    return _join(*tables, (0xC0, frame[:5] + b"\3" + parts, b""), *scans)


def _with_a_table_twice():
    """Returns a JPEG whose first Huffman table is replaced before the scan."""
    segments = _segments(PHOTOGRAPHS["420"])[0]
    table = next(content for marker, content in segments if marker == _DHT)
    other = bytes([table[0], 1, *[0] * 15, 7])
    return _SOI + b"\xff\xc4\0\x14" + other + PHOTOGRAPHS["420"][2:]


def _flat():
    out = io.BytesIO()
    PIL.Image.new("RGB", (70, 50), "red").save(out, "JPEG", optimize=True)
    return out.getvalue()


ODD = {
    "three scans": _in_three_scans(),
    "a table twice": _with_a_table_twice(),
    "one symbol a table": _flat(),
    "bytes after the end": PHOTOGRAPHS["444"] + b"what a phone adds" * 9,
    "bytes before a marker": _SOI + b"\xff" + PHOTOGRAPHS["420"][2:],
}


@needs_native
@pytest.mark.parametrize("encoded", [*ALL.values(), *ODD.values()], ids=[*ALL, *ODD])
def test_pixels_are_the_same_for_each_seed(encoded):
    expected = _pixels(encoded)

    for seed in (0, 1, 2**64 - 1):
        varied = _vary(encoded, seed)

        assert _pixels(varied) == expected
        assert varied == _vary(encoded, seed)


@needs_native
@hypothesis.given(
    seed=st.integers(0, 2**64 - 1),
    kind=st.sampled_from(["L", "444", "422", "420"]),
    size=st.sampled_from(SIZES),
    quality=st.integers(1, 100),
    restarts=st.integers(0, 9),
    optimize=st.booleans(),
)
@hypothesis.settings(max_examples=25, deadline=None)
def test_pixels_are_the_same_for_any_seed(
    seed, kind, size, quality, restarts, optimize
):
    encoded = _jpeg(
        kind, size, quality=quality, restart_marker_blocks=restarts, optimize=optimize
    )

    assert _pixels(_vary(encoded, seed)) == _pixels(encoded)


@needs_native
@each_jpeg
def test_only_huffman_tables_and_codes_change(encoded):
    if jpeg_header.read_header(encoded).multi_scan:
        pytest.skip("libjpeg writes the markers of a JPEG of several scans anew")
    before, scan = _segments(encoded)
    after, new_scan = _segments(_vary(encoded, 5))

    assert [m for m, _ in after] == [m for m, _ in before]
    for (marker, one), (_, other) in zip(before, after, strict=True):
        assert len(one) == len(other)
        if marker != _DHT:
            assert one == other
    markers = [
        [s[i : i + 2] for i in range(len(s) - 1) if s[i] == 0xFF and s[i + 1]]
        for s in (scan, new_scan)
    ]
    assert markers[0] == markers[1]


@needs_native
@pytest.mark.parametrize(
    "name", ["420", "422", "optimized", "with markers", "progressive"]
)
def test_copies_share_no_runs_and_have_the_size_of_the_source(name):
    encoded = PHOTOGRAPHS[name]
    copies = [_vary(encoded, seed) for seed in range(4)]

    runs = [
        {scan[i : i + _RUN] for i in range(len(scan) - _RUN)}
        for scan in map(_scan_bytes, (*copies, encoded))
    ]
    shared = [
        len(one & other) / len(one)
        for number, one in enumerate(runs)
        for other in runs[:number]
    ]
    # A restart interval may begin with the same codes.
    assert max(shared) < 0.01
    size = len(encoded) if name != "progressive" else len(lossless.rewrite(encoded)[0])
    assert [copy for copy in copies if not 0.96 * size < len(copy) < 1.02 * size] == []


@needs_native
@pytest.mark.parametrize("kind", ["L", "444", "422", "420"])
def test_a_mirrored_copy_has_the_mirrored_coefficients(kind):
    encoded = _jpeg(kind, (64, 48), exif=EXIF, comment=b"said", optimize=True)

    mirrored = _vary(encoded, 3, mirror=True)

    # Upsampling of chroma rounds differently from left and right.
    difference = _planes(mirrored) - _planes(encoded)[:, ::-1]
    assert np.abs(difference).max() <= (0 if kind in ("L", "444") else 2)
    assert np.abs(difference[..., 0]).max() == 0
    assert _pixels(_vary(mirrored, 4, mirror=True)) == _pixels(encoded)
    kept = [s for s in _segments(mirrored)[0] if s[0] in (0xE1, 0xFE)]
    assert kept == [s for s in _segments(encoded)[0] if s[0] in (0xE1, 0xFE)]
    assert mirrored != _vary(encoded, 4, mirror=True)
    assert replicas.vary(_jpeg(kind, (61, 48)), seed=3, mirror=True).left == "edge"


@needs_native
@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize(("encoded", "reason"), LEFT.values(), ids=LEFT)
def test_what_is_not_sound_is_left_as_it_is(encoded, reason, mirror, capfd):
    assert replicas.vary(encoded, seed=1, mirror=mirror) == (encoded, reason)
    assert capfd.readouterr() == ("", "")


@needs_native
def test_a_jpeg_that_is_cut_anywhere_is_left():
    encoded = PHOTOGRAPHS["with markers"]

    for end in range(0, len(encoded) - 1, 997):
        cut = encoded[:end]
        assert replicas.vary(cut, seed=end) == (cut, "damaged")


@needs_native
def test_threads_share_the_library():
    expected = [_vary(data, 7) for data in PHOTOGRAPHS.values()]
    results = []

    def work():
        results.append([_vary(data, 7) for data in PHOTOGRAPHS.values()])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [expected] * 4


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_has_64_bits(seed):
    with pytest.raises(ValueError, match=f"0 to 2 \\*\\* 64 - 1, got {seed}"):
        replicas.vary(b"", seed=seed)


def _png(mode, size=(30, 20)):
    out = io.BytesIO()
    PIL.Image.new(mode, size, 90).save(out, "PNG")
    return out.getvalue()


def _picture(encoded):
    image = PIL.Image.open(io.BytesIO(encoded))
    assert isinstance(image, JpegImagePlugin.JpegImageFile)
    return image


@pytest.mark.parametrize(
    ("encoded", "factor", "mode", "size"),
    [
        (PHOTOGRAPHS["420"], 3, "RGB", (960, 720)),
        (PHOTOGRAPHS["progressive"], 1.5, "RGB", (480, 360)),
        (PHOTOGRAPHS["gray 2x2"], 3, "L", (207, 183)),
        (PHOTOGRAPHS["ycck"], 2, "RGB", (138, 122)),
        (PHOTOGRAPHS["one block"], 0.01, "RGB", (1, 1)),
        (_png("RGBA"), 3, "RGB", (90, 60)),
        (_png("L"), 3, "L", (90, 60)),
    ],
)
def test_an_image_is_enlarged_by_a_factor(encoded, factor, mode, size):
    larger = _picture(replicas.enlarge(encoded, factor=factor, quality=100))

    assert (larger.mode, larger.size) == (mode, size)
    assert replicas.enlarged_size(*_size(encoded), factor=factor) == size[::-1]
    assert mode == "L" or JpegImagePlugin.get_sampling(larger) == 0
    assert set(larger.quantization[0]) == {1}


def _size(encoded):
    with PIL.Image.open(io.BytesIO(encoded)) as image:
        return image.size[::-1]


def test_an_enlarged_image_shows_the_same():
    smaller = _jpeg("444", (64, 48), quality=98)

    larger = _picture(replicas.enlarge(smaller, factor=4, quality=100))

    assert shrink.psnr(larger.reduce(4), smaller) > 30


def test_only_the_exif_orientation_is_kept():
    for made in (
        replicas.enlarge(PHOTOGRAPHS["metadata"], factor=2, quality=90),
        replicas.reencode(PHOTOGRAPHS["metadata"], quality=90, seed=0),
    ):
        image = _picture(made)
        assert dict(image.getexif()) == dict(EXIF)
        assert not {"icc_profile", "comment"} & image.info.keys()


@pytest.mark.parametrize("quality", [10, 75, 100])
@pytest.mark.parametrize("kind", ["L", "420", "444"])
def test_the_seed_of_reencoding_changes_the_bytes_and_not_the_picture(kind, quality):
    encoded = _jpeg(kind, (64, 48), quality=95)
    copies = [
        replicas.reencode(encoded, quality=quality, seed=seed)
        for seed in (0, 1, 2**64 - 1, 0)
    ]

    assert copies[0] == copies[3]
    assert len(set(copies)) == 3
    plain = io.BytesIO()
    source = _picture(encoded)
    source.save(plain, "JPEG", quality=quality, subsampling=0)
    # A divisor of 1 can only be doubled, which limits the best quality.
    least = min(shrink.psnr(source, plain.getvalue()), 48) - 5
    for copy in copies:
        assert shrink.psnr(source, copy) > least
        image = _picture(copy)
        assert JpegImagePlugin.get_sampling(image) == JpegImagePlugin.get_sampling(
            source
        )


@pytest.mark.parametrize(
    ("encoded", "factor", "reason"),
    [
        (b"these are no pixels", 3, "not_an_image"),
        (PHOTOGRAPHS["420"][:300], 3, "truncated"),
        (PHOTOGRAPHS["420"][:9000], 3, "truncated"),
        (PHOTOGRAPHS["420"], 100, "too_many_pixels"),
        (PHOTOGRAPHS["420"], 30, "too_expensive"),
        (LEFT["bomb"][0], 1, "too_many_pixels"),
    ],
)
def test_why_an_image_is_not_enlarged(encoded, factor, reason):
    with pytest.raises(jpeg_header.BadImageError) as raised:
        replicas.enlarge(encoded, factor=factor, quality=90)
    assert raised.value.reason == reason


@pytest.mark.parametrize(
    ("factor", "quality", "error"),
    [
        (0, 90, "factor must be above 0"),
        (-2, 90, "factor must be above 0"),
        (float("nan"), 90, "factor must be above 0"),
        (float("inf"), 90, "factor must be finite"),
        (3, 0, "quality must be 1 to 100, got 0"),
        (3, 101, "quality must be 1 to 100, got 101"),
    ],
)
def test_wrong_arguments(factor, quality, error):
    with pytest.raises(ValueError, match=error):
        replicas.enlarge(b"", factor=factor, quality=quality)
