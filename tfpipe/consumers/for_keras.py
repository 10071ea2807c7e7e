"""Batches as Keras takes them: (x, y) or (x, y, sample_weight), and the rows' files.

In: a pipeline whose batches hold `image` and `label`. Out: a stage from its batches to
tuples, its device ops as a Keras layer, and the names of the source files in the order
of the rows.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import tensorflow as tf

from tfpipe import errors
from tfpipe.consumers import classes, records_of
from tfpipe.ops.basic import Cast, Normalize, OneHot, ToNCHW
from tfpipe.reading import sampling
from tfpipe.reading.building import are_counted
from tfpipe.reading.order import EpochPosition, Window
from tfpipe.reading.state import State
from tfpipe.shards import index
from tfpipe.stages.basic import AssertCardinality, Prefetch, as_it_is
from tfpipe.stages.shuffle import Shuffle
from tfpipe.stages.traced import as_they_are

Batch = dict[str, tf.Tensor]
ClassWeights = Mapping[int, float] | Mapping[str, float] | Sequence[float]
DeviceOps = Literal["apply", "layer"]

# A batch of float32 images is large: one is made while another one is passed on.
_NUM_PARALLEL_CALLS = 2
# Labels that an error shows.
_NUM_SHOWN = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToKeras:
    """Stage from batches to (x, y), or (x, y, sample_weight) with weights or a mask.

    Element: batch -> (image, label), or (image, label, float32 [rows]).

    Args:
        ops: Callables batch -> batch to apply first.
        class_weights: float32 [classes], weight of each label; None weighs all alike.
        is_padded: Whether rows with mask 0 are left out, and batches without a row.
        num_batches: Number of batches that are left in an iteration; None if unknown.
    """

    ops: Sequence[Any]
    class_weights: tuple[float, ...] | None = None
    is_padded: bool = False
    num_batches: int | None = None

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        self._check(dataset.element_spec)
        tuples = dataset.map(
            as_it_is(self._tuple), num_parallel_calls=_NUM_PARALLEL_CALLS
        )
        if not self.is_padded:
            return tuples
        filled = tuples.filter(as_it_is(lambda x, *_: tf.shape(x)[0] > 0))
        return AssertCardinality(self.num_batches)(filled)

    def _tuple(self, batch: Batch) -> tuple[tf.Tensor, ...]:
        if self.is_padded:
            batch = _without_padding(batch)
        is_weighted = self.class_weights is not None or "mask" in batch
        weights = [self._weight(batch)] if is_weighted else []
        for op in as_they_are(self.ops):
            batch = op(batch)
        return batch["image"], batch["label"], *weights

    def _weight(self, batch: Batch) -> tf.Tensor:
        label = batch["label"]
        first = label if label.shape.rank == 1 else label[:, 0]
        weight = tf.cast(batch.get("mask", tf.ones_like(first)), tf.float32)
        if self.class_weights is None:
            return weight
        table = tf.constant(self.class_weights, tf.float32)
        if label.shape.rank == 1:
            return weight * tf.gather(table, label)
        return weight * tf.linalg.matvec(tf.cast(label, tf.float32), table)

    def _check(self, spec: Any) -> None:
        needed = ["image", "label", *(["mask"] if self.is_padded else [])]
        names = list(spec) if isinstance(spec, dict) else []
        if not set(needed) <= set(names):
            raise ValueError(
                f"for_keras needs batches that hold {', '.join(needed)}, got "
                f"{', '.join(names) or spec}. Decode the images, and name all of them "
                "in Select."
            )
        image, label = spec["image"].shape.rank, spec["label"].shape.rank
        if (image, label) not in ((4, 1), (4, 2)):
            raise ValueError(
                "for_keras needs batches of images [rows, height, width, channels] "
                "with labels [rows] or [rows, classes], got images "
                f"{spec['image'].shape} and labels {spec['label'].shape}. Put a Batch "
                "into the stages."
            )
        count = self.class_weights and len(self.class_weights)
        if count is not None and label == 2 and spec["label"].shape[1] != count:
            raise ValueError(
                "class_weights must have a weight for each class, that is "
                f"{spec['label'].shape[1]} weights, got {count}."
            )


def first_state(
    source: Any, epoch: int, num_epochs: int | None, state: State | None
) -> State:
    """Returns the state at which the first iteration begins.

    Raises:
        ValueError: If an argument is wrong, or both `state` and `epoch` are there.
    """
    errors.require_int("", "num_epochs", num_epochs, least=1, also=[None])
    errors.require_int("", "epoch", epoch, least=0)
    errors.require_kind("", "state", state, State, or_none=True)
    if state is None:
        return State(epoch=epoch)
    if epoch:
        raise ValueError("Give either state or epoch; got both.")
    # `advance` goes to the next epoch if the epoch of the state is over.
    return source.advance(state, 0) if hasattr(source, "advance") else state


def with_tuples(
    pipeline: Any,
    state: State,
    num_epochs: int | None,
    *,
    one_hot: bool,
    device_ops: DeviceOps,
    class_weights: ClassWeights | None,
) -> Any:
    """Returns the pipeline with the stage that makes tuples; see `Pipeline.for_keras`.

    Raises:
        ValueError: If an argument is wrong, or the source cannot go on with the next
            epoch in each iteration.
    """
    errors.require_bool("", "one_hot", one_hot)
    errors.require_choice("", "device_ops", device_ops, ("apply", "layer"))
    source: Any = pipeline.source
    if num_epochs is not None and not hasattr(source, "continued"):
        raise ValueError(
            f"Each epoch of Keras must be another epoch of the data, but {source!r} "
            "has no method `continued`: each epoch would repeat the first one. Give "
            "for_keras num_epochs=None, and fit steps_per_epoch (evaluate: steps)."
        )
    ops = [*pipeline.device_ops] if device_ops == "apply" else []
    is_padded = _is_padded(source)
    stage = ToKeras(
        ops=[*ops, *([_OneHotLabel(_num_labels(pipeline))] if one_hot else [])],
        class_weights=_weights(class_weights, pipeline),
        is_padded=is_padded,
        num_batches=_num_batches(pipeline, state, num_epochs) if is_padded else None,
    )
    at = len(pipeline.stages)
    if at and isinstance(pipeline.stages[-1], Prefetch):
        at -= 1  # the tuples are what is kept ready
    stages = [*pipeline.stages[:at], stage, *pipeline.stages[at:]]
    return dataclasses.replace(pipeline, stages=stages, device_ops=())


def with_steps(
    dataset: tf.data.Dataset, pipeline: Any, num_epochs: int | None
) -> tf.data.Dataset:
    """Returns the dataset, which tells Keras the steps of a whole iteration.

    A first iteration that is resumed within an epoch is shorter, so that tf.data cannot
    tell. Keras would take the steps of that one for those of every iteration.
    """
    source: Any = pipeline.source
    is_uncounted = dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY
    has_steps = hasattr(source, "num_steps") and are_counted(pipeline.stages)
    if not is_uncounted or not has_steps or _is_padded(source):
        return dataset
    num_steps = source.num_steps(State(), num_epochs)
    # assert_cardinality would raise an error at the end of the first iteration.
    dataset.cardinality = lambda: tf.constant(num_steps, tf.int64)
    return dataset


def record_names(pipeline: Any, epoch: int | None) -> list[str]:
    """Returns the source file of each record; see `Pipeline.record_names`."""
    errors.require_int("", "epoch", epoch, least=0, also=[None])
    source: Any = pipeline.source
    if not hasattr(source, "order") or not hasattr(source, "index_folder"):
        raise ValueError(
            "record_names needs a source that knows its files and their order, as "
            f"TFRecordSource does, got {source!r}."
        )
    if source.order.shuffle != "none" and epoch is None:
        raise ValueError(
            "record_names needs the number of the epoch, as the source shuffles "
            f"(shuffle={source.order.shuffle!r}): give epoch=0 for the first one, or "
            'the source shuffle="none", as imagenet_eval does for a folder.'
        )
    for stage in pipeline.stages:
        if isinstance(stage, Shuffle) or not are_counted([stage]):
            raise ValueError(
                "record_names needs stages that keep every record in its place, got "
                f"{stage!r}. Use with_record_id=True, which puts the numbers of the "
                "records into the batches."
            )
    records = [window.records() for window in _real_windows(source, epoch or 0)]
    faults = pipeline.faults.faults if pipeline.faults is not None else []
    skipped = {fault.record_id for fault in faults}
    catalog = index.load_catalog(source.index_folder, source.split, ["filename"])
    return [
        str(catalog["filename"][number])
        for numbers in records
        for number in numbers.tolist()
        if number not in skipped
    ]


def device_layer(ops: Sequence[Callable[..., Any]], image: tf.TensorSpec) -> Any:
    """Returns a Keras model of Keras' own layers, from images to images after the ops.

    A saved model loads where this library is not installed.

    Args:
        ops: Device ops of a pipeline: `Normalize`, `Cast`, `ToNCHW`.
        image: Shape [rows, height, width, 3] and type of the images.

    Raises:
        ValueError: If an op has no equal among Keras' layers.
    """
    import keras

    for op in ops:
        if not isinstance(op, Normalize | Cast | ToNCHW):
            raise ValueError(
                f"device_layer cannot express {op!r} by layers of Keras, only "
                "Normalize, Cast and ToNCHW. Leave the layer out, and let "
                'for_keras(device_ops="apply") apply the op.'
            )
    pixels = keras.Input(image.shape[1:], dtype=image.dtype.name, name="image")
    result = pixels
    for op in ops:
        result = _layer_applied(keras, op, result)
    if not ops:
        result = keras.layers.Identity(dtype=image.dtype.name)(result)
    return keras.Model(pixels, result, name="device_ops")


def _layer_applied(keras: Any, op: Any, image: Any) -> Any:
    if isinstance(op, ToNCHW):
        return keras.layers.Permute((3, 1, 2), dtype=image.dtype)(image)
    if isinstance(op, Cast):
        return keras.ops.cast(image, op.dtype)
    # Lists, as the layer saves them as text.
    scale, offset, bgr = op.by_channel().values()
    # Whatever type the model computes with, as `Normalize` does.
    layer = keras.layers.Rescaling(scale=scale, offset=offset, dtype="float32")
    return layer(keras.ops.flip(image, -1) if bgr else image)


@dataclasses.dataclass(frozen=True)
class _OneHotLabel:
    """Op: the rows of `OneHot` for integer labels; rows of floats stay."""

    num_classes: int

    def __call__(self, batch: Batch) -> Batch:
        if batch["label"].shape.rank > 1:
            return batch
        return OneHot(self.num_classes)(batch)


def _is_padded(source: Any) -> bool:
    return bool(getattr(source, "remainder", "drop") == "pad")


def _without_padding(batch: Batch) -> Batch:
    """Returns the rows with mask 1."""
    is_real = batch["mask"] > 0
    # Only the last batch is copied.
    rows: Batch = tf.cond(
        tf.reduce_all(is_real),
        lambda: batch,
        lambda: {name: tf.boolean_mask(v, is_real) for name, v in batch.items()},
    )
    return rows


def _real_windows(source: Any, epoch: int) -> list[Window]:
    """Returns the windows of real records that a rank reads in an epoch."""
    begin, rank, order = EpochPosition(epoch), source.rank, source.order
    windows = (order.window(rank, begin, n) for n in order.windows(rank, begin))
    return [window for window in windows if window.real]


def _num_batches(pipeline: Any, state: State, num_epochs: int | None) -> int | None:
    """Returns the batches with a real record in every iteration; None if unknown."""
    source: Any = pipeline.source
    if num_epochs is None:
        return int(tf.data.INFINITE_CARDINALITY)
    may_skip = pipeline.faults is not None and pipeline.faults.max_faults > 0
    is_whole = not (state.step or state.phases) and are_counted(pipeline.stages)
    if may_skip or not is_whole or not hasattr(source, "order"):
        return None
    num_real = sum(window.take for window in _real_windows(source, state.epoch))
    return int(-(-num_real // source.batch_size) * num_epochs)


def _num_labels(pipeline: Any) -> int:
    """Returns one more than the largest label that the pipeline delivers."""
    if num_classes := getattr(pipeline.source, "num_classes", 0):
        return int(num_classes)
    try:
        return len(classes.names(pipeline.source, pipeline.stages))
    except (ValueError, errors.BadIndexError) as error:
        with contextlib.suppress(ValueError):
            if count := records_of.find_parse(pipeline.stages).parse.num_classes:
                return count
        raise ValueError(
            f"one_hot needs the number of classes. {error} Or put OneHot(num_classes) "
            "among the ops of the pipeline."
        ) from error


def _weights(weights: ClassWeights | None, pipeline: Any) -> tuple[float, ...] | None:
    """Returns the weight of each label from 0 on."""
    if weights is None:
        return None
    table: dict[Any, float] = dict(
        weights if isinstance(weights, Mapping) else enumerate(weights)
    )
    if any(isinstance(key, str) for key in table):
        table = _by_label(table, pipeline)
    try:
        count = _num_labels(pipeline)
    except ValueError:  # nothing says how many classes there are
        count = len(table)
    if not table or sorted(table) != [*range(count)]:
        lacking = [label for label in range(count) if label not in table]
        raise ValueError(
            "class_weights must be a weight for each label from 0 on, "
            f"{errors.count_of(count, 'weight')} here, got "
            f"{errors.count_of(len(table), 'weight')}, of the labels "
            f"{sorted(table)[:_NUM_SHOWN]}"
            f"{f'; none for {lacking[:_NUM_SHOWN]}' if lacking else ''}. "
            "pipeline.class_weights() has a weight for each."
        )
    values = [table[n] for n in range(len(table))]
    return errors.require_numbers(
        "", "class_weights", values, count=len(table), least=0
    )


def _by_label(weights: Mapping[Any, float], pipeline: Any) -> dict[int, float]:
    """Returns weights of named classes by label; a label of no class weighs 1."""
    names = classes.names(pipeline.source, pipeline.stages)
    known = pipeline.source.index.classes
    first = len(names) - len(known)
    by_label = sampling.by_label(weights, known, owner="class_weights")
    return dict.fromkeys(range(first), 1.0) | {
        first + label: weight for label, weight in by_label.items()
    }
