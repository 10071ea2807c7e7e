"""converters.images.shrink: sizes, encodings and errors of smaller images."""

import io

import hypothesis
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from PIL import JpegImagePlugin

from converters.images import jpeg_header, policy as image_policy, prepare, shrink

SIDES = st.integers(1, 5000)


def _photo(height: int, width: int, seed: int = 0) -> PIL.Image.Image:
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), np.uint8)
    image = PIL.Image.fromarray(small).resize((width, height), resample=3)
    noise = random.normal(0, 6, (height, width, 3))
    return PIL.Image.fromarray(
        np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)
    )


def _jpeg(image: PIL.Image.Image, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def _prepare(data: bytes, **policy: object) -> prepare.Prepared:
    prepared = prepare.prepare(data, image_policy.Policy(**policy))
    assert isinstance(prepared, prepare.Prepared), prepared
    assert tf.io.decode_jpeg(prepared.encoded).shape[:2] == [
        prepared.height,
        prepared.width,
    ]
    return prepared


def _settings(data: bytes) -> tuple[dict[int, list[int]], int]:
    with PIL.Image.open(io.BytesIO(data)) as image:
        assert isinstance(image, JpegImagePlugin.JpegImageFile)
        return image.quantization, JpegImagePlugin.get_sampling(image)


PHOTO = _jpeg(_photo(300, 400), quality=95, subsampling=0)


@pytest.mark.parametrize(
    ("height", "width", "max_side", "short_side", "expected"),
    [
        (300, 400, None, None, None),
        (300, 400, 400, 300, None),
        (300, 400, 500, None, None),
        (300, 400, 200, None, (150, 200)),
        (400, 300, 200, None, (200, 150)),
        (300, 400, None, 150, (150, 200)),
        (300, 400, 320, 150, (150, 200)),
        (300, 400, 160, 150, (120, 160)),
        (375, 500, None, 256, (256, 341)),
        (1, 1000, 10, None, (1, 10)),
        (333, 500, None, 333, None),
    ],
)
def test_size_keeps_the_shape_and_both_limits(
    height: int,
    width: int,
    max_side: int | None,
    short_side: int | None,
    expected: tuple[int, int] | None,
) -> None:
    assert (
        shrink.fit(height, width, max_side=max_side, short_side=short_side) == expected
    )


@hypothesis.given(SIDES, SIDES, st.none() | SIDES, st.none() | SIDES)
def test_size_is_within_the_limits_and_touches_one(
    height: int, width: int, max_side: int | None, short_side: int | None
) -> None:
    size = shrink.fit(height, width, max_side=max_side, short_side=short_side)

    after = size or (height, width)
    assert max(after) <= (max_side or 5000)
    assert min(after) <= (short_side or 5000)
    assert min(after) >= 1
    if size is not None:
        assert max(size) == max_side or min(size) == short_side
        # Each side is rounded by at most half a pixel, or up to one.
        assert abs(size[0] * width - size[1] * height) <= max(height, width)


def test_originals_are_untouched_without_a_flag() -> None:
    assert _prepare(PHOTO).encoded is PHOTO


@pytest.mark.parametrize("options", [{"max_side": 100}, {"short_side": 75}])
def test_image_is_scaled_down(options: dict[str, int]) -> None:
    prepared = _prepare(PHOTO, **options)

    assert prepared[1:4] == (75, 100, "shrunk")
    assert len(prepared.encoded) < len(PHOTO) / 5
    source = PIL.Image.open(io.BytesIO(PHOTO))
    wanted = np.asarray(source.resize((100, 75), PIL.Image.Resampling.LANCZOS))
    stored = np.asarray(PIL.Image.open(io.BytesIO(prepared.encoded)))
    # Most of it is what quality 90 makes of noise, 5.1 of 5.2 when measured.
    assert np.abs(stored.astype(int) - wanted).mean() < 6


def test_small_image_keeps_its_bytes() -> None:
    assert _prepare(PHOTO, max_side=400, short_side=300).encoded is PHOTO


def test_scaled_image_has_quality_90_and_its_own_subsampling() -> None:
    def reference(quality: int, subsampling: int) -> object:
        return _settings(_jpeg(_photo(8, 8), quality=quality, subsampling=subsampling))

    prepared = _prepare(PHOTO, max_side=100)
    assert _settings(prepared.encoded) == reference(90, 0)
    prepared = _prepare(PHOTO, max_side=100, quality=50, optimize="420")
    assert _settings(prepared.encoded) == reference(50, 2)


def test_scaling_comes_with_the_other_policies() -> None:
    turned = PIL.Image.Exif()
    turned[0x0112] = 6
    data = _jpeg(_photo(300, 400), progressive=True, exif=turned)
    gray = _jpeg(_photo(300, 400).convert("L"))
    cmyk = _jpeg(_photo(300, 400).convert("CMYK"))
    png = io.BytesIO()
    _photo(300, 400).save(png, "PNG")

    both = _prepare(data, max_side=100, baseline=True, exif_orientation="apply")
    assert both[1:4] == (100, 75, "converted_progressive+rotated_exif+shrunk")
    kept = _prepare(data, max_side=100)
    assert jpeg_header.read_header(kept.encoded).orientation == 6
    assert _prepare(gray, max_side=100)[1:6] == (75, 100, "shrunk", None, True)
    assert _prepare(cmyk, max_side=100)[1:4] == (75, 100, "converted_cmyk+shrunk")
    decision = _prepare(png.getvalue(), short_side=75)[1:4]
    assert decision == (75, 100, "converted_png+shrunk")


def test_turned_tiff_is_scaled_in_the_shape_that_is_stored() -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    _photo(300, 400).save(out, "TIFF", exif=exif)

    kept = _prepare(out.getvalue(), max_side=100)
    applied = _prepare(out.getvalue(), max_side=100, exif_orientation="apply")

    assert kept[1:4] == (75, 100, "converted_tiff+shrunk+kept_exif")
    assert jpeg_header.read_header(kept.encoded).orientation == 6
    assert applied[1:4] == (100, 75, "converted_tiff+rotated_exif+shrunk")


def test_quality_alone_replaces_images_that_get_smaller() -> None:
    prepared = _prepare(PHOTO, quality=60)
    assert prepared[1:4] == (300, 400, "shrunk")
    assert len(prepared.encoded) < len(PHOTO)

    assert _prepare(prepared.encoded, quality=90).decision == "kept"


@pytest.mark.parametrize("optimize", ["keep_subsampling", "420"])
def test_optimize_keeps_tables_and_saves_bytes(optimize: str) -> None:
    prepared = _prepare(PHOTO, optimize=optimize)

    tables, subsampling = _settings(PHOTO)
    expected = (tables, subsampling if optimize == "keep_subsampling" else 2)
    assert prepared.decision == "shrunk"
    assert len(prepared.encoded) < len(PHOTO)
    assert _settings(prepared.encoded) == expected
    again = _prepare(prepared.encoded, optimize=optimize)
    assert len(again.encoded) <= len(prepared.encoded)


def test_noise_in_small_images_has_room_to_be_encoded() -> None:
    """Pillow alone fails: "Suspension not allowed here"."""
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    data = _jpeg(PIL.Image.fromarray(noise), quality=100, subsampling=0)

    assert _prepare(data, optimize="keep_subsampling").decision == "shrunk"


def test_sample_is_one_in_64_by_the_bytes() -> None:
    chosen = [number for number in range(6400) if shrink.in_sample(b"%d" % number)]

    assert 60 <= len(chosen) <= 140
    assert chosen == [n for n in range(6400) if shrink.in_sample(b"%d" % n)]


def _sampled(wanted: bool, **options: object) -> bytes:
    """A photograph that is in the sample or not, chosen by bytes after its end."""
    data = _jpeg(_photo(120, 160), **options)
    tails = (data + b"%d" % number for number in range(1000))
    return next(tail for tail in tails if shrink.in_sample(tail) == wanted)


def test_psnr_is_measured_for_shrunk_images_of_the_sample_only() -> None:
    measured, other = _sampled(True), _sampled(False)

    assert _prepare(measured, max_side=100).psnr is not None
    assert _prepare(other, max_side=100).psnr is None
    assert _prepare(measured).psnr is None
    assert _prepare(_sampled(True, progressive=True), baseline=True).psnr is None


def test_psnr_falls_with_the_quality() -> None:
    data = _sampled(True)

    values = [_prepare(data, max_side=100, quality=q).psnr for q in (95, 70, 30)]

    assert all(value is not None for value in values)
    assert values == sorted(values, reverse=True)
    assert 20 < values[-1] < values[0] < 60


def test_psnr_is_that_of_tensorflow() -> None:
    image = _photo(64, 64)
    data = _jpeg(image, quality=60)
    decoded = np.asarray(PIL.Image.open(io.BytesIO(data)))

    expected = tf.image.psnr(np.asarray(image), decoded, 255).numpy()
    assert shrink.psnr(image, data) == pytest.approx(expected, abs=1e-3)
    flat = PIL.Image.new("L", (16, 16), 128)
    assert shrink.psnr(flat, _jpeg(flat)) == shrink.MAX_PSNR
