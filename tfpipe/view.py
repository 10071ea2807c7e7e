"""A batch as a picture: its images on a contact sheet, each with its label.

In: a batch as NumPy arrays or tensors, or a pipeline, whose images are drawn before and
after its ops. Out: a PIL image. A pipeline also says the names of its classes and how
its pixels are normalized.
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
from tfpipe.consumers import captions, records_of
from tfpipe.ops.basic import Normalize
from tfpipe.pipeline import Pipeline
from tfpipe.reading import building
from tfpipe.stages.map import Map, ops_within

Pixels = npt.NDArray[Any]

_MARGIN = 4  # pixels

# The smallest share of a label that a caption names, if labels are mixed.
_LEAST_SHARE = 0.05


def contact_sheet(
    batch: Mapping[str, Any],
    *,
    pipeline: Pipeline | None = None,
    class_names: Sequence[str] | None = None,
    num_columns: int = 8,
    max_images: int = 32,
) -> PIL.Image.Image:
    """Draws the images of a batch in rows, each image above its label.

    A row of several labels, each 0 or 1, is shown as all labels that are 1. A row of
    shares, as after `mix.MixUp`, is shown as its two largest shares. Names may be in
    any script: letters that no font of this machine has are spelled in Latin letters.

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4, image_size=32)
        >>> batch = next(iter(pipeline.build()))
        >>> sheet = tfpipe.view.contact_sheet(batch, pipeline=pipeline, num_columns=2)
        >>> sheet.width
        76

    Args:
        batch: `image` [batch, height, width, 3], uint8 in 0..255, or a float type as
            `ops.Normalize` makes it; `label` integer [batch], or number [batch,
            num_classes].
        pipeline: Pipeline that made the batch. The sheet has its class names, if the
            pipeline knows them. Pixels of a float type are taken as normalized as by
            its `Normalize`, or as 0..255 without one. Without a pipeline, they are
            taken as normalized by `Normalize()`.
        class_names: Name of each label; a label without a name is shown as a number.
            By default the names of the pipeline.
        num_columns: Number of images in a row, >= 1.
        max_images: Number of images to draw at most, >= 1.

    Raises:
        TypeError: If `pipeline` is no `Pipeline`.
        ValueError: If `image` has another shape, or a number is below 1.
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline, or_none=True)
    errors.require_int("", "num_columns", num_columns, least=1)
    errors.require_int("", "max_images", max_images, least=1)
    names = _names(pipeline) if class_names is None else class_names
    images = np.asarray(batch["image"])[:max_images]
    images = _as_uint8(
        images, Normalize() if pipeline is None else _normalize(pipeline)
    )
    labels = np.asarray(batch["label"])[:max_images]
    num_images, height, width, _ = images.shape
    num_columns = min(num_columns, num_images)
    cell_width, cell_height = width + _MARGIN, height + _MARGIN + captions.LINE_HEIGHT
    num_rows = -(-num_images // num_columns)
    sheet = PIL.Image.new(
        "RGB",
        (num_columns * cell_width + _MARGIN, num_rows * cell_height + _MARGIN),
        "white",
    )
    canvas = PIL.ImageDraw.Draw(sheet)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        row, column = divmod(number, num_columns)
        x, y = column * cell_width + _MARGIN, row * cell_height + _MARGIN
        sheet.paste(PIL.Image.fromarray(image), (x, y))
        captions.draw(canvas, (x, y + height + 1), _caption(label, names), width)
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

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4, image_size=32)
        >>> sheet = tfpipe.view.before_and_after(pipeline, num_images=2, num_columns=1)
        >>> sheet.width
        76

    Args:
        pipeline: Pipeline with a `Parse` in a `Map`. Its elements are batches as for
            `contact_sheet`, or such examples, in the order of the source.
        num_images: Number of pairs to draw, from the first one, >= 1.
        epoch: Number of the epoch, >= 0.
        class_names: Name of each label; a label without a name is shown as a number.
            By default the names of the pipeline, if it knows them.
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
    images = np.stack([example["image"] for example in examples])
    after = _as_uint8(images, _normalize(pipeline))
    _, height, width, _ = after.shape
    stored = _parsing(pipeline).build(epoch=epoch)
    if stored.element_spec["encoded"].shape.rank:
        stored = stored.unbatch()
    before = [
        _fit(tf.io.decode_jpeg(example["encoded"], channels=3).numpy(), height, width)
        for example in stored.take(len(after))
    ]
    gap = np.full((len(after), height, _MARGIN, 3), 255, np.uint8)
    pairs = np.concatenate([np.stack(before), gap, after], axis=2)
    return contact_sheet(
        {"image": pairs, "label": [example["label"] for example in examples]},
        pipeline=pipeline,
        class_names=class_names,
        num_columns=num_columns,
        max_images=num_images,
    )


def _parsing(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline up to its Parse, with it."""
    number, position, _ = records_of.find_parse(pipeline.stages)
    mapped: Any = pipeline.stages[number]
    before = building.interleaved(pipeline.stages[:number])
    stages: list[Any] = [*before, Map(*mapped.ops[: position + 1])]
    return dataclasses.replace(pipeline, stages=stages)


def _names(pipeline: Pipeline | None) -> Sequence[str]:
    """Returns the names of the classes; none if the pipeline does not know them."""
    try:
        return [] if pipeline is None else pipeline.class_names
    except (ValueError, errors.BadIndexError):
        return []


def _normalize(pipeline: Pipeline) -> Normalize | None:
    """Returns the last normalization in the pipeline; None if there is none."""
    maps = (stage.ops for stage in pipeline.stages if isinstance(stage, Map))
    ops = [op for mapped in maps for op in ops_within(mapped)]
    for op in reversed([*ops, *pipeline.device_ops]):
        normalize = op if isinstance(op, Normalize) else getattr(op, "normalize", None)
        if normalize is not None:
            return normalize
    return None


def _fit(image: Pixels, height: int, width: int) -> Pixels:
    """Returns the whole image, scaled, in the middle of a white one of this size."""
    scale = min(height / image.shape[0], width / image.shape[1])
    size = [max(1, round(length * scale)) for length in image.shape[1::-1]]
    small = PIL.Image.fromarray(image).resize((size[0], size[1]))
    sheet = PIL.Image.new("RGB", (width, height), "white")
    sheet.paste(small, ((width - size[0]) // 2, (height - size[1]) // 2))
    return np.asarray(sheet)


def _as_uint8(images: Pixels, normalize: Normalize | None) -> Pixels:
    """Returns the pixels as 0..255, red first, with the normalization undone."""
    if images.ndim != 4 or images.shape[-1] != 3 or len(images) == 0:
        raise ValueError(
            "batch['image'] must have the shape [batch, height, width, 3] and at least "
            f"one image, got {list(images.shape)}."
        )
    if images.dtype == np.uint8:
        return images
    pixels = images.astype(np.float32)
    if normalize is not None:
        pixels = pixels[..., ::-1] if normalize.bgr else pixels
        pixels = pixels * normalize.std + normalize.mean
    rounded: Pixels = np.clip(np.round(pixels), 0, 255).astype(np.uint8)
    return rounded


def _caption(label: Any, class_names: Sequence[str]) -> str:
    """Returns the label as text: a number, or a row of numbers, one a class."""
    if np.ndim(label) == 0:
        return _name(int(label), class_names)
    row = np.asarray(label, np.float64)
    if np.isin(row, (0, 1)).all():
        held = np.flatnonzero(row).tolist()
        return ", ".join(_name(n, class_names) for n in held) or "no label"
    largest = [int(n) for n in np.argsort(-row)[:2] if row[n] >= _LEAST_SHARE]
    return ", ".join(f"{row[n]:.0%} {_name(n, class_names)}" for n in largest)


def _name(label: int, class_names: Sequence[str]) -> str:
    if not 0 <= label < len(class_names):
        return str(label)
    return f"{label} {class_names[label]}"
