"""converters.images.lossless.turn: JPEGs turned by their coefficients."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from converters.images import jpeg_header, lossless, policy as image_policy, prepare
from tests.support.data.native_op import crop_both, native_op, needs_native  # noqa: F401
from tests.unit.tfpipe.native.test_native import photograph

pytestmark = needs_native

# The orientation that turns an image back.
INVERSE = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}
TRANSPOSE = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels[::-1].swapaxes(0, 1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: pixels[:, ::-1].swapaxes(0, 1),
}
# Sampling factors of luma, and of the only component.
SAMPLINGS = {"L": (1, 1), "444": (1, 1), "422": (2, 1), "420": (2, 2)}
# Width and height: whole MCUs, one of a part of an MCU in each direction.
SIZES = ((64, 48), (72, 48), (64, 41), (61, 53))
OPTIONS = (
    {},
    {"progressive": True},
    {"restart_marker_blocks": 3, "optimize": True},
)
EXIF = PIL.Image.Exif()
EXIF[0x0112] = 6
PIXELS = PIL.Image.open(io.BytesIO(photograph((240, 320), quality=98, subsampling=0)))


def _jpeg(kind, size=(64, 48), **options):
    image = PIXELS.crop((0, 0, *size))
    out = io.BytesIO()
    if kind == "L":
        image.convert("L").save(out, "JPEG", **options)
    else:
        subsampling = f"{kind[0]}:{kind[1]}:{kind[2]}"
        image.save(out, "JPEG", subsampling=subsampling, **options)
    return out.getvalue()


def _planes(encoded):
    """Returns the decoded planes before conversion to RGB, [height, width, parts]."""
    with PIL.Image.open(io.BytesIO(encoded)) as image:
        if image.mode == "RGB":
            image.draft("YCbCr", image.size)
        pixels = np.asarray(image).astype(int)
    return pixels.reshape(*pixels.shape[:2], -1)


def _turn(encoded, orientation):
    turned, left = lossless.turn(encoded, orientation)
    assert left == ""
    return turned


def _is_possible(kind, size, orientation):
    across, down = (8 * factor for factor in SAMPLINGS[kind])
    return (size[0] % across == 0 or orientation not in (2, 3, 7, 8)) and (
        size[1] % down == 0 or orientation not in (3, 4, 6, 7)
    )


@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_are_those_of_the_turned_picture(kind, orientation):
    # The inverse transform rounds rows and columns in turn. Chroma is interpolated:
    # each step rounds to one side, and not every decoder does it in both directions.
    bound = 2 if kind == "422" else 1
    for size in SIZES:
        for options in OPTIONS:
            encoded = _jpeg(kind, size, **options)
            turned, left = lossless.turn(encoded, orientation)
            assert left == ("" if _is_possible(kind, size, orientation) else "edge")
            if left:
                assert turned is encoded
                continue
            expected = TRANSPOSE[orientation](_planes(encoded))
            error = np.abs(_planes(turned) - expected)
            assert error.shape == expected.shape
            assert error.max() <= bound


@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turning_back_gives_the_same_coefficients(kind, orientation):
    """Two JPEGs of the same coefficients are the same bytes after orientation 1."""
    for size in SIZES:
        if not _is_possible(kind, size, orientation):
            continue
        encoded = _jpeg(kind, size, progressive=True)

        back = _turn(_turn(encoded, orientation), INVERSE[orientation])

        assert back == _turn(encoded, 1)


def _coefficients(encoded):
    """Returns luma of a grayscale JPEG of one block, in the order of its frequencies.

    Pillow cannot read coefficients: the DCT of the pixels is divided by the tables.
    """
    with PIL.Image.open(io.BytesIO(encoded)) as image:
        pixels = np.asarray(image).astype(float) - 128
        table = np.reshape(image.quantization[0], (8, 8))
    k, n = np.mgrid[:8, :8]
    basis = np.cos((2 * n + 1) * k * np.pi / 16) / 2
    basis[0] /= np.sqrt(2)
    return np.rint(basis @ pixels @ basis.T / table)


def test_a_quarter_turn_transposes_frequencies_and_negates_the_odd_rows():
    table = [16 + i for i in range(64)]
    noise = np.random.default_rng(0).normal(128, 25, (8, 8)).astype(np.uint8)
    out = io.BytesIO()
    PIL.Image.fromarray(noise).save(out, "JPEG", qtables=[table])
    encoded = out.getvalue()

    found = _coefficients(_turn(encoded, 6))

    before = _coefficients(encoded)
    assert np.count_nonzero(before) > 8
    before[1::2] *= -1
    np.testing.assert_array_equal(found, before.T)
    with PIL.Image.open(io.BytesIO(_turn(encoded, 6))) as image:
        expected = np.reshape(table, (8, 8)).T.ravel().tolist()
        assert image.quantization[0] == expected


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_422_turned_sideways_is_440_which_every_decoder_reads(orientation):
    turned = _turn(_jpeg("422"), orientation)

    frame = turned.index(b"\xff\xc0")
    assert [turned[frame + 11 + 3 * i] for i in range(3)] == [0x12, 0x11, 0x11]
    expected = TRANSPOSE[orientation](
        np.asarray(PIL.Image.open(io.BytesIO(_jpeg("422")))).astype(int)
    )
    crop = tf.io.decode_and_crop_jpeg(
        turned, [8, 5, 33, 22], channels=3, dct_method="INTEGER_ACCURATE"
    )
    assert np.abs(crop.numpy().astype(int) - expected[8:41, 5:27]).mean() < 1
    native, stock = crop_both(turned, (8, 5, 32, 32), 32)
    np.testing.assert_array_equal(native, stock)


def test_metadata_are_dropped_except_color_and_density():
    encoded = _jpeg(
        "444",
        exif=EXIF,
        icc_profile=bytes(70_000),
        comment=b"said",
        dpi=(300, 72),
        restart_marker_rows=1,
    )

    with PIL.Image.open(io.BytesIO(_turn(encoded, 6))) as image:
        assert {"exif", "icc_profile", "comment"}.isdisjoint(image.info)
        assert image.info["dpi"] == (72, 300)
    rgb = io.BytesIO()
    PIXELS.crop((0, 0, 64, 48)).save(rgb, "JPEG", keep_rgb=True)
    turned = _turn(rgb.getvalue(), 2)
    assert jpeg_header.read_header(turned).adobe_transform == 0
    error = _rgb(turned) - _rgb(rgb.getvalue())[:, ::-1]
    assert np.abs(error).max() <= 1


def _rgb(encoded):
    return np.asarray(PIL.Image.open(io.BytesIO(encoded)).convert("RGB")).astype(int)


def _with_bytes(data, marker, offset, *values):
    changed = bytearray(data)
    at = changed.index(marker) + offset
    changed[at : at + len(values)] = values
    return bytes(changed)


SOUND = _jpeg("420")
LEFT = {
    "nothing": (b"", "damaged"),
    "text": (b"these are no pixels", "damaged"),
    "header": (SOUND[:300], "damaged"),
    "half": (SOUND[: len(SOUND) // 2], "damaged"),
    "scan": (_with_bytes(SOUND, b"\xff\xda", 60, 0xFF, 0xD3, 0xFF, 0xD1), "damaged"),
    "bits": (_with_bytes(SOUND, b"\xff\xc0", 4, 12), "precision"),
    "arithmetic": (_with_bytes(SOUND, b"\xff\xc0", 1, 0xC9), "arithmetic"),
    "bomb": (_with_bytes(SOUND, b"\xff\xc0", 5, 99, 99, 99, 99), "too_many_pixels"),
}


@pytest.mark.parametrize(("encoded", "reason"), LEFT.values(), ids=LEFT)
def test_what_is_not_sound_is_left_as_it_is(encoded, reason, capfd):
    assert lossless.turn(encoded, 5) == (encoded, reason)
    assert capfd.readouterr() == ("", "")


def test_coefficients_that_no_picture_has_are_left():
    """libjpeg's encoder without fitted Huffman tables would write them wrongly."""
    out = io.BytesIO()
    PIL.Image.new("L", (16, 8)).save(out, "JPEG")
    data = out.getvalue()
    scan = data.index(b"\xff\xda") + 10

    def two_blocks(*steps):
        # The code of a difference of 10 bits, the difference, the end of the block.
        words = [
            f"11111110{step if step > 0 else step + 1023:010b}1010" for step in steps
        ]
        codes = int("".join(words) + 4 * "1", 2).to_bytes(6, "big")
        return data[:scan] + codes.replace(b"\xff", b"\xff\0") + jpeg_header.EOI

    assert lossless.turn(two_blocks(1016, -1016), 5).left == ""
    assert lossless.turn(two_blocks(1016, 1016), 5).left == "unwritable"


def test_cmyk_is_left_and_a_wrong_orientation_is_an_error():
    out = io.BytesIO()
    PIXELS.crop((0, 0, 64, 48)).convert("CMYK").save(out, "JPEG")
    assert lossless.turn(out.getvalue(), 5).left == "components"
    for orientation in (0, 9):
        with pytest.raises(ValueError, match=f"must be 1 to 8, got {orientation}"):
            lossless.turn(SOUND, orientation)


def _prepared(data, **policy):
    options = {"exif_orientation": "apply", "lossless_rotation": True, **policy}
    prepared = prepare.prepare(data, image_policy.Policy(**options))
    assert isinstance(prepared, prepare.Prepared), prepared
    return prepared


@pytest.mark.parametrize(
    ("options", "policy", "decision"),
    [
        ({}, {}, "rotated_exif_lossless"),
        ({}, {"lossless_rotation": False}, "rotated_exif"),
        ({"size": (64, 41)}, {}, "rotated_exif"),
        ({"progressive": True}, {}, "rotated_exif_lossless"),
        (
            {"progressive": True},
            {"baseline": True},
            "converted_progressive+rotated_exif_lossless",
        ),
        ({}, {"restart_rows": True}, "rotated_exif_lossless+rewritten"),
        ({}, {"max_side": 32}, "rotated_exif+shrunk"),
        ({}, {"quality": 50}, "rotated_exif+shrunk"),
        ({}, {"exif_orientation": "keep"}, "kept_exif"),
        ({}, {"exif_orientation": "keep", "restart_rows": True}, "rewritten_exif"),
        ({}, {"exif_orientation": "keep", "max_side": 32}, "shrunk+kept_exif"),
    ],
)
def test_decision_says_what_turning_cost(options, policy, decision):
    data = _jpeg("420", exif=EXIF, **options)

    prepared = _prepared(data, **policy)

    keeps = "keep" in policy.values()
    assert prepared.decision == decision
    with PIL.Image.open(io.BytesIO(prepared.encoded)) as image:
        assert image.size == (prepared.width, prepared.height)
        assert image.getexif().get(0x0112, 1) == (6 if keeps else 1)
    assert (prepared.height > prepared.width) == (not keeps)


def test_a_jpeg_without_its_end_is_completed_and_turned():
    data = _jpeg("420", exif=EXIF)

    whole, cut = (_prepared(d, truncated="keep") for d in (data, data[:-2]))

    assert cut.decision == "completed_truncated+rotated_exif_lossless"
    assert cut.encoded == whole.encoded
    short = _prepared(data[:-300], truncated="keep")
    assert short.decision == "completed_truncated+rotated_exif"


def test_gray_stays_gray():
    prepared = _prepared(_jpeg("L", exif=EXIF))

    assert prepared[1:] == (64, 48, "rotated_exif_lossless", None, True, None)
    converted = _prepared(_jpeg("L", exif=EXIF), grayscale="convert")
    assert converted.decision == "converted_grayscale+rotated_exif"
