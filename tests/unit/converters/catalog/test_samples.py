"""converters.catalog.samples: the chroma subsampling of an image."""

import io

import PIL.Image
import pytest

from converters.catalog import samples
from tests.support.data.trees import make_jpeg


def _saved(mode: str, kind: str = "JPEG", **options: object) -> bytes:
    out = io.BytesIO()
    with PIL.Image.open(io.BytesIO(make_jpeg(1))) as image:
        image.convert(mode).save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (_saved("RGB", subsampling=0), "4:4:4"),
        (_saved("RGB", subsampling=1), "4:2:2"),
        (_saved("RGB", subsampling=2), "4:2:0"),
        (_saved("L"), "grayscale"),
        (_saved("CMYK"), "other"),
        (_saved("RGB", "PNG"), ""),
        (_saved("RGB")[:100], ""),
        (b"", ""),
    ],
)
def test_subsampling_of_an_image(encoded: bytes, expected: str) -> None:
    assert samples.subsampling(encoded) == expected
