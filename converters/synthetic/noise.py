"""Makes random numbers and 1/f noise for pictures, as pure functions of integers.

In: a seed. Out: random generators, and `Noise`, from which pictures take clouds and
grain. The tiles of noise are made once in every process, because an inverse Fourier
transform for every image would cost more than the rest of the image.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]

# A pebble or a fiber: center x and y and size in pixels, and aspect in 0..1.
_Shape = list[float]

_SIDE = 1024
# The amplitude is frequency ** -slope; photographs have slopes near 1.
_CLOUD_SLOPE = 1.4
_GRAIN_SLOPE = 1.0
# Deviation of the color of a texture as a fraction of that of its brightness.
_TINT = 0.2
_SHAPES_PER_TILE = 15_000


def generator(*key: int) -> np.random.Generator:
    """Returns a random generator that is a pure function of integers >= 0."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


@dataclasses.dataclass(frozen=True)
class Noise:
    """Tiles of noise, float32, with mean 0 and standard deviation 1.

    Args:
        clouds: [side, side], 1/f noise, mostly coarse.
        sensor: [side, 3 * side], white noise; red, green and blue of every pixel in
            turn.
        textures: Fine structure like sand, gravel and fibers. Each is laid out like
            `sensor`; the three channels differ little.
    """

    clouds: Floats
    sensor: Floats
    textures: tuple[Floats, Floats, Floats]

    def cut_texture(self, rng: np.random.Generator, width: int, height: int) -> Floats:
        """Cuts a piece of one of the textures, float32 [height, 3 * width]."""
        texture = self.textures[rng.integers(len(self.textures))]
        return _cut(texture, rng, 3 * width, height)

    def cut_sensor(self, rng: np.random.Generator, width: int, height: int) -> Floats:
        """Cuts a piece of the sensor noise, float32 [height, 3 * width]."""
        return _cut(self.sensor, rng, 3 * width, height)

    def field(
        self,
        rng: np.random.Generator,
        width: int,
        height: int,
        *,
        coarseness: float = 1.0,
    ) -> Floats:
        """Returns clouds as large as the picture, float32 [height, width].

        A piece with a longer side of 100 to 200, divided by `coarseness`, is scaled up,
        so that clouds look alike in small and large pictures and cost little.
        """
        cells = rng.uniform(100, 200) / coarseness
        shrink = min(cells / max(width, height), 1.0)
        small = (max(round(width * shrink), 2), max(round(height * shrink), 2))
        cut = Image.fromarray(_cut(self.clouds, rng, *small))
        large = cut.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(large, np.float32)


@functools.lru_cache(maxsize=2)
def noise(seed: int) -> Noise:
    """Makes the tiles of a seed, the same in every process."""
    rng = generator(seed)
    frequency = np.hypot(np.fft.fftfreq(_SIDE)[:, None], np.fft.rfftfreq(_SIDE))
    frequency[0, 0] = np.inf
    fine_only = 1 - np.exp(-((frequency * 30) ** 2))
    fine_only[0, 0] = 0
    bright = _tile(rng, fine_only * frequency**-_GRAIN_SLOPE)
    tint = _tile(rng, fine_only * frequency**-_GRAIN_SLOPE)
    sand = [bright + np.float32(_TINT * weight) * tint for weight in (1, -0.5, -1)]
    gravel, fibers = _draw_tile(rng, _pebble), _draw_tile(rng, _fiber)
    return Noise(
        clouds=_tile(rng, frequency**-_CLOUD_SLOPE),
        sensor=rng.standard_normal((_SIDE, 3 * _SIDE), np.float32),
        textures=(_unit(np.stack(sand, axis=-1)), gravel, fibers),
    )


def _pebble(pen: ImageDraw.ImageDraw, shape: _Shape, color: tuple[int, ...]) -> None:
    x, y, wide, aspect = shape
    high = (0.5 + aspect) * wide
    pen.ellipse((x - wide, y - high, x + wide, y + high), color)


def _fiber(pen: ImageDraw.ImageDraw, shape: _Shape, color: tuple[int, ...]) -> None:
    x, y, size, aspect = shape
    right, down = 3 * size * math.sin(aspect), 3 * size * math.cos(aspect)
    ends = (x - right, y - down, x + right, y + down)
    pen.line(ends, color, width=1 + int(2 * aspect))


def _draw_tile(
    rng: np.random.Generator,
    draw: Callable[[ImageDraw.ImageDraw, _Shape, tuple[int, ...]], None],
) -> Floats:
    """Draws a tile of many small shapes over one another, without coarse structure."""
    picture = Image.new("RGB", (_SIDE, _SIDE), (128, 128, 128))
    pen = ImageDraw.Draw(picture)
    x, y = rng.uniform(0, _SIDE, (2, _SHAPES_PER_TILE))
    # Sizes of 2 to 25 pixels by a power law, the largest first and the smallest on top.
    size = 1 / np.sort(rng.uniform(0.04, 0.6, _SHAPES_PER_TILE))
    aspect = rng.random(_SHAPES_PER_TILE)
    brightness = rng.normal(128, 45, (_SHAPES_PER_TILE, 1))
    tints = rng.normal(0, 45 * _TINT, (_SHAPES_PER_TILE, 3))
    colors = np.clip(brightness + tints, 0, 255).astype(int).tolist()
    shapes = np.stack([x, y, size, aspect], axis=1).tolist()
    for shape, color in zip(shapes, colors, strict=True):
        draw(pen, shape, tuple(color))
    coarse = picture.filter(ImageFilter.BoxBlur(12))
    return _unit(np.asarray(picture, np.float32) - np.asarray(coarse, np.float32))


def _unit(tile: Floats) -> Floats:
    """Scales to mean 0 and deviation 1, with the channels of a pixel in one row."""
    tile = (tile - tile.mean()) / tile.std()
    return np.asarray(tile.reshape(tile.shape[0], -1), np.float32)


def _tile(rng: np.random.Generator, spectrum: npt.NDArray[Any]) -> Floats:
    phases = np.exp(2j * np.pi * rng.random(spectrum.shape))
    tile = np.fft.irfft2(spectrum * phases, s=(_SIDE, _SIDE))
    return np.asarray(tile / tile.std(), np.float32)


def _cut(tile: Floats, rng: np.random.Generator, width: int, height: int) -> Floats:
    """Cuts a random piece of a tile, flipped at random; a small tile is repeated."""
    # The piece starts at a pixel of three channels. A flip swaps red and blue, which
    # does not matter for noise.
    top, left = rng.integers(_SIDE), 3 * rng.integers(_SIDE)
    down, right = rng.choice((-1, 1), 2)
    rows = (top + down * np.arange(height)) % tile.shape[0]
    columns = (left + right * np.arange(width)) % tile.shape[1]
    return np.asarray(np.take(tile[rows], columns, axis=1), np.float32)
