"""Decodes images with Pillow, and encodes pixels as JPEG.

In: bytes, and the size and settings to use. Out: a picture of mode L or RGB, 8 bits a
sample, with transparency on white and CMYK converted by the formula of TensorFlow; or
a JPEG. Every exception that Pillow raises about damaged bytes becomes a
`BadImageError`, and its warnings are dropped. Color profiles are dropped too, because
TensorFlow's decoder ignores them.
"""

import contextlib
import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import PIL.Image
from PIL import ImageChops, ImageFile, JpegImagePlugin, TiffImagePlugin

from converters.images import jpeg_header, shrink
from tfpipe.pictures import orientation, pixels

_TILE_WIDTH_TAG, _TILE_LENGTH_TAG = 0x0142, 0x0143

Size = tuple[int, int]


class Picture(NamedTuple):
    """Pixels, with the settings to encode them like their source.

    Attributes:
        image: The pixels, mode L or RGB.
        tables: Quantization tables of luma and chroma, each 64 values row by row; empty
            if the source has no tables that can be used.
        subsampling: Chroma subsampling in Pillow's numbers: 0 is 4:4:4, 1 is 4:2:2, 2
            is 4:2:0.
        orientation: EXIF orientation of the pixels; 1 if they are upright.
    """

    image: PIL.Image.Image
    tables: Sequence[Sequence[int]] = ()
    subsampling: int = 0
    orientation: int = 1


@contextlib.contextmanager
def _pillow(max_pixels: float = math.inf) -> Iterator[None]:
    """Hides Pillow's warnings, and turns its exceptions into BadImageError.

    Pillow's decoders raise almost any exception on damaged bytes. Only MemoryError is
    passed on, because this machine is the reason and not the image. Pillow's own limit
    of pixels is mostly turned off: the caller checks the limit of the policy after the
    header and before the pixels.
    """
    with warnings.catch_warnings(), pixels.limits(max_pixels):
        warnings.simplefilter("ignore")
        try:
            yield
        except (jpeg_header.BadImageError, MemoryError):
            raise
        except PIL.Image.DecompressionBombError as error:
            raise jpeg_header.BadImageError(
                "too_expensive",
                f"an image inside of the file must have at most {2 * max_pixels:.0f} "
                "pixels (--max_decoded_pixels), got more",
            ) from error
        except Exception as error:
            cut = isinstance(error, EOFError) or "truncated" in str(error).lower()
            raise jpeg_header.BadImageError(
                "truncated" if cut else "undecodable",
                f"the image must decode, got {type(error).__name__}: {_line(error)}",
            ) from error


def _line(error: Exception) -> str:
    """Returns the message on one line, without addresses that differ between runs."""
    return re.sub(r"<\S+ object at \w+>", "the data", " ".join(str(error).split()))


def check_jpeg(data: bytes) -> None:
    """Checks that a JPEG decodes: computes one pixel a block, and drops the pixels.

    Raises:
        BadImageError: If it does not decode.
    """
    with _pillow(), PIL.Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
        image.draft(None, (1, 1))
        image.load()


def read_size(data: bytes, kind: str) -> tuple[Size, Size]:
    """Reads the size of an image of another format than JPEG from its header.

    Returns:
        size: Height and width of the image in pixels.
        decoded: Height and width of the pixels that are decoded, which is more for a
            TIFF whose tiles go beyond the image.

    Raises:
        BadImageError: If the header is damaged.
    """
    if kind == "WEBP":
        # Pillow would allocate the whole canvas to find the size.
        size = _webp_size(data)
        return size, size
    with _pillow(), PIL.Image.open(io.BytesIO(data), formats=[kind]) as image:
        size = image.height, image.width
        if not isinstance(image, TiffImagePlugin.TiffImageFile):
            return size, size
        tags = image.tag_v2
        tile = (int(tags.get(tag, 1)) for tag in (_TILE_LENGTH_TAG, _TILE_WIDTH_TAG))
        height, width = (
            -(-pixels // side) * side for pixels, side in zip(size, tile, strict=True)
        )
        return size, (height, width)


def _webp_size(data: bytes) -> Size:
    """Returns height and width of a WebP file: lossy, lossless or extended."""
    chunk, fields = data[12:16], data[20:30]
    if len(fields) < 10:
        raise jpeg_header.BadImageError(
            "truncated", "a WebP must have a header: cut short"
        )
    if chunk == b"VP8 ":
        width, height = (int.from_bytes(fields[i : i + 2], "little") for i in (6, 8))
        return height & 0x3FFF, width & 0x3FFF
    if chunk == b"VP8L":
        bits = int.from_bytes(fields[1:5], "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    width, height = (int.from_bytes(fields[i : i + 3], "little") for i in (4, 7))
    return height + 1, width + 1


def decode_jpeg(data: bytes, header: jpeg_header.Header, size: Size | None) -> Picture:
    """Decodes a JPEG.

    Args:
        data: Content of the file.
        header: Its header, from `jpeg_header.read_header`.
        size: Height and width to scale down to; None leaves the size.

    Raises:
        BadImageError: If it does not decode.
    """
    with _pillow(), PIL.Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
        tables, subsampling = _settings(image)
        scaled = image.copy() if size is None else resize(image, size)
        if header.num_components == 4:
            rgb = _cmyk_to_rgb(scaled, adobe=header.adobe_transform is not None)
            return Picture(rgb, orientation=header.orientation)
        return Picture(scaled, tables, subsampling, header.orientation)


def _settings(image: PIL.Image.Image) -> tuple[Sequence[Sequence[int]], int]:
    """Returns quantization tables and chroma subsampling of a JPEG.

    There are no tables for CMYK, which is encoded as RGB.
    """
    if not isinstance(image, JpegImagePlugin.JpegImageFile) or image.layers == 4:
        return (), 0
    try:
        # Values above 255 would need an extended frame.
        tables = [
            [min(value, 255) for value in image.quantization[layer[3]]]
            for layer in image.layer[:2]
        ]
    except KeyError:  # a table that is defined after the first scan
        return (), 0
    # Pillow returns -1 for other kinds of subsampling: 4:4:4 loses nothing of these.
    return tables, max(JpegImagePlugin.get_sampling(image), 0)


def resize(image: PIL.Image.Image, size: Size) -> PIL.Image.Image:
    """Scales an image down to a height and width, with a Lanczos filter.

    A JPEG that is not decoded yet is decoded at a smaller scale first, which is
    cheaper.
    """
    height, width = size
    gap = width * shrink.REDUCING_GAP, height * shrink.REDUCING_GAP
    drafted = image.draft(None, gap) if image.format in ("JPEG", "MPO") else None
    return image.resize(
        (width, height),
        PIL.Image.Resampling.LANCZOS,
        box=drafted[1] if drafted else None,
        reducing_gap=shrink.REDUCING_GAP,
    )


def _cmyk_to_rgb(image: PIL.Image.Image, *, adobe: bool) -> PIL.Image.Image:
    """Converts CMYK, as libjpeg decodes it, to the same RGB as TensorFlow.

    Adobe stores 255 for no ink, other programs store 0. Pillow assumes Adobe's form.
    """
    return (image if adobe else ImageChops.invert(image)).convert("RGB")


def decode_other(data: bytes, kind: str, *, max_pixels: float = math.inf) -> Picture:
    """Decodes the first frame of an image of another format than JPEG.

    Args:
        data: Content of the file.
        kind: Its format, from `formats.sniff`.
        max_pixels: Most pixels of an image inside of the file, such as those of an
            icon, whose header may claim fewer.

    Raises:
        BadImageError: "too_expensive" if it has more pixels, another reason if it does
            not decode.
    """
    stream = io.BytesIO(data)
    # Pillow fails above twice its limit.
    with _pillow(max_pixels / 2), PIL.Image.open(stream, formats=[kind]) as image:
        stored, turned = pixels.load(image)
        return Picture(pixels.to_8_bits(stored), orientation=turned)


def upright(picture: Picture) -> Picture:
    """Turns and mirrors a picture as its EXIF orientation says."""
    if picture.orientation == 1:
        return picture
    tables, subsampling = picture.tables, picture.subsampling
    if (
        picture.orientation in orientation.SIDEWAYS
    ):  # the quantization tables are turned too
        tables = [[t[i % 8 * 8 + i // 8] for i in range(64)] for t in tables]
        # 4:2:2 would become 4:4:0, which Pillow cannot write.
        subsampling = 0 if subsampling == 1 else subsampling
    image = pixels.upright(picture.image, picture.orientation)
    return Picture(image, tables, subsampling)


def encode(picture: Picture, *, quality: int | None, optimize: bool) -> bytes:
    """Encodes a picture as a baseline JPEG.

    The only metadata is the EXIF orientation, if the picture is not upright.

    Args:
        picture: The pixels and their settings.
        quality: Quality of libjpeg, 1 to 100; None uses the tables of the picture.
        optimize: Whether to fit the Huffman tables to the picture.

    Raises:
        BadImageError: If JPEG cannot hold it, as with a side above 65500 pixels.
    """
    image = picture.image
    options: dict[str, object] = {"quality": quality}
    if quality is None:
        options = {"qtables": [list(table) for table in picture.tables]}
    if image.mode == "RGB":
        options["subsampling"] = picture.subsampling
    if picture.orientation != 1:
        exif = PIL.Image.Exif()
        exif[orientation.TAG] = picture.orientation
        options["exif"] = exif
    out = io.BytesIO()
    with _pillow(), _room_for(image):
        image.save(out, "JPEG", optimize=optimize, comment=b"", **options)
    return out.getvalue()


@contextlib.contextmanager
def _room_for(image: PIL.Image.Image) -> Iterator[None]:
    """Enlarges Pillow's output buffer, which optimized Huffman tables need.

    Pillow's own size is too small for a noisy picture, and the encoder then fails with
    "Suspension not allowed here".
    """
    before = ImageFile.MAXBLOCK
    ImageFile.MAXBLOCK = max(before, 4 * image.width * image.height + 65536)
    try:
        yield
    finally:
        ImageFile.MAXBLOCK = before
