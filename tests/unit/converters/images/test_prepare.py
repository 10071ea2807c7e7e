"""converters.images.prepare and pillow: what is stored for the bytes of a file."""

import io
import re
import struct
import warnings
import zlib
from collections.abc import Sequence

import hypothesis
import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from PIL import JpegImagePlugin

from converters.images import jpeg_header, policy as image_policy, prepare
from tests.support.data.trees import make_jpeg

DEFAULT = image_policy.Policy()
HEIGHT, WIDTH = 24, 36


def _image(mode: str = "RGB", *, seed: int = 0) -> PIL.Image.Image:
    random = np.random.default_rng(seed)
    small = PIL.Image.fromarray(random.integers(0, 256, (3, 4, 3), dtype=np.uint8))
    return small.resize((WIDTH, HEIGHT), PIL.Image.Resampling.BICUBIC).convert(mode)


def _saved(image: PIL.Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def _turned(orientation: int, image: PIL.Image.Image, **options: object) -> bytes:
    exif = PIL.Image.Exif()
    exif[0x010E] = "a tag before it"
    exif[0x0112] = orientation
    return _saved(image, exif=exif, **options)


def _with_byte(data: bytes, marker: bytes, offset: int, value: bytes) -> bytes:
    """Replaces bytes at a distance from the first place of a marker."""
    position = data.index(marker) + offset
    return data[:position] + value + data[position + len(value) :]


def _without_adobe(data: bytes) -> bytes:
    position = data.index(b"\xff\xee")
    length = int.from_bytes(data[position + 2 : position + 4], "big")
    return data[:position] + data[position + 2 + length :]


def _cmyk(kind: str) -> tuple[bytes, np.ndarray]:
    """A CMYK file of one kind, and the RGB pixels that it shows."""
    random = np.random.default_rng(5)
    small = random.integers(0, 256, (3, 4, 4), dtype=np.uint8)
    resized = [
        PIL.Image.fromarray(small[..., band]).resize((WIDTH, HEIGHT), resample=3)
        for band in range(4)
    ]
    ink = np.stack([np.asarray(band) for band in resized], axis=-1)
    rgb = (255 - ink[..., :3].astype(float)) * (255 - ink[..., 3:].astype(float)) / 255
    # Pillow writes 255 minus what it is given, and an Adobe marker with transform 0.
    if kind == "adobe":
        return _saved(PIL.Image.fromarray(ink, "CMYK"), quality=98), rgb
    if kind == "plain":
        data = _saved(PIL.Image.fromarray(255 - ink, "CMYK"), quality=98)
        return _without_adobe(data), rgb
    # YCCK as Adobe writes it: YCbCr of (255 - C, 255 - M, 255 - Y), each inverted.
    stored = 255 - ink
    ycc = PIL.Image.fromarray(255 - stored[..., :3], "RGB").convert("YCbCr")
    planes = np.concatenate([np.asarray(ycc), stored[..., 3:]], axis=-1)
    data = _saved(PIL.Image.fromarray(255 - planes, "CMYK"), quality=98)
    return _with_byte(data, b"Adobe", 11, b"\2"), rgb


def _stored_pixels(
    prepared: prepare.Prepared | prepare.Rejected,
) -> np.ndarray:
    """Decodes as training does, and checks that the size is the stored one."""
    assert isinstance(prepared, prepare.Prepared), prepared
    window = [0, 0, prepared.height, prepared.width]
    decoded = tf.io.decode_and_crop_jpeg(prepared.encoded, window, channels=3)
    shape = tf.io.decode_jpeg(prepared.encoded).shape
    assert tuple(shape[:2]) == (prepared.height, prepared.width)
    assert (shape[2] == 1) == prepared.grayscale
    return decoded.numpy().astype(int)


def _prepare(data: bytes, **policy: object) -> prepare.Prepared:
    prepared = prepare.prepare(data, image_policy.Policy(**policy))
    assert isinstance(prepared, prepare.Prepared), prepared
    return prepared


def _reject(data: bytes, **policy: object) -> prepare.Rejected:
    rejected = prepare.prepare(data, image_policy.Policy(**policy))
    assert isinstance(rejected, prepare.Rejected), rejected
    assert "\n" not in rejected.detail
    return rejected


BASE = _saved(_image(), quality=90)


@pytest.mark.parametrize("decode", ["header", "full"])
@pytest.mark.parametrize(
    ("data", "decision"),
    [
        (BASE, "kept"),
        (_saved(_image(), subsampling=1), "kept"),
        (_saved(_image(), optimize=True, restart_marker_rows=1), "kept"),
        (_saved(_image(), exif=b"Exif\0\0" + b"x" * 300), "kept"),
        (_saved(_image(), keep_rgb=True), "kept"),
        (_saved(PIL.Image.new("RGB", (1, 1), "red")), "kept"),
        (_with_byte(BASE, b"\xff\xc0", 1, b"\xc1"), "kept"),
        (BASE + b"what follows the end does no harm", "kept"),
        (BASE[:2] + b"\xff\xff" + BASE[2:], "kept"),
        (BASE[:20] + b"junk" + BASE[20:], "kept"),
        (_saved(_image("L")), "kept_grayscale"),
        (_saved(_image(), progressive=True), "kept_progressive"),
        (_saved(_image("L"), progressive=True), "kept_grayscale+kept_progressive"),
        (_turned(1, _image()), "kept"),
        (_turned(6, _image()), "kept_exif"),
    ],
)
def test_jpeg_is_stored_byte_for_byte(data: bytes, decision: str, decode: str) -> None:
    prepared = _prepare(data, decode=decode)

    assert prepared.encoded is data
    assert prepared.decision == decision
    assert prepared.psnr is None
    assert not prepare.is_changed(decision)
    _stored_pixels(prepared)


def test_thumbnail_in_the_header_is_not_taken_for_the_image() -> None:
    """The thumbnail in it has another size and an end marker of its own."""
    thumbnail = _saved(PIL.Image.new("RGB", (8, 8)))
    data = _saved(_image(), exif=b"Exif\0\0" + thumbnail)

    assert _prepare(data)[1:4] == (HEIGHT, WIDTH, "kept")
    assert _reject(data[:-2]).reason == "truncated"


@pytest.mark.parametrize(
    ("mode", "kind", "options", "decision"),
    [
        ("RGB", "PNG", {}, "converted_png"),
        ("P", "PNG", {}, "converted_png"),
        ("1", "PNG", {}, "converted_png"),
        ("L", "PNG", {}, "converted_png"),
        ("RGB", "GIF", {}, "converted_gif"),
        ("RGB", "WEBP", {"lossless": True}, "converted_webp"),
        ("RGB", "WEBP", {"quality": 95}, "converted_webp"),
        ("RGBA", "WEBP", {"lossless": True}, "converted_webp"),
        ("RGB", "BMP", {}, "converted_bmp"),
        ("RGB", "TIFF", {}, "converted_tiff"),
        ("CMYK", "TIFF", {}, "converted_tiff"),
    ],
)
def test_other_formats_become_jpegs_of_the_same_picture(
    mode: str, kind: str, options: dict[str, object], decision: str
) -> None:
    data = _saved(_image(mode), kind, **options)

    prepared = _prepare(data)

    original = np.asarray(PIL.Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
    assert prepared[1:4] == (HEIGHT, WIDTH, decision)
    assert prepared.grayscale == (mode in ("1", "L"))
    assert np.abs(_stored_pixels(prepared) - original).mean() < 4
    assert prepare.is_changed(decision)
    assert _reject(data, other_format="skip").reason == "other_format"
    with pytest.raises(ValueError, match=f"got an image in {kind}"):
        prepare.prepare(data, image_policy.Policy(other_format="fail"))


def _png(samples: np.ndarray, color_type: int, *extra: tuple[bytes, bytes]) -> bytes:
    """A PNG of 16 bits a sample, which Pillow does not write in color."""
    height, width = samples.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body))
        + name
        + body
        + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


@pytest.mark.parametrize(("color_type", "channels"), [(0, ()), (2, (3,))])
def test_png_of_16_bits_keeps_its_brightness(
    color_type: int, channels: Sequence[int]
) -> None:
    ramp = np.linspace(0, 65535, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH)
    samples = np.broadcast_to(
        ramp.reshape(HEIGHT, WIDTH, *[1 for _ in channels]),
        (
            HEIGHT,
            WIDTH,
            *channels,
        ),
    ).astype(np.uint16)

    pixels = _stored_pixels(_prepare(_png(samples, color_type)))

    assert np.abs(pixels - (ramp[..., None] / 257)).max() < 6


def test_transparent_sample_of_a_16_bit_png_is_white() -> None:
    samples = np.full((16, 16), 1000, np.uint16)

    data = _png(samples, 0, (b"tRNS", struct.pack(">H", 1000)))

    assert _stored_pixels(_prepare(data)).min() > 250


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_laid_on_white(mode: str) -> None:
    image = PIL.Image.new("RGBA", (WIDTH, HEIGHT), (200, 0, 0, 255))
    image.paste((0, 0, 0, 0), (0, 0, WIDTH // 2, HEIGHT))
    options = {"transparency": 0} if mode == "P" else {}
    if mode == "P":
        palette = PIL.Image.new("P", image.size, 1)
        palette.putpalette([0, 0, 0, 200, 0, 0])
        palette.paste(0, (0, 0, WIDTH // 2, HEIGHT))
        image = palette
    else:
        image = image.convert(mode)

    pixels = _stored_pixels(_prepare(_saved(image, "PNG", **options)))

    assert pixels[:, : WIDTH // 2 - 8].min() > 250
    assert pixels[:, WIDTH // 2 + 8 :, 1].max() < 80


@pytest.mark.parametrize(
    ("kind", "decision"),
    [
        ("adobe", "converted_cmyk"),
        ("plain", "converted_cmyk"),
        ("ycck", "converted_ycck"),
    ],
)
def test_cmyk_becomes_rgb_in_the_right_polarity(kind: str, decision: str) -> None:
    data, expected = _cmyk(kind)

    prepared = _prepare(data)

    assert prepared[1:4] == (HEIGHT, WIDTH, decision)
    pixels = _stored_pixels(prepared)
    assert np.abs(pixels - expected).mean() < 3
    by_tensorflow = tf.io.decode_jpeg(data, channels=3).numpy().astype(int)
    assert np.abs(pixels - by_tensorflow).mean() < 3
    assert _reject(data, cmyk="skip").reason == decision.removeprefix("converted_")
    with pytest.raises(ValueError, match="--cmyk=fail"):
        prepare.prepare(data, image_policy.Policy(cmyk="fail"))


def _tables(data: bytes) -> tuple[dict[int, list[int]], int]:
    with PIL.Image.open(io.BytesIO(data)) as image:
        assert isinstance(image, JpegImagePlugin.JpegImageFile)
        return image.quantization, JpegImagePlugin.get_sampling(image)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_exif_orientation_is_applied_as_viewers_do(orientation: int, mode: str) -> None:
    data = _turned(orientation, _image(mode), quality=97, subsampling=0)

    prepared = _prepare(data, exif_orientation="apply")

    upright = PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(data)))
    assert upright is not None
    expected = np.asarray(upright.convert("RGB")).astype(int)
    assert _stored_pixels(prepared).shape == expected.shape
    # With the exact inverse transform; TensorFlow's is the fast one.
    with PIL.Image.open(io.BytesIO(prepared.encoded)) as stored:
        pixels = np.asarray(stored.convert("RGB")).astype(int)
    error = np.abs(pixels - expected)
    assert error.mean() < 1
    assert error.max() <= 8
    assert ("rotated_exif" in prepared.decision) == (orientation > 1)
    with PIL.Image.open(io.BytesIO(prepared.encoded)) as stored:
        assert stored.getexif().get(0x0112, 1) == 1


@pytest.mark.parametrize(("orientation", "same"), [(3, True), (6, False)])
def test_rotation_keeps_quantization_and_subsampling(
    orientation: int, same: bool
) -> None:
    """A quarter turn also turns the quantization tables: rows become columns."""
    data = _turned(orientation, _image(), quality=60, subsampling=2)

    after = _tables(_prepare(data, exif_orientation="apply").encoded)

    tables, subsampling = _tables(data)
    if not same:
        tables = {
            key: np.reshape(table, (8, 8)).T.ravel().tolist()
            for key, table in tables.items()
        }
    assert after == (tables, subsampling)


def test_orientation_of_a_png_is_applied_or_recorded() -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    data = _saved(_image(), "PNG", exif=exif)

    kept, applied = _prepare(data), _prepare(data, exif_orientation="apply")

    assert kept[1:4] == (HEIGHT, WIDTH, "converted_png+kept_exif")
    assert PIL.Image.open(io.BytesIO(kept.encoded)).getexif()[0x0112] == 6
    assert applied[1:4] == (WIDTH, HEIGHT, "converted_png+rotated_exif")
    turned = np.asarray(_image().transpose(PIL.Image.Transpose.ROTATE_270)).astype(int)
    assert np.abs(_stored_pixels(applied) - turned).mean() < 3


@pytest.mark.parametrize("options", [{"progressive": "baseline"}, {"baseline": True}])
def test_progressive_becomes_baseline_with_its_own_tables(
    options: dict[str, object],
) -> None:
    data = _saved(_image(), progressive=True, quality=70, subsampling=1)

    prepared = _prepare(data, **options)

    assert prepared.decision == "converted_progressive"
    assert jpeg_header.read_header(prepared.encoded).process == jpeg_header.BASELINE
    assert _tables(prepared.encoded) == _tables(data)
    before = tf.io.decode_jpeg(data).numpy().astype(int)
    assert np.abs(_stored_pixels(prepared) - before).mean() < 1


def test_extended_and_arithmetic_become_baseline() -> None:
    extended = _with_byte(BASE, b"\xff\xc0", 1, b"\xc1")
    # The scan is in Huffman codes still: a legal, if meaningless, arithmetic scan.
    arithmetic = _with_byte(BASE, b"\xff\xc0", 1, b"\xc9")

    for data, options, decision in [
        (extended, {"baseline": True}, "converted_extended"),
        (arithmetic, {}, "converted_arithmetic"),
    ]:
        prepared = _prepare(data, **options)
        assert prepared.decision == decision
        assert jpeg_header.read_header(prepared.encoded).process == jpeg_header.BASELINE
        _stored_pixels(prepared)
    assert _reject(arithmetic, other_format="skip").reason == "other_format"


def test_grayscale_policy() -> None:
    data = _saved(_image("L"), quality=80)

    converted = _prepare(data, grayscale="convert")

    assert converted.decision == "converted_grayscale"
    assert not converted.grayscale
    before = tf.io.decode_jpeg(data, channels=3).numpy().astype(int)
    assert np.abs(_stored_pixels(converted) - before).max() <= 2
    assert not _prepare(_saved(_image("L"), "PNG"), grayscale="convert").grayscale
    assert _reject(data, grayscale="skip").reason == "grayscale"
    png = _saved(_image("L"), "PNG")
    assert _reject(png, grayscale="skip").reason == "grayscale"


LONG = _saved(_image(seed=3), quality=95)
CUTS = [3, 4, 30, LONG.index(b"\xff\xda"), len(LONG) // 2, len(LONG) - 20]


@pytest.mark.parametrize("cut", [*CUTS, len(LONG) - 2, len(LONG) - 1])
def test_truncated_jpeg_is_seen_in_its_header_and_end(cut: int) -> None:
    data = LONG[:cut]

    assert _reject(data).reason == "truncated"
    with pytest.raises(ValueError, match="the file is cut short"):
        prepare.prepare(data, image_policy.Policy(truncated="fail"))


@pytest.mark.parametrize(
    ("missing", "progressive"),
    [(1, False), (2, False), (20, False), (150, False), (1, True), (20, True)],
)
def test_truncated_jpeg_can_be_given_an_end(missing: int, progressive: bool) -> None:
    data = _saved(_image(seed=3), quality=95, progressive=progressive)

    prepared = _prepare(data[:-missing], truncated="keep")

    assert prepared.decision == "completed_truncated"
    assert prepare.is_changed(prepared.decision)
    assert prepared.encoded == data[:-missing] + b"\xff\xd9"
    before = tf.io.decode_jpeg(data).numpy().astype(int)
    if not progressive:
        assert (_stored_pixels(prepared)[0] == before[0]).all()


def test_jpeg_that_cannot_be_completed_is_left_out() -> None:
    assert _reject(LONG[:100], truncated="keep").reason == "truncated"
    # The cut is in the tables between two scans: an added end would be part of them.
    progressive = _saved(_image(seed=3), progressive=True)
    tables = progressive[: progressive.rindex(b"\xff\xc4") + 12]
    assert _reject(tables, truncated="keep").reason == "truncated"
    assert _reject(_saved(_image(), "PNG")[:-40], truncated="keep").reason in (
        "truncated",
        "undecodable",
    )


@pytest.mark.parametrize(
    ("data", "reason", "policy", "message"),
    [
        (b"", "zero_byte", "not_an_image", "got 0"),
        (b"a text file\nnamed .JPEG", "not_an_image", "not_an_image", "b'a text file"),
        (b"\xff\xd8abcdef", "not_an_image", "not_an_image", "must begin as"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "not_an_image", "not_an_image", "must begin"),
        (b"\x89PNG\r\n\x1a\n", "undecodable", "undecodable", "cannot identify"),
        (b"BM is how this text begins", "not_an_image", "not_an_image", "must begin"),
        (_with_byte(BASE, b"\xff\xc0", 1, b"\xc3"), "undecodable", "", "type 0xc3"),
        (_with_byte(BASE, b"\xff\xc0", 4, b"\x0c"), "undecodable", "", "12 bits"),
        (_with_byte(BASE, b"\xff\xc0", 9, b"\2"), "undecodable", "", "2 components"),
        (_with_byte(BASE, b"\xff\xc0", 5, b"\0\0"), "undecodable", "", "36x0 pixels"),
        (_with_byte(BASE, b"\xff\xdb", 1, b"\xd9"), "undecodable", "", "marker 0xd9"),
        (_with_byte(BASE, b"\xff\xdb", 2, b"\0\1"), "undecodable", "", "length of 1"),
    ],
)
def test_bytes_that_are_not_an_image_are_rejected(
    data: bytes, reason: str, policy: str, message: str
) -> None:
    rejected = _reject(data)

    assert rejected.reason == reason
    assert message in rejected.detail
    assert " at 0x" not in rejected.detail
    with pytest.raises(ValueError, match="must"):
        prepare.prepare(data, image_policy.Policy(**{policy or "undecodable": "fail"}))


BIG = struct.pack(">HH", 20000, 20000)


def _header_bombs() -> dict[str, bytes]:
    bombs = {
        "jpeg": _with_byte(BASE, b"\xff\xc0", 5, BIG),
        "png": _with_byte(
            _saved(_image(), "PNG"), b"IHDR", 4, struct.pack(">II", 20000, 20000)
        ),
        "gif": _with_byte(
            _saved(_image(), "GIF"), b"GIF8", 6, struct.pack("<HH", 20000, 20000)
        ),
        "bmp": _with_byte(
            _saved(_image(), "BMP"), b"BM", 18, struct.pack("<ii", 20000, 20000)
        ),
    }
    lossy, lossless = (_saved(_image(), "WEBP", lossless=exact) for exact in (0, 1))
    transparent = _image("RGBA")
    transparent.putalpha(100)
    extended = _saved(transparent, "WEBP")
    bombs["webp"] = _with_byte(lossy, b"VP8 ", 14, struct.pack("<HH", 16383, 16383))
    bombs["webp lossless"] = _with_byte(lossless, b"VP8L", 9, b"\xff\xff\xff\x0f")
    bombs["webp extended"] = _with_byte(extended, b"VP8X", 12, b"\xff\xff\0" * 2)
    body = bombs["png"]
    crc = struct.pack(">I", zlib.crc32(body[12:29]))
    bombs["png"] = body[:29] + crc + body[33:]
    return bombs


@pytest.mark.parametrize(("name", "data"), _header_bombs().items())
def test_header_bomb_is_rejected_without_decoding(
    name: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", refuse)
    for policy in (DEFAULT, image_policy.Policy(decode="full", max_side=100)):
        rejected = prepare.prepare(data, policy)

        assert isinstance(rejected, prepare.Rejected)
        assert rejected.reason == "too_many_pixels"
    with pytest.raises(ValueError, match="at most 178956970 pixels"):
        prepare.prepare(data, image_policy.Policy(too_many_pixels="fail"))


def test_max_pixels_is_inclusive() -> None:
    assert _prepare(BASE, max_pixels=HEIGHT * WIDTH).decision == "kept"
    assert _reject(BASE, max_pixels=HEIGHT * WIDTH - 1).reason == "too_many_pixels"


def test_full_decoding_finds_damage_after_the_header() -> None:
    huffman = _with_byte(BASE, b"\xff\xc4", 5, b"\xff" * 16)
    # The end marker is inside a comment, at which Pillow does not look any more.
    short = LONG[:-60] + b"\xff\xfe\xff\xff" + b"\xff\xd9"

    for data, reason in [(huffman, "undecodable"), (short, "truncated")]:
        assert _prepare(data).decision == "kept"
        assert _reject(data, decode="full").reason == reason
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.io.decode_jpeg(data)


jpeg_mutations = hypothesis.given(
    data=st.sampled_from(
        [
            BASE,
            _turned(6, _image()),
            _cmyk("ycck")[0],
            _saved(_image(), progressive=True),
        ]
    ),
    edits=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=3)), max_size=6
    ),
    cut=st.floats(0, 1),
    decode=st.sampled_from(["header", "full"]),
)


def check_mutated_jpeg(
    data: bytes, edits: list[tuple[float, bytes]], cut: float, decode: str
) -> None:
    """A mutated JPEG raises and warns nothing, or a ValueError if the policy fails.

    If it passes a full decode, TensorFlow decodes it.
    """
    mutated = data[: max(round(cut * 4 * len(data)), 1)]
    for place, value in edits:
        position = int(place * len(mutated))
        mutated = mutated[:position] + value + mutated[position + len(value) :]
    options = {"decode": decode, "exif_orientation": "apply", "max_pixels": 10**6}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared = prepare.prepare(mutated, image_policy.Policy(**options))

    if isinstance(prepared, prepare.Prepared):
        if decode == "full":
            _stored_pixels(prepared)
        return
    reasons = ("not_an_image", "truncated", "undecodable", "too_many_pixels")
    failing = image_policy.Policy(**options, **dict.fromkeys(reasons, "fail"))
    with pytest.raises(ValueError, match=re.escape(prepared.detail)):
        prepare.prepare(mutated, failing)


other_mutations = hypothesis.given(
    kind=st.sampled_from(["PNG", "GIF", "WEBP", "BMP", "TIFF", "none"]),
    place=st.floats(0, 1, exclude_max=True),
    value=st.binary(max_size=8),
)


def check_mutated_other_format(kind: str, place: float, value: bytes) -> None:
    """A mutated image of another format raises and warns nothing."""
    data = b"\xff\xd8\xff" if kind == "none" else _saved(_image("P"), kind)
    position = int(place * len(data))
    mutated = data[:position] + value + data[position + len(value) :]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare.prepare(mutated, image_policy.Policy(max_pixels=10**6))


# tests/torture/converters has longer rounds of these two.
def test_mutated_jpeg_never_raises() -> None:
    settings = hypothesis.settings(max_examples=100, deadline=None)
    settings(jpeg_mutations(check_mutated_jpeg))()


def test_mutated_other_formats_never_raise() -> None:
    settings = hypothesis.settings(max_examples=50, deadline=None)
    settings(other_mutations(check_mutated_other_format))()


def test_same_bytes_are_made_each_time() -> None:
    data = _cmyk("ycck")[0]

    assert prepare.prepare(data, DEFAULT) == prepare.prepare(data, DEFAULT)


def test_header_says_what_the_file_holds() -> None:
    header = jpeg_header.read_header(_turned(5, _image()))

    assert header == (
        HEIGHT,
        WIDTH,
        3,
        jpeg_header.BASELINE,
        5,
        None,
        header.scan,
        True,
        False,
    )
    assert jpeg_header.read_header(make_jpeg(0))[:2] == (32, 40)
    assert jpeg_header.read_header(_cmyk("ycck")[0]).adobe_transform == 2
