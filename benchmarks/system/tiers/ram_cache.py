"""Caches of a pipeline in RAM: of records, or of decoded images.

In: the pipeline of a preset. Out: the pipeline that keeps decoded images, and a cache
that is full before the first step, so that no timed step reads or fills.
"""

import collections
import dataclasses
import math
from typing import Any

import tensorflow as tf

import tfpipe

_CROPS = (
    *(tfpipe.RandomCrop, tfpipe.RandomScaleCrop),
    *(tfpipe.CenterCrop, tfpipe.Resize),
)
_KEPT = 0.875  # the customary 224 of 256 pixels


@dataclasses.dataclass(frozen=True)
class RandomPart:
    """Cuts a random part out of `image`. Element: example -> example.

    Args:
        height: Height of the part in pixels.
        width: Its width in pixels.
    """

    height: int
    width: int

    def __call__(self, example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        size = (self.height, self.width, 3)
        part = tf.image.stateless_random_crop(example["image"], size, example["seed"])
        return example | {"image": part}


def with_images(pipeline: tfpipe.Pipeline) -> tfpipe.Pipeline:
    """Returns the pipeline of a preset with its decoded images in RAM.

    A center crop is kept as it is. A random crop differs in each epoch, so the whole
    image is kept instead: its central part, 1 / 0.875 times as large as the result. A
    random part of that, half of the time mirrored, takes the place of the crop.

    Args:
        pipeline: A preset's, with whole_batches=False: a cache keeps single examples.

    Raises:
        ValueError: If the pipeline has no map with a crop.
    """
    for number, stage in enumerate(pipeline.stages):
        if isinstance(stage, tfpipe.Map):
            kept, made = _parted(stage)
            stages = [*pipeline.stages]
            stages[number : number + 1] = [kept, tfpipe.Cache("ram"), made]
            return dataclasses.replace(pipeline, stages=stages)
    raise ValueError(f"--ram_cache=images needs a pipeline with a map, got {pipeline}.")


def _parted(stage: tfpipe.Map) -> tuple[tfpipe.Map, tfpipe.Map]:
    """Returns the map to decoded images, which are kept, and the map after it."""
    places = [n for n, op in enumerate(stage.ops) if isinstance(op, _CROPS)]
    if not places:
        raise ValueError(f"--ram_cache=images needs a map with a crop, got {stage}.")
    before, crop, after = (
        stage.ops[: places[0]],
        stage.ops[places[0]],
        stage.ops[places[0] + 1 :],
    )
    again: list[Any] = []
    if isinstance(crop, (tfpipe.RandomCrop, tfpipe.RandomScaleCrop)):
        height, width = crop.sides
        again = [RandomPart(height, width), *([tfpipe.Flip()] if crop.flip else [])]
        crop = tfpipe.CenterCrop(
            image_size=(math.ceil(height / _KEPT), math.ceil(width / _KEPT)),
            fraction=1.0,
            quality=crop.quality,
            dtype=crop.dtype,
            crop_op=crop.crop_op,
            jpeg_only=crop.jpeg_only,
        )
    return (
        tfpipe.Map(*before, crop, faults=stage.faults),
        tfpipe.Map(*again, *after, faults=stage.faults),
    )


def fill(pipeline: tfpipe.Pipeline) -> None:
    """Fills the caches of a pipeline with all records of its split."""
    last = max(n for n, s in enumerate(pipeline.stages) if isinstance(s, tfpipe.Cache))
    whole = dataclasses.replace(
        pipeline,
        source=pipeline.source.in_order(),
        stages=pipeline.stages[: last + 1],
        device_ops=(),
    )
    collections.deque(whole.build(num_epochs=1), maxlen=0)
