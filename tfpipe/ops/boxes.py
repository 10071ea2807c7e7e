"""Boxes of objects: read from a record, and moved with the image that is cropped.

In: a record, or an example with `boxes`. Out: the example with its boxes where the
objects are in its image. The crops and `basic.Flip` call these functions; the boxes
follow from the crop box alone, so they are the same for the native and the stock ops.

    boxes: float32 [..., max_boxes, 4], ymin, xmin, ymax, xmax as shares of the image's
        height and width, 0..1: the order of `tf.image.draw_bounding_boxes`
    box_label: int32 [..., max_boxes], the class of each box, or -1 for no box

A box keeps its place in these lists. The places without a box are zeros in `boxes`.
"""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from tfpipe import errors
from tfpipe.native import record_op
from tfpipe.shards import image_record

Example = dict[str, tf.Tensor]

FEATURES = ("boxes", "box_label")

_SIDES = ("ymin", "xmin", "ymax", "xmax")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParseBoxes:
    """Reads the boxes of a record, or of a batch of them; stands before `Parse`.

    Element: record -> record. Adds `boxes` and `box_label`, see the module.
        in   record, or its place, as of `Parse`: a tf.train.Example with
             image/object/bbox/ymin, xmin, ymax and xmax: floats, shares of height and
             width; and image/object/class/label: integers, absent in records whose
             boxes have no labels

    These are the keys of TensorFlow's object detection. Boxes are clipped to the image,
    and a box without an area is left out. A box without a label gets the label 0.

    Example:
        >>> boxes = tfpipe.ParseBoxes(max_boxes=8)
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4, with_boxes=boxes)
        >>> pipeline.build().element_spec["boxes"].shape
        TensorShape([4, 8, 4])

    Args:
        max_boxes: Number of places for boxes in each example. All examples have the
            same number, so that they can be batched; 100 as in TensorFlow Model Garden.
        label_base: Label on disk that becomes 0. The presets take it from `Parse` if it
            is None; without them None is 0.
        image_key: Key of the encoded image, which stays out of what is parsed here. The
            presets take it from `Parse`.

    Raises, while the dataset is read:
        tf.errors.InvalidArgumentError: If a record has more than `max_boxes` boxes, or
            not as many of one side as of another.
    """

    takes_batches: ClassVar[bool] = True

    max_boxes: int = 100
    label_base: int | None = None
    image_key: str = dataclasses.field(default=image_record.ENCODED, repr=False)

    def __post_init__(self) -> None:
        errors.require_kind(self, "image_key", self.image_key, str)
        errors.settle_ints(self, ["max_boxes"], least=1)
        errors.settle_ints(self, ["label_base"], also=[None])

    def __call__(self, example: Example) -> Example:
        base = self.label_base or 0
        keys = [f"image/object/bbox/{side}" for side in _SIDES]
        label_key = "image/object/class/label"
        specs = {key: _list_of(tf.float32, 0.0) for key in keys}
        specs[label_key] = _list_of(tf.int64, base)
        example = record_op.with_record(example, self.image_key)
        features = tf.io.parse_example(example["record"], specs)
        boxes = self._padded(tf.stack([features[key] for key in keys], -1), 0.0, -2)
        label = self._padded(features[label_key], base, -1) - base
        boxes, label = tf.clip_by_value(boxes, 0.0, 1.0), tf.cast(label, tf.int32)
        return example | _kept(boxes, label, least=0.0)

    def _padded(self, values: tf.Tensor, default: float, axis: int) -> tf.Tensor:
        """Returns the values with max_boxes places along an axis."""
        count = tf.shape(values)[axis]
        fits = tf.debugging.Assert(
            count <= self.max_boxes,
            [
                f"A record must have at most max_boxes = {self.max_boxes} boxes. Raise "
                "ParseBoxes.max_boxes, for a preset by with_boxes=ParseBoxes("
                "max_boxes=...). Got",
                count,
            ],
        )
        with tf.control_dependencies([] if fits is None else [fits]):
            missing = [[0, 0]] * values.shape.rank
            missing[axis] = [0, self.max_boxes - count]
            padded = tf.pad(values, missing, constant_values=default)
        shape = values.shape.as_list()
        shape[axis] = self.max_boxes
        return tf.ensure_shape(padded, shape)


def _list_of(dtype: tf.DType, default: float) -> tf.io.FixedLenSequenceFeature:
    """Returns the spec of a list of any length; `default` fills up a batch's lists."""
    return tf.io.FixedLenSequenceFeature(
        [], dtype, allow_missing=True, default_value=default
    )


def cropped(
    example: Example,
    crop_box: tf.Tensor,
    sides: tuple[int, int],
    flip: tf.Tensor | None,
) -> Example:
    """Returns the boxes of an example, or of a batch, after a crop.

    Boxes are clipped to the crop box. A box of which less than a pixel of the result is
    left, in height or in width, is left out, as by torchvision's
    `SanitizeBoundingBoxes`. The pixels may lie off by less than a pixel of the result
    where the crop decodes at a smaller scale.

    Args:
        example: `boxes` and `box_label`, see the module; height, width: int32 [...],
            the image's sides in pixels.
        crop_box: int32 [..., 4], top, left, height, width in pixels.
        sides: Height and width of the result in pixels.
        flip: bool [...], whether the result is mirrored left to right; None is False.

    Returns:
        `boxes`, relative to the result, and `box_label`.
    """
    size = tf.stack([example["height"], example["width"]], -1)
    begin, extent, size = (
        tf.cast(tf.concat([pair, pair], -1), tf.float32)[..., tf.newaxis, :]
        for pair in (crop_box[..., :2], crop_box[..., 2:], size)
    )
    boxes = (example["boxes"] * size - begin) / extent
    boxes = tf.clip_by_value(boxes, 0.0, 1.0)
    least = [1 / side for side in sides]
    kept = _kept(boxes, example["box_label"], least=least)
    return kept if flip is None else mirrored(kept, flip)


def mirrored(example: Example, flip: tf.Tensor) -> Example:
    """Returns the boxes of an example, or of a batch, mirrored left to right.

    Args:
        example: `boxes` and `box_label`, see the module.
        flip: bool [...], whether the image is mirrored.
    """
    boxes, label = example["boxes"], example["box_label"]
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    turned = tf.stack([ymin, 1.0 - xmax, ymax, 1.0 - xmin], -1)
    chosen = (flip[..., tf.newaxis] & (label >= 0))[..., tf.newaxis]
    return {"boxes": tf.where(chosen, turned, boxes), "box_label": label}


def require_none(op: object, example: Example) -> None:
    """Refuses an example with boxes, for an op that moves pixels and not boxes.

    Raises:
        ValueError: If the example has boxes.
    """
    if "boxes" in example:
        raise ValueError(
            f"{type(op).__name__} must get no boxes: it moves the pixels and would "
            "leave the boxes behind. Leave the op out, or with_boxes False."
        )


def _kept(boxes: tf.Tensor, label: tf.Tensor, *, least: float | list[float]) -> Example:
    """Empties the places of boxes whose height or width is 0 or below `least`."""
    extents = boxes[..., 2:] - boxes[..., :2]
    is_large = tf.reduce_all((extents >= least) & (extents > 0), -1)
    is_box = is_large & (label >= 0)
    return {
        "boxes": tf.where(is_box[..., tf.newaxis], boxes, 0.0),
        "box_label": tf.where(is_box, label, -1),
    }
