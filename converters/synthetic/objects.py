"""Draws the object of every class of synthetic pictures: outline, hue and pattern.

In: the index of a class. Out: its `Look`, and the object with that look as color and
mask for a part of a picture. Classes 0 to 99,999 look different from one another, and
the first ten differ in outline, hue and pattern at once. No class is the mirror image
of another one, so that training may flip pictures.
"""

import colorsys
import dataclasses

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from converters.synthetic.noise import Floats, Noise

OUTLINES = (
    *("disk", "triangle", "square", "star", "cross"),
    *("ring", "heart", "flower", "crescent", "bow tie"),
)
HUES = (
    *("red", "orange", "yellow", "lime", "green"),
    *("teal", "sky", "blue", "violet", "pink"),
)
PATTERNS = (
    *("plain", "striped", "checked", "dotted", "ringed"),
    *("zigzag", "spoked", "netted", "mottled", "halved"),
)
NUM_LOOKS = 10**5
# The first looks have pale trim and the coarsest pattern.
NUM_PLAIN_LOOKS = 1000

_POINTS = 120
_SUPERSAMPLING = 2


@dataclasses.dataclass(frozen=True)
class Look:
    """The look of a class; every field is 0 to 9.

    Args:
        outline: Index into `OUTLINES`.
        hue: Index into `HUES`.
        pattern: Index into `PATTERNS`.
        trim: Hue of the second color of the pattern, in steps from `hue`; 0 is pale.
        fineness: Fineness of the pattern; 0 is the coarsest.
    """

    outline: int
    hue: int
    pattern: int
    trim: int
    fineness: int

    @property
    def name(self) -> str:
        """The look in words, different for every look."""
        words = [HUES[self.hue], PATTERNS[self.pattern], OUTLINES[self.outline]]
        if self.trim:
            words.append(f"with {HUES[(self.hue + self.trim) % 10]}")
        if self.fineness:
            words.append(f"of fineness {self.fineness}")
        return " ".join(words)


def look_of(class_index: int) -> Look:
    """Returns the look of a class, a one-to-one map of its five decimal digits.

    Classes with neighboring indices differ in several fields, because the fields are
    sums of several digits. Every digit is multiplied by a number that has an inverse
    modulo 10, so that no two classes have the same look.
    """
    digits = [class_index // 10**place % 10 for place in range(5)]
    return Look(
        outline=digits[0],
        hue=(3 * digits[0] + digits[1]) % 10,
        pattern=(7 * digits[0] + 3 * digits[1] + digits[2]) % 10,
        trim=digits[3],
        fineness=digits[4],
    )


def paint(
    look: Look,
    rng: np.random.Generator,
    noise: Noise,
    size: tuple[int, int],
    radii: tuple[float, float],
) -> tuple[Image.Image, Image.Image]:
    """Paints the object of a look into the middle of a new picture.

    Args:
        look: The look.
        rng: Source of pose, wear and light.
        noise: Source of dents and blotches.
        size: Width and height of the picture in pixels.
        radii: Half the width and half the height of the object in pixels.

    Returns:
        color: Mode RGB.
        mask: Mode L, 255 inside of the object and 0 outside.
    """
    width, height = size
    turn = rng.normal(0, 0.17)
    mask = _mask(look.outline, turn, rng, size, radii)
    x = (np.arange(width, dtype=np.float32) - width / 2) / np.float32(radii[0])
    y = (np.arange(height, dtype=np.float32) - height / 2) / np.float32(radii[1])
    cos, sin = np.float32(np.cos(turn)), np.float32(np.sin(turn))
    dents = np.float32(0.04) * noise.field(rng, width, height, coarseness=4)
    across = cos * x + (sin * y)[:, None] + dents
    along = (cos * y)[:, None] - sin * x + dents
    share = _pattern(look, rng, noise, across, along)
    first, second = _colors(look, rng)
    shade = _shade(rng, x, y, dents)
    planes = [
        Image.fromarray(np.clip((b + (a - b) * share) * shade, 0, 255).astype(np.uint8))
        for a, b in zip(first, second, strict=True)
    ]
    return Image.merge("RGB", planes), mask


def _colors(look: Look, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draws the two colors of the pattern, 0..255, with a little jitter."""
    jitter = rng.normal(0, 0.025)
    main = (look.hue / 10 + jitter, rng.uniform(0.5, 0.85), rng.uniform(0.5, 0.85))
    pale = (look.hue / 10 + jitter, rng.uniform(0.05, 0.2), rng.uniform(0.85, 1.0))
    trim = ((look.hue + look.trim) / 10 + jitter, 0.75, rng.uniform(0.25, 0.45))
    pair = [colorsys.hsv_to_rgb(*hsv) for hsv in (main, trim if look.trim else pale)]
    first, second = (255 * np.array(rgb, np.float32) for rgb in pair)
    return first, second


def _pattern(
    look: Look, rng: np.random.Generator, noise: Noise, across: Floats, along: Floats
) -> Floats:
    """Returns the fraction of the first color, 0..1, at every pixel.

    `across` and `along` are the coordinates of every pixel, -1..1 from edge to edge of
    the object.
    """
    pitch = np.float32(rng.uniform(0.9, 1.1) * 3.2 * 1.13**look.fineness * np.pi)
    a, b = across * pitch, along * pitch
    name = PATTERNS[look.pattern]
    if name == "plain":
        return np.ones_like(a)
    if name == "striped":
        wave = np.sin(b)
    elif name == "checked":
        wave = np.sin(0.8 * a) * np.sin(0.8 * b) * 2
    elif name == "dotted":
        wave = 0.8 - np.cos(a) - np.cos(b)
    elif name == "ringed":
        wave = np.sin(1.4 * np.hypot(a, b))
    elif name == "zigzag":
        wave = np.sin(b + 2.2 * np.abs(across * 4 % 2 - 1))
    elif name == "spoked":
        wave = np.sin((8 + look.fineness) * np.arctan2(along, across))
    elif name == "netted":
        wave = np.maximum(np.cos(a + b), np.cos(a - b)) * -1 + 0.75
    elif name == "mottled":
        height, width = a.shape
        blotches = noise.field(rng, width, height, coarseness=5 / 1.1**look.fineness)
        wave = 2 * (blotches - blotches.mean()) / blotches.std()
    else:
        wave = along * (8 + look.fineness)
    # The factor makes the border of two colors an edge of one to three pixels.
    return np.asarray(np.clip(wave * 4 + 0.5, 0, 1), np.float32)


def _shade(rng: np.random.Generator, x: Floats, y: Floats, dents: Floats) -> Floats:
    """Returns a brightness factor for every pixel, as of light on a dome."""
    direction = rng.uniform(0, 2 * np.pi)
    slope = rng.uniform(0.1, 0.35)
    toward = (slope * np.cos(direction) * x) + (slope * np.sin(direction) * y)[:, None]
    fall = np.float32(rng.uniform(0.05, 0.3)) * (x**2 + (y**2)[:, None])
    exposure = np.float32(rng.uniform(0.8, 1.1))
    light = exposure * (1 + toward - fall + dents)
    return np.asarray(np.clip(light, 0.1, 1.6), np.float32)


def _mask(
    outline: int,
    turn: float,
    rng: np.random.Generator,
    size: tuple[int, int],
    radii: tuple[float, float],
) -> Image.Image:
    """Draws the outline as a mask, turned, a little dented and with smooth edges."""
    points = _outline(OUTLINES[outline])
    angle = np.linspace(0, 2 * np.pi, len(points))
    dents = sum(rng.normal(0, 0.02) * np.sin(k * angle + k * turn) for k in (2, 3, 5))
    points = points * (1 + np.asarray(dents))[:, None]
    cos, sin = np.cos(turn), np.sin(turn)
    points = points @ np.array([[cos, sin], [-sin, cos]])
    large = (size[0] * _SUPERSAMPLING, size[1] * _SUPERSAMPLING)
    scale = np.array(radii) * _SUPERSAMPLING
    picture = Image.new("L", large)
    corners = points * scale + np.array(large) / 2
    draw = ImageDraw.Draw(picture)
    draw.polygon(corners.ravel().tolist(), fill=255)
    if OUTLINES[outline] == "ring":
        hole = points * scale * 0.45 + np.array(large) / 2
        draw.polygon(hole.ravel().tolist(), fill=0)
    return picture.reduce(_SUPERSAMPLING)


def _outline(name: str) -> npt.NDArray[np.float64]:
    """Returns the corner points [n, 2] of an outline within -1..1, y downward."""
    angle = np.linspace(0, 2 * np.pi, _POINTS, endpoint=False) - np.pi / 2
    if name in ("disk", "ring"):
        return _polar(angle, np.ones(_POINTS))
    if name == "flower":
        return _polar(angle, 0.78 + 0.22 * np.cos(6 * angle))
    if name == "star":
        spikes = np.linspace(0, 2 * np.pi, 10, endpoint=False) - np.pi / 2
        return _polar(spikes, np.where(np.arange(10) % 2, 0.45, 1.1))
    if name == "heart":
        t = angle + np.pi / 2
        heart = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
        return np.stack([np.sin(t) ** 3, -(heart + 2.5) / 14.5], axis=1)
    if name == "crescent":
        outer = np.linspace(0.25, 1.75, _POINTS // 2) * np.pi
        inner = outer[::-1]
        far = _polar(outer, np.ones(len(outer)))
        near = _polar(inner, np.full(len(inner), 0.72)) + np.array([0.3, 0])
        points: npt.NDArray[np.float64] = np.concatenate([far, near])
        points += np.array([0.1, 0])
        return points
    return np.array(_CORNERS[name])


def _polar(
    angle: npt.NDArray[np.float64], radius: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    return np.stack([np.cos(angle) * radius, np.sin(angle) * radius], axis=1)


_CORNERS = {
    "triangle": [(0, -1), (1, 0.8), (-1, 0.8)],
    "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "cross": [
        *((-0.35, -1), (0.35, -1), (0.35, -0.35), (1, -0.35), (1, 0.35), (0.35, 0.35)),
        *((0.35, 1), (-0.35, 1), (-0.35, 0.35), (-1, 0.35), (-1, -0.35)),
        (-0.35, -0.35),
    ],
    "bow tie": [(-1, -0.8), (0, -0.2), (1, -0.8), (1, 0.8), (0, 0.2), (-1, 0.8)],
}
