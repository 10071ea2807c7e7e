"""Draws the sizes and JPEG settings of a photo collection, and encodes its files.

In: a seed and the number of an image. Out: a `Photo`, the properties of one file. Over
a collection, size, aspect ratio, bytes per pixel, quality and chroma subsampling have
the distributions of ImageNet (ILSVRC-2012). `encode` turns pixels into a JPEG of about
that many bytes. The content of the pictures is drawn in `scenes`.
"""

import dataclasses
import io

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile

from converters.synthetic.noise import Floats, Pixels, generator

# Pillow optimizes Huffman tables only if the file fits into its output buffer. Its own
# size is too small for a noisy picture ("Suspension not allowed here").
ImageFile.MAXBLOCK = max(ImageFile.MAXBLOCK, 2**24)

_GRAYSCALE_SHARE = 0.023
# Bytes of a grayscale file as a fraction of the bytes of a color file.
_GRAYSCALE_BYTES = 0.65
_LEAST_SIDE = 8
# Fraction of the images, width, height. Sorted by area, because the draw is stratified
# in this order. Seven of ten ImageNet files were scaled to a longer side of 500.
_SIZES = (
    (0.008, 128, 150),
    (0.014, 150, 170),
    (0.014, 200, 153),
    (0.016, 240, 180),
    (0.012, 210, 310),
    (0.014, 240, 220),
    (0.014, 320, 240),
    (0.012, 250, 341),
    (0.012, 411, 220),
    (0.012, 300, 300),
    (0.006, 500, 200),
    (0.012, 400, 267),
    (0.016, 400, 300),
    (0.010, 360, 360),
    (0.012, 310, 400),
    (0.010, 450, 313),
    (0.017, 500, 290),
    (0.006, 230, 500),
    (0.012, 480, 360),
    (0.020, 500, 325),
    (0.150, 500, 333),
    (0.078, 333, 500),
    (0.035, 500, 350),
    (0.020, 356, 500),
    (0.215, 500, 375),
    (0.080, 375, 500),
    (0.020, 500, 410),
    (0.014, 415, 500),
    (0.018, 500, 455),
    (0.018, 500, 500),
    (0.012, 540, 358),
    (0.014, 600, 450),
    (0.006, 500, 670),
    (0.006, 640, 480),
    (0.006, 700, 500),
    (0.014, 800, 533),
    (0.008, 800, 600),
    (0.004, 650, 871),
    (0.012, 1024, 768),
    (0.002, 900, 900),
    (0.005, 1280, 1024),
    (0.003, 1600, 1200),
    (0.002, 2400, 1600),
)
# Bytes per pixel at evenly spaced quantiles from 0 to 1: for the files that the makers
# of the collection scaled (all at quality 96), and for the files left as found.
_SCALED_BYTES = (0.26, 0.44, 0.52, 0.58, 0.64, 0.70, 0.75, 0.81, 0.88, 1.01, 1.30)
_AS_FOUND_BYTES = (0.09, 0.13, 0.155, 0.18, 0.21, 0.24, 0.27, 0.33, 0.39, 0.51, 0.74)
_AS_FOUND_QUALITIES = (94, 94, 92, 90, 90, 90, 85, 80, 80, 80, 80, 75, 75, 70, 67)
_SCALED_QUALITY = 96
_SCALED_SUBSAMPLING = (0.96, 0.005, 0.035)
# Fraction of scaled files among those with a longer side of 500, and among the others.
_SCALED_SHARE = {True: 0.91, False: 0.11}
# Mean over all images of the two tables above; --bytes_per_pixel is relative to it.
MEAN_BYTES_PER_PIXEL = 0.574

# Bytes of markers and tables, which do not depend on the size of the picture.
_HEADER_BYTES = 400
# The effort is log(1 + amount of detail). The first guess and the slope of log(bytes)
# over effort were measured on pictures of this package.
_FIRST_EFFORT = 1.7
_MOST_EFFORT = 3.8
_SLOPE = 0.4


@dataclasses.dataclass(frozen=True)
class Photo:
    """Properties of a file to make.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        grayscale: Whether it has one component (Pillow mode L) instead of three.
        quality: JPEG quality of libjpeg, 1 to 100.
        subsampling: Chroma subsampling in Pillow's numbers: 0 is 4:4:4, 1 is 4:2:2, 2
            is 4:2:0.
        bytes_per_pixel: Target of the file size.
    """

    width: int
    height: int
    grayscale: bool
    quality: int
    subsampling: int
    bytes_per_pixel: float


def draw_photo(
    seed: int,
    split: int,
    number: int,
    *,
    size_scale: float = 1.0,
    bytes_scale: float = 1.0,
) -> Photo:
    """Draws the properties of image `number` of a split.

    Size and bytes are stratified over every 100 and every 1000 numbers, so that the
    mean cost of a few hundred images is already that of the whole collection.

    Args:
        seed: Seed of the whole collection.
        split: Number of the split.
        number: Number of the image in its split.
        size_scale: Multiplies width and height.
        bytes_scale: Multiplies the bytes per pixel.
    """
    rng = generator(seed, split, 0, number)
    width, height = _draw_size(_stratified(seed, split, 1, number, rng), rng)
    rank = _stratified(seed, split, 2, number, rng)
    share = _SCALED_SHARE[max(width, height) == 500]
    if rank < share:
        density = _quantile(_SCALED_BYTES, rank / share)
        quality = _SCALED_QUALITY
        subsampling = int(rng.choice(3, p=_SCALED_SUBSAMPLING))
    else:
        rank = (rank - share) / (1 - share)
        # In ImageNet, small images are compressed less than large ones.
        smaller = float(np.clip((150_000 / (width * height)) ** 0.4, 0.75, 1.7))
        density = _quantile(_AS_FOUND_BYTES, rank) * smaller
        quality, subsampling = _draw_as_found(rank, rng)
    grayscale = bool(rng.random() < _GRAYSCALE_SHARE)
    if grayscale:
        density *= _GRAYSCALE_BYTES
    return Photo(
        width=max(round(width * size_scale), _LEAST_SIDE),
        height=max(round(height * size_scale), _LEAST_SIDE),
        grayscale=grayscale,
        quality=quality,
        subsampling=subsampling,
        bytes_per_pixel=density * bytes_scale,
    )


def _draw_as_found(rank: float, rng: np.random.Generator) -> tuple[int, int]:
    """Draws quality and chroma subsampling of a file that was left as found.

    Files with fewer bytes a pixel mostly have a lower quality and less chroma.
    """
    place = np.clip(1 - rank + rng.normal(0, 0.28), 0, 0.999)
    quality = _AS_FOUND_QUALITIES[int(place * len(_AS_FOUND_QUALITIES))]
    if rng.random() < 0.025:
        return quality, 1
    return quality, 2 if rng.random() < 0.92 - 0.65 * rank else 0


def _stratified(
    seed: int, split: int, quantity: int, number: int, rng: np.random.Generator
) -> float:
    """Draws a uniform number in [0, 1).

    Every 100 consecutive numbers of images have one draw in every hundredth.
    """
    block, place = divmod(number, 100)
    coarse = int(generator(seed, split, quantity, block).permutation(100)[place])
    tens, turn = divmod(block, 10)
    fine = generator(seed, split, quantity, tens, coarse).permutation(10)[turn]
    return (coarse + (int(fine) + rng.random()) / 10) / 100


def _draw_size(rank: float, rng: np.random.Generator) -> tuple[int, int]:
    """Draws width and height at a rank in [0, 1) of the sizes sorted by area."""
    cumulative = np.cumsum([share for share, _, _ in _SIZES])
    index = np.searchsorted(cumulative, rank * cumulative[-1], side="right")
    _, width, height = _SIZES[index]
    if rng.random() < 0.25:
        other_side = rng.uniform(0.97, 1.03)
        if width > height:
            return width, round(height * other_side)
        return round(width * other_side), height
    return width, height


def _quantile(table: tuple[float, ...], rank: float) -> float:
    return float(np.interp(rank * (len(table) - 1), np.arange(len(table)), table))


def encode(base: Image.Image, detail: Floats, photo: Photo) -> bytes:
    """Encodes a baseline JPEG of about the number of bytes that `photo` gives.

    The file size is reached by adding more or less of `detail` to `base`. Two trial
    encodings of some of the rows find the amount. If the file is too large without any
    detail, the quality is lowered.

    Args:
        base: The picture, mode RGB.
        detail: Texture and sensor noise, float32 [height, 3 * width]: red, green and
            blue of every pixel in turn, with a standard deviation of about 1.
        photo: The properties of the file.
    """
    if photo.grayscale:
        base, detail = base.convert("L"), detail[:, ::3]
    pixels = np.asarray(base)
    rows = _sample_rows(photo.height)
    part = pixels[rows], detail[rows]
    payload = photo.bytes_per_pixel * photo.width * photo.height - _HEADER_BYTES
    wanted = float(np.log(max(payload, 1.0) * len(rows) / photo.height))

    def excess(effort: float) -> float:
        num_bytes = len(_jpeg(*part, effort, photo, photo.quality)) - _HEADER_BYTES
        return float(np.log(max(num_bytes, 1))) - wanted

    # The log of the bytes is nearly linear in the effort.
    first = excess(_FIRST_EFFORT)
    guess = float(np.clip(_FIRST_EFFORT - first / _SLOPE, 0, _MOST_EFFORT))
    second, slope = excess(guess), _SLOPE
    if abs(guess - _FIRST_EFFORT) > 0.1:
        slope = max((second - first) / (guess - _FIRST_EFFORT), 0.2)
    effort, quality = guess - second / slope, photo.quality
    if effort < 0:
        quality = _lower_quality(quality, float(np.exp(-effort * slope)))
    effort = float(np.clip(effort, 0, _MOST_EFFORT))
    return _jpeg(pixels, detail, effort, photo, quality)


def _sample_rows(height: int) -> npt.NDArray[np.intp]:
    """Returns a quarter of the rows in blocks of 16, or all of a small picture."""
    rows = np.arange(height)
    return rows if height < 256 else np.flatnonzero(rows // 16 % 4 == 1)


def _lower_quality(quality: int, excess: float) -> int:
    """Returns the quality whose file is smaller by about the factor `excess`."""
    step = (200 - 2 * quality) / 100 if quality >= 50 else 50 / quality
    coarser = max(step, 0.08) * excess**1.6
    lower = 100 - 50 * coarser if coarser <= 1 else 50 / coarser
    return max(int(lower), 5)


def _jpeg(
    pixels: Pixels, detail: Floats, effort: float, photo: Photo, quality: int
) -> bytes:
    added = np.float32(np.expm1(effort)) * detail
    added += pixels.reshape(added.shape)
    rounded = np.clip(added, 0, 255).astype(np.uint8).reshape(pixels.shape)
    # Huffman tables are optimized, as in the files of ImageNet.
    options = {} if photo.grayscale else {"subsampling": photo.subsampling}
    file = io.BytesIO()
    picture = Image.fromarray(rounded)
    picture.save(file, "JPEG", quality=quality, optimize=True, **options)
    return file.getvalue()
