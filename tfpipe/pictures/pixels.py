"""Pixels of an image that Pillow opened: as stored, in 8 bits, and turned upright.

In: an image of Pillow. Out: its pixels in mode L or RGB, with transparency on white,
and its orientation. Color profiles are dropped, because TensorFlow's decoder ignores
them. Pillow's exceptions about damaged bytes are passed on.
"""

import contextlib
from collections.abc import Callable, Iterator

import PIL.Image
from PIL import PngImagePlugin, TiffImagePlugin

from tfpipe.pictures import orientation

# The rotation or reflection that undoes each orientation from 2 to 8.
_TRANSPOSE = {
    2: PIL.Image.Transpose.FLIP_LEFT_RIGHT,
    3: PIL.Image.Transpose.ROTATE_180,
    4: PIL.Image.Transpose.FLIP_TOP_BOTTOM,
    5: PIL.Image.Transpose.TRANSPOSE,
    6: PIL.Image.Transpose.ROTATE_270,
    7: PIL.Image.Transpose.TRANSVERSE,
    8: PIL.Image.Transpose.ROTATE_90,
}
_TURN_BACK = _TRANSPOSE | {
    6: PIL.Image.Transpose.ROTATE_90,
    8: PIL.Image.Transpose.ROTATE_270,
}
# Pixels that are converted at a time, to limit the memory of intermediate results.
_BAND_PIXELS = 1 << 22
# Formats whose mode I holds 16 bits a sample; in others the brightness is undefined.
_16_BITS_IN_32 = frozenset({"PNG", "PPM"})
# Pillow's own limit of a text or a color profile in a PNG is 1 MiB unpacked, and 64 MiB
# for all texts. Photographs have larger ones, and no format else has such a limit.
_MAX_TEXT_BYTES = 64 << 20


@contextlib.contextmanager
def limits(max_pixels: float | None) -> Iterator[None]:
    """Gives Pillow other limits for as long as the context lasts.

    Args:
        max_pixels: Pillow warns above this number of pixels, and fails above twice
            the number; None is no limit.
    """
    before = PIL.Image.MAX_IMAGE_PIXELS, PngImagePlugin.MAX_TEXT_CHUNK
    PIL.Image.MAX_IMAGE_PIXELS = max_pixels  # type: ignore[assignment]
    PngImagePlugin.MAX_TEXT_CHUNK = max(before[1], _MAX_TEXT_BYTES)
    try:
        yield
    finally:
        PIL.Image.MAX_IMAGE_PIXELS, PngImagePlugin.MAX_TEXT_CHUNK = before


def read_orientation(image: PIL.Image.Image) -> int:
    """Returns the orientation in the metadata, 1 to 8; 1 if damaged.

    A PNG is decoded, because its metadata may follow the pixels.
    """
    try:
        value = image.getexif().get(orientation.TAG, 1)
    except Exception:  # Pillow raises almost any exception on damaged EXIF data
        return 1
    return int(value) if value in orientation.TURNED else 1


def load(image: PIL.Image.Image) -> tuple[PIL.Image.Image, int]:
    """Decodes an image.

    Returns:
        image: The pixels as the file stores them.
        orientation: The orientation of these pixels, 1 to 8.
    """
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        image.load()
        return image, read_orientation(image)
    turned = read_orientation(image)
    image.load()
    if turned != 1 and read_orientation(image) == 1:
        # Pillow has turned the pixels of a TIFF. They are turned back, because the
        # policy decides about that.
        return image.transpose(_TURN_BACK[turned]), turned
    return image, turned


def upright(image: PIL.Image.Image, orientation: int) -> PIL.Image.Image:
    """Turns and mirrors pixels of an orientation from 1 to 8."""
    return image if orientation == 1 else image.transpose(_TRANSPOSE[orientation])


def to_8_bits(image: PIL.Image.Image) -> PIL.Image.Image:
    """Converts any Pillow mode to L or RGB, with transparency on white.

    Raises:
        ValueError: If samples have more than 16 bits.
    """
    has_16_bits = image.mode == "I" and image.format in _16_BITS_IN_32
    if image.mode.startswith("I;16") or has_16_bits:
        return _in_bands(image, "L", _shift_16_bits)
    if image.mode in ("I", "F"):
        raise ValueError(
            "samples must have at most 16 bits, got 32: their brightness is undefined"
        )
    gray = image.mode in ("1", "L", "LA", "La")
    if image.mode in ("RGBa", "La") or image.has_transparency_data:
        return _in_bands(image, "L" if gray else "RGB", _on_white)
    # `convert` makes a copy even if the mode stays, because the caller closes the file.
    return image.convert("L") if gray else image.convert("RGB")


def _in_bands(
    image: PIL.Image.Image,
    mode: str,
    convert: Callable[[PIL.Image.Image], PIL.Image.Image],
) -> PIL.Image.Image:
    """Converts an image to this mode a few rows at a time, to save memory."""
    height = max(_BAND_PIXELS // image.width, 1)
    if height >= image.height:
        return convert(image).convert(mode)
    whole = PIL.Image.new(mode, image.size)
    for top in range(0, image.height, height):
        bottom = min(top + height, image.height)
        band = convert(image.crop((0, top, image.width, bottom)))
        whole.paste(band.convert(mode), (0, top))
    return whole


def _on_white(image: PIL.Image.Image) -> PIL.Image.Image:
    """Puts a transparent image on a white background."""
    top = image.convert("RGBA")
    white = PIL.Image.new("RGBA", top.size, "white")
    return PIL.Image.alpha_composite(white, top).convert("RGB")


def _shift_16_bits(image: PIL.Image.Image) -> PIL.Image.Image:
    """Returns the high byte of each 16-bit sample, as Pillow does for color."""
    import numpy as np

    samples = np.asarray(image).astype(np.int32)
    high = np.clip(samples >> 8, 0, 255).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        high[samples == transparent] = 255
    return PIL.Image.fromarray(high)
