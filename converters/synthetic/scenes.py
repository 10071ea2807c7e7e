"""Draws photo-like pictures in which every class has an object of its own.

In: a seed, and the numbers of a split, an image and its class. Out: one baseline JPEG,
a pure function of these. A picture is a cluttered background that does not depend on
the class, with the object of the class (`objects`) near the middle. `camera` chooses
the size of the picture and the bytes of the file.
"""

import colorsys

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from converters.synthetic import camera, objects
from converters.synthetic.noise import Floats, Noise, generator, noise

_Color = tuple[int, ...]

# While a picture is drawn it has a fourth channel, roughness: the amount of texture at
# every pixel, as an integer.
_MODE = "RGBX"
_USUAL_ROUGHNESS = 60
# Fractions of scenes with straight edges, and with blades of grass or hair.
_BUILT_SHARE = 0.35
_GRASS_SHARE = 0.3


def make_image(
    seed: int,
    split: int,
    number: int,
    class_index: int,
    *,
    size_scale: float = 1.0,
    bytes_scale: float = 1.0,
) -> tuple[bytes, int, int]:
    """Makes one image of a class.

    Args:
        seed: Seed of the whole collection.
        split: Number of the split.
        number: Number of the image in its split.
        class_index: Number of the class, from 0.
        size_scale: Multiplies width and height.
        bytes_scale: Multiplies the bytes per pixel.

    Returns:
        The JPEG, its width and its height in pixels.
    """
    photo = camera.draw_photo(
        seed, split, number, size_scale=size_scale, bytes_scale=bytes_scale
    )
    rng = generator(seed, split, 3, number, class_index)
    base, detail = draw(rng, noise(seed), class_index, photo.width, photo.height)
    return camera.encode(base, detail, photo), photo.width, photo.height


def draw(
    rng: np.random.Generator, noise: Noise, class_index: int, width: int, height: int
) -> tuple[Image.Image, Floats]:
    """Draws a picture.

    The background is drawn at half size, because most of it is out of focus; the
    object is drawn at full size.

    Returns:
        base: The picture without fine detail, mode RGB.
        detail: Fine detail, float32 [height, 3 * width]: red, green and blue of each
            pixel in turn, with a standard deviation of about 1. `camera.encode`
            chooses how much of it is added.
    """
    side = np.array([width, height], float)
    # The box around the object takes 40 % to 70 % of the frame; it is wider in a wide
    # frame, but less so than the frame.
    stretch = np.clip((width / height) ** np.array([-0.3, 0.3]), 0.7, 1.15)
    radii = rng.uniform(0.65, 0.84) * side / 2 * stretch
    middle = side * (0.5 + rng.uniform(-0.06, 0.06, 2))
    half = np.maximum(np.ceil(1.25 * radii), 2).astype(int)
    corner = (int(middle[0] - half[0]), int(middle[1] - half[1]))
    size = (int(2 * half[0]), int(2 * half[1]))
    look = objects.look_of(class_index)
    painted, mask = objects.paint(look, rng, noise, size, (radii[0], radii[1]))
    background = _background(rng, noise, width, height)
    _cast_shadow(background, rng, mask, corner)
    picture = background.resize((width, height), Image.Resampling.BICUBIC)
    # The mask is blurred like a photograph, so that the outline does not look cut out.
    mask = mask.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.2)))
    roughness = picture.getchannel(3)
    roughness.paste(int(_USUAL_ROUGHNESS * rng.uniform(0.15, 1.0)), corner, mask)
    picture = picture.convert("RGB")
    picture.paste(painted, corner, mask)
    return picture, _detail(rng, noise, np.asarray(roughness, np.float32))


def _background(
    rng: np.random.Generator, noise: Noise, width: int, height: int
) -> Image.Image:
    """Draws clutter and decoys under uneven light, at half size."""
    width, height = max(width // 2, 4), max(height // 2, 4)
    built = rng.random() < _BUILT_SHARE
    picture = _clutter(rng, width, height)
    if not built:
        picture = _bend(rng, noise, picture)
    _add_decoys(picture, rng, noise)
    # Some blur always, because outlines drawn at half size would show as stairs.
    blur = 0.5 + rng.gamma(1.2, 1.2) * max(width, height) / 250
    soft = picture.filter(ImageFilter.GaussianBlur(blur))
    layers = [np.asarray(layer, np.float32) for layer in soft.split()]
    light = _light(rng, noise, width, height)
    clouds = noise.field(rng, width, height)
    tints = rng.normal(0, 4, 3) + rng.uniform(2, 14)
    for layer, tint in zip(layers[:3], tints, strict=True):
        layer *= light
        layer += np.float32(tint) * clouds
    # Dark places show less texture, and the roughness varies over the picture.
    layers[3] *= np.clip(0.2 + layers[1] / 120, 0.2, 1.4)
    layers[3] *= np.clip(1 + 0.5 * noise.field(rng, width, height), 0.1, 3)
    return Image.merge(_MODE, [_to_image(layer) for layer in layers])


def _to_image(layer: Floats) -> Image.Image:
    return Image.fromarray(np.clip(layer, 0, 255).astype(np.uint8))


def _clutter(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Draws leaves, slabs and twigs that hide one another, the nearest last.

    Sizes follow a power law. With occlusion, this gives the statistics of photographs
    (the "dead leaves" model). Every shape has a dark and a bright side.
    """
    palette = _palette(rng)
    picture = _backdrop(rng, palette, width, height)
    pen = ImageDraw.Draw(picture)
    side = max(width, height)
    if rng.random() < _GRASS_SHARE:
        _draw_grass(pen, rng, palette, width, height)
    sun = rng.normal(0, 1, 2)
    sun *= 0.15 / np.hypot(*sun)
    sizes = 0.4 * side * (1 + 15 * rng.random(int(rng.integers(4, 80)))) ** -1.1
    for radius in np.sort(sizes)[::-1]:
        color = _vary(rng, palette[rng.integers(len(palette))])
        place = rng.random(2) * (width, height)
        if rng.random() < 0.15:
            end = place + rng.normal(0, 5 * radius, 2)
            pen.line((*place, *end), color, width=1 + int(radius / 10))
            continue
        leaf = _leaf(rng) * radius
        for factor, shift, scale in ((0.45, -1.0, 1.05), (1.0, 0, 1.0), (1.25, 1, 0.6)):
            corners = leaf * scale + place + shift * sun * radius
            lit = tuple(min(int(c * factor), 255) for c in color[:3])
            pen.polygon(corners.ravel().tolist(), (*lit, color[3]))
    return picture


def _add_decoys(picture: Image.Image, rng: np.random.Generator, noise: Noise) -> None:
    """Adds small objects of random classes near the border of the picture.

    They do not depend on the label, so that a crop box that misses the middle of the
    picture shows objects of wrong classes, as in photographs.
    """
    size = np.array(picture.size)
    for _ in range(int(rng.integers(1, 5))):
        look = objects.look_of(int(rng.integers(objects.NUM_PLAIN_LOOKS)))
        radius = rng.uniform(0.08, 0.2) * size.mean()
        side = max(int(2.5 * radius), 4)
        painted, mask = objects.paint(look, rng, noise, (side, side), (radius, radius))
        angle = rng.uniform(0, 2 * np.pi)
        # Places on an ellipse near the corners, most of them outside of the object,
        # which is drawn later.
        away = np.array([np.cos(angle), np.sin(angle)]) * rng.uniform(0.4, 0.6) * size
        corner = np.clip(size / 2 + away, 0, size) - side / 2
        rough = Image.new("L", painted.size, _USUAL_ROUGHNESS)
        layers = Image.merge(_MODE, (*painted.split(), rough))
        picture.paste(layers, (int(corner[0]), int(corner[1])), mask)


def _draw_grass(
    pen: ImageDraw.ImageDraw,
    rng: np.random.Generator,
    palette: list[_Color],
    width: int,
    height: int,
) -> None:
    """Draws many thin strokes in about one direction: grass, fur, needles or wood."""
    count = int(rng.integers(100, 500))
    color = np.array(palette[rng.integers(len(palette))])
    direction = rng.normal(0, 1, 2)
    direction *= rng.uniform(0.05, 0.3) * height / np.hypot(*direction)
    starts = rng.random((count, 2)) * (width, height)
    ends = starts + direction * rng.normal(1, 0.3, (count, 1))
    ends += rng.normal(0, 0.02 * height, (count, 2))
    factors = np.exp(rng.normal(0, 0.35, (count, 1)))
    colors = np.clip(color * factors, 4, 250).astype(int).tolist()
    lines = np.concatenate([starts, ends], axis=1).tolist()
    thickness = int(rng.integers(1, 4))
    for line, stroke in zip(lines, colors, strict=True):
        pen.line(line, tuple(stroke), width=thickness)


def _leaf(rng: np.random.Generator) -> Floats:
    """Returns corner points [n, 2] of a slab or, more often, of a round shape."""
    num_corners = int(rng.integers(3, 6)) if rng.random() < 0.4 else 16
    angle = (np.arange(num_corners) + rng.random(num_corners)) / num_corners
    unit = np.stack([np.cos(2 * np.pi * angle), np.sin(2 * np.pi * angle)], axis=1)
    return np.asarray(unit * np.exp(rng.normal(0, 0.4, 2)), np.float32)


def _backdrop(
    rng: np.random.Generator, palette: list[_Color], width: int, height: int
) -> Image.Image:
    """Draws sky and ground, or a wall: two colors with a hard or a soft border."""
    border = rng.normal(0.5, 0.25)
    softness = rng.choice([0.02, 0.3, 1.5])
    slant = rng.normal(0, 0.15) * np.linspace(-1, 1, 64)
    below = (np.linspace(0, 1, 64)[:, None] + slant - border) / softness
    share = 0.5 + 0.5 * np.tanh(2 * below[..., None])
    top, bottom = np.array(palette[0]), np.array(palette[1])
    mixed = Image.fromarray((top + (bottom - top) * share).astype(np.uint8), _MODE)
    return mixed.resize((width, height), Image.Resampling.BILINEAR)


def _palette(rng: np.random.Generator) -> list[_Color]:
    """Draws two to five colors with roughness, mostly dull and of related hues."""
    hue, spread = rng.random(), rng.choice([0.03, 0.1, 0.5])
    vividness = rng.beta(1.3, 2.5)
    colors: list[_Color] = []
    for _ in range(int(rng.integers(2, 6))):
        saturation = vividness * rng.beta(2, 2)
        value = rng.uniform(0.1, 0.95)
        rgb = colorsys.hsv_to_rgb((hue + rng.normal(0, spread)) % 1, saturation, value)
        roughness = min(_USUAL_ROUGHNESS * np.exp(rng.normal(-0.5, 1.0)), 255)
        colors.append((*(int(255 * c) for c in rgb), int(roughness)))
    return colors


def _vary(rng: np.random.Generator, color: _Color) -> _Color:
    """Returns the color in other light and with a slightly different hue."""
    shifted = np.array(color) * np.exp(rng.normal(0, 0.3)) + rng.normal(0, 5, 4)
    return tuple(int(c) for c in np.minimum(np.maximum(shifted, 4), 250))


def _bend(rng: np.random.Generator, noise: Noise, picture: Image.Image) -> Image.Image:
    """Moves every pixel by noise, so that outlines are irregular like stones."""
    width, height = picture.size
    strength = np.float32(rng.uniform(0.01, 0.06) * max(width, height))
    down = strength * noise.field(rng, width, height, coarseness=3)
    right = strength * noise.field(rng, width, height, coarseness=3)
    rows = np.clip(down.astype(np.intp) + np.arange(height)[:, None], 0, height - 1)
    columns = np.clip(right.astype(np.intp) + np.arange(width), 0, width - 1)
    # Indexing one four-byte word a pixel is faster than indexing four bytes.
    words = np.asarray(picture).view(np.uint32)[..., 0]
    return Image.fromarray(
        words[rows, columns].view(np.uint8).reshape(height, width, 4), _MODE
    )


def _cast_shadow(
    background: Image.Image,
    rng: np.random.Generator,
    mask: Image.Image,
    corner: tuple[int, int],
) -> None:
    """Darkens the background (at half size) below and beside the object."""
    shadow = mask.reduce(4).filter(ImageFilter.GaussianBlur(rng.uniform(1, 6)))
    shadow = shadow.resize((mask.width // 2, mask.height // 2))
    strength = rng.uniform(0.2, 0.65)
    shadow = shadow.point([int(strength * value) for value in range(256)])
    shift = rng.uniform((-0.04, 0.0), (0.04, 0.07)) * mask.size
    place = (int(corner[0] + shift[0]) // 2, int(corner[1] + shift[1]) // 2)
    background.paste((8, 8, 12, 40), place, shadow)


def _light(rng: np.random.Generator, noise: Noise, width: int, height: int) -> Floats:
    """Returns exposure, uneven light and darker corners as a factor for every pixel."""
    x = np.linspace(-1, 1, width, dtype=np.float32) ** 2
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None] ** 2
    vignette = 1 - np.float32(rng.uniform(0, 0.2)) * (x + y)
    uneven = np.float32(rng.uniform(0.03, 0.12)) * noise.field(rng, width, height)
    return np.float32(rng.uniform(0.8, 1.15)) * (vignette + uneven)


def _detail(rng: np.random.Generator, noise: Noise, roughness: Floats) -> Floats:
    """Returns texture in rough places, and sensor noise everywhere."""
    height, width = roughness.shape
    texture = noise.cut_texture(rng, width, height)
    # A flat row of all channels, because numpy is slow along an axis of length 3.
    texture *= np.repeat(roughness / np.float32(_USUAL_ROUGHNESS), 3, axis=1)
    sensor = noise.cut_sensor(rng, width, height)
    return texture + np.float32(rng.uniform(0.02, 0.15)) * sensor
