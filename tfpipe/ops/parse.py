"""Parse: from a record to an example, for the keys of any tool.

In: a serialized tf.train.Example. Out: the image, its size and its label under the
names that all ops know, and what else was asked for. The other ops are in `basic`.
"""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import tensorflow as tf

from tfpipe import errors
from tfpipe.native import entry_file, op as native_op, record_op
from tfpipe.ops import boxes, identity, labels, other_formats, stated_sizes
from tfpipe.ops.basic import Example
from tfpipe.shards import first_record, image_record
from tfpipe.shards.index import Index

if TYPE_CHECKING:
    from tfpipe.reading.source import TFRecordSource

MultiLabel = bool | Literal["rows"]

# Kinds of lists in a tf.train.Example, and the types in which they are parsed.
_KINDS = {tf.string: "bytes", tf.int64: "int64", tf.float32: "float"}

# Their images are JPEG, and their records state height and width.
_NAMES_OF_CONVERTERS = "imagenet folder table webdataset tfrecord merge replicate query"
_CONVERTERS = {f"converters.{name}" for name in _NAMES_OF_CONVERTERS.split()}

# Names of the features that `Parse` and the crops make.
_NAMES = (
    *("encoded", "height", "width", "label", "record_id", "mask", "seed", "image"),
    *boxes.FEATURES,
)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Parse:
    """Parses a record into an example, or a batch of them into a batch.

    Element: record -> example.
        in   record: string, or its place: path, byte_offset, num_bytes, which the
                 native op reads, or held in place of num_bytes; record_id, epoch_seed:
                 int64; is_real: bool
        out  encoded: string, JPEG or PNG; after a place a variant, for the native ops
             height, width: int32, pixels, from the image's header, or with
                 as_converted from the record
             label: int32, label on disk - label_base + label_offset; with multi_label
                 float32 [num_classes], 1 for each such label and otherwise 0; a label
                 that is no class of num_classes is an error
             record_id: int64
             mask: float32, 1 for a real record, 0 for one that fills up a batch or
                 replaces a damaged record
             seed: int64 [2], seed of the random ops
             and each feature of `extra`, under its key

    The defaults are the keys of the Inception scripts, of TF Model Garden and of
    tfpipe's converters. Records of TFDS have the keys "image" and "label".

    Example:
        >>> parse = tfpipe.Parse(label_offset=1)
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4, parse=parse)
        >>> pipeline.class_names[0]
        ''

    Args:
        image_key: Key of the encoded image, one byte string.
        label_key: Key of the label, one int64; with multi_label any number of labels.
        height_key: Key of the height in pixels, one int64. The image's header tells
            height and width; the first record that states others is named on stderr,
            and the count of such records when the process ends. None compares nothing.
        width_key: Key of the width in pixels, one int64; or None, as for height_key.
        as_converted: Whether all records are as tfpipe's converters write them: JPEG,
            with height and width. Then no header is looked at, and the presets' crops
            decode nothing else. The presets know it from the index.
        data_name: Name of the data set in messages; the presets set it. With None
            nothing is compared, and no Python is called.
        extra: Further features, which presets deliver in their batches: a dict from
            the key of the feature to a `tf.io.FixedLenFeature`, to a dtype, or to
            (dtype, shape); the dtype is string, int64 or float32.
        label_base: Label on disk of the first class. The index states it, and the
            presets take it from there if it is None; without them it must be given.
        label_offset: Label of the first class in the output.
        multi_label: Whether a record has any number of labels, also none. "rows" is for
            one-hot or multi-hot rows: a 0 or 1 for each class, delivered as such.
        num_classes: One more than the largest label, and the length of the label's row.
            The presets take it from the index if it is None.

    Raises:
        ValueError: If an argument is wrong.
        tf.errors.InvalidArgumentError: While records are parsed, if one has no such
            feature, or a label outside of 0..num_classes - 1.
    """

    takes_batches: ClassVar[bool] = True
    # Python only counts what records state.
    repeatable: ClassVar[bool] = True

    image_key: str = image_record.ENCODED
    label_key: str = image_record.LABEL
    height_key: str | None = image_record.HEIGHT
    width_key: str | None = image_record.WIDTH
    as_converted: bool = False
    extra: Any = ()
    label_base: int | None = None
    label_offset: int = 0
    multi_label: MultiLabel = False
    num_classes: int | None = None
    # A data set that is moved stays the same.
    data_name: str | None = dataclasses.field(
        default="", metadata={identity.PLACE: True}
    )

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["label_base"], also=[None])
        errors.settle_ints(self, ["label_offset"])
        errors.settle_ints(self, ["num_classes"], least=1, also=[None])
        if self.multi_label != "rows":
            errors.settle_bools(self, "multi_label")
        errors.settle_bools(self, "as_converted")
        for name in ("image_key", "label_key", "height_key", "width_key"):
            or_none = name in ("height_key", "width_key")
            errors.require_kind(self, name, getattr(self, name), str, or_none=or_none)
        keys = (self.image_key, self.label_key, self.height_key, self.width_key)
        extra = _settled(self.extra, (*keys, *_NAMES))
        errors.settle(self, "extra", extra)
        if self.image_key == self.label_key:
            raise ValueError(
                "Parse.image_key and label_key must be two keys, got "
                f"{self.image_key!r} for both."
            )
        if self.multi_label == "rows" and (self.label_base or self.label_offset):
            raise ValueError(
                'Parse.multi_label="rows" must come without label_base and '
                f"label_offset, got {self.label_base} and {self.label_offset}: rows of "
                "0 and 1 are delivered as stored."
            )

    def __repr__(self) -> str:
        always = ("label_base", "label_offset")
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.name in always or getattr(self, field.name) != field.default
            if field.name != "data_name"
            if field.name != "num_classes" or self.multi_label
        ]
        return f"Parse({', '.join(shown)})"

    @property
    def extra_names(self) -> tuple[str, ...]:
        """The keys of `extra`."""
        return tuple(key for key, _ in self.extra)

    @property
    def has_rows(self) -> bool:
        """Whether the label is a row with a number for each class."""
        return bool(self.multi_label)

    def first_label(self, known: Index) -> int:
        """Returns the label of the first class of an index, as it is delivered."""
        base = known.label_base if self.label_base is None else self.label_base
        return known.label_base - base + self.label_offset

    @classmethod
    def default(cls, source: "TFRecordSource") -> "Parse":
        """Returns the op for records as the index of a source describes them."""
        key = source.split_index.labels_key
        return cls() if key is None else cls(label_key=key, multi_label=True)

    def for_source(self, source: "TFRecordSource") -> "Parse":
        """Returns the op with what the index of a source states, for its records.

        Raises:
            ValueError: If the first record has another feature under one of the keys,
                or none; lists the features that it has.
            BadIndexError: If the label base or the number of classes is needed, and
                the source has no index.
        """
        all_labels = source.split_index.labels_key
        if self.multi_label and self.label_key == image_record.LABEL and all_labels:
            self = dataclasses.replace(self, label_key=all_labels)
        made_by = source.index.made_by
        # Records with keys of another tool have them in the index.
        by_us = made_by.get("command") in _CONVERTERS and "features" not in made_by
        keys = (self.height_key, self.width_key)
        is_stated = by_us and keys == (image_record.HEIGHT, image_record.WIDTH)
        if not by_us or _keys(self) != _keys(Parse()):
            _require_fits(self, source)
        stated: dict[str, Any] = {"as_converted": is_stated or self.as_converted}
        if self.data_name == "" and not stated["as_converted"]:
            stated["data_name"] = f"{source.data_dir}, {source.files or source.split}"
            stated_sizes.register(stated["data_name"], source.locate)
        if self.label_base is None:
            is_needed = self.multi_label != "rows"
            stated["label_base"] = source.index.label_base if is_needed else 0
        count = source.index.num_classes
        if self.num_classes is None and count:
            first = 0 if self.multi_label == "rows" else self.first_label(source.index)
            stated["num_classes"] = max(1, count + first)
        elif self.num_classes is None and self.multi_label:
            raise errors.BadIndexError(
                f"The shards in {source.data_dir} have no index, so nothing says "
                "how many classes there are. Write Parse(num_classes=...)."
            )
        return dataclasses.replace(self, **stated)

    def __call__(self, example: Example) -> Example:
        lacks_base = self.label_base is None and self.multi_label != "rows"
        if lacks_base or (self.multi_label and self.num_classes is None):
            raise ValueError(
                "Parse.label_base must be the label of the first class on disk, and "
                "with multi_label num_classes the number of classes, got "
                f"{self.label_base} and {self.num_classes}. Take them from the index: "
                "Parse(label_base=source.index.label_base), or "
                "Parse(...).for_source(source)."
            )
        parsed = _parsed(self, example)
        encoded = parsed[self.image_key]
        height, width = _sizes(self, parsed, encoded, example["record_id"])
        return {name: example[name] for name in boxes.FEATURES if name in example} | {
            "encoded": encoded,
            "height": height,
            "width": width,
            "label": _label(self, parsed[self.label_key], example["record_id"]),
            "record_id": example["record_id"],
            "mask": tf.cast(example["is_real"], tf.float32),
            "seed": tf.stack([example["epoch_seed"], example["record_id"]], -1),
            **{key: parsed[key] for key in self.extra_names},
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntryPoints:
    """Adds the entry points of the record, from the side file of its split.

    Element: example -> example, or a batch of them. The crop after it then decodes
    less, and makes the same pixels.
        in   record_id: int64, number of the record in the split
        out  entry_points: string, see `crop_image`; empty for a record without them

    Example:
        >>> source = tfpipe.TFRecordSource("DIR", "train")
        >>> op = tfpipe.EntryPoints.of(source)
        >>> op is None or isinstance(op, tfpipe.EntryPoints)
        True

    Args:
        path: The file `entry_points-<split>` of the data set. It is read while the
            pipeline runs.

    Raises:
        tf.errors.NotFoundError: If the file cannot be read; when the pipeline runs.
        RuntimeError: If the native op is not built; when the dataset is built.
        TypeError: If the path is no text.
    """

    takes_batches: ClassVar[bool] = True

    # A data set that is moved stays the same.
    path: str = dataclasses.field(metadata={identity.PLACE: True})

    def __post_init__(self) -> None:
        errors.require_kind(self, "path", self.path, str)

    @classmethod
    def of(cls, source: "TFRecordSource") -> "EntryPoints | None":
        """Returns the op for a source; None if its data set has no such file.

        The file of a data set at a URL, or behind a shard cache, is fetched once and
        kept beside the index on this host. It is left out, and a line on stderr says
        why, if it is damaged or cannot be fetched.
        """
        storage = source.split_index.storage
        found = entry_file.find(source.index, storage, source.split)
        return None if found is None else cls(path=found)

    def __call__(self, example: Example) -> Example:
        tables = native_op.module().tfpipe_entry_points(
            record_id=example["record_id"], path=self.path
        )
        return example | {"entry_points": tables}


def _keys(op: Parse) -> tuple[object, ...]:
    """Returns what the op needs of every record."""
    return op.image_key, op.label_key, op.multi_label, op.extra


def _require_fits(op: Parse, source: "TFRecordSource") -> None:
    """Checks the first record; see `for_source`."""
    wanted = {
        op.image_key: ("image_key", "bytes", 1),
        op.label_key: ("label_key", "int64", _num_labels(op)),
    }
    for key, spec in op.extra:
        if spec.default_value is None:
            size = tf.TensorShape(spec.shape).num_elements()
            wanted[key] = ("extra", _KINDS[spec.dtype], size)
    records = source.split_index.first_records(
        first_record.MAX_LOOKED_AT, numbers=source.record_numbers
    )
    _require_lists(op, source)
    first_record.require(records, owner="Parse", wanted=wanted)


def _require_lists(op: Parse, source: "TFRecordSource") -> None:
    """Refuses one-hot and multi-hot rows that would be read as lists of labels."""
    if op.multi_label == "rows":
        return
    records = source.split_index.first_records(
        first_record.MAX_LOOKED_AT, numbers=source.record_numbers
    )
    rows = first_record.values(records, op.label_key)
    first = next(rows, [])
    if len(first) < 2:
        return
    num_classes = op.num_classes or source.index.num_classes or None
    if first_record.is_one_hot([first, *rows], num_classes):
        raise ValueError(
            f"Parse.label_key names {op.label_key!r}, which holds rows of "
            f"{len(first)} numbers, 0 or 1, and no lists of labels; the first is "
            f'{first}. Write Parse(multi_label="rows", num_classes={len(first)}) '
            "without label_base and label_offset for the rows."
        )


def _num_labels(op: Parse) -> int | None:
    """Returns how many numbers a record has under the key of labels; None is any."""
    if op.multi_label == "rows":
        return op.num_classes
    return None if op.multi_label else 1


def _parsed(op: Parse, example: Example) -> Example:
    """Returns the features of a record, under their keys."""
    if "record" not in example and not (op.extra or op.multi_label):
        keys = (op.label_key, op.height_key, op.width_key)
        numbers = [key for key in keys if key is not None]
        optional = 0 if op.as_converted else len(numbers) - 1
        return record_op.read(example, op.image_key, numbers, num_optional=optional)
    example = record_op.with_record(example, op.image_key)
    features, image = _features(op), example.get(record_op.IMAGE)
    if image is not None:
        del features[op.image_key]
    # Takes a scalar as well, as tf.io.parse_single_example does.
    parsed = dict(tf.io.parse_example(example["record"], features))
    return parsed if image is None else parsed | {op.image_key: image}


def _features(op: Parse) -> dict[str, Any]:
    """Returns what `tf.io.parse_example` is to parse."""
    scalar = tf.io.FixedLenFeature([], tf.int64)
    found = {op.image_key: tf.io.FixedLenFeature([], tf.string), op.label_key: scalar}
    if op.multi_label == "rows":
        row = [op.num_classes]
        found[op.label_key] = tf.io.FixedLenFeature(row, tf.int64)
    elif op.multi_label:
        found[op.label_key] = tf.io.VarLenFeature(tf.int64)
    default = None if op.as_converted else 0
    for key in (op.height_key, op.width_key):
        if key is not None:
            found[key] = tf.io.FixedLenFeature([], tf.int64, default_value=default)
    return found | dict(op.extra)


def _sizes(
    op: Parse, parsed: Example, encoded: tf.Tensor, record_id: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns heights and widths, from the headers of images of other tools."""
    if op.height_key is None or op.width_key is None:
        return other_formats.sizes(encoded)
    height, width = parsed[op.height_key], parsed[op.width_key]
    if op.as_converted:
        return tf.cast(height, tf.int32), tf.cast(width, tf.int32)
    stated = tf.stack([height, width], -1)
    return stated_sizes.of_headers(stated, encoded, record_id, op.data_name)


def _label(op: Parse, label: Any, record_id: tf.Tensor) -> tf.Tensor:
    if op.multi_label == "rows":
        return labels.stored_rows(label, record_id)
    assert op.label_base is not None  # __call__ has checked both
    change = {"base": op.label_base, "offset": op.label_offset}
    if not op.multi_label:
        moved = labels.moved(label, record_id, **change, end=op.num_classes)
        return tf.cast(moved, tf.int32)
    assert op.num_classes is not None
    return labels.rows(label, record_id, **change, num_classes=op.num_classes)


def _settled(extra: Any, taken: Iterable[str | None]) -> tuple[Any, ...]:
    """Returns the specs of extra features as pairs that can be compared and hashed.

    Args:
        extra: Mapping from a key to a `tf.io.FixedLenFeature`, to a dtype, or to
            (dtype, shape); or the result of an earlier call.
        taken: Keys and names that extra features must not have.

    Returns:
        Pairs of a key and a `tf.io.FixedLenFeature`.

    Raises:
        ValueError: If a key is taken, or a spec is none of these.
    """
    try:
        pairs = [(key, _spec(spec)) for key, spec in dict(extra).items()]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "Parse.extra must be a dict from the key of a feature to a "
            "tf.io.FixedLenFeature, a dtype, or (dtype, shape), with the dtype string, "
            f"int64 or float32, got {extra!r}: {error}. A batch needs one shape for "
            "each feature."
        ) from None
    for key, _ in pairs:
        errors.require_kind("Parse", "extra", key, str)
        if key in {*taken}:
            raise ValueError(
                f"Parse.extra must not name {key!r}: a feature of the example has "
                "that key or name."
            )
    return tuple(pairs)


def _spec(spec: Any) -> Any:
    if isinstance(spec, tf.io.FixedLenFeature):
        shape, dtype, default = spec
    else:
        pair = spec if isinstance(spec, tuple | list) else (spec, ())
        (dtype, shape), default = pair, None
    if tf.as_dtype(dtype) not in _KINDS:
        raise ValueError(f"{tf.as_dtype(dtype).name} is no type of a tf.train.Example")
    sides = tf.TensorShape(shape).as_list()
    if None in sides or 0 in sides:
        raise ValueError(f"the shape {shape} must have known sides of 1 or more")
    default = _tupled(default.tolist() if isinstance(default, np.ndarray) else default)
    return tf.io.FixedLenFeature(
        shape=tuple(sides), dtype=tf.as_dtype(dtype), default_value=default
    )


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list | tuple) else value
