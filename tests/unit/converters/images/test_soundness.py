"""converters.images.soundness: the native library changes no verdict."""

import random
from collections.abc import Iterator

import PIL.Image
import pytest

from converters.images import jpeg_header, soundness
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.unit.tfpipe.ops.test_rare_jpegs import BASE, INKED, saved
from tfpipe.native import codes, libraries

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
# Half of its codes are missing.
GRAY = BASE[:700] + BASE[-2:]


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
        soundness.check_jpeg(jpeg, damage=False)
    except jpeg_header.BadImageError as error:
        return f"{error.reason}: {error.detail}"
    return "decodes"


def has_end(jpeg: bytes) -> bool:
    """Whether the callers of `check_jpeg` give it such a JPEG."""
    try:
        return jpeg_header.has_end(jpeg, jpeg_header.read_header(jpeg).scan)
    except jpeg_header.BadImageError:
        return False


@pytest.mark.parametrize("kind", KINDS)
def test_verdict_is_that_of_pillow_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpegs = [KINDS[kind], *filter(has_end, damaged(KINDS[kind], seed=len(kind)))]
    with_library = [verdict(jpeg) for jpeg in jpegs]
    monkeypatch.setattr(libraries, "is_built", lambda: False)

    assert with_library == [verdict(jpeg) for jpeg in jpegs]
    assert with_library[0] == "decodes"
    assert len(jpegs) > NUM_DAMAGED // 3


@pytest.mark.parametrize("kind", KINDS)
def test_pillow_is_not_asked_about_a_jpeg_that_libjpeg_decodes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(image: PIL.Image.Image) -> None:
        raise OSError("Pillow was asked")

    monkeypatch.setattr("PIL.JpegImagePlugin.JpegImageFile.load", load)

    assert verdict(KINDS[kind]) == "decodes"
    cut = KINDS[kind][:-2]
    assert "Pillow was asked" in verdict(cut)


@pytest.mark.parametrize(
    ("word", "changed"),
    [
        ("sound", BASE),
        ("sound", BASE[:-2] + bytes(3) + BASE[-2:]),  # some encoders pad
        ("sound", BASE + b"a trailer"),
        ("corrupt", BASE[:-2] + bytes(20) + BASE[-2:]),
        ("corrupt", GRAY),
        ("failed", BASE[:-2]),
        ("failed", b"no JPEG"),
        ("failed", b""),
    ],
)
def test_words(word: str, changed: bytes) -> None:
    found = codes.check(changed)

    assert found.word == word
    assert bool(found.message) == (word != "sound")


def test_damage_is_a_fault_only_where_it_is_asked_for() -> None:
    soundness.check_jpeg(GRAY, damage=False)
    with pytest.raises(
        jpeg_header.BadImageError, match="libjpeg says: Corrupt JPEG data: premature"
    ) as caught:
        soundness.check_jpeg(GRAY, damage=True)
    assert caught.value.reason == "corrupt"
