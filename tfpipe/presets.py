"""Presets: pipelines for ImageNet-style data sets, made from a recipe.

In: a data set folder, a recipe and the numbers of a run. Out: a `Pipeline`, to be used
as it is, or to take stages from it (`pipeline.stages`) for another pipeline.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

from tfpipe import errors
from tfpipe.native.op import CropOp
from tfpipe.ops.basic import Cast, Normalize, Select
from tfpipe.ops.crop import CROPS, MAX_IMAGE_SIZE, Dtype, Quality
from tfpipe.ops.parse import Parse
from tfpipe.pipeline import Pipeline, Stage, Wrapper
from tfpipe.reading.order import Remainder
from tfpipe.reading.source import TFRecordSource
from tfpipe.recipes import Recipe, resnet
from tfpipe.shards import index
from tfpipe.stages.basic import AssertCardinality, Batch, Prefetch
from tfpipe.stages.faults import FaultLog
from tfpipe.stages.interleave import Interleave
from tfpipe.stages.map import Map, Op
from tfpipe.tuning import Tuning

Path = str | os.PathLike[str]
MakeRecipe = Callable[[int, Dtype, Quality], Recipe]


def imagenet_train(
    data: Path | TFRecordSource,
    *,
    split: str | None = None,
    recipe: MakeRecipe = resnet,
    image_size: int = 224,
    batch_size: int | None = None,
    seed: int | None = None,
    rank: int | None = None,
    num_ranks: int | None = None,
    parse: Parse | None = None,
    dtype: str = "uint8",
    quality: Quality | None = None,
    crop_op: CropOp = "auto",
    decode: bool = True,
    cache: Wrapper | None = None,
    with_record_id: bool = False,
    whole_batches: bool = False,
    tuning: Tuning | None = None,
) -> Pipeline:
    """Returns a pipeline of shuffled batches, cropped at random as a recipe says.

    Every rank makes the same number of steps. The records that do not fill a step on
    every rank are left out, different ones each epoch.

    Element: batch.
        image: `dtype` [batch_size, image_size, image_size, 3]
        label: int32 [batch_size], 0..999, or float32 [batch_size, num_classes] of 0 and
            1 with several labels a record, see `Parse`
        record_id: int64 [batch_size], if `with_record_id`
        mask: float32 [batch_size], if the source skips damaged records; 0 for an
            example that stands in for a damaged one, otherwise 1; the weight of its
            loss
        encoded: string [batch_size], and height, width: int32 [batch_size], in place of
            image, if `decode` is False
        and the features of `Parse.extra`, if `parse` has any

    Args:
        data: Folder of a converted data set, or a `TFRecordSource` for other ways of
            reading: its shuffling, what it does about damaged records, other names of
            shards.
        split: Name of the split; "train" by default. This and the next arguments up to
            `num_ranks` are those of the source: give them there if `data` is one.
        recipe: `recipes.resnet`, `recipes.inception`, `recipes.vgg`, or a callable
            (image_size, dtype, quality) -> Recipe.
        image_size: Height and width in pixels.
        batch_size: Examples in a batch of this rank; 256 by default.
        seed: Run seed, the same on every rank, 0 to 2**64 - 1; 0 by default.
        rank: Number of this rank, 0 to num_ranks - 1; 0 by default.
        num_ranks: Number of ranks; 1 by default.
        parse: How records become examples; by default as the converters write them. Its
            label base is that of the index, unless it has one. The first record is
            looked at, and must have its keys.
        dtype: "uint8" gives pixels 0..255, which `pipeline.on_device` normalizes on the
            device; this is the cheapest. "float32", "bfloat16" or "float16" gives
            normalized pixels.
        quality: "fast" decodes at a smaller scale where that is enough, "exact" always
            at full scale. None is "fast" if the images are large enough for it to pay,
            see `_quality`.
        crop_op: "native" decodes, crops, resizes and normalizes in one C++ kernel,
            which `python -m tfpipe.native` builds; "stock" uses TensorFlow's kernels
            and gives the same pixels; "auto" is "native" if it is built.
        decode: Whether to decode; otherwise batches hold the JPEG bytes.
        cache: A `Cache` of the records, for slow storage.
        with_record_id: Whether batches hold the numbers of their records.
        whole_batches: Whether the ops run on a whole batch at once. With the native op
            that is cheaper. The batches are the same. Each call takes the memory of a
            batch.
        tuning: Threads and memory; the default leaves most to tf.data.

    Raises:
        BadIndexError: If the data set is not complete.
        ValueError: If an argument is wrong, or an epoch has no step.
    """
    source = _source(data, "train", split, batch_size, seed, rank, num_ranks)
    return _pipeline(
        source,
        "train",
        recipe=recipe,
        image_size=image_size,
        parse=parse,
        dtype=dtype,
        quality=quality,
        crop_op=crop_op,
        decode=decode,
        cache=cache,
        with_record_id=with_record_id,
        whole_batches=whole_batches,
        tuning=tuning,
    )


def imagenet_eval(
    data: Path | TFRecordSource,
    *,
    split: str | None = None,
    recipe: MakeRecipe = resnet,
    image_size: int = 224,
    batch_size: int | None = None,
    seed: int | None = None,
    rank: int | None = None,
    num_ranks: int | None = None,
    parse: Parse | None = None,
    dtype: str = "uint8",
    quality: Quality | None = None,
    crop_op: CropOp = "auto",
    decode: bool = True,
    cache: Wrapper | None = None,
    with_record_id: bool = False,
    whole_batches: bool = False,
    tuning: Tuning | None = None,
) -> Pipeline:
    """Returns a pipeline of the images' centers, every record exactly once.

    Every rank makes the same number of steps. The last batches are padded: batches also
    hold `mask`: float32 [batch_size], 1 for a real record, 0 for padding. The arguments
    are those of `imagenet_train`; the split is "validation" by default. A source must
    have `remainder="pad"`.

    Raises:
        BadIndexError: If the data set is not complete.
        ValueError: If an argument is wrong.
    """
    source = _source(data, "validation", split, batch_size, seed, rank, num_ranks)
    return _pipeline(
        source,
        "evaluate",
        recipe=recipe,
        image_size=image_size,
        parse=parse,
        dtype=dtype,
        quality=quality,
        crop_op=crop_op,
        decode=decode,
        cache=cache,
        with_record_id=with_record_id,
        whole_batches=whole_batches,
        tuning=tuning,
    )


def _source(
    data: Path | TFRecordSource,
    default_split: str,
    split: str | None,
    batch_size: int | None,
    *numbers: int | None,
) -> TFRecordSource:
    """Returns the source that is given, or the one of a folder."""
    names = ("split", "batch_size", "seed", "rank", "num_ranks")
    values = (split, batch_size, *numbers)
    given = {n: v for n, v in zip(names, values, strict=True) if v is not None}
    remainder: Remainder = "drop" if default_split == "train" else "pad"
    if not isinstance(data, TFRecordSource):
        fields: dict[str, Any] = {"split": default_split, "batch_size": 256} | given
        if remainder == "pad":
            fields["shuffle"] = "none"
        return TFRecordSource(data, remainder=remainder, **fields)
    if given:
        raise ValueError(
            f"{', '.join(given)} must be given to the TFRecordSource, got them beside "
            "it. A preset takes them for a folder only."
        )
    if data.remainder != remainder:
        raise ValueError(
            f"The TFRecordSource must have remainder={remainder!r}, got "
            f"{data.remainder!r}: training leaves out the records that do not fill a "
            "step, evaluation uses every record once."
        )
    return data


def _pipeline(
    source: TFRecordSource,
    purpose: Literal["train", "evaluate"],
    *,
    recipe: MakeRecipe,
    image_size: int,
    parse: Parse | None,
    dtype: str,
    quality: Quality | None,
    crop_op: CropOp,
    decode: bool,
    cache: Wrapper | None,
    with_record_id: bool,
    whole_batches: bool,
    tuning: Tuning | None,
) -> Pipeline:
    """Returns the pipeline of a preset; see `imagenet_train`."""
    _require(image_size, recipe, parse, decode, with_record_id, whole_batches)
    made = recipe(image_size, _pixels(dtype), quality or _quality(source, image_size))
    parse = (parse or Parse()).for_source(source)
    names = ["label", *parse.extra_names, *(["record_id"] if with_record_id else [])]
    names += ["mask"] if purpose == "evaluate" or source.on_error == "skip" else []
    image = _encoded(names)
    if decode:
        image = _image(made, getattr(made, purpose), dtype, names, crop_op)
    return _compose(
        source,
        ops=[parse, *image],
        device_ops=(made.normalize,) if decode and dtype == "uint8" else (),
        cache=cache,
        whole_batches=whole_batches,
        tuning=tuning,
    )


def _require(
    image_size: int, recipe: MakeRecipe, parse: Parse | None, *switches: bool
) -> None:
    """Checks the arguments that would otherwise fail late, or with another message."""
    errors.require_int("", "image_size", image_size, least=1, most=MAX_IMAGE_SIZE)
    errors.require_callable("", "recipe", recipe)
    errors.require_kind("", "parse", parse, Parse, or_none=True)
    names = ("decode", "with_record_id", "whole_batches")
    for name, value in zip(names, switches, strict=True):
        errors.require_bool("", name, value)


def _compose(
    source: TFRecordSource,
    *,
    ops: Sequence[Op],
    device_ops: Sequence[Op],
    cache: Wrapper | None,
    whole_batches: bool,
    tuning: Tuning | None,
) -> Pipeline:
    """Returns the pipeline of the stages that all presets share."""
    budget = 0 if source.on_error == "raise" else source.max_faults
    faults = FaultLog(budget, locate=source.locate)
    made: list[Stage] = [Map(*ops, faults=faults), Batch(source.batch_size)]
    if whole_batches:
        _require_batched(ops)
        made.reverse()
    return Pipeline(
        source,
        stages=[
            Interleave(faults=faults),
            *([cache] if cache else []),
            AssertCardinality(),
            *made,
            Prefetch(),
        ],
        tuning=tuning or Tuning(),
        device_ops=device_ops,
    )


# Ops that take batches as well as examples.
_BATCHED = (Parse, *CROPS, Normalize, Cast, Select)


def _require_batched(ops: Sequence[Op]) -> None:
    for op in ops:
        if not isinstance(op, _BATCHED):
            raise ValueError(
                "whole_batches needs ops that take batches, "
                f"{', '.join(sorted(kind.__name__ for kind in _BATCHED))}; the recipe "
                f"has {op!r}. Leave it False."
            )


def _quality(source: TFRecordSource, image_size: int) -> Quality:
    """Returns "fast" if the median short side is at least three times `image_size`.

    Most crop boxes are then decoded at half their size or less. Few of those of smaller
    images are: finding out which costs 5 % and gains nothing, as
    `benchmarks.studies.decode` shows.
    """
    try:
        short_side = index.median_short_side(source.data_dir, source.split)
    except errors.BadIndexError:  # other tools write no sizes but those in the records
        return "exact"
    return "fast" if short_side >= 3 * image_size else "exact"


def _pixels(dtype: str) -> Dtype:
    """Returns the dtype of the crop op: no rounding before pixels are normalized."""
    return "uint8" if dtype == "uint8" else "float32"


def _image(
    recipe: Recipe, ops: Sequence[Op], dtype: str, names: Sequence[str], crop_op: CropOp
) -> list[Op]:
    """Returns the ops after `Parse` that decode the image."""
    *ops, last = (
        dataclasses.replace(op, crop_op=crop_op) if isinstance(op, CROPS) else op
        for op in ops
    )
    select = Select("image", *names)
    if dtype == "uint8":
        return [*ops, last, select]
    if not isinstance(last, CROPS) or last.dtype == "uint8":
        return [*ops, last, recipe.normalize, Cast(dtype), select]
    # The crop op normalizes in the same pass as it resizes.
    fused = dataclasses.replace(last, normalize=recipe.normalize)
    if dtype == "bfloat16":
        return [*ops, dataclasses.replace(fused, dtype="bfloat16"), select]
    return [*ops, fused, *([] if dtype == "float32" else [Cast(dtype)]), select]


def _encoded(names: Sequence[str]) -> list[Op]:
    """Returns the ops after `Parse` that leave the image encoded."""
    return [Select("encoded", "height", "width", *names)]
