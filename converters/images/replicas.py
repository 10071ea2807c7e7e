"""Makes other bytes of one image: for copies of a data set that share nothing.

In: the bytes of an image as a record holds it, and a seed or a size. Out: the bytes of
a copy. A storage that keeps equal blocks only once cannot do so with these copies.

`vary` decodes nothing and loses nothing: the copy has the same coefficients. `enlarge`
and `reencode` decode the image and encode it again.
"""

import io
import math
from typing import TYPE_CHECKING

from converters.images import jpeg_header, limits, lossless
from converters.images.policy import Policy
from tfpipe.pictures import formats

if TYPE_CHECKING:
    from converters.images import pillow

# Largest and smallest divisor of a coefficient in a baseline JPEG.
_MOST_DIVISOR = 255
_LIMITS = Policy()


def vary(encoded: bytes, *, seed: int, mirror: bool = False) -> lossless.Recoded:
    """Writes the coefficients of a JPEG with other Huffman codes; loses nothing.

    Every decoder gives the same pixels. Metadata are kept byte for byte.

    Args:
        encoded: A JPEG.
        seed: 0 to 2 ** 64 - 1; another seed gives other bytes, the same seed the same.
        mirror: Whether left and right change places. The EXIF orientation and a
            thumbnail stay as they are.

    Returns:
        The copy, or the same bytes and the reason; see `lossless.Recoded`. With
        `mirror` two more reasons: "edge" (the image ends within a block) and
        "components" (neither 1 nor 3).

    Raises:
        ValueError: If the seed is out of range, or the native library is not built.
        MemoryError: If the coefficients do not fit into memory.
    """
    return lossless.vary(encoded, seed=seed, mirror=mirror)


def enlarged_size(height: int, width: int, *, factor: float) -> tuple[int, int]:
    """Returns height and width in pixels after `enlarge`, rounded; at least 1."""
    return max(round(height * factor), 1), max(round(width * factor), 1)


def enlarge(encoded: bytes, *, factor: float, quality: int) -> bytes:
    """Scales an image up with a bicubic filter, as a JPEG of full chroma resolution.

    The result is RGB or gray. An EXIF orientation is kept; other metadata are dropped,
    as whenever the converters encode an image.

    Args:
        encoded: An image of any format that the converters read.
        factor: Ratio of the sides, above 0.
        quality: JPEG quality of libjpeg, 1 to 100.

    Raises:
        BadImageError: If the image does not decode, or is too large before or after.
        ValueError: If the factor or the quality is out of range.
    """
    if not factor > 0:
        raise ValueError(f"factor must be above 0, got {factor}.")
    if not math.isfinite(factor):
        raise ValueError(f"factor must be finite, got {factor}.")
    _check_quality(quality)
    import PIL.Image

    from converters.images import pillow

    picture = _decoded(encoded, factor)
    height, width = enlarged_size(*picture.image.size[::-1], factor=factor)
    image = picture.image.resize((width, height), PIL.Image.Resampling.BICUBIC)
    larger = pillow.Picture(image, orientation=picture.orientation)
    return pillow.encode(larger, quality=quality, optimize=False)


def reencode(encoded: bytes, *, quality: int, seed: int) -> bytes:
    """Decodes an image and encodes it with quantization tables that the seed changes.

    Each divisor of the tables is changed by up to a tenth, by at least 1 or not at all.
    The copies then have other coefficients. The chroma subsampling is that of the
    source; metadata are dropped except an EXIF orientation.

    Args:
        encoded: An image of any format that the converters read.
        quality: JPEG quality of libjpeg, 1 to 100, whose tables are changed.
        seed: At least 0.

    Raises:
        BadImageError: If the image does not decode, or is too large.
        ValueError: If the quality or the seed is out of range.
    """
    _check_quality(quality)
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}.")
    import numpy as np

    from converters.images import pillow

    picture = _decoded(encoded, 1)
    generator = np.random.default_rng(seed)
    tables = []
    for table in _tables(quality):
        most = np.maximum(np.asarray(table) // 10, 1)
        other = np.asarray(table) + generator.integers(-most, most, endpoint=True)
        tables.append(np.clip(other, 1, _MOST_DIVISOR).tolist())
    num_tables = 1 if picture.image.mode == "L" else 2
    changed = picture._replace(tables=tables[:num_tables])
    return pillow.encode(changed, quality=None, optimize=True)


def _check_quality(quality: int) -> None:
    if not 1 <= quality <= 100:
        raise ValueError(f"quality must be 1 to 100, got {quality}.")


def _decoded(encoded: bytes, factor: float) -> "pillow.Picture":
    """Returns the pixels of an image, if they and those of the copy are not too many.

    Raises:
        BadImageError: If the image does not decode or is too large.
    """
    from converters.images import pillow

    if encoded.startswith(jpeg_header.MAGIC):
        header = jpeg_header.read_header(encoded)
        size = header.height, header.width
        _check_sizes(size, size, factor)
        limits.check_jpeg(
            encoded, header, _LIMITS, looks=False, encodes=True, size=None
        )
        return pillow.decode_jpeg(encoded, header, None)
    kind = formats.sniff(encoded)
    if kind is None:
        raise jpeg_header.BadImageError(
            "not_an_image",
            f"a record must hold an image, got bytes that begin {encoded[:8]!r}",
        )
    size, decoded = pillow.read_size(encoded, kind)
    _check_sizes(size, decoded, factor)
    return pillow.decode_other(encoded, kind)


def _check_sizes(
    size: tuple[int, int], decoded: tuple[int, int], factor: float
) -> None:
    for height, width in (decoded, enlarged_size(*size, factor=factor)):
        limits.check_pixels(height, width, _LIMITS)
        limits.check_decoding(height, width, _LIMITS)


def _tables(quality: int) -> list[list[int]]:
    """Returns libjpeg's quantization tables of luma and chroma, row by row."""
    import PIL.Image
    from PIL import JpegImagePlugin

    out = io.BytesIO()
    PIL.Image.new("RGB", (8, 8)).save(out, "JPEG", quality=quality)
    with PIL.Image.open(out) as image:
        assert isinstance(image, JpegImagePlugin.JpegImageFile)
        return [list(image.quantization[number]) for number in (0, 1)]
