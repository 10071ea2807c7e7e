"""Ops: example -> example, one image at a time, for use inside `stages.basic.Map`.

In and out: a flat dict of tensors. An op returns a new dict and never changes its
input. Random ops draw from `seed`, which `parse.Parse` computes from the run's seed,
the epoch and the record's number, so that a record gets the same augmentation whatever
the parallelism, the rank or the resume point. Images are RGB, height x width x channel.
"""

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from tfpipe import errors
from tfpipe.ops import boxes

Example = dict[str, tf.Tensor]

# Types of the pixels of a batch.
DTYPES = ("uint8", "float32", "bfloat16", "float16")

# Mean and standard deviation of ImageNet's training pixels, 0..255, RGB.
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

# The mean that the VGG networks were trained with; they did not divide.
VGG_MEAN = (123.68, 116.779, 103.939)


@dataclasses.dataclass(frozen=True)
class Flip:
    """Mirrors the image left to right with probability 1/2.

    Element: example -> example. Changes `image`, and `boxes` if there are any; equals
    `tf.image.stateless_random_flip_left_right`.

    Example:
        >>> example = {"image": tf.constant([[[1], [2]]])}
        >>> example["seed"] = tf.constant([1, 2], tf.int64)
        >>> tfpipe.Flip()(example)["image"].shape
        TensorShape([1, 2, 1])
    """

    def __call__(self, example: Example) -> Example:
        seed = op_seed(self, example["seed"])
        image = tf.image.stateless_random_flip_left_right(example["image"], seed)
        if "boxes" in example:
            drawn = tf.random.stateless_uniform([], seed)  # what the image's flip draws
            example = example | boxes.mirrored(example, drawn < 0.5)
        return example | {"image": image}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Normalize:
    """Scales pixel values to zero mean and unit variance per channel.

    Element: example -> example. Changes `image`.
        in   image: uint8 or float32 [..., height, width, 3], RGB, 0..255
        out  image: float32 [..., height, width, 3]

    `Normalize()` is the mode that Keras calls "torch"; `caffe` and `inception` are
    Keras' other two modes.

    Example:
        >>> op = tfpipe.Normalize(mean=(127.5,) * 3, std=(127.5,) * 3)
        >>> op({"image": tf.constant([[[0, 0, 255]]])})["image"].numpy().tolist()
        [[[-1.0, -1.0, 1.0]]]

    Args:
        mean: Per-channel mean, 3 values, in 0..255, red first.
        std: Per-channel standard deviation, 3 values, in 0..255, all > 0, red first.
        bgr: Whether the result has blue first.
    """

    takes_batches: ClassVar[bool] = True

    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD
    bgr: bool = False

    @classmethod
    def caffe(cls) -> "Normalize":
        """Subtracts VGG's mean, does not scale, blue first: Keras' mode "caffe"."""
        return cls(mean=VGG_MEAN, std=(1.0, 1.0, 1.0), bgr=True)

    @classmethod
    def inception(cls) -> "Normalize":
        """Scales 0..255 to -1..1: Keras' mode "tf", for Inception and MobileNet."""
        return cls(mean=(127.5, 127.5, 127.5), std=(127.5, 127.5, 127.5))

    def __post_init__(self) -> None:
        mean = errors.require_numbers(self, "mean", self.mean, count=3)
        std = errors.require_numbers(self, "std", self.std, count=3, above=0)
        errors.settle(self, "mean", mean)
        errors.settle(self, "std", std)
        errors.settle_bools(self, "bgr")

    def by_channel(self) -> dict[str, Any]:
        """Returns `bgr`, and `scale` and `offset` of the channels of the result.

        Multiplying and adding is cheaper than subtracting and dividing.
        """
        step = -1 if self.bgr else 1
        scale = [1 / std for std in self.std]
        offset = [-m / s for m, s in zip(self.mean, self.std, strict=True)]
        return {"scale": scale[::step], "offset": offset[::step], "bgr": self.bgr}

    def __call__(self, example: Example) -> Example:
        scale, offset, _ = self.by_channel().values()
        image = example["image"]
        if self.bgr:
            image = tf.reverse(image, [-1])
        # Operands as long as a row of pixels: with three values it takes five times as
        # long.
        *leading, width, channels = tf.unstack(tf.shape(image))
        rows = tf.reshape(image, [*leading, width * channels])
        rows = tf.cast(rows, tf.float32) * tf.tile(scale, [width])
        rows += tf.tile(offset, [width])
        normalized = tf.reshape(rows, tf.shape(image))
        return example | {"image": tf.ensure_shape(normalized, image.shape)}


@dataclasses.dataclass(frozen=True)
class Cast:
    """Changes the type of `image`. Element: example -> example.

    Example:
        >>> tfpipe.Cast("float16")({"image": tf.zeros([2, 2, 3])})["image"].dtype
        tf.float16

    Args:
        dtype: "uint8", "float32", "bfloat16" or "float16".
    """

    takes_batches: ClassVar[bool] = True

    dtype: str

    def __post_init__(self) -> None:
        errors.require_choice(self, "dtype", self.dtype, DTYPES)

    def __call__(self, example: Example) -> Example:
        return example | {"image": tf.cast(example["image"], self.dtype)}


@dataclasses.dataclass(frozen=True)
class ToNCHW:
    """Puts the channels before height and width. Element: example -> example.

    Changes `image`, of one example or of a batch, from [..., height, width, 3] to
    [..., 3, height, width], the layout in which some GPU kernels are fastest. This op
    belongs after every other op that changes the image.

    Example:
        >>> tfpipe.ToNCHW()({"image": tf.zeros([4, 32, 24, 3])})["image"].shape
        TensorShape([4, 3, 32, 24])
    """

    takes_batches: ClassVar[bool] = True

    def __call__(self, example: Example) -> Example:
        image = example["image"]
        axes = [*range(image.shape.rank)]
        return example | {
            "image": tf.transpose(image, [*axes[:-3], axes[-1], *axes[-3:-1]])
        }


@dataclasses.dataclass(frozen=True)
class OneHot:
    """Turns the label into a row of class probabilities, smoothed if asked for.

    Element: example -> example. Changes `label`, of one example or of a batch.
        in   label: int32 [...], 0..num_classes - 1
        out  label: float32 [..., num_classes], sums to 1

    Label smoothing follows Szegedy et al., "Rethinking the Inception Architecture for
    Computer Vision", 2015, section 7: (1 - smoothing) * one-hot + smoothing /
    num_classes.

    Example:
        >>> rows = tfpipe.OneHot(3)({"label": tf.constant([2, 0])})["label"]
        >>> rows.numpy().tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]

    Args:
        num_classes: Length of a row; one more than the largest label.
        smoothing: Share of the probability that is spread over all classes,
            0 <= smoothing < 1; 0.1 in the paper.

    Raises:
        ValueError: If the label is a row of floats already.
        tf.errors.InvalidArgumentError: If a label is outside of 0..num_classes - 1;
            `tf.one_hot` would return zeros for it.
    """

    takes_batches: ClassVar[bool] = True

    num_classes: int
    _: dataclasses.KW_ONLY
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["num_classes"], least=1)
        errors.settle_numbers(self, ["smoothing"], least=0, below=1)

    def __call__(self, example: Example) -> Example:
        label = example["label"]
        if label.dtype.is_floating:
            raise ValueError(
                f"OneHot must get labels as whole numbers, got {label.dtype.name} "
                f"{label.shape}. With Parse(multi_label=True) labels are rows already: "
                "leave OneHot out."
            )
        are_valid = tf.reduce_all((label >= 0) & (label < self.num_classes))
        tf.debugging.Assert(
            are_valid,
            [
                f"OneHot: labels must be 0 to {self.num_classes - 1}; num_classes has "
                "to fit the label_offset of Parse. Got",
                label,
            ],
        )
        off = self.smoothing / self.num_classes
        on = 1.0 - self.smoothing + off
        rows = tf.one_hot(label, self.num_classes, on_value=on, off_value=off)
        return example | {"label": rows}


@dataclasses.dataclass(frozen=True)
class Reseed:
    """Changes the numbers that an op draws, for the second op of a kind in a pipeline.

    Element: the element of `op`. Two ops of one kind draw the same numbers for a record
    wherever they stand, so that an op added before them changes nothing.
    `Reseed(Flip(), 1)`, `Reseed(Flip(), 2)` and `Flip()` draw different numbers.

    Example:
        >>> ops = [tfpipe.RandAugment(), tfpipe.Reseed(tfpipe.RandAugment(), 1)]
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4, ops=ops)

    Args:
        op: A random op.
        salt: Any whole number; 0 draws the numbers of `op` alone.
    """

    op: Callable[[Example], Example]
    salt: int

    def __post_init__(self) -> None:
        errors.require_op(self, "op", self.op)
        errors.settle_ints(self, ["salt"])

    def __call__(self, example: Example) -> Example:
        seed = example["seed"]
        # The first half of the seed is the epoch's. A salt in the second half, which is
        # the record's number, would only give a record the numbers of another record.
        salt = tf.constant([self.salt * _SALT_STEP % 2**63, 0], tf.int64)
        result = self.op(example | {"seed": tf.bitwise.bitwise_xor(seed, salt)})
        return result | {"seed": seed} if "seed" in result else result


# A multiplier of SplitMix64: odd, and its bits have no pattern.
_SALT_STEP = 0x3F58476D1CE4E5B9


@dataclasses.dataclass(frozen=True, init=False)
class Select:
    """Keeps only the named features. Element: example -> example.

    Example:
        >>> tfpipe.Select("label")({"label": 3, "mask": 1.0})
        {'label': 3}
    """

    takes_batches: ClassVar[bool] = True

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        for name in names:
            errors.require_kind(self, "names", name, str)
        object.__setattr__(self, "names", names)

    def __repr__(self) -> str:
        return f"Select({', '.join(map(repr, self.names))})"

    def __call__(self, example: Example) -> Example:
        return {name: example[name] for name in self.names}


def op_seed(op: object, seed: tf.Tensor) -> tf.Tensor:
    """Returns the seed of an op: the example's seed, changed by the op's class name.

    Args:
        op: The op that draws.
        seed: int64 [2] or [n, 2], the seed of the example, or of each of a batch.

    Returns:
        A seed for `tf.random.stateless_*`, of the same shape.
    """
    salt = zlib.crc32(type(op).__name__.encode())
    return tf.bitwise.bitwise_xor(seed, tf.constant([salt, 0], tf.int64))
