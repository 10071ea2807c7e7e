"""converters.checks.record: the level decode reports what TensorFlow refuses."""

import io
import pathlib
import random
import struct
from collections.abc import Iterator, Sequence

import PIL.Image
import pytest
import tensorflow as tf

from converters import verify
from converters.checks import record
from converters.images import jpeg_header
from tests.support.data.trees import make_jpeg
from tests.unit.converters.checks.test_foreign import inception, write
from tests.unit.tfpipe.ops.test_rare_jpegs import CMYK, COLORED, INKED, MADE
from tfpipe.shards import image_record, index
from tfpipe.shards.example import Feature

NUM_MUTATIONS = 600


def _saved(
    seed: int, mode: str = "RGB", kind: str = "JPEG", **options: object
) -> bytes:
    out = io.BytesIO()
    with PIL.Image.open(io.BytesIO(make_jpeg(seed, height=33, width=47))) as image:
        image.convert(mode).save(out, kind, **options)
    return out.getvalue()


KINDS = {
    "baseline": _saved(0),
    "gray": _saved(1, "L"),
    "CMYK": _saved(2, "CMYK"),
    "progressive": _saved(3, progressive=True),
    "restarts": _saved(4, restart_marker_rows=1),
    "progressive with restarts": _saved(5, progressive=True, restart_marker_rows=1),
    **COLORED,
    **INKED,
    **MADE,
}


def takes(encoded: bytes) -> bool:
    """Whether both decode ops of TensorFlow decode all of the image."""
    try:
        height, width, _ = tf.io.decode_jpeg(encoded, channels=3).shape
        window = [0, 0, height, width]
        tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def _opens(encoded: bytes) -> bool:
    """Whether tf.io.decode_jpeg decodes it; the op decodes some other formats too."""
    try:
        tf.io.decode_jpeg(encoded)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def faults(encoded: bytes) -> list[str]:
    """Faults of the levels schema and decode in a record with this image alone."""
    example = {image_record.ENCODED: Feature("bytes", [encoded])}
    return [*record.size_faults(example), *record.decode_faults(example)]


def _mutations(sources: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Sources with bytes changed, removed or added, or cut; mostly near the ends."""
    chosen = random.Random(seed)
    for _ in range(count):
        data = bytearray(chosen.choice(sources))
        for _ in range(chosen.choice((1, 1, 2))):
            size = len(data)
            place = chosen.choice(
                (
                    chosen.randrange(size),
                    chosen.randrange(min(size, 700)),
                    max(4, size - 1 - chosen.randrange(30)),
                )
            )
            place = min(place, size - 1)  # an image may be cut to four bytes
            piece = chosen.choice((1, 2, 4, 20))
            match chosen.randrange(6):
                case 0:
                    data[place] ^= 1 << chosen.randrange(8)
                case 1:
                    data[place : place + 2] = bytes([0xFF, chosen.randrange(256)])
                case 2:
                    del data[place : place + piece]
                case 3:
                    data[place:place] = chosen.randbytes(piece)
                case 4:
                    data[place:place] = data[place // 2 : place // 2 + piece]
                case 5:
                    del data[max(4, place) :]
        yield bytes(data)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_sound_images_pass_if_tensorflow_takes_them(name: str) -> None:
    assert bool(faults(KINDS[name])) == (not takes(KINDS[name]))


def check_mutated_images(count: int, seed: int) -> None:
    """Each mutated image that TensorFlow refuses is reported."""
    sources = [data for data in KINDS.values() if len(data) < 5000]
    mutated = list(_mutations(sources, count, seed))

    refused = [data for data in mutated if not takes(data)]
    passed = [data for data in refused if not faults(data)]

    assert len(refused) > count / 4
    assert len(mutated) - len(refused) > count / 10
    assert passed == []


# tests/torture/converters has longer rounds.
def test_mutated_images_that_tensorflow_refuses_are_reported() -> None:
    check_mutated_images(NUM_MUTATIONS, seed=0)


def test_images_without_their_end_are_reported() -> None:
    """Pillow decodes some that TensorFlow refuses: those with a complete last block."""
    cut = [
        _saved(seed, mode, quality=50 + 5 * seed)[:-2]
        for seed in range(10)
        for mode in ("L", "RGB", "CMYK")
    ]

    assert any(_opens_in_pillow(data) and not takes(data) for data in cut)
    assert all("EOI marker" in "".join(faults(data)) for data in cut)


def _opens_in_pillow(encoded: bytes) -> bool:
    try:
        PIL.Image.open(io.BytesIO(encoded)).load()
    except OSError:
        return False
    return True


def test_an_image_of_too_many_values_is_reported_before_it_is_decoded() -> None:
    """Four components make it too large, at a size that Pillow accepts."""
    data = bytearray(CMYK)
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 12_000, 12_000)
    header = jpeg_header.read_header(bytes(data))

    (fault,) = faults(bytes(data))

    assert header.height * header.width * header.num_components >= 2**29
    assert not takes(bytes(data))
    assert "less than 536870912 values" in fault


def test_png_passes_as_tensorflow_takes_it() -> None:
    encoded = _saved(0, kind="PNG")

    assert not faults(encoded)
    assert _opens(encoded)


@pytest.mark.parametrize("kind", ["BMP", "WEBP", "TIFF"])
def test_formats_that_some_tensorflow_refuses_are_faults(kind: str) -> None:
    """TensorFlow 2.21 decodes WebP, 2.16 and 2.17 do not."""
    assert faults(_saved(0, kind=kind))


def test_a_damaged_png_is_reported() -> None:
    """Pillow checks no checksum when it decodes, and needs no end."""
    encoded = _saved(0, kind="PNG")
    palette = _saved(0, "P", kind="PNG")
    end = len(palette) - 12
    damaged = [palette[:end], palette[: end + 3], encoded[:-1]]
    damaged += [
        encoded[:place] + bytes([encoded[place] ^ 1]) + encoded[place + 1 :]
        for place in range(8, len(encoded), 97)
    ]

    for data in damaged:
        assert faults(data)


def test_programs_are_never_asked_to_decode() -> None:
    """Pillow would run Ghostscript to decode PostScript."""
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"

    found = faults(postscript)

    assert "not an image: it begins with b'%!PS" in found[0]
    assert "takes JPEG and PNG, got data that begins with" in found[1]


def test_no_index_is_written_for_images_without_their_end(
    tmp_path: pathlib.Path,
) -> None:
    cut = next(
        data
        for seed in range(1000)
        if _opens_in_pillow(data := _saved(seed, "L", quality=40 + seed % 50)[:-2])
        and not takes(data)
    )
    shape = {"image/height": 33, "image/width": 47}
    data = [inception(0, 1), inception(1, 1, **{"image/encoded": cut}, **shape)]
    write(tmp_path / "train-00000-of-00001", data)
    config = verify.VerifyOptions(
        data_dir=str(tmp_path), level="decode", num_workers=1, write_index=True
    )

    (fault,) = verify.verify(config).faults

    assert (fault.record, fault.file) == (1, "image1.JPEG")
    assert not (tmp_path / index.INDEX_NAME).exists()


def test_images_that_the_presets_do_not_decode_are_a_remark(
    tmp_path: pathlib.Path,
) -> None:
    shape = {"image/height": 33, "image/width": 47}
    png = inception(1, 1, **{"image/encoded": _saved(0, kind="PNG")}, **shape)
    write(tmp_path / "train-00000-of-00001", [inception(0, 1), png])

    result = verify.verify(
        verify.VerifyOptions(data_dir=str(tmp_path), level="decode", num_workers=1)
    )

    assert result.faults == []
    (remark,) = result.details["remarks"]
    assert remark.startswith("Not JPEG: 1 image.")
