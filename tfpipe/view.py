"""A batch as a picture: its images on a contact sheet, each with its label.

In: a batch as NumPy arrays or tensors, or a pipeline, whose images are drawn before and
after its ops. Out: a PIL image.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import PIL.ImageDraw
import tensorflow as tf

from tfpipe import errors
from tfpipe.ops.basic import IMAGENET_MEAN, IMAGENET_STD
from tfpipe.ops.parse import Parse
from tfpipe.pipeline import Pipeline
from tfpipe.stages.map import Map

Pixels = npt.NDArray[Any]

_MARGIN = 4  # pixels
_CAPTION_HEIGHT = 14


def contact_sheet(
    batch: Mapping[str, Any],
    *,
    class_names: Sequence[str] | None = None,
    num_columns: int = 8,
    max_images: int = 32,
) -> PIL.Image.Image:
    """Draws the images of a batch in rows, each image above its label.

    Args:
        batch: `image` [batch, height, width, 3], uint8 in 0..255, or a float type as
            `ops.Normalize` makes it; `label` integer [batch].
        class_names: Name of each label; a label without a name is shown as a number.
        num_columns: Number of images in a row, >= 1.
        max_images: Number of images to draw at most, >= 1.

    Raises:
        ValueError: If `image` has another shape, or a number is below 1.
    """
    errors.require_int("", "num_columns", num_columns, least=1)
    errors.require_int("", "max_images", max_images, least=1)
    images = _as_uint8(np.asarray(batch["image"])[:max_images])
    labels = np.asarray(batch["label"])[:max_images]
    num_images, height, width, _ = images.shape
    num_columns = min(num_columns, num_images)
    cell_width, cell_height = width + _MARGIN, height + _MARGIN + _CAPTION_HEIGHT
    num_rows = -(-num_images // num_columns)
    sheet = PIL.Image.new(
        "RGB",
        (num_columns * cell_width + _MARGIN, num_rows * cell_height + _MARGIN),
        "white",
    )
    draw = PIL.ImageDraw.Draw(sheet)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        row, column = divmod(number, num_columns)
        x, y = column * cell_width + _MARGIN, row * cell_height + _MARGIN
        sheet.paste(PIL.Image.fromarray(image), (x, y))
        caption = _caption(int(label), class_names)
        while len(caption) > 1 and draw.textlength(caption) > width:
            caption = caption[:-1]
        draw.text((x, y + height + 1), caption, fill="black")
    return sheet


def before_and_after(
    pipeline: Pipeline,
    *,
    num_images: int = 16,
    epoch: int = 0,
    class_names: Sequence[str] | None = None,
    num_columns: int = 4,
) -> PIL.Image.Image:
    """Draws images as they are stored, each beside the result of the pipeline.

    The stored image is scaled to fit a square of the size of the result, on white.
    After `mix.MixUp` or `CutMix` the stored image is the one into which another one was
    mixed.

    Args:
        pipeline: Pipeline with a `Parse` in a `Map`. Its elements are batches as for
            `contact_sheet`, or such examples, in the order of the source.
        num_images: Number of pairs to draw, from the first one, >= 1.
        epoch: Number of the epoch, >= 0.
        class_names: Name of each label; a label without a name is shown as a number.
        num_columns: Number of pairs in a row, >= 1.

    Raises:
        ValueError: If no Map of the pipeline has a Parse, its images have a wrong
            shape, or a number is below 1.
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    errors.require_int("", "num_images", num_images, least=1)
    errors.require_int("", "num_columns", num_columns, least=1)
    dataset = pipeline.build(epoch=epoch)
    if dataset.element_spec["image"].shape.rank == 4:
        dataset = dataset.unbatch()
    examples = list(dataset.take(num_images).as_numpy_iterator())
    after = _as_uint8(np.stack([example["image"] for example in examples]))
    _, height, width, _ = after.shape
    stored = _parsing(pipeline).build(epoch=epoch).take(len(after))
    before = [
        _fit(tf.io.decode_jpeg(example["encoded"], channels=3).numpy(), height, width)
        for example in stored
    ]
    gap = np.full((len(after), height, _MARGIN, 3), 255, np.uint8)
    pairs = np.concatenate([np.stack(before), gap, after], axis=2)
    batch = {"image": pairs, "label": [_label(example) for example in examples]}
    return contact_sheet(
        batch, class_names=class_names, num_columns=num_columns, max_images=num_images
    )


def _parsing(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline up to its Parse, with it."""
    for number, stage in enumerate(pipeline.stages):
        if not isinstance(stage, Map):
            continue
        for position, op in enumerate(stage.ops):
            if isinstance(op, Parse):
                parse = Map(*stage.ops[: position + 1])
                stages: list[Any] = [*pipeline.stages[:number], parse]
                return dataclasses.replace(pipeline, stages=stages)
    raise ValueError(
        "The pipeline must have a Map with a Parse, to see images as they are stored, "
        f"got the stages {list(pipeline.stages)}."
    )


def _fit(image: Pixels, height: int, width: int) -> Pixels:
    """Returns the whole image, scaled, in the middle of a white one of this size."""
    scale = min(height / image.shape[0], width / image.shape[1])
    size = [max(1, round(length * scale)) for length in image.shape[1::-1]]
    small = PIL.Image.fromarray(image).resize((size[0], size[1]))
    sheet = PIL.Image.new("RGB", (width, height), "white")
    sheet.paste(small, ((width - size[0]) // 2, (height - size[1]) // 2))
    return np.asarray(sheet)


def _label(example: Mapping[str, Any]) -> int:
    """Returns the label as a number: of a vector (`ops.OneHot`) its largest entry."""
    return int(
        np.argmax(example["label"]) if example["label"].ndim else example["label"]
    )


def _as_uint8(images: Pixels) -> Pixels:
    if images.ndim != 4 or images.shape[-1] != 3 or len(images) == 0:
        raise ValueError(
            "batch['image'] must have the shape [batch, height, width, 3] and at least "
            f"one image, got {list(images.shape)}."
        )
    if images.dtype == np.uint8:
        return images
    pixels = images.astype(np.float32) * IMAGENET_STD + IMAGENET_MEAN
    rounded: Pixels = np.clip(np.round(pixels), 0, 255).astype(np.uint8)
    return rounded


def _caption(label: int, class_names: Sequence[str] | None) -> str:
    if class_names is None or not 0 <= label < len(class_names):
        return str(label)
    return f"{label} {class_names[label]}"
