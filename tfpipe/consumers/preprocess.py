"""Image files as a pipeline for evaluation delivers them, for prediction.

In: the source, the stages and the device ops of a pipeline, and image files. Out: the
images as arrays. Each file becomes an example as `ops.Parse` makes one, and the ops
after it run as they are.

The converters store a sound JPEG byte for byte and other formats as JPEG; the same is
done here, with the same quality, so that the pixels are equal. A change that the
converter made to all images of the data set (EXIF orientation, `--max_side`,
`--short_side`) is made here too; a JPEG that it changes is encoded again with the best
quality, 100.
"""

import io
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt
import PIL.Image
import tensorflow as tf

from tfpipe.consumers import records_of
from tfpipe.ops.basic import Example, Select
from tfpipe.pictures import formats, pixels
from tfpipe.reading.building import Wrapper
from tfpipe.stages import faults
from tfpipe.stages.basic import AssertCardinality, Batch, Prefetch, Take
from tfpipe.stages.map import Map, by_examples
from tfpipe.stages.shuffle import Shuffle

Image = str | os.PathLike[str] | bytes
_Image = (str, os.PathLike, bytes)
Images = Image | Sequence[Image]
Op = Callable[[Example], Example]

_JPEG_MAGIC = b"\xff\xd8"
# The qualities of the converters for images of other formats than JPEG, and for images
# that they scale down.
_QUALITY, _QUALITY_OF_SMALLER = 95, 90
# Stages that pass elements on unchanged.
_PASSING = (AssertCardinality, Prefetch, Shuffle, Take, Wrapper)


def preprocess(
    source: object, stages: Sequence[Any], device_ops: Sequence[Op], images: Images
) -> npt.NDArray[Any]:
    """Returns the images as the pipeline delivers them; see `Pipeline.preprocess`."""
    records = records_of.require_records(source, "preprocess")
    stages = by_examples(stages)
    number, position, _ = records_of.find_parse(stages)
    is_one = isinstance(images, _Image)
    listed = _listed(images)
    policy = records.index.made_by.get("options", {}).get("policy", {})
    elements = [_example(image, policy) for image in listed]
    ops = stages[number].ops[position + 1 :]
    rest = [Map(*ops), *stages[number + 1 :]] if ops else stages[number + 1 :]
    if any(isinstance(stage, Batch) for stage in stages[:number]):
        rest = [Batch(1), *rest]
    for stage in rest:
        elements = _passed(stage, elements, listed)
    if not any(isinstance(stage, Batch) for stage in rest):
        elements = _stacked(elements)
    batch = elements[0]
    for op in device_ops:
        batch = op(batch)
    if "image" not in batch:
        raise ValueError(
            f"The pipeline must deliver image for preprocess, got {', '.join(batch)}."
        )
    pixels: npt.NDArray[Any] = batch["image"].numpy()
    return pixels[0] if is_one else pixels


def _listed(images: Images) -> Sequence[Image]:
    """Returns the images as a list; raises if there is none, or one is of no kind."""
    listed: Sequence[Any] = images if isinstance(images, list | tuple) else [images]
    for image in listed:
        if not isinstance(image, _Image):
            raise TypeError(
                "preprocess must get a path or bytes, or a list of them, got "
                f"{image!r}."
            )
    if not listed:
        raise ValueError("preprocess must get at least one image, got an empty list.")
    return listed


def _passed(
    stage: Any, elements: list[Example], images: Sequence[Image]
) -> list[Example]:
    """Returns the elements after a stage."""
    if isinstance(stage, _PASSING):
        return elements
    if isinstance(stage, Batch):
        return _stacked(elements)
    if isinstance(stage, Map):
        shown = [_shown(image) for image in images]
        names = shown if len(elements) == len(images) else [", ".join(shown)]
        return [
            _apply(stage.ops, element, name)
            for element, name in zip(elements, names, strict=True)
        ]
    # A stage of the user, which may change the image.
    datasets = (stage(tf.data.Dataset.from_tensors(element)) for element in elements)
    return [next(iter(dataset)) for dataset in datasets]


def _apply(ops: Sequence[Op], element: Example, name: str) -> Example:
    for op in ops:
        if isinstance(op, Select):
            # A record may have features that a file lacks, such as its boxes.
            element = {key: element[key] for key in op.names if key in element}
            continue
        try:
            element = op(element)
        except KeyError as error:
            raise ValueError(_missing(op, error.args[0])) from error
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                f"preprocess must get images that can be decoded, got {name}: "
                f"{faults.message(error)}"
            ) from error
    return element


def _missing(op: Op, name: str) -> str:
    """Returns the message for an op that needs a feature which a file has not."""
    if name == "seed":
        return (
            f"preprocess must run on a pipeline without random ops, got one with {op!r}"
            ". Make a pipeline for evaluation, such as imagenet_eval, with the image "
            "size and the normalization of training."
        )
    return (
        f"preprocess must run on ops that need only an image, got {op!r}, "
        f"which needs {name!r}. Make a pipeline without it for prediction."
    )


def _stacked(elements: Sequence[Example]) -> list[Example]:
    return [{name: tf.stack([e[name] for e in elements]) for name in elements[0]}]


def _example(image: Image, policy: Mapping[str, Any]) -> Example:
    """Returns the example that `Parse` makes, without `seed`: random ops must fail."""
    data = image if isinstance(image, bytes) else pathlib.Path(image).read_bytes()
    try:
        encoded, height, width = _stored(data, policy)
    except (OSError, ValueError, SyntaxError) as error:
        raise ValueError(
            f"preprocess must get images that Pillow reads, got {_shown(image)}: "
            f"{error}"
        ) from error
    return {
        "encoded": tf.constant(encoded),
        "height": tf.constant(height, tf.int32),
        "width": tf.constant(width, tf.int32),
        "label": tf.constant(0, tf.int32),
        "record_id": tf.constant(0, tf.int64),
        "mask": tf.constant(1, tf.float32),
    }


def _shown(image: Image) -> str:
    return f"{len(image)} bytes" if isinstance(image, bytes) else os.fspath(image)


def _stored(data: bytes, policy: Mapping[str, Any]) -> tuple[bytes, int, int]:
    """Returns what a converter would store: a JPEG, its height and width.

    Args:
        data: Content of an image file.
        policy: Options of the converter, from the index; empty if it made no index.
    """
    kind = "JPEG" if data.startswith(_JPEG_MAGIC) else formats.sniff(data)
    if kind is None:
        raise ValueError(f"no format is known that begins with {data[:12]!r}")
    if (remedy := formats.remedy(kind)) is not None:
        raise ValueError(f"Pillow cannot read the format {kind} here: {remedy}")
    limits = pixels.limits(PIL.Image.MAX_IMAGE_PIXELS)
    turns = policy.get("exif_orientation") == "apply"
    with limits, PIL.Image.open(io.BytesIO(data), formats=[kind]) as image:
        size = _fit(image.size, policy)
        keeps = kind == "JPEG" and size == image.size
        if keeps and not (turns and pixels.read_orientation(image) != 1):
            return data, image.height, image.width
        stored, turned = pixels.load(image)
        picture = pixels.to_8_bits(stored)
    quality = policy.get("quality") or _QUALITY
    size = _fit(picture.size, policy)
    if size != picture.size:
        quality = policy.get("quality") or _QUALITY_OF_SMALLER
        picture = picture.resize(size, PIL.Image.Resampling.LANCZOS, reducing_gap=3)
    if turns:
        picture = pixels.upright(picture, turned)
    out = io.BytesIO()
    # Other tools' records may hold such an image as it is: nothing may be lost then.
    quality = 100 if kind == "JPEG" or not policy else quality
    picture.save(out, "JPEG", quality=quality, subsampling=0)
    return out.getvalue(), picture.height, picture.width


def _fit(size: tuple[int, int], policy: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the size within the limits of the converter, in its arithmetic."""
    sides = ((policy.get("max_side"), max(size)), (policy.get("short_side"), min(size)))
    over = [(limit / side, limit, side) for limit, side in sides if limit]
    ratio, limit, side = min(over, default=(1, 1, 1))
    if ratio >= 1:
        return size
    width, height = (max((2 * n * limit + side) // (2 * side), 1) for n in size)
    return width, height
