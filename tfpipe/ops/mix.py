"""Ops on batches that blend images with each other, and their labels alike.

In and out: a batch, for use in a `Map` after `Batch`:

    Map(..., OneHot(1000), Select("image", "label", "seed")), Batch(256), Map(MixUp())

The presets make these stages of `batch_ops=[MixUp()]`.

    in   image: [batch, height, width, 3], uint8 0..255 or floats of any range
         label: floats [batch, classes], see `ops.OneHot`
         seed: int64 [batch, 2], the seeds of the examples; `Select` must keep them
    out  image and label, with the shapes and types of the input; no `seed`

Example i is blended with example batch - 1 - i, as in TensorFlow's references. The
numbers are drawn from the seed of the batch's first example, so that a batch of the
same records is blended in the same way whatever the parallelism or the resume point.
These ops are for training; they refuse a batch with a `mask`, and one with `boxes`.
"""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfpipe import errors
from tfpipe.ops import boxes
from tfpipe.ops.basic import Example, OneHot, Select, op_seed

BatchOp = Callable[[Example], Example]

# With a smaller alpha, draws of the gamma distribution underflow. Hardly anything would
# be blended anyway.
_LEAST_ALPHA = 0.01


def on_batches(
    batch_ops: Sequence[BatchOp],
    *,
    has_rows: bool,
    names: Sequence[str],
    num_classes: int,
) -> list[BatchOp]:
    """Returns the ops on batches of a preset, with what they need around them.

    `OneHot` comes first if the labels of MixUp or CutMix are not rows yet, and `seed`
    is left out at the end.

    Args:
        batch_ops: Ops batch -> batch, for batches with the features `names` and `seed`.
        has_rows: Whether the labels of examples are rows already.
        names: Names of the features of the resulting batches.
        num_classes: One more than the largest label; 0 if it is not known.

    Raises:
        ValueError: If MixUp or CutMix would get batches with a `mask` or without
            images, or labels of an unknown number of classes.
    """
    if not batch_ops:
        return []
    kept: list[BatchOp] = [KeepSeed(op) if _blends(op) else op for op in batch_ops[:-1]]
    ops: list[BatchOp] = [*kept, batch_ops[-1], Select(*names)]
    if not any(map(_blends, batch_ops)):
        return ops
    if "mask" in names or "image" not in names:
        raise ValueError(
            "MixUp and CutMix must get images that are all real, got batches of "
            f"{', '.join(names)}: mask marks padding, which would be blended in. Use "
            "them in imagenet_train, with a recipe and with on_error='raise'."
        )
    if has_rows or any(isinstance(op, OneHot) for op in batch_ops):
        return ops
    if not num_classes:
        raise ValueError(
            "MixUp and CutMix must get labels of a known number of classes, and the "
            "index has no classes. Add OneHot(num_classes) to ops."
        )
    return [OneHot(num_classes), *ops]


def _blends(op: object) -> bool:
    """Checks whether an op is MixUp or CutMix, alone or in a `Reseed`."""
    return isinstance(getattr(op, "op", op), _Blend)


@dataclasses.dataclass(frozen=True)
class KeepSeed:
    """Puts `seed` back after an op that drops it, for the next op. Element: batch.

    Args:
        op: An op on batches.
    """

    op: BatchOp

    def __call__(self, batch: Example) -> Example:
        return self.op(batch) | {"seed": batch["seed"]}


def _require_batch(op: object, batch: Example) -> None:
    name = type(op).__name__
    boxes.require_none(op, batch)
    if "seed" not in batch:
        raise ValueError(
            f"{name} must get seed, got {', '.join(batch)}: name it in Select."
        )
    if "mask" in batch:
        raise ValueError(f"{name} must get no mask: padding would be blended in.")
    image, label = batch["image"], batch["label"]
    if image.shape.rank != 4 or label.shape.rank != 2 or not label.dtype.is_floating:
        raise ValueError(
            f"{name} must get image [batch, height, width, 3] and label [batch, "
            f"classes] of floats, got {image.shape} and {label.dtype.name} "
            f"{label.shape}: put OneHot before Batch and {name} after it."
        )


def _reversed(values: tf.Tensor) -> tf.Tensor:
    """Returns the batch in reverse order; values[::-1] takes thirty times as long."""
    return tf.gather(values, tf.range(tf.shape(values)[0] - 1, -1, -1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Blend:
    """Blends a batch with its reverse order; the base of the ops below."""

    alpha: float

    def __post_init__(self) -> None:
        errors.settle_numbers(self, ["alpha"], least=_LEAST_ALPHA)

    def __call__(self, batch: Example) -> Example:
        _require_batch(self, batch)
        image, label = batch["image"], batch["label"]
        blended, share = self._blended(image, batch["seed"])
        share = tf.cast(share, label.dtype)[:, None]
        label = share * label + (1 - share) * _reversed(label)
        kept = {name: value for name, value in batch.items() if name != "seed"}
        blended = tf.ensure_shape(blended, image.shape)
        return kept | {"image": blended, "label": label}

    def _blended(
        self, image: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the blended images, and float32 [batch], each one's own share."""
        raise NotImplementedError

    def _beta(self, seed: tf.Tensor) -> tf.Tensor:
        """Draws float32 [batch], each from Beta(alpha, alpha)."""
        shape, first = [2, tf.shape(seed)[0]], op_seed(self, seed[0])
        gammas = tf.random.stateless_gamma(shape, first, self.alpha, dtype=tf.float64)
        return tf.cast(gammas[0] / tf.reduce_sum(gammas, 0), tf.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixUp(_Blend):
    """Blends each image and label with another image and label of the batch: mixup.

    Element: batch -> batch, see the module. Changes `image` and `label`, drops `seed`.

    Follows Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2017. A share is
    drawn from Beta(alpha, alpha) for each example, and the example keeps the larger
    part of itself, as in TensorFlow's EfficientNet reference; the paper draws one share
    a batch. uint8 images are rounded.

    Example:
        >>> pipeline = tfpipe.imagenet_train(
        ...     "DIR", batch_size=4, batch_ops=[tfpipe.MixUp(alpha=0.2)]
        ... )
        >>> pipeline.build().element_spec["label"].shape
        TensorShape([4, 1000])

    Args:
        alpha: Parameter of the distribution, >= 0.01. A larger alpha blends more; the
            paper uses 0.2 for ImageNet.
    """

    alpha: float = 0.2

    def _blended(
        self, image: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        share = self._beta(seed)
        share = tf.maximum(share, 1.0 - share)
        own = tf.reshape(image, [tf.shape(image)[0], -1])
        other = tf.cast(_reversed(own), tf.float32)
        own = tf.cast(own, tf.float32)
        blended = share[:, None] * own + (1.0 - share[:, None]) * other
        if image.dtype.is_integer:
            blended = tf.round(blended)
        return tf.reshape(tf.cast(blended, image.dtype), tf.shape(image)), share


@dataclasses.dataclass(frozen=True, kw_only=True)
class CutMix(_Blend):
    """Puts a rectangle of another image of the batch into each image: CutMix.

    Element: batch -> batch, see the module. Changes `image` and `label`, drops `seed`.

    Follows Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers
    with Localizable Features", 2019. The rectangle has the image's aspect ratio. Its
    share of the image's area is 1 minus a draw of Beta(alpha, alpha), and its center is
    uniform over the image. The part outside of the image is cut off, and the labels are
    blended by the number of pixels of each image. Each example has its own rectangle,
    as in TensorFlow Model Garden; the paper has one a batch.

    Example:
        >>> pipeline = tfpipe.imagenet_train(
        ...     "DIR", batch_size=4, batch_ops=[tfpipe.CutMix()]
        ... )
        >>> pipeline.build().element_spec["label"].shape
        TensorShape([4, 1000])

    Args:
        alpha: Parameter of the distribution, >= 0.01; the paper uses 1, which makes the
            areas uniform.
    """

    alpha: float = 1.0

    def _blended(
        self, image: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        top, left, height, width = self._rectangles(tf.shape(image)[1:3], seed)
        rows = _between(tf.range(tf.shape(image)[1]), top, height)
        # Each pixel has three values in a row.
        columns = _between(tf.range(3 * tf.shape(image)[2]) // 3, left, width)
        cut = tf.cast(rows[:, :, None] & columns[:, None, :], image.dtype)
        cut = tf.reshape(cut, tf.shape(image))
        blended = (1 - cut) * image + cut * _reversed(image)
        return blended, 1.0 - _share(rows) * _share(columns)

    def _rectangles(self, shape: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
        """Returns top, left, height and width in pixels, each int32 [batch]."""
        size = tf.cast(shape, tf.float32)[:, None]
        area = 1.0 - self._beta(seed)
        sides = tf.cast(size * tf.sqrt(area), tf.int32)
        # The reversed seed draws other numbers than those of the areas.
        reversed_seed = op_seed(self, seed[0])[::-1]
        draws = tf.random.stateless_uniform(tf.shape(sides), reversed_seed)
        corners = tf.cast(draws * size, tf.int32) - sides // 2
        return [*tf.unstack(corners), *tf.unstack(sides)]


def _between(places: tf.Tensor, start: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """Returns bool [batch, places]: is a place in start .. start + length - 1?"""
    start, stop = start[:, None], (start + length)[:, None]
    return (places >= start) & (places < stop)


def _share(chosen: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(chosen, tf.float32), 1)
