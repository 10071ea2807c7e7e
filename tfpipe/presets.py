"""Presets: the training recipes, each one literal list of stages.

In: a data set folder and the numbers of a run. Out: a `Pipeline`, which can be used as
it is, or taken apart (`pipeline.stages`) and put together in another way.
"""

import os

from tfpipe.ops import Cast, CenterCrop, Flip, Normalize, Parse, RandomCrop, Select
from tfpipe.pipeline import Pipeline
from tfpipe.source import TFRecordSource
from tfpipe.stages import (
    AssertCardinality,
    Batch,
    Interleave,
    Map,
    Pad,
    Prefetch,
    Shuffle,
)
from tfpipe.tuning import Tuning

# 110 MB of encoded ImageNet images; blocks were permuted over the whole split before.
_SHUFFLE_BUFFER_SIZE = 1024


def imagenet_train(
    data_dir: str | os.PathLike[str],
    *,
    split: str = "train",
    image_size: int = 224,
    batch_size: int = 256,
    seed: int = 0,
    rank: int = 0,
    num_ranks: int = 1,
    label_offset: int = 0,
    dtype: str = "uint8",
    with_record_id: bool = False,
    tuning: Tuning | None = None,
) -> Pipeline:
    """Shuffled batches of random crops, flipped half of the time: ResNet's recipe.

    Every rank makes the same number of steps; the records that do not fill a step on
    every rank are left out, other ones each epoch. Source: the augmentation of Szegedy
    et al. 2014 as in the ResNet-50 references for TensorFlow.

    Element: batch.
        image: `dtype` [batch_size, image_size, image_size, 3]
        label: int32 [batch_size], 0..999 with label_offset 0
        record_id: int64 [batch_size], if `with_record_id`

    Args:
        data_dir: Folder of a converted data set.
        split: Which split.
        image_size: Height and width in pixels.
        batch_size: Examples in a batch of this rank.
        seed: Run seed, the same on every rank.
        rank: This process.
        num_ranks: All processes.
        label_offset: Label of the first class.
        dtype: "uint8" gives pixels 0..255, to be normalized on the device, which is
            cheapest; "float32", "bfloat16" or "float16" gives normalized ones.
        with_record_id: Whether batches say which records they hold.
        tuning: Threads and memory; the default leaves most to tf.data.

    Raises:
        BadIndexError: If the data set is not complete.
        ValueError: If an argument is wrong, the batch is larger than a rank's records,
            or there are fewer records than ranks.
    """
    source = TFRecordSource(data_dir, split, seed=seed, rank=rank, num_ranks=num_ranks)
    source.steps_per_epoch(batch_size)  # raises if there is not even one
    return Pipeline(
        source,
        stages=[
            Interleave(),
            AssertCardinality(source.num_records),
            Shuffle(_SHUFFLE_BUFFER_SIZE, seed=seed),
            Map(
                Parse(label_base=source.index.label_base, label_offset=label_offset),
                RandomCrop(image_size=image_size),
                Flip(),
                *_finish(dtype, with_record_id),
            ),
            Batch(batch_size),
            Prefetch(),
        ],
        tuning=tuning or Tuning(),
    )


def imagenet_eval(
    data_dir: str | os.PathLike[str],
    *,
    split: str = "validation",
    image_size: int = 224,
    batch_size: int = 256,
    seed: int = 0,
    rank: int = 0,
    num_ranks: int = 1,
    label_offset: int = 0,
    dtype: str = "uint8",
    with_record_id: bool = False,
    tuning: Tuning | None = None,
) -> Pipeline:
    """Batches of central crops, every record exactly once, padded with a mask.

    Every rank makes the same number of steps. Takes the arguments of `imagenet_train`;
    batches also hold `mask`: float32 [batch_size], 1 for a real record, 0 for padding.

    Raises:
        BadIndexError: If the data set is not complete.
        ValueError: If an argument is wrong, or there are fewer records than ranks.
    """
    source = TFRecordSource(
        data_dir,
        split,
        seed=seed,
        rank=rank,
        num_ranks=num_ranks,
        shuffle=False,
        remainder="keep",
    )
    num_padded = source.steps_per_epoch(batch_size) * batch_size
    return Pipeline(
        source,
        stages=[
            Interleave(),
            AssertCardinality(source.num_records),
            Map(
                Parse(label_base=source.index.label_base, label_offset=label_offset),
                CenterCrop(image_size=image_size),
                *_finish(dtype, with_record_id),
            ),
            Pad(num_elements=num_padded, num_real=source.num_records),
            Batch(batch_size),
            Prefetch(),
        ],
        tuning=tuning or Tuning(),
    )


def _finish(dtype: str, with_record_id: bool) -> list[Normalize | Cast | Select]:
    """The last ops of every recipe: the type of the pixels and what a batch holds."""
    names = ["image", "label", *(["record_id"] if with_record_id else [])]
    if dtype == "uint8":
        return [Select(*names)]
    return [Normalize(), Cast(dtype), Select(*names)]
