"""Smaller images on the way: to what size, and what it costs in pixels.

In: heights, widths and limits; pixels and the JPEG that was made of them. Out: the size
to scale down to; the peak signal-to-noise ratio of a sample. Never makes an image
larger. The scaling and the encoding themselves are in `pixels`. Pillow and numpy are
imported for pixels only, as in `images`.
"""

import io
import math
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    import PIL.Image

# Quality of what is scaled down, unless told otherwise: half the bytes of 95 and no
# difference that shows.
DEFAULT_QUALITY = 90
# How much larger than the result a cheap first reduction must leave the picture.
# Measured on photographs: at 3, above 50 dB against no first reduction at all.
REDUCING_GAP = 3
# One in so many images is measured; encoding is half of the cost of shrinking.
SAMPLE = 64
# Stands for pixels without any error, in decibels: JSON knows no infinity.
MAX_PSNR = 100.0


def fit(
    height: int, width: int, *, max_side: int | None, short_side: int | None
) -> tuple[int, int] | None:
    """Height and width within the limits, of the same shape; None if they are already.

    Args:
        height: Pixels.
        width: Pixels.
        max_side: Most pixels of the longer side; None for no limit.
        short_side: Most pixels of the shorter side; None for no limit. With both, both
            hold.
    """
    longer, shorter = max(height, width), min(height, width)
    ratios = [(max_side, longer), (short_side, shorter)]
    over = [(limit / side, limit, side) for limit, side in ratios if limit is not None]
    if not over:
        return None
    ratio, limit, side = min(over)
    if ratio >= 1:
        return None
    # Exact in integers, half up: the limited side becomes the limit itself.
    scaled = [max((2 * n * limit + side) // (2 * side), 1) for n in (height, width)]
    return scaled[0], scaled[1]


def decoded_pixels(height: int, width: int, size: tuple[int, int]) -> int:
    """Pixels of a JPEG that are decoded on the way to a smaller size.

    Its decoder gives an eighth, a quarter or half of each side for less work.
    """
    ratio = min(height // (REDUCING_GAP * size[0]), width // (REDUCING_GAP * size[1]))
    scale = next((scale for scale in (8, 4, 2) if scale <= ratio), 1)
    return height * width // scale**2


def in_sample(data: bytes) -> bool:
    """Whether this image is one of those to measure; depends on its bytes only."""
    return xxhash.xxh3_64_intdigest(data) % SAMPLE == 0


def psnr(image: "PIL.Image.Image", encoded: bytes) -> float:
    """Peak signal-to-noise ratio in decibels of a JPEG against what it was made of.

    Args:
        image: The pixels that were encoded.
        encoded: The JPEG, of the same size and mode.
    """
    import numpy as np
    import PIL.Image

    with PIL.Image.open(io.BytesIO(encoded), formats=["JPEG"]) as decoded:
        error = np.asarray(image, np.float32) - np.asarray(decoded, np.float32)
    mean_square = float(np.mean(np.square(error), dtype=np.float64))
    if mean_square == 0:
        return MAX_PSNR
    return min(10 * math.log10(255**2 / mean_square), MAX_PSNR)
