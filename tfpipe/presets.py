"""Presets: pipelines for ImageNet-style data sets, made of a recipe.

In: a data set folder, a recipe and the numbers of a run. Out: a `Pipeline`, which can
be used as it is, or taken apart (`pipeline.stages`) and put together in another way.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Literal

from tfpipe import errors
from tfpipe.native.op import CropOp
from tfpipe.ops.basic import Cast, Normalize, Parse, Select
from tfpipe.ops.crop import CROPS, MAX_IMAGE_SIZE, Dtype, Quality
from tfpipe.pipeline import Pipeline, Stage, Wrapper
from tfpipe.reading.order import Shuffle
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
OnError = Literal["raise", "skip"]


def imagenet_train(
    data_dir: Path,
    *,
    split: str = "train",
    recipe: MakeRecipe = resnet,
    image_size: int = 224,
    batch_size: int = 256,
    seed: int = 0,
    rank: int = 0,
    num_ranks: int = 1,
    label_offset: int = 0,
    dtype: str = "uint8",
    quality: Quality | None = None,
    crop_op: CropOp = "auto",
    decode: bool = True,
    shuffle: Shuffle = "window",
    window_size: int = 1024,
    cache: Wrapper | None = None,
    on_error: OnError = "raise",
    max_faults: int = 100,
    label_base: int | None = None,
    with_record_id: bool = False,
    whole_batches: bool = False,
    tuning: Tuning | None = None,
) -> Pipeline:
    """Shuffled batches of random windows of the images, as a recipe says.

    Every rank makes the same number of steps; the records that do not fill a step on
    every rank are left out, other ones each epoch.

    Element: batch.
        image: `dtype` [batch_size, image_size, image_size, 3]
        label: int32 [batch_size], 0..999 with label_offset 0
        record_id: int64 [batch_size], if `with_record_id`
        mask: float32 [batch_size], 0 for an example that stands in for a damaged one,
            if `on_error` is "skip"; weigh the losses by it
        encoded: string [batch_size], height, width: int32 [batch_size], instead of
            image, if not `decode`

    Args:
        data_dir: Folder of a converted data set.
        split: Which split.
        recipe: `recipes.resnet`, `recipes.inception`, `recipes.vgg`, or one of your
            own.
        image_size: Height and width in pixels.
        batch_size: Examples in a batch of this rank.
        seed: Run seed, the same on every rank.
        rank: This process.
        num_ranks: All processes.
        label_offset: Label of the first class.
        dtype: "uint8" gives pixels 0..255, to be normalized on the device by
            `pipeline.on_device`, which is cheapest; "float32", "bfloat16" or "float16"
            gives normalized ones.
        quality: "fast" decodes at a smaller scale where that is enough; "exact" never.
            None is "fast" where images are so large that it pays, see `_quality`.
        crop_op: "native" decodes, crops, resizes and normalizes in one C++ kernel,
            which `python -m tfpipe.native` builds; "stock" in TensorFlow's own, to the
            same pixels; "auto" in the native one if it is built.
        decode: Whether to decode; otherwise batches hold the JPEG bytes.
        shuffle: "window", "full" or "none"; see `order.Order`.
        window_size: Records that are permuted together; two windows are in memory.
        cache: A `Cache` of the records, if storage is slow.
        on_error: "raise" stops at a record that is damaged or cannot be decoded, and
            names it; "skip" lets another one stand in; `pipeline.faults` has them.
        max_faults: How many may be skipped before that is an error.
        label_base: Label on disk of the first class, where there is no index that
            says it.
        with_record_id: Whether batches say which records they hold.
        whole_batches: Whether the ops run on a batch at once, which is cheaper with
            the native op, to the same batches; a call then takes the memory of one.
        tuning: Threads and memory; the default leaves most to tf.data.

    Raises:
        BadIndexError: If the data set is not complete.
        ValueError: If an argument is wrong, or there is not one step in an epoch.
    """
    _require(image_size, recipe, max_faults, decode, with_record_id, whole_batches)
    source = TFRecordSource(
        data_dir,
        split,
        seed=seed,
        rank=rank,
        num_ranks=num_ranks,
        batch_size=batch_size,
        shuffle=shuffle,
        window_size=window_size,
    )
    made = recipe(image_size, _pixels(dtype), quality or _quality(source, image_size))
    names = ["label", *(["record_id"] if with_record_id else [])]
    names += ["mask"] if on_error == "skip" else []
    image = _encoded(names)
    if decode:
        image = _image(made, made.train, dtype, names, crop_op)
    return _compose(
        source,
        ops=[_parse(source, label_base, label_offset), *image],
        device_ops=(made.normalize,) if decode and dtype == "uint8" else (),
        cache=cache,
        faults=_faults(source, on_error, max_faults),
        whole_batches=whole_batches,
        tuning=tuning,
    )


def imagenet_eval(
    data_dir: Path,
    *,
    split: str = "validation",
    recipe: MakeRecipe = resnet,
    image_size: int = 224,
    batch_size: int = 256,
    seed: int = 0,
    rank: int = 0,
    num_ranks: int = 1,
    label_offset: int = 0,
    dtype: str = "uint8",
    quality: Quality | None = None,
    crop_op: CropOp = "auto",
    decode: bool = True,
    cache: Wrapper | None = None,
    on_error: OnError = "raise",
    max_faults: int = 100,
    label_base: int | None = None,
    with_record_id: bool = False,
    whole_batches: bool = False,
    tuning: Tuning | None = None,
) -> Pipeline:
    """Batches of the images' centers, every record exactly once, padded with a mask.

    Every rank makes the same number of steps. Takes the arguments of `imagenet_train`
    but for the shuffling; batches also hold `mask`: float32 [batch_size], 1 for a real
    record, 0 for padding.

    Raises:
        BadIndexError: If the data set is not complete.
        ValueError: If an argument is wrong.
    """
    _require(image_size, recipe, max_faults, decode, with_record_id, whole_batches)
    source = TFRecordSource(
        data_dir,
        split,
        seed=seed,
        rank=rank,
        num_ranks=num_ranks,
        batch_size=batch_size,
        shuffle="none",
        remainder="pad",
    )
    made = recipe(image_size, _pixels(dtype), quality or _quality(source, image_size))
    names = ["label", "mask", *(["record_id"] if with_record_id else [])]
    image = _encoded(names)
    if decode:
        image = _image(made, made.evaluate, dtype, names, crop_op)
    return _compose(
        source,
        ops=[_parse(source, label_base, label_offset), *image],
        device_ops=(made.normalize,) if decode and dtype == "uint8" else (),
        cache=cache,
        faults=_faults(source, on_error, max_faults),
        whole_batches=whole_batches,
        tuning=tuning,
    )


def _require(
    image_size: int, recipe: MakeRecipe, max_faults: int, *switches: bool
) -> None:
    """Checks what else would fail late, or in other words."""
    errors.require_int("", "image_size", image_size, least=1, most=MAX_IMAGE_SIZE)
    errors.require_callable("", "recipe", recipe)
    errors.require_int("", "max_faults", max_faults, least=0)
    names = ("decode", "with_record_id", "whole_batches")
    for name, value in zip(names, switches, strict=True):
        errors.require_bool("", name, value)


def _compose(
    source: TFRecordSource,
    *,
    ops: Sequence[Op],
    device_ops: Sequence[Op],
    cache: Wrapper | None,
    faults: FaultLog | None,
    whole_batches: bool,
    tuning: Tuning | None,
) -> Pipeline:
    """The stages of every preset."""
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


def _parse(source: TFRecordSource, label_base: int | None, label_offset: int) -> Parse:
    base = source.index.label_base if label_base is None else label_base
    return Parse(label_base=base, label_offset=label_offset)


def _faults(source: TFRecordSource, on_error: OnError, max_faults: int) -> FaultLog:
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be raise or skip, got {on_error!r}.")
    budget = 0 if on_error == "raise" else max_faults
    return FaultLog(budget, locate=source.locate)


def _quality(source: TFRecordSource, image_size: int) -> Quality:
    """ "fast" if the median short side is at least three times `image_size`.

    Then most windows are decoded at half their size or less. Of smaller images few are:
    to look whether costs 5 % then and gains nothing, as `benchmarks.studies.decode` shows.
    """
    try:
        short_side = index.median_short_side(source.data_dir, source.split)
    except errors.BadIndexError:  # of other tools; sizes are in the records alone
        return "exact"
    return "fast" if short_side >= 3 * image_size else "exact"


def _pixels(dtype: str) -> Dtype:
    """How the crops deliver pixels: rounded, unless they are normalized right after."""
    return "uint8" if dtype == "uint8" else "float32"


def _image(
    recipe: Recipe, ops: Sequence[Op], dtype: str, names: Sequence[str], crop_op: CropOp
) -> list[Op]:
    """What follows `Parse` if images are decoded."""
    *ops, last = (
        dataclasses.replace(op, crop_op=crop_op) if isinstance(op, CROPS) else op
        for op in ops
    )
    select = Select("image", *names)
    if dtype == "uint8":
        return [*ops, last, select]
    if not isinstance(last, CROPS) or last.dtype == "uint8":
        return [*ops, last, recipe.normalize, Cast(dtype), select]
    # In one pass with the resize.
    fused = dataclasses.replace(last, normalize=recipe.normalize)
    if dtype == "bfloat16":
        return [*ops, dataclasses.replace(fused, dtype="bfloat16"), select]
    return [*ops, fused, *([] if dtype == "float32" else [Cast(dtype)]), select]


def _encoded(names: Sequence[str]) -> list[Op]:
    """What follows `Parse` if they are not."""
    return [Select("encoded", "height", "width", *names)]
