"""converters.images.pillow.check_jpeg: the native library changes no verdict."""

import random
from collections.abc import Iterator

import PIL.Image
import pytest

from converters.images import jpeg_header, pillow
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.unit.tfpipe.ops.test_rare_jpegs import BASE, CMYK, INKED, saved
from tfpipe.native import entry_points

pytestmark = needs_native

KINDS = {
    "plain": BASE,
    "gray": saved("L"),
    "progressive": saved(progressive=True),
    "restarts": saved(restart_marker_blocks=1),
    "4:2:0": saved(subsampling=2, size=(61, 47)),
    **INKED,
}
NUM_DAMAGED = 60


def damaged(jpeg: bytes, seed: int) -> Iterator[bytes]:
    """Copies of a JPEG with wrong bytes, a cut, zeros, or bytes too many."""
    draw = random.Random(seed)
    for _ in range(NUM_DAMAGED):
        copy = bytearray(jpeg)
        at = draw.randrange(2, len(jpeg))
        kind = draw.randrange(4)
        if kind == 0:
            copy[at] = draw.randrange(256)
        elif kind == 1:
            del copy[at:-2]
        elif kind == 2:
            copy[at : at + 20] = bytes(min(20, len(jpeg) - at))
        else:
            copy[at:at] = draw.randbytes(3)
        yield bytes(copy)


def verdict(jpeg: bytes) -> str:
    try:
        pillow.check_jpeg(jpeg)
    except jpeg_header.BadImageError as error:
        return f"{error.reason}: {error.detail}"
    return "decodes"


@pytest.mark.parametrize("kind", KINDS)
def test_verdict_is_that_of_pillow_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpegs = [KINDS[kind], *damaged(KINDS[kind], seed=len(kind))]
    with_library = [verdict(jpeg) for jpeg in jpegs]
    monkeypatch.setattr(entry_points, "_is_built", lambda: False)

    assert with_library == [verdict(jpeg) for jpeg in jpegs]
    assert with_library[0] == "decodes"
    assert len(set(with_library)) > 1


def test_a_sound_jpeg_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(image: PIL.Image.Image) -> None:
        raise OSError("decoded")

    monkeypatch.setattr("PIL.JpegImagePlugin.JpegImageFile.load", load)

    assert verdict(BASE) == verdict(CMYK) == "decodes"
    assert "decoded" in verdict(KINDS["progressive"])
    assert "decoded" in verdict(BASE.replace(b"\xff\xd9", b""))
