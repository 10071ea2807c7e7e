"""Computes the size that images are scaled down to, and the quality that this costs.

In: heights, widths and limits; pixels and the JPEG that was made of them. Out: the size
to scale down to; the peak signal-to-noise ratio of a sample of images. No image is ever
made larger. `pillow` does the scaling and the encoding. Pillow and numpy are imported
only where pixels are compared, as in `prepare`.
"""

import io
import math
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    import PIL.Image

# Default JPEG quality of images that are scaled down: half the bytes of quality 95, and
# no visible difference.
DEFAULT_QUALITY = 90
# A cheap first reduction leaves the picture at least this many times larger than the
# result. At 3, the result has above 50 dB against one without the first reduction,
# measured on photographs.
REDUCING_GAP = 3
# One image of this many is measured, to save time. (Encoding is half of the cost of
# shrinking.)
SAMPLE = 64
# Peak signal-to-noise ratio in decibels of equal pixels; JSON has no infinity.
MAX_PSNR = 100.0


def fit(
    height: int, width: int, *, max_side: int | None, short_side: int | None
) -> tuple[int, int] | None:
    """Returns the largest height and width of this aspect ratio within the limits.

    Args:
        height: Height in pixels.
        width: Width in pixels.
        max_side: Most pixels of the longer side; None for no limit.
        short_side: Most pixels of the shorter side; None for no limit.

    Returns:
        Height and width, or None if the image is within the limits already.
    """
    longer, shorter = max(height, width), min(height, width)
    ratios = [(max_side, longer), (short_side, shorter)]
    over = [(limit / side, limit, side) for limit, side in ratios if limit is not None]
    if not over:
        return None
    ratio, limit, side = min(over)
    if ratio >= 1:
        return None
    # Integer arithmetic, rounded half up, so that the limited side equals its limit.
    scaled = [max((2 * n * limit + side) // (2 * side), 1) for n in (height, width)]
    return scaled[0], scaled[1]


def decoded_pixels(height: int, width: int, size: tuple[int, int]) -> int:
    """Returns the number of pixels that are decoded to scale a JPEG down.

    libjpeg decodes at an eighth, a quarter or half of every side for less work.
    """
    ratio = min(height // (REDUCING_GAP * size[0]), width // (REDUCING_GAP * size[1]))
    scale = next((scale for scale in (8, 4, 2) if scale <= ratio), 1)
    return height * width // scale**2


def in_sample(data: bytes) -> bool:
    """Whether this image is measured, which depends on its bytes only."""
    return xxhash.xxh3_64_intdigest(data) % SAMPLE == 0


def psnr(image: "PIL.Image.Image", encoded: bytes) -> float:
    """Returns the peak signal-to-noise ratio in decibels of a JPEG, at most MAX_PSNR.

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
