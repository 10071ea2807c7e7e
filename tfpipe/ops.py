"""Ops: example -> example, one image at a time, for use inside `stages.Map`.

In and out: a flat dict of tensors; an op returns a new dict and never changes the one
it is given. Random ops draw from `seed`, which `Parse` makes of the run's seed, the
epoch and the record's number, so that a record gets the same augmentation whatever the
parallelism, the rank or the resume point. Images are RGB, height x width x channel.
"""

import dataclasses
import zlib
from collections.abc import Sequence

import tensorflow as tf

from tfpipe import records

Example = dict[str, tf.Tensor]

# Mean and standard deviation of ImageNet's training pixels, 0..255, RGB.
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)


def _require_size(op: object, size: int) -> None:
    if size < 1:
        raise ValueError(f"{type(op).__name__}.image_size must be >= 1, got {size}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parse:
    """Parses a record into an example.

    Element: record -> example.
        in   record: string; record_id, epoch_seed: int64
        out  encoded: string, JPEG bytes
             height, width: int32, pixels
             label: int32, label on disk - label_base + label_offset
             record_id: int64
             seed: int64 [2], what random ops draw from

    Args:
        label_base: Label on disk of the first class; the index states it.
        label_offset: Label to give to the first class.
    """

    label_base: int
    label_offset: int = 0

    def __call__(self, example: Example) -> Example:
        scalar = tf.io.FixedLenFeature([], tf.int64)
        features = tf.io.parse_single_example(
            example["record"],
            {
                records.ENCODED: tf.io.FixedLenFeature([], tf.string),
                records.HEIGHT: scalar,
                records.WIDTH: scalar,
                records.LABEL: scalar,
            },
        )
        label = tf.cast(features[records.LABEL], tf.int32)
        return {
            "encoded": features[records.ENCODED],
            "height": tf.cast(features[records.HEIGHT], tf.int32),
            "width": tf.cast(features[records.WIDTH], tf.int32),
            "label": label - self.label_base + self.label_offset,
            "record_id": example["record_id"],
            "seed": tf.stack([example["epoch_seed"], example["record_id"]]),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomCrop:
    """Decodes a random window of the image and resizes it: Inception's augmentation.

    Element: example -> example. Replaces `encoded`, `height`, `width` by `image`.
        out  image: uint8 [image_size, image_size, 3], 0..255

    The window's aspect ratio is uniform in `ratio`, its height uniform among those that
    give an area in `area` (after Szegedy et al., "Going Deeper with Convolutions",
    2014, section 6); the whole image where no window fits in `max_attempts`. It is
    drawn by `tf.image.stateless_sample_distorted_bounding_box`. Only the window is
    decoded.

    Args:
        image_size: Height and width of the result in pixels.
        area: Smallest and largest share of the image's area, 0 < low <= high <= 1.
        ratio: Smallest and largest width / height.
        max_attempts: Windows to try.
    """

    image_size: int
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    max_attempts: int = 10

    def __post_init__(self) -> None:
        _require_size(self, self.image_size)
        if not 0 < self.area[0] <= self.area[1] <= 1:
            raise ValueError(
                f"RandomCrop.area must be 0 < low <= high <= 1, got {self.area}."
            )
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(
                f"RandomCrop.ratio must be 0 < low <= high, got {self.ratio}."
            )
        if self.max_attempts < 1:
            raise ValueError(
                f"RandomCrop.max_attempts must be >= 1, got {self.max_attempts}."
            )

    def __call__(self, example: Example) -> Example:
        return _with_image(example, self.window(example), self.image_size)

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [4], top, left, height, width in pixels."""
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.stack([example["height"], example["width"], 3]),
            tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
            seed=_op_seed(self, example["seed"]),
            min_object_covered=0.0,
            aspect_ratio_range=self.ratio,
            area_range=self.area,
            max_attempts=self.max_attempts,
        )
        return tf.concat([begin[:2], size[:2]], 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CenterCrop:
    """Decodes the central square of the image and resizes it, for evaluation.

    Element: example -> example. Replaces `encoded`, `height`, `width` by `image`.
        out  image: uint8 [image_size, image_size, 3], 0..255

    Equals resizing the short side to image_size / fraction and cropping the center:
    0.875 is the customary 256 to 224 (He et al., "Deep Residual Learning", 2015).

    Args:
        image_size: Height and width of the result in pixels.
        fraction: Side of the square as a share of the short side, 0 < fraction <= 1.
    """

    image_size: int
    fraction: float = 0.875

    def __post_init__(self) -> None:
        _require_size(self, self.image_size)
        if not 0 < self.fraction <= 1:
            raise ValueError(
                f"CenterCrop.fraction must be 0 < fraction <= 1, got {self.fraction}."
            )

    def __call__(self, example: Example) -> Example:
        return _with_image(example, self.window(example), self.image_size)

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [4], top, left, height, width in pixels."""
        height, width = example["height"], example["width"]
        short = tf.cast(tf.minimum(height, width), tf.float32)
        side = tf.maximum(tf.cast(tf.round(short * self.fraction), tf.int32), 1)
        return tf.stack([(height - side) // 2, (width - side) // 2, side, side])


@dataclasses.dataclass(frozen=True)
class Flip:
    """Mirrors the image left to right with probability 1/2.

    Element: example -> example. Changes `image`; equals
    `tf.image.stateless_random_flip_left_right`.
    """

    def __call__(self, example: Example) -> Example:
        seed = _op_seed(self, example["seed"])
        image = tf.image.stateless_random_flip_left_right(example["image"], seed)
        return example | {"image": image}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Normalize:
    """Scales pixel values to zero mean and unit variance per channel.

    Element: example -> example. Changes `image`.
        in   image: uint8 or float32 [..., 3], RGB, 0..255
        out  image: float32 [..., 3]

    Args:
        mean: Per-channel mean, 3 values, in 0..255.
        std: Per-channel standard deviation, 3 values, in 0..255, all > 0.
    """

    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD

    def __post_init__(self) -> None:
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise ValueError(
                "Normalize must have 3 values of mean and 3 of std, each std > 0; "
                f"got mean={self.mean}, std={self.std}."
            )

    def __call__(self, example: Example) -> Example:
        image = tf.cast(example["image"], tf.float32)
        # One multiplication and one addition a value, not a subtraction and a division.
        scale = tf.constant([1 / std for std in self.std])
        shift = tf.constant([-m / s for m, s in zip(self.mean, self.std, strict=True)])
        return example | {"image": image * scale + shift}


@dataclasses.dataclass(frozen=True)
class Cast:
    """Changes the type of `image`. Element: example -> example.

    Args:
        dtype: "uint8", "float32", "bfloat16" or "float16".
    """

    dtype: str

    def __post_init__(self) -> None:
        choices = ("uint8", "float32", "bfloat16", "float16")
        if self.dtype not in choices:
            raise ValueError(
                f"Cast.dtype must be one of {', '.join(choices)}, got {self.dtype!r}."
            )

    def __call__(self, example: Example) -> Example:
        return example | {"image": tf.cast(example["image"], self.dtype)}


@dataclasses.dataclass(frozen=True, init=False)
class Select:
    """Keeps only the named features. Element: example -> example."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)

    def __repr__(self) -> str:
        return f"Select({', '.join(map(repr, self.names))})"

    def __call__(self, example: Example) -> Example:
        return {name: example[name] for name in self.names}


def _with_image(example: Example, window: tf.Tensor, image_size: int) -> Example:
    """The example with the decoded and resized window in place of the JPEG bytes."""
    crop = tf.io.decode_and_crop_jpeg(
        example["encoded"], window, channels=3, dct_method="INTEGER_ACCURATE"
    )
    resized = tf.image.resize(crop, [image_size, image_size], method="bilinear")
    # Bilinear values lie within 0..255, so rounding is all that a cast needs.
    image = tf.cast(tf.round(resized), tf.uint8)
    image = tf.ensure_shape(image, [image_size, image_size, 3])
    replaced = ("encoded", "height", "width")
    kept = {name: value for name, value in example.items() if name not in replaced}
    return kept | {"image": image}


def _op_seed(op: object, seed: tf.Tensor) -> tf.Tensor:
    """The element's seed, made different for each kind of op by the op's name."""
    salt = zlib.crc32(type(op).__name__.encode())
    return tf.bitwise.bitwise_xor(seed, tf.constant([salt, 0], tf.int64))
