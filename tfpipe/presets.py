"""Presets: pipelines for ImageNet-style data sets, made from a recipe.

In: a data set folder, a recipe and the numbers of a run. Out: a `Pipeline`, to be used
as it is, or to take stages from it (`pipeline.stages`) for another pipeline.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import tensorflow as tf

from tfpipe import errors
from tfpipe.cache.stage import Cache
from tfpipe.native.selection import CropOp
from tfpipe.ops import boxes, mix
from tfpipe.ops.basic import OneHot, Select
from tfpipe.ops.boxes import ParseBoxes
from tfpipe.ops.crop import MAX_IMAGE_SIZE, Dtype, ImageSize, Quality
from tfpipe.ops.parse import Parse
from tfpipe.pipeline import Pipeline, Stage, Wrapper
from tfpipe.reading import paths
from tfpipe.reading.order import Remainder
from tfpipe.reading.paths import Paths, WholeBatches
from tfpipe.reading.source import TFRecordSource
from tfpipe.recipes import Recipe, pixels, resnet
from tfpipe.stages.basic import AssertCardinality, Batch, Prefetch
from tfpipe.stages.element_fallback import EachExample, takes_batches
from tfpipe.stages.faults import FaultLog
from tfpipe.stages.map import Map
from tfpipe.stages.traced import Op
from tfpipe.tuning import Tuning

Path = str | os.PathLike[str]
MakeRecipe = Callable[[ImageSize, Dtype, Quality], Recipe]


def imagenet_train(
    data: Path | TFRecordSource,
    *,
    split: str | None = None,
    recipe: MakeRecipe | None = resnet,
    image_size: ImageSize = 224,
    batch_size: int | None = None,
    seed: int | None = None,
    rank: int | None = None,
    num_ranks: int | None = None,
    parse: Parse | None = None,
    ops: Sequence[Op] = (),
    batch_ops: Sequence[Op] = (),
    with_boxes: bool | ParseBoxes = False,
    dtype: str = "uint8",
    quality: Quality | None = None,
    crop_op: CropOp = "auto",
    cache: Wrapper | None = None,
    with_record_id: bool = False,
    whole_batches: WholeBatches = "auto",
    tuning: Tuning | None = None,
) -> Pipeline:
    """Returns a pipeline of shuffled batches, cropped at random as a recipe says.

    Every rank makes the same number of steps. The records that do not fill a step on
    every rank are left out, different ones each epoch.

    Element: batch. It holds these features; others that ops add are left out.
        image: `dtype` [batch_size, height, width, 3] of `image_size`
        label: int32 [batch_size], 0..999, see `Parse`; rows of floats, float32
            [batch_size, num_classes], after `OneHot`, `MixUp` or `CutMix`, and of 0 and
            1 with several labels a record
        boxes: float32 [batch_size, 100, 4], and box_label: int32 [batch_size, 100], -1
            where there is no box, if `with_boxes`; see `ops.boxes`
        record_id: int64 [batch_size], if `with_record_id`
        mask: float32 [batch_size], if the source skips damaged records; 0 for an
            example that stands in for a damaged one, otherwise 1; the weight of its
            loss
        encoded: string [batch_size], and height, width: int32 [batch_size], in place of
            image, if `recipe` is None
        and the features of `Parse.extra`, if `parse` has any

    Args:
        data: Folder of a converted data set, or a `TFRecordSource` for other ways of
            reading: its shuffling, damaged records, other names of shards.
        split: Name of the split; "train" by default. This and the next arguments up to
            `num_ranks` are those of the source: give them there if `data` is one.
        recipe: `recipes.resnet`, `recipes.inception`, `recipes.vgg`, or a callable
            (image_size, dtype, quality) -> Recipe. None leaves the JPEG bytes.
        image_size: Height and width in pixels: one number, or (height, width).
        batch_size: Examples in a batch of this rank; 256 by default.
        seed: Run seed, the same on every rank, 0 to 2**64 - 1; 0 by default.
        rank: Number of this rank, 0 to num_ranks - 1; 0 by default.
        num_ranks: Number of ranks; 1 by default.
        parse: How records become examples; by default as the converters write them. Its
            label base is that of the index, unless it has one. The first record is
            looked at, and must have its keys.
        ops: Ops on each example between its crop and its normalization, on uint8 pixels
            0..255, such as `RandAugment()` or `OneHot(1000, smoothing=0.1)`. With other
            ops than `OneHot`, float results come from rounded pixels as well.
        batch_ops: Ops on each batch, such as `MixUp()` or `CutMix()`. Before these two
            comes `OneHot` for the classes of the index, unless one is in `ops` or
            `batch_ops`. They take no batch with a `mask`.
        with_boxes: Whether batches hold the boxes of objects, moved as the images are;
            `ParseBoxes(max_boxes=...)` in place of True for another number of boxes.
        dtype: "uint8" gives pixels 0..255, which `pipeline.on_device` normalizes on the
            device; this is the cheapest. "float32", "bfloat16" or "float16" gives
            normalized pixels.
        quality: "fast" decodes at a smaller scale where that is enough, "exact" always
            at full scale. None is "fast" for images so large that it pays.
        crop_op: "native" is one C++ kernel, which is compiled for the first pipeline of
            a host; "stock" is TensorFlow's kernels, with the same pixels; "auto" is
            "native" if it can be compiled, see `native.selection.resolve`.
        cache: A `Cache` of the records, for slow storage.
        with_record_id: Whether batches hold the numbers of their records.
        whole_batches: Whether ops run on a whole batch: the same batches, cheaper, for
            batch_size x height x width x 3 x itemsize bytes a thread. "auto" is where
            it pays, in a quarter of the memory; `print(pipeline)` says why not.
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
        ops=ops,
        batch_ops=batch_ops,
        with_boxes=with_boxes,
        dtype=dtype,
        quality=quality,
        crop_op=crop_op,
        cache=cache,
        with_record_id=with_record_id,
        whole_batches=whole_batches,
        tuning=tuning,
    )


def imagenet_eval(
    data: Path | TFRecordSource,
    *,
    split: str | None = None,
    recipe: MakeRecipe | None = resnet,
    image_size: ImageSize = 224,
    batch_size: int | None = None,
    seed: int | None = None,
    rank: int | None = None,
    num_ranks: int | None = None,
    parse: Parse | None = None,
    ops: Sequence[Op] = (),
    batch_ops: Sequence[Op] = (),
    with_boxes: bool | ParseBoxes = False,
    dtype: str = "uint8",
    quality: Quality | None = None,
    crop_op: CropOp = "auto",
    cache: Wrapper | None = None,
    with_record_id: bool = False,
    whole_batches: WholeBatches = "auto",
    tuning: Tuning | None = None,
) -> Pipeline:
    """Returns a pipeline of the images' centers, every record exactly once.

    Every rank makes the same number of steps. The last batches are padded: batches also
    hold `mask`: float32 [batch_size], 1 for a real record, 0 for padding. Metrics that
    are not weighted by the mask count the padding too: a validation split of 31 records
    in a batch of 256 would be counted as 256 records. `pipeline.for_keras()` leaves the
    padding out; a loop of your own must multiply by the mask and divide by the sum of
    the mask.

    The arguments are those of `imagenet_train`, also `ops` and `batch_ops`; the split
    is "validation" by default. A source must have `remainder="pad"`.

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
        ops=ops,
        batch_ops=batch_ops,
        with_boxes=with_boxes,
        dtype=dtype,
        quality=quality,
        crop_op=crop_op,
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
    if data.sampling is not None and remainder == "pad":
        raise ValueError(
            "The TFRecordSource must have sampling=None for evaluation, which uses "
            f"every record once, got {data.sampling!r}."
        )
    return data


def _pipeline(
    source: TFRecordSource,
    purpose: Literal["train", "evaluate"],
    *,
    recipe: MakeRecipe | None,
    image_size: ImageSize,
    parse: Parse | None,
    ops: Sequence[Op],
    batch_ops: Sequence[Op],
    with_boxes: bool | ParseBoxes,
    dtype: str,
    quality: Quality | None,
    crop_op: CropOp,
    cache: Wrapper | None,
    with_record_id: bool,
    whole_batches: WholeBatches,
    tuning: Tuning | None,
) -> Pipeline:
    """Returns the pipeline of a preset; see `imagenet_train`."""
    _require(recipe, parse, ops, batch_ops, with_boxes, with_record_id, whole_batches)
    sides = errors.require_sides("", "image_size", image_size, most=MAX_IMAGE_SIZE)
    made = recipe and recipe(
        image_size, pixels(dtype, ops), quality or _quality(source, sides)
    )
    parse = (parse or Parse()).for_source(source)
    names = ["image"] if made else ["encoded", "height", "width"]
    names += ["label", *parse.extra_names, *(boxes.FEATURES if with_boxes else ())]
    names += ["record_id"] if with_record_id else []
    names += ["mask"] if purpose == "evaluate" or source.on_error == "skip" else []
    image = [*ops]
    if made:
        image = made.image_ops(
            purpose,
            more=ops,
            dtype=dtype,
            crop_op=crop_op,
            jpeg_only=parse.as_converted,
        )
    return _compose(
        source,
        parse=[*_parse_boxes(with_boxes, parse), parse],
        image=image,
        select=Select(*names, *(["seed"] if batch_ops else [])),
        batch_ops=mix.on_batches(
            batch_ops,
            has_rows=parse.multi_label or any(isinstance(op, OneHot) for op in ops),
            names=names,
            num_classes=_num_classes(source, parse),
        ),
        device_ops=(made.normalize,) if made and dtype == "uint8" else (),
        cache=cache,
        whole_batches=whole_batches,
        batch_bytes=_image_bytes(sides, dtype) * source.batch_size if made else 0,
        tuning=tuning,
    )


def _compose(
    source: TFRecordSource,
    *,
    parse: Sequence[Op],
    image: Sequence[Op],
    select: Op,
    batch_ops: Sequence[Op],
    device_ops: Sequence[Op],
    cache: Wrapper | None,
    whole_batches: WholeBatches,
    batch_bytes: int,
    tuning: Tuning | None,
) -> Pipeline:
    """Returns the pipeline of the stages that all presets share.

    Args:
        source: Where the records come from.
        parse: Ops from a record to an example with its encoded image.
        image: Ops after `parse`, up to the pixels. Without a recipe: ops on the encoded
            image, or none.
        select: The last op on examples.
        batch_ops: Ops on each batch.
        device_ops: Ops that the training step applies.
        cache: A cache of the records.
        whole_batches: Whether ops run on whole batches; "auto" if that pays.
        batch_bytes: Bytes of the images of a batch.
        tuning: Threads and memory.
    """
    tuning = tuning or Tuning()
    errors.require_kind("", "tuning", tuning, Tuning)
    crop = paths.crop_kernel(image)
    points, entry_points = paths.entry_points(source, crop)
    ops: list[Op] = [*parse, *points, *image, select]
    whole = paths.whole_batches(whole_batches, ops, crop, batch_bytes, tuning)
    is_whole = whole.value == "yes"
    reading = paths.reading(source, ops, has_cache=cache is not None, is_whole=is_whole)
    chosen = Paths(
        whole_batches=whole, crop=crop, entry_points=entry_points, reading=reading
    )
    budget = 0 if source.on_error == "raise" else source.max_faults
    faults = FaultLog(budget, locate=source.locate)
    batch = Batch(source.batch_size)
    made: list[Stage] = (
        [batch, Map(*_on_batches(ops), faults=faults)]
        if is_whole
        else [Map(*ops, faults=faults), batch]
    )
    return Pipeline(
        source,
        stages=[
            paths.reading_stage(reading.reason, faults),
            *([cache] if cache else []),
            AssertCardinality(),
            *made,
            *([Map(*batch_ops)] if batch_ops else []),
            Prefetch(),
        ],
        tuning=tuning,
        device_ops=device_ops,
        _paths=functools.partial(_paths_taken, chosen),
    )


def _on_batches(ops: Sequence[Op]) -> list[Op]:
    """Returns ops that do to a batch what `ops` do to each of its examples.

    From the first op that takes no batches on, all ops run on each example: what such
    an op leaves need not have one shape before the last op, `Select`.
    """
    leading = list(itertools.takewhile(takes_batches, ops))
    rest = ops[len(leading) :]
    return [*leading, *([EachExample(*rest)] if rest else [])]


def _paths_taken(
    chosen: paths.Paths, stages: Sequence[Any]
) -> Mapping[str, paths.Choice]:
    """Returns the paths of some stages, by name."""
    kinds = [type(stage) for stage in stages if isinstance(stage, Map | Cache)]
    keeps_examples = Cache in kinds and Map in kinds[: kinds.index(Cache)]
    return chosen.taken_by(stages, keeps_examples=keeps_examples)


def _require(
    recipe: MakeRecipe | None,
    parse: Parse | None,
    ops: Sequence[Op],
    batch_ops: Sequence[Op],
    with_boxes: bool | ParseBoxes,
    with_record_id: bool,
    whole_batches: WholeBatches,
) -> None:
    """Checks the arguments that would otherwise fail late, or with another message."""
    errors.require_callable("", "recipe", recipe, or_none=True)
    errors.require_kind("", "parse", parse, Parse, or_none=True)
    for name, given in {"ops": ops, "batch_ops": batch_ops}.items():
        if not isinstance(given, list | tuple):
            raise TypeError(f"{name} must be a list of ops, got {given!r}.")
        for number, op in enumerate(given, start=1):
            errors.require_callable("", f"{name}, number {number},", op)
    if not isinstance(with_boxes, ParseBoxes):
        errors.require_bool("", "with_boxes", with_boxes)
    errors.require_bool("", "with_record_id", with_record_id)
    paths.require_whole_batches(whole_batches)


def _image_bytes(sides: tuple[int, int], dtype: str) -> int:
    """Returns the bytes of the pixels of an image in a batch."""
    return 3 * sides[0] * sides[1] * int(tf.as_dtype(dtype).size)


def _parse_boxes(with_boxes: bool | ParseBoxes, parse: Parse) -> list[Op]:
    """Returns the op that reads boxes, with the keys of `parse`, or no op."""
    if not with_boxes:
        return []
    op = with_boxes if isinstance(with_boxes, ParseBoxes) else ParseBoxes()
    if op.label_base is None:
        base = (parse.label_base or 0) - parse.label_offset
        op = dataclasses.replace(op, label_base=base)
    return [dataclasses.replace(op, image_key=parse.image_key)]


def _num_classes(source: TFRecordSource, parse: Parse) -> int:
    """Returns one more than the largest label that `parse` delivers, 0 if not known."""
    known = source.index
    if not known.num_classes:  # nor does a scan know the label base
        return 0
    return known.num_classes + parse.first_label(known)


def _quality(source: TFRecordSource, sides: tuple[int, int]) -> Quality:
    """Returns "fast" if the images' median short side is three times the longer side.

    Most crop boxes are then decoded at half their size or less. Few of those of smaller
    images are: finding out which costs 5 % and gains nothing, as
    `studies.decode` shows.
    """
    try:
        short_side = source.split_index.median_short_side(source.record_numbers)
    except errors.BadIndexError:  # other tools write no sizes but those in the records
        return "exact"
    return "fast" if short_side >= 3 * max(sides) else "exact"
