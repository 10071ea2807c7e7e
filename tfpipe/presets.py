"""Presets: pipelines for ImageNet-style data sets, made from a recipe.

In: a data set folder or a source, and `ImageOptions`. Out: a `Pipeline`, to be used as
a whole, or to take its stages (`pipeline.stages`) for another pipeline.
"""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec

import tensorflow as tf

from tfpipe import errors
from tfpipe.native.selection import CropOp
from tfpipe.ops import boxes, mix
from tfpipe.ops.basic import DTYPES, OneHot, Select
from tfpipe.ops.boxes import ParseBoxes
from tfpipe.ops.crop import MAX_IMAGE_SIZE, Dtype, ImageSize, Quality
from tfpipe.ops.parse import Parse
from tfpipe.pipeline import Pipeline, Wrapper
from tfpipe.reading import read_path
from tfpipe.reading.order import Remainder
from tfpipe.reading.read_path import WholeBatches
from tfpipe.reading.source import TFRecordSource
from tfpipe.recipes import Recipe, pixels, resnet
from tfpipe.shards import catalog, index
from tfpipe.stages.basic import Prefetch
from tfpipe.stages.map import Map
from tfpipe.stages.traced import Op
from tfpipe.tuning import Tuning

Path = str | os.PathLike[str]
MakeRecipe = Callable[[ImageSize, Dtype, Quality], Recipe]
Purpose = Literal["train", "evaluate"]

_P = ParamSpec("_P")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The images of a pipeline: their crop, size and type, their labels and ops.

    `imagenet_train` and `imagenet_eval` take the same options as keywords. One object
    gives the pipelines of several sources the same images:

    Example:
        >>> options = tfpipe.ImageOptions(image_size=32, dtype="float32")
        >>> source = tfpipe.TFRecordSource("DIR", "train", batch_size=4)
        >>> pipeline = options.pipeline(source, "train")
        >>> next(iter(pipeline.build()))["image"].dtype
        tf.float32

    Args:
        recipe: `recipes.resnet`, `recipes.inception`, `recipes.vgg`,
            `recipes.keras("mobilenet_v2")` for a model of Keras, or a callable
            (image_size, dtype, quality) -> Recipe. None leaves the JPEG bytes.
        image_size: Height and width in pixels: a number, or (height, width). None is
            the size of the model of `recipes.keras`; otherwise 224.
        parse: How records become examples; by default as the converters write them,
            with rows of labels if the data set has records with several. Its label base
            is the base of the index, unless set. The first record is looked at, and
            must have its keys.
        ops: Ops on an example between its crop and its normalization, on uint8 pixels
            0..255, such as `RandAugment()` or `OneHot(1000, smoothing=0.1)`. With other
            ops than `OneHot`, float results come from rounded pixels as well.
        batch_ops: Ops on a batch, such as `MixUp()` or `CutMix()`. Before these two
            comes `OneHot` for the classes of the index, unless `ops` or `batch_ops`
            have a `OneHot`. The two take no batch with a `mask`.
        with_boxes: Whether batches hold the boxes of objects, moved as the images are;
            `ParseBoxes(max_boxes=...)` in place of True for another number of boxes.
        dtype: "uint8" gives pixels 0..255, which `pipeline.on_device` normalizes on the
            device, the cheapest way. "float32", "bfloat16" or "float16" gives
            normalized pixels.
        quality: "fast" decodes at a smaller scale where a smaller scale is enough,
            "exact" always at full scale. None is "fast" for images so large that
            decoding gets cheaper.
        crop_op: "native" is a C++ kernel, compiled for the first pipeline of a host;
            "stock" is TensorFlow's kernels, with the same pixels; "auto" is "native" if
            the kernel can be compiled, see `native.selection.resolve`.
        cache: A `Cache` of the records, for slow storage.
        with_record_id: Whether batches hold the numbers of their records.
        whole_batches: Whether ops run on a whole batch: the same batches, cheaper, for
            batch_size x height x width x 3 x itemsize bytes a thread. "auto" says yes
            where whole batches pay, in a quarter of the memory; `print(pipeline)` says
            why not.

    Raises:
        TypeError, ValueError: If an option is wrong.
    """

    recipe: MakeRecipe | None = resnet
    image_size: ImageSize | None = None
    parse: Parse | None = None
    ops: Sequence[Op] = ()
    batch_ops: Sequence[Op] = ()
    with_boxes: bool | ParseBoxes = False
    dtype: str = "uint8"
    quality: Quality | None = None
    crop_op: CropOp = "auto"
    cache: Wrapper | None = None
    with_record_id: bool = False
    whole_batches: WholeBatches = "auto"

    def __post_init__(self) -> None:
        """Checks what would otherwise fail late, or with another message."""
        if isinstance(self.recipe, str):
            raise TypeError(
                "recipe must be a function such as tfpipe.recipes.resnet, or for a "
                f"model of Keras tfpipe.recipes.keras({self.recipe!r}), got "
                f"{self.recipe!r}."
            )
        errors.require_callable("", "recipe", self.recipe, or_none=True)
        errors.require_sides("", "image_size", self.size, most=MAX_IMAGE_SIZE)
        # tf.float32 is "float32" too.
        errors.settle(self, "dtype", getattr(self.dtype, "name", self.dtype))
        errors.require_choice("", "dtype", self.dtype, DTYPES)
        if self.quality is not None:
            errors.require_choice("", "quality", self.quality, ("fast", "exact"))
        errors.require_choice("", "crop_op", self.crop_op, ("auto", "native", "stock"))
        errors.require_kind("", "parse", self.parse, Parse, or_none=True)
        if self.cache is not None and not isinstance(self.cache, Wrapper):
            raise TypeError(
                "cache must be a tfpipe.Cache or None, got "
                f'{self.cache!r}. Write cache=tfpipe.Cache("ram").'
            )
        for name, ops in {"ops": self.ops, "batch_ops": self.batch_ops}.items():
            if not isinstance(ops, list | tuple):
                raise TypeError(f"{name} must be a list of ops, got {ops!r}.")
            for position, op in enumerate(ops, start=1):
                errors.require_op("", f"{name}, number {position},", op)
        if not isinstance(self.with_boxes, ParseBoxes):
            errors.require_bool("", "with_boxes", self.with_boxes)
        errors.require_bool("", "with_record_id", self.with_record_id)
        read_path.require_whole_batches(self.whole_batches)

    @property
    def size(self) -> ImageSize:
        """Image size in pixels, as the caller says, or else the recipe."""
        if self.image_size is not None:
            return self.image_size
        usual: int = getattr(self.recipe, "image_size", 224)
        return usual

    def pipeline(
        self, source: TFRecordSource, purpose: Purpose, *, tuning: Tuning | None = None
    ) -> Pipeline:
        """Returns the pipeline of a source, see `imagenet_train` and `imagenet_eval`.

        Args:
            source: Where the records come from, with `remainder="drop"` to train and
                "pad" to evaluate.
            purpose: "train" or "evaluate".
            tuning: Threads and memory; the default leaves most to tf.data.

        Raises:
            BadIndexError: If the data set is not complete.
            ValueError: If the source does not fit the purpose, or an epoch has no step.
        """
        _require_fits(source, purpose)
        sides = errors.require_sides("", "image_size", self.size)
        tuning = tuning or Tuning()
        recipe = self.recipe and self.recipe(
            self.size,
            pixels(self.dtype, self.ops),
            self.quality or _quality(source, sides),
        )
        parse = (self.parse or Parse.default(source)).for_source(source)
        names = self._names(parse)
        names += ["mask"] if purpose == "evaluate" or source.on_error == "skip" else []
        image = self._image_ops(recipe, purpose, parse)
        image.append(Select(*names, *(["seed"] if self.batch_ops else [])))
        image_bytes = 3 * sides[0] * sides[1] * tf.as_dtype(self.dtype).size
        path, ops = read_path.decide(
            source,
            [*_parse_boxes(self.with_boxes, parse), parse],
            image,
            whole_batches=self.whole_batches,
            batch_bytes=image_bytes * source.batch_size if recipe else 0,
            num_threads=tuning.num_threads,
            has_cache=self.cache is not None,
        )
        batch_ops = mix.on_batches(
            self.batch_ops,
            has_rows=parse.has_rows or any(isinstance(o, OneHot) for o in self.ops),
            names=names,
            num_classes=parse.num_classes or 0,
        )
        mapped = [Map(*batch_ops)] if batch_ops else []
        return Pipeline(
            source,
            stages=[*path.stages(source, ops, self.cache), *mapped, Prefetch()],
            tuning=tuning,
            device_ops=recipe.device_ops if recipe and self.dtype == "uint8" else (),
            _read_path=path,
        )

    def _image_ops(
        self, recipe: Recipe | None, purpose: Purpose, parse: Parse
    ) -> list[Op]:
        """Returns the ops from an encoded image to the pixels of a batch."""
        if recipe is None:
            return [*self.ops]
        return recipe.image_ops(
            purpose,
            more=self.ops,
            dtype=self.dtype,
            crop_op=self.crop_op,
            jpeg_only=parse.as_converted,
        )

    def _names(self, parse: Parse) -> list[str]:
        """Returns the names of the features of a batch, but `mask`."""
        names = ["encoded", "height", "width"] if self.recipe is None else ["image"]
        names += ["label", *parse.extra_names]
        names += boxes.FEATURES if self.with_boxes else ()
        return names + (["record_id"] if self.with_record_id else [])


@dataclasses.dataclass(frozen=True)
class _Arguments(ImageOptions):
    """The arguments of both presets: `ImageOptions`, and those that make a source."""

    data: Path | TFRecordSource
    _: dataclasses.KW_ONLY
    split: str | None = None
    batch_size: int | None = None
    validation_fraction: float | None = None
    seed: int | None = None
    rank: int | None = None
    num_ranks: int | None = None
    tuning: Tuning | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        share = self.validation_fraction
        bounds = {"above": 0, "below": 1}
        errors.require_number("", "validation_fraction", share, or_none=True, **bounds)
        errors.require_kind("", "split", self.split, str, or_none=True)
        errors.require_kind("", "tuning", self.tuning, Tuning, or_none=True)

    def source(self, purpose: Purpose) -> TFRecordSource:
        """Returns the source that is `data`, or the source of a folder."""
        names = ["split", "batch_size", "validation_fraction", "seed", "rank"]
        names.append("num_ranks")
        own = {n: getattr(self, n) for n in names if getattr(self, n) is not None}
        if isinstance(self.data, TFRecordSource):
            if own:
                arguments = ", ".join(f"{n}={value!r}" for n, value in own.items())
                raise ValueError(
                    "A preset with a TFRecordSource must get no argument about "
                    f"reading, got {arguments}. Change the source instead."
                )
            return self.data
        usual: dict[str, Any] = {"split": "train", "batch_size": 32}
        if purpose == "evaluate":
            usual |= {"split": "validation", "shuffle": "none"}
        if (share := own.pop("validation_fraction", None)) is not None:
            part = "train" if purpose == "train" else "validation"
            usual |= {"split": "train", "part": (part, share)}
        usual["remainder"] = _REMAINDERS[purpose]
        return TFRecordSource(self.data, **usual | own)


_REMAINDERS: dict[Purpose, Remainder] = {"train": "drop", "evaluate": "pad"}


def _preset(
    arguments: Callable[_P, _Arguments],
) -> Callable[[Callable[[_Arguments], Pipeline]], Callable[_P, Pipeline]]:
    """Returns the decorator for a function that takes the fields of `_Arguments`.

    Type checkers and `help` see the fields as the arguments of the function.
    """
    signature = inspect.signature(arguments).replace(return_annotation=Pipeline)

    def decorate(make: Callable[[_Arguments], Pipeline]) -> Callable[_P, Pipeline]:
        @functools.wraps(make)
        def preset(*args: _P.args, **options: _P.kwargs) -> Pipeline:
            for name in options.keys() - signature.parameters.keys():
                raise TypeError(
                    f"tfpipe.{make.__name__} has no argument {name!r}."
                    f"{errors.did_you_mean(name, signature.parameters)}"
                )
            try:
                signature.bind(*args, **options)
            except TypeError as error:
                raise TypeError(f"tfpipe.{make.__name__}: {error}.") from None
            return make(arguments(*args, **options))

        vars(preset).update(__signature__=signature)
        return preset

    return decorate


@_preset(_Arguments)
def imagenet_train(arguments: _Arguments) -> Pipeline:
    """Returns a pipeline of shuffled batches, cropped at random as a recipe says.

    Every rank makes the same number of steps. The records that do not fill a step on
    every rank are left out: other records in every epoch.

    Element: batch. A batch holds these features, and no others that ops add.
        image: `dtype` [batch_size, height, width, 3] of `image_size`
        label: int32 [batch_size], 0..999, see `Parse`; rows of floats, float32
            [batch_size, num_classes], after `OneHot`, `MixUp` or `CutMix`, and of 0 and
            1 with several labels a record
        boxes: float32 [batch_size, 100, 4], and box_label: int32 [batch_size, 100], -1
            where there is no box, if `with_boxes`; see `ops.boxes`
        record_id: int64 [batch_size], if `with_record_id`
        mask: float32 [batch_size], if the source skips damaged records: the weight of
            an example in the loss, 0 where a sound record stands in for a damaged
            record, otherwise 1
        encoded: string [batch_size], and height, width: int32 [batch_size], in place of
            image, if `recipe` is None
        and the features of `Parse.extra`, if `parse` has any

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4, image_size=32)
        >>> next(iter(pipeline.build()))["image"].shape
        TensorShape([4, 32, 32, 3])

    Args:
        data: Folder of a converted data set, or a `TFRecordSource` for other ways of
            reading: its shuffling, damaged records, other names of shards.
        split: Name of the split; "train" by default. `split`, `batch_size`, `seed`,
            `rank` and `num_ranks` belong to the source: if `data` is a source, give
            them there, and `part` in place of `validation_fraction`.
        batch_size: Examples in a batch of this rank; 32 by default.
        validation_fraction: Share of the split that is for validation, such as 0.1, to
            train and validate on one split: the same fraction in `imagenet_eval` gives
            these records and no others. None trains on all.
        seed: Run seed, the same on every rank, 0 to 2**64 - 1; 0 by default.
        rank: Number of this rank, 0 to num_ranks - 1; 0 by default.
        num_ranks: Number of ranks; 1 by default.
        tuning: Threads and memory; the default leaves most to tf.data.
        recipe, image_size, parse, ops, batch_ops, with_boxes, dtype, quality, crop_op,
            cache, with_record_id, whole_batches: See `ImageOptions`.

    Raises:
        BadIndexError: If the data set is not complete.
        TypeError, ValueError: If an argument is wrong, or an epoch has no step.
    """
    source = arguments.source("train")
    return arguments.pipeline(source, "train", tuning=arguments.tuning)


@_preset(_Arguments)
def imagenet_eval(arguments: _Arguments) -> Pipeline:
    """Returns a pipeline of the images' centers, every record exactly once.

    Every rank makes the same number of steps. The last batches are padded: batches also
    hold `mask`: float32 [batch_size], 1 for a real record, 0 for padding. Metrics that
    are not weighted by the mask count the padding too: a validation split of 31 records
    in a batch of 256 would be counted as 256 records. `pipeline.for_keras()` leaves the
    padding out; a loop of your own must multiply by the mask and divide by the sum of
    the mask.

    The arguments are those of `imagenet_train`, also `ops` and `batch_ops`; the split
    is "validation" by default, and "train" with `validation_fraction`. A source must
    have `remainder="pad"`.

    Example:
        >>> pipeline = tfpipe.imagenet_eval("DIR", batch_size=4, image_size=32)
        >>> [batch["mask"].numpy().tolist() for batch in pipeline.build()]
        [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0]]

    Raises:
        BadIndexError: If the data set is not complete.
        TypeError, ValueError: If an argument is wrong.
    """
    source = arguments.source("evaluate")
    return arguments.pipeline(source, "evaluate", tuning=arguments.tuning)


def _require_fits(source: TFRecordSource, purpose: Purpose) -> None:
    errors.require_choice("", "purpose", purpose, [*_REMAINDERS])
    errors.require_kind("", "source", source, TFRecordSource)
    remainder = _REMAINDERS[purpose]
    if source.remainder != remainder:
        raise ValueError(
            f"The TFRecordSource must have remainder={remainder!r}, got "
            f"{source.remainder!r}: training leaves out the records that do not fill a "
            "step, evaluation uses every record once."
        )
    if source.sampling is not None and purpose == "evaluate":
        raise ValueError(
            "The TFRecordSource must have sampling=None for evaluation, which uses "
            f"every record once, got {source.sampling!r}."
        )


def _parse_boxes(with_boxes: bool | ParseBoxes, parse: Parse) -> list[Op]:
    """Returns the op that reads boxes, with the keys of `parse`, or no op."""
    if not with_boxes:
        return []
    op = with_boxes if isinstance(with_boxes, ParseBoxes) else ParseBoxes()
    if op.label_base is None:
        base = (parse.label_base or 0) - parse.label_offset
        op = dataclasses.replace(op, label_base=base)
    return [dataclasses.replace(op, image_key=parse.image_key)]


def _quality(source: TFRecordSource, sides: tuple[int, int]) -> Quality:
    """Returns "fast" if the split's median short side is three times the longer side.

    Most crop boxes are then decoded at half their size or less. In smaller images few
    crop boxes are: the search for them costs 5 % and gains nothing, as `studies.decode`
    shows. The whole split decides, so a subset has the pixels of the split.
    """
    short_side = source.split_index.median_short_side
    folder = source.index_folder
    if short_side is None and catalog.has_lost_index(folder):
        raise errors.BadIndexError(
            f"{index.INDEX_NAME} must be beside {index.CATALOG_NAME} in {folder}: the "
            "sizes of images decide how to decode them. Copy the index again, or run "
            f"python -m converters.verify {folder} --level=crc --write_index, or give "
            "quality='fast' or quality='exact'."
        )
    is_large = short_side is not None and short_side >= 3 * max(sides)
    return "fast" if is_large else "exact"
