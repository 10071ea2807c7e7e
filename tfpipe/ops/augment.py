"""Ops that change colors, geometry or parts of an image: augmentation after the crop.

In and out: an example whose `image` is uint8 [height, width, 3], 0..255, RGB, of any
size; the result has the same shape and type. These ops belong after the crop and
before `Normalize`. Each draws all of its numbers from the example's `seed`. A second op
of the same kind in a pipeline needs `Reseed`, or it draws the same numbers.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfpipe import errors
from tfpipe.ops import boxes, pil_functions
from tfpipe.ops.basic import Example, op_seed

# The operations of RandAugment.
OPERATIONS = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize"),
    *("SolarizeAdd", "Color", "Contrast", "Brightness", "Sharpness", "ShearX"),
    *("ShearY", "TranslateX", "TranslateY", "Cutout", "Identity"),
)

# Those of the operations that move pixels.
_MOVING = {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"}

_Change = Callable[[tf.Tensor], tf.Tensor]

_MEAN_PIXEL = (124, 116, 104)  # ImageNet's: about zero after Normalize
_GRAY = 128  # fill value of the AutoAugment code


def _pixels(op: object, example: Example) -> tf.Tensor:
    image = example["image"]
    if image.dtype != tf.uint8:
        raise ValueError(
            f"{type(op).__name__} must get image as uint8, got {image.dtype.name}: "
            "put it after the crop and before Normalize and Cast."
        )
    return image


def _settle_fill(op: "Cutout | RandomErasing") -> None:
    values = errors.require_numbers(
        op, "fill", op.fill, count=3, whole=True, least=0, most=255
    )
    errors.settle(op, "fill", values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColorJitter:
    """Changes brightness, contrast, saturation and hue by random factors.

    Element: example -> example. Changes `image`.

    Follows torchvision's `ColorJitter`: a factor is uniform in 1 - strength (never
    below 0) to 1 + strength, the hue is turned by a uniform share of the color circle
    from -hue to hue, and the order of the changes is random. The first three changes
    equal Pillow's `ImageEnhance` Brightness, Contrast and Color; the hue equals
    `tf.image.adjust_hue`. A change of strength 0 is left out. The defaults are those of
    the ResNets trained with Torch.

    Example:
        >>> example = {"image": tf.fill([8, 8, 3], tf.constant(90, tf.uint8))}
        >>> example["seed"] = tf.constant([1, 2], tf.int64)
        >>> tfpipe.ColorJitter(hue=0.1)(example)["image"].shape
        TensorShape([8, 8, 3])

    Args:
        brightness: Strength, >= 0.
        contrast: Strength, >= 0.
        saturation: Strength, >= 0.
        hue: Largest turn as a share of the color circle, 0 to 0.5.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.0

    def __post_init__(self) -> None:
        names = ("brightness", "contrast", "saturation")
        errors.settle_numbers(self, names, least=0)
        errors.settle_numbers(self, ["hue"], least=0, most=0.5)

    def __call__(self, example: Example) -> Example:
        image = _pixels(self, example)
        seed = op_seed(self, example["seed"])
        order_draws, draws = tf.unstack(tf.random.stateless_uniform([2, 4], seed))
        changes = self._changes(draws)
        order = tf.argsort(order_draws[: len(changes)])
        for turn in range(len(changes)):
            branches = [functools.partial(change, image) for change in changes]
            image = tf.switch_case(order[turn], branches)
        return example | {"image": image}

    def _changes(self, draws: tf.Tensor) -> list[_Change]:
        """Returns the changes of this image; draws: float32 [4], 0..1."""
        strengths = (self.brightness, self.contrast, self.saturation)
        blends = (pil_functions.brightness, pil_functions.contrast, pil_functions.color)
        changes: list[_Change] = []
        for position, strength in enumerate(strengths):
            low, high = max(0.0, 1.0 - strength), 1.0 + strength
            factor = low + (high - low) * draws[position]
            if strength > 0:
                changes.append(functools.partial(blends[position], factor=factor))
        turn = self.hue * (2.0 * draws[3] - 1.0)
        if self.hue > 0:
            changes.append(functools.partial(tf.image.adjust_hue, delta=turn))
        return changes


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistortColor:
    """Inception's color distortion: random changes in one of a few fixed orders.

    Element: example -> example. Changes `image`.

    Follows `distort_color` of TensorFlow's Inception preprocessing: brightness is
    shifted by up to 32, saturation and contrast are scaled by 0.5 to 1.5, and the hue
    is turned by up to 0.2 of the color circle. Values may leave 0..255 between the
    changes. Unlike in the reference, the result is rounded to uint8.

    Example:
        >>> example = {"image": tf.fill([8, 8, 3], tf.constant(90, tf.uint8))}
        >>> example["seed"] = tf.constant([1, 2], tf.int64)
        >>> tfpipe.DistortColor(fast=False)(example)["image"].dtype
        tf.uint8

    Args:
        fast: Whether to leave out hue and contrast, as the reference does by default.
    """

    fast: bool = True

    def __post_init__(self) -> None:
        errors.settle_bools(self, "fast")

    def __call__(self, example: Example) -> Example:
        image = _pixels(self, example)
        seed = op_seed(self, example["seed"])
        ordering, shift, saturation, hue, contrast = tf.unstack(
            tf.random.stateless_uniform([5], seed)
        )
        changes = {
            "b": lambda x: x + (2 * shift - 1) * (32 / 255),
            "s": lambda x: tf.image.adjust_saturation(x, 0.5 + saturation),
            "h": lambda x: tf.image.adjust_hue(x, (2 * hue - 1) * 0.2),
            "c": lambda x: tf.image.adjust_contrast(x, 0.5 + contrast),
        }
        full, fast = ("bshc", "sbch", "chbs", "hscb"), ("bs", "sb", "sb", "sb")

        def distort(order: str) -> tf.Tensor:
            pixels = tf.cast(image, tf.float32) / 255.0
            for name in order:
                pixels = changes[name](pixels)
            rounded = tf.round(tf.clip_by_value(pixels, 0.0, 1.0) * 255.0)
            return tf.cast(rounded, tf.uint8)

        branches = [
            functools.partial(distort, order) for order in (fast if self.fast else full)
        ]
        image = tf.switch_case(tf.cast(4 * ordering, tf.int32), branches)
        return example | {"image": image}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandAugment:
    """Applies a few random operations of one magnitude: RandAugment.

    Element: example -> example. Changes `image`.

    Follows Cubuk et al., "RandAugment: Practical automated data augmentation with a
    reduced search space", 2019, with the operations and the scales of the TensorFlow
    reference (TensorFlow Model Garden). Each operation is drawn with the same
    probability. The operations equal Pillow's, see `pil_functions`; so does contrast,
    which the reference blends with a wrong gray. Turns, shears and translations go
    either way with probability 1/2, take the nearest pixel, and fill with gray (128).

    Example:
        >>> op = tfpipe.RandAugment(num_ops=2, magnitude=9)
        >>> pipeline = tfpipe.imagenet_train(
        ...     "DIR", batch_size=4, image_size=32, ops=[op], dtype="float32"
        ... )

    Args:
        num_ops: Number of operations applied one after the other, >= 1.
        magnitude: Strength of the operations, 0 to 10. At 10 they turn by 30 degrees,
            shear by 0.3, change color, contrast, brightness and sharpness by a factor
            of 1.9, and add 110 to values below 128. Posterize and Solarize are
            strongest at low magnitudes, as in the reference: Posterize keeps magnitude
            * 4 / 10 bits (at least one bit here, where the reference gives black), and
            Solarize inverts values from magnitude * 25.6 on.
        translation: Translation at magnitude 10, in pixels.
        cutout: Half the side of the erased square at magnitude 10, in pixels.
        operations: Names of the operations to draw from, a part of `OPERATIONS`; None
            stands for all.
    """

    num_ops: int = 2
    magnitude: float = 9
    translation: float = 100
    cutout: float = 40
    operations: Sequence[str] | None = None

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["num_ops"], least=1)
        errors.settle_numbers(self, ["magnitude"], least=0, most=10)
        errors.settle_numbers(self, ["translation", "cutout"], least=0)
        names = OPERATIONS if self.operations is None else self.operations
        if not names or not set(names) <= set(OPERATIONS):
            raise ValueError(
                f"RandAugment.operations must be some of {', '.join(OPERATIONS)}; "
                f"got {self.operations}."
            )

    def __call__(self, example: Example) -> Example:
        if _MOVING & set(self.operations or OPERATIONS):
            boxes.require_none(self, example)
        image = _pixels(self, example)
        seed = op_seed(self, example["seed"])
        for draws in tf.unstack(tf.random.stateless_uniform([self.num_ops, 4], seed)):
            changes = self._changes(draws)
            names = self.operations or OPERATIONS
            branches = [functools.partial(changes[name], image) for name in names]
            choice = tf.cast(draws[0] * len(branches), tf.int32)
            image = tf.switch_case(choice, branches)
        return example | {"image": image}

    def _changes(self, draws: tf.Tensor) -> dict[str, _Change]:
        """Returns the operations at this magnitude; draws: float32 [4], 0..1."""
        share = self.magnitude / 10
        signed = tf.where(draws[1] < 0.5, -share, share)
        change = functools.partial
        degrees, level, pixels = 30 * signed, 0.3 * signed, self.translation * signed
        affine = change(pil_functions.affine, fill=_GRAY)
        translate = change(pil_functions.translate, fill=_GRAY)
        factor = 0.1 + 1.8 * share
        return {
            "AutoContrast": pil_functions.autocontrast,
            "Equalize": pil_functions.equalize,
            "Invert": pil_functions.invert,
            "Rotate": change(pil_functions.rotate, degrees=degrees, fill=_GRAY),
            "Posterize": change(pil_functions.posterize, bits=max(1, int(4 * share))),
            "Solarize": change(pil_functions.solarize, threshold=int(256 * share)),
            "SolarizeAdd": change(
                pil_functions.solarize_add, addition=int(110 * share)
            ),
            "Color": change(pil_functions.color, factor=factor),
            "Contrast": change(pil_functions.contrast, factor=factor),
            "Brightness": change(pil_functions.brightness, factor=factor),
            "Sharpness": change(pil_functions.sharpness, factor=factor),
            "ShearX": change(affine, matrix=[1, level, 0, 0, 1, 0]),
            "ShearY": change(affine, matrix=[1, 0, 0, level, 1, 0]),
            "TranslateX": change(translate, up=0.0, left=pixels),
            "TranslateY": change(translate, up=pixels, left=0.0),
            "Cutout": change(
                _cut_out,
                draws=draws[2:],
                size=2 * int(self.cutout * share),
                fill=(_GRAY,) * 3,
            ),
            "Identity": tf.identity,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cutout:
    """Fills a square at a random place: Cutout.

    Element: example -> example. Changes `image`.

    Follows DeVries and Taylor, "Improved Regularization of Convolutional Neural
    Networks with Cutout", 2017: the square's center is uniform over the image, so that
    a part of the square may lie outside.

    Example:
        >>> example = {"image": tf.zeros([8, 8, 3], tf.uint8)}
        >>> example["seed"] = tf.constant([1, 2], tf.int64)
        >>> image = tfpipe.Cutout(size=16, fill=(9, 9, 9))(example)["image"]
        >>> int(tf.reduce_max(image))
        9

    Args:
        size: Side of the square in pixels, >= 1.
        fill: Red, green and blue, 0..255. The default is ImageNet's mean, which
            `Normalize` turns into about zero, as in the paper.
    """

    size: int
    fill: tuple[int, int, int] = _MEAN_PIXEL

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["size"], least=1)
        _settle_fill(self)

    def __call__(self, example: Example) -> Example:
        image = _pixels(self, example)
        draws = tf.random.stateless_uniform([2], op_seed(self, example["seed"]))
        return example | {"image": _cut_out(image, draws, self.size, self.fill)}


def _cut_out(
    image: tf.Tensor, draws: tf.Tensor, size: int, fill: tuple[int, int, int]
) -> tf.Tensor:
    """Fills a square with a side of `size` pixels.

    Args:
        image: uint8 [height, width, 3].
        draws: float32 [2], center of the square as shares of height and width, 0..1.
        size: Side of the square in pixels.
        fill: Red, green and blue, 0..255.
    """
    shape = tf.shape(image)[:2]
    center = tf.cast(draws * tf.cast(shape, tf.float32), tf.int32)
    start = tf.maximum(center - size // 2, 0)
    sides = tf.minimum(center - size // 2 + size, shape) - start
    patch = tf.broadcast_to(tf.constant(fill, tf.uint8), tf.concat([sides, [3]], 0))
    return pil_functions.paste(image, patch, start[0], start[1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomErasing:
    """Fills a rectangle of random size, shape and place: Random Erasing.

    Element: example -> example. Changes `image`.

    Follows Zhong et al., "Random Erasing Data Augmentation", 2017. The rectangle's area
    is uniform in `area`, the logarithm of its height / width is uniform in `ratio`, and
    its place is uniform among the places inside of the image. Nothing is erased if none
    of `max_attempts` rectangles fits. The logarithm is torchvision's choice: high and
    wide rectangles are then equally likely.

    Example:
        >>> example = {"image": tf.zeros([8, 8, 3], tf.uint8)}
        >>> example["seed"] = tf.constant([1, 2], tf.int64)
        >>> op = tfpipe.RandomErasing(probability=1.0, fill=(9, 9, 9))
        >>> int(tf.reduce_max(op(example)["image"]))
        9

    Args:
        probability: Share of the images that get a rectangle, 0 to 1.
        area: Smallest and largest share of the image's area, 0 < low <= high <= 1.
        ratio: Smallest and largest height / width, 0 < low <= high.
        fill: Red, green and blue, 0..255; None fills with random bytes, which worked
            best in the paper.
        max_attempts: Number of rectangles to try.
    """

    probability: float = 0.5
    area: tuple[float, float] = (0.02, 0.4)
    ratio: tuple[float, float] = (0.3, 1 / 0.3)
    fill: tuple[int, int, int] | None = None
    max_attempts: int = 10

    def __post_init__(self) -> None:
        errors.settle_numbers(self, ["probability"], least=0, most=1)
        errors.settle_ints(self, ["max_attempts"], least=1)
        errors.settle_range(self, "area", above=0, most=1)
        errors.settle_range(self, "ratio", above=0)
        if self.fill is not None:
            _settle_fill(self)

    def __call__(self, example: Example) -> Example:
        image = _pixels(self, example)
        seed = op_seed(self, example["seed"])
        draws = tf.random.stateless_uniform([3 + 2 * self.max_attempts], seed)
        rectangle = self._rectangle(tf.shape(image)[:2], draws[1:])
        top, left, height, width = tf.unstack(rectangle)

        def erased() -> tf.Tensor:
            patch = self._patch(tf.stack([height, width, 3]), seed)
            return pil_functions.paste(image, patch, top, left)

        chosen = (draws[0] < self.probability) & (height > 0)
        image = tf.cond(chosen, erased, lambda: tf.identity(image))
        return example | {"image": image}

    def _rectangle(self, shape: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Returns int32 [4]: top, left, height, width in pixels; height 0 if no fit."""
        size = tf.cast(shape, tf.float32)
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        shares, shapes = tf.unstack(tf.reshape(draws[2:], [2, self.max_attempts]))
        areas = self.area[0] + (self.area[1] - self.area[0]) * shares
        areas, ratios = areas * size[0] * size[1], tf.exp(low + (high - low) * shapes)
        sides = tf.round(tf.sqrt([areas * ratios, areas / ratios]))
        fits = tf.reduce_all(sides <= size[:, None], 0)
        first = tf.gather(sides, tf.argmax(fits), axis=1)
        side = tf.where(tf.reduce_any(fits), first, 0.0)
        corner = tf.floor(draws[:2] * (size - side + 1.0))
        return tf.cast(tf.concat([corner, side], 0), tf.int32)

    def _patch(self, shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        if self.fill is not None:
            return tf.broadcast_to(tf.constant(self.fill, tf.uint8), shape)
        # Each number drawn gives four bytes of noise. The reversed seed draws other
        # numbers than those of the rectangle.
        size = tf.reduce_prod(shape)
        words = tf.random.stateless_uniform(
            [(size + 3) // 4], seed[::-1], minval=None, maxval=None, dtype=tf.uint32
        )
        noise = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]
        return tf.reshape(noise, shape)
