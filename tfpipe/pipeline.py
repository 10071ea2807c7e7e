"""Pipeline: a source, a list of stages and a tuning, built into a tf.data.Dataset.

In: the source and the stages, chosen by a user or a preset. Out: a plain
`tf.data.Dataset`, and the same pipeline as text, with a line for every stage. The
module imports no source and no stage: it only calls the given objects.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy.typing as npt
import tensorflow as tf

from tfpipe import at_exit, errors
from tfpipe.consumers import classes, for_keras
from tfpipe.consumers.for_keras import ClassWeights, DeviceOps
from tfpipe.consumers.numpy_batches import NumpyBatches
from tfpipe.consumers.reminder import Reminder
from tfpipe.ops import identity
from tfpipe.pages import page
from tfpipe.reading import building
from tfpipe.reading.building import Source, Stage, Wrapper
from tfpipe.reading.state import State
from tfpipe.shards import index
from tfpipe.stages import faults
from tfpipe.tuning import Tuning, without_tuning

if TYPE_CHECKING:
    from tfpipe.consumers.preprocess import Images
    from tfpipe.reading.read_path import ReadPath

__all__ = ["Pipeline", "Source", "Stage", "Wrapper"]

Batch = dict[str, tf.Tensor]
DeviceOp = Callable[[Batch], Batch]

_NOT_BUILT = (
    "A Pipeline must be built before its batches are read. Give Keras "
    "pipeline.for_keras(), as in model.fit(train.for_keras()); in a loop, use "
    "pipeline.build(), a tf.data.Dataset, or pipeline.to_numpy()."
)


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """A source of elements, stages for the elements, and a tuning.

    Example:
        >>> source = tfpipe.TFRecordSource("DIR", "train", batch_size=4)
        >>> stages = [tfpipe.Interleave(), tfpipe.Batch(4), tfpipe.Prefetch()]
        >>> pipeline = tfpipe.Pipeline(source, stages)
        >>> [len(batch["record"]) for batch in pipeline.build()]
        [4, 4, 4, 4, 4, 4]

    Args:
        source: Callable (state, num_epochs) -> Dataset of the epochs, in their order.
        stages: Callables Dataset -> Dataset, in the order of the data.
        tuning: Values for the open knobs of the stages.
        device_ops: Callables batch -> batch, applied by the training step on the
            device. The pixels are then copied to the device as uint8, a quarter of the
            bytes of float32.

    Raises:
        TypeError: If a source, a stage or an op cannot be called.
        ValueError: If the source and the stages have different batch sizes.
    """

    source: Source
    stages: Sequence[Stage | Wrapper]
    _: dataclasses.KW_ONLY
    tuning: Tuning = dataclasses.field(default_factory=Tuning)
    device_ops: Sequence[DeviceOp] = ()
    # Shared with the pipelines that `dataclasses.replace` makes of the pipeline.
    _reminder: Reminder = dataclasses.field(
        default_factory=Reminder, repr=False, compare=False
    )
    # The choices of a preset, see `paths`.
    _read_path: "ReadPath | None" = dataclasses.field(
        default=None, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        errors.require_callable(self, "source", self.source)
        errors.require_kind(self, "tuning", self.tuning, Tuning)
        for op in self.device_ops:
            errors.require_op(self, "device_ops", op)
        for number, stage in enumerate(self.stages, start=1):
            _require_stage(number, stage)
        building.check_batch_size(self.source, self.stages)

    def build(
        self,
        *,
        epoch: int = 0,
        num_epochs: int | None = 1,
        start_step: int = 0,
        state: State | None = None,
    ) -> tf.data.Dataset:
        """Returns the dataset of one epoch, or of several epochs.

        Epochs stay whole: all elements of an epoch come before all elements of the
        next epoch. Every iteration of the dataset begins at the same place; `for_keras`
        goes on.

        Batches may hold `mask`, float32 [batch]: 1 for a real record, 0 for a row that
        fills up the last batch of an evaluation or stands in for a damaged record. Such
        a row repeats another image. To compute a loss, an accuracy or predictions,
        multiply by the mask, or leave out the rows with mask 0: a split of 31 images in
        a batch of 256 has 225 repeated rows. `for_keras` leaves them out.

        Args:
            epoch: The first epoch, >= 0. Each epoch has its own order and seeds.
            num_epochs: Number of epochs, >= 1. The first epoch counts as one, even if
                resumed in its middle. None gives an endless dataset.
            start_step: Number of steps of the first epoch to leave out. The elements
                after them are the same as without leaving any out. At most one window
                is read in vain.
            state: The state to resume at, instead of `epoch` and `start_step`, see
                `State`; the number of ranks may differ.

        Raises:
            ValueError: If a number is out of range, or the state belongs to other data.
            Exception: Any error of a stage, with the name of the stage in a note.
        """
        errors.require_int("", "num_epochs", num_epochs, least=1, also=[None])
        errors.require_int("", "epoch", epoch, least=0)
        errors.require_int("", "start_step", start_step, least=0)
        errors.require_kind("", "state", state, State, or_none=True)
        if state is None:
            state = State(epoch=epoch, step=start_step)
        elif epoch or start_step:
            raise ValueError("Give either state, or epoch and start_step; got both.")
        return self._built(state, num_epochs)

    def _built(
        self, state: State, num_epochs: int | None, *, is_continued: bool = False
    ) -> tf.data.Dataset:
        at_exit.end_iterators_at_exit()
        stages = self.tuned_stages()
        if self.device_ops:
            stages = self._reminder.among(stages)
        dataset = building.applied(
            stages, self.source, state, num_epochs, is_continued=is_continued
        )
        if self.faults is not None and num_epochs is not None:
            dataset = self.faults.reported_after(dataset)
        return dataset.with_options(self.tuning.options())

    def on_device(self, batch: Batch) -> Batch:
        """Returns the batch after `device_ops`; the training step calls `on_device`."""
        self._reminder.settle()
        for op in self.device_ops:
            batch = op(batch)
        return batch

    def for_keras(
        self,
        *,
        epoch: int = 0,
        num_epochs: int | None = 1,
        state: State | None = None,
        one_hot: bool = False,
        device_ops: DeviceOps = "apply",
        class_weights: ClassWeights | None = None,
    ) -> tf.data.Dataset:
        """Returns batches for `fit`, `evaluate` and `predict` of a Keras model.

            model.fit(train.for_keras(), epochs=5, validation_data=val.for_keras())

        Every iteration of the dataset, and so every epoch of Keras, has the next
        `num_epochs` epochs of the data, with a new order and new random crops.

        In evaluation (`remainder="pad"`) the rows that fill up a batch are left out:
        the last batch is smaller, and the metrics of Keras are exact with `metrics` as
        well as with `weighted_metrics`. A rank without any real record has no batch.

        Element: (x, y), or (x, y, sample_weight) with `class_weights` or a mask: in
        evaluation, and where damaged records are skipped.
            x: image [rows, height, width, 3]: floats normalized by `device_ops`, or the
                image of `build` with device_ops="layer"
            y: label, int32 [rows]; float32 [rows, classes] if `one_hot`, or if labels
                are such rows already (MixUp, several labels)
            sample_weight: float32 [rows], 0 for a row that stands in for a damaged
                record in training, otherwise 1, times the weight of its class

        Args:
            epoch: Number of the first epoch of the first iteration, >= 0.
            num_epochs: Number of epochs in an iteration, >= 1. None gives an endless
                dataset; `fit` then needs steps_per_epoch.
            state: The state to begin at, instead of `epoch`. The first iteration
                finishes the interrupted epoch, and the next iterations are whole. Give
                the dataset to `fit` without a further stage; Keras then says once that
                its input ran out of data, and goes on.
            one_hot: Whether integer labels become rows, with a column for each class
                of the index.
            device_ops: "apply" applies `device_ops`: the model gets normalized images.
                "layer" leaves the ops to a model that begins with `device_layer()`.
                Such a model gets uint8 images, a quarter of the bytes.
            class_weights: Weight of each class, >= 0: a list, or a dict from labels or
                from names of classes. Keras refuses `fit(class_weight=)` beside sample
                weights. A row of floats gets the sum of its values times these weights.

        Raises:
            ValueError: If an argument is wrong, the batches have no image and label, or
                the source cannot go on with the next epoch in each iteration.
            Exception: Any error of a stage, with the name of the stage in a note.
        """
        self._reminder.settle()
        state = for_keras.first_state(self.source, epoch, num_epochs, state)
        of_tuples = for_keras.with_tuples(
            self,
            state,
            num_epochs,
            one_hot=one_hot,
            device_ops=device_ops,
            class_weights=class_weights,
        )
        is_continued = num_epochs is not None
        dataset = of_tuples._built(state, num_epochs, is_continued=is_continued)
        return for_keras.with_steps(dataset, self, num_epochs)

    def device_layer(self) -> Any:
        """Returns `device_ops` as a Keras layer, to begin a model with.

            model = keras.Sequential([pipeline.device_layer(), ...])
            model.fit(pipeline.for_keras(device_ops="layer"))

        The layer takes images as `build` gives them and is a Keras model of Keras' own
        layers: the saved model loads without this library.

        Raises:
            ValueError: If an op has no equal among Keras' layers.
        """
        self._reminder.settle()
        images = self._built(State(), 1).element_spec["image"]
        return for_keras.device_layer(self.device_ops, images)

    def record_names(self, *, epoch: int | None = None) -> list[str]:
        """Returns the source files of the rows of `model.predict(p.for_keras())`.

        The names belong to the records of this rank in their order, as in the catalog,
        relative to the converted folder. Call `record_names` after `predict`: records
        that were found damaged until then are left out.

        Args:
            epoch: Number of the epoch, >= 0; needed if the source shuffles.

        Raises:
            BadIndexError: If the data set has no catalog.
            ValueError: If the order is not known: the source shuffles and `epoch` is
                None, or a stage may move or drop records.
        """
        return for_keras.record_names(self, epoch)

    def to_numpy(
        self,
        *,
        writable: bool = False,
        apply_device_ops: bool | None = None,
        **build_arguments: Any,
    ) -> NumpyBatches:
        """Returns the batches as NumPy arrays, for training with JAX or PyTorch.

        The result has a length, its number of steps, and can be iterated again: the
        second iteration gives the next epochs, see `NumpyBatches`.

        An array shares the memory of its tensor. The array is read-only, and valid as
        long as something refers to it. bfloat16 has the dtype of ml_dtypes. A string
        tensor becomes an array of bytes objects.

        Args:
            writable: Whether arrays may be written to. Every array is then a copy.
            apply_device_ops: True applies `device_ops`, on the host. False says that
                the consumer applies the ops, as JAX and PyTorch can. None leaves the
                ops too, with a reminder on stderr.
            build_arguments: The arguments of `build`.

        Raises:
            ValueError: If an argument is wrong.
        """
        ops: Sequence[Any] = ()
        if apply_device_ops is not None:
            if errors.require_bool("", "apply_device_ops", apply_device_ops):
                ops = self.device_ops
            self._reminder.settle()
        return NumpyBatches(self.build, writable, build_arguments, ops)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of every rank in an epoch of `build`.

        Raises:
            ValueError: If the source does not know the number.
        """
        known: int | None = getattr(self.source, "steps_per_epoch", None)
        if known is None:
            raise ValueError(
                "steps_per_epoch must come from the source, as TFRecordSource has it; "
                f"{self.source!r} does not say how many steps an epoch has. Count the "
                "batches of pipeline.build() once."
            )
        return known

    @property
    def faults(self) -> Any:
        """The log of the damaged records of the source and all stages, or None."""
        having = (self.source, *self.stages)
        return faults.combined([getattr(each, "faults", None) for each in having])

    @property
    def fingerprint(self) -> str:
        """A digest of the work of the pipeline, 32 characters.

        The digest covers the data, by the digest of the source if any, and every
        stage with its knobs open; neither the tuning nor the rank. Functions count by
        name, without their code.
        """
        data = getattr(self.source, "digest", None) or self.source
        # Who reads the records, and so the kind of the file system, does not count.
        stages = without_tuning(building.interleaved(self.stages))
        return index.digest(identity.content((data, stages, self.device_ops)))

    @property
    def class_names(self) -> list[str]:
        """The name of every label that the pipeline delivers, from the index.

        `class_names[label]` is right with any label base and label offset. A label of
        no class is named "": `Parse(label_offset=1)` leaves label 0 to the background,
        and `class_names[0]` is "".

        Raises:
            BadIndexError: If the data set has no index, or the index names no class.
            ValueError: If the pipeline has no `TFRecordSource` or no `Parse`, or the
                first class has a label below 0.
        """
        return classes.names(self.source, self.stages)

    @property
    def num_classes(self) -> int:
        """The length of `class_names`: the number of outputs of a classifier."""
        return len(self.class_names)

    @property
    def class_counts(self) -> dict[int, int]:
        """The records of the split for every label that the pipeline delivers.

        Every label of `class_names` is a key, also a label without records. One
        query of the catalog counts; no record is read.

        Raises:
            BadIndexError, ValueError: As for `class_names`, or if the data set has no
                catalog, or records have several labels.
        """
        return classes.counts(self.source, self.stages)

    def class_weights(self, *, power: float = 1.0) -> dict[int, float]:
        """Returns the weight of every label, for a loss that treats classes alike.

        The weight, "balanced" in scikit-learn, is records / (classes with records *
        records of the class). A class without records has the weight 0, and a warning
        names such classes.

        Args:
            power: A lower power makes the weights less unequal, 0 to 1: a weight is
                proportional to count ** -power, and its mean over the records is 1.

        Raises:
            BadIndexError, ValueError: As for `class_counts`, or if `power` is wrong.
        """
        return classes.weights(self.class_counts, self.class_names, power)

    def preprocess(
        self, images: "Images", *, apply_device_ops: bool = True
    ) -> npt.NDArray[Any]:
        """Returns images as the pipeline would deliver them, for `model.predict`.

        An image goes the way of a record: the image is turned upright and scaled down
        if the converter did so with the data set, then passes the ops after `Parse`.
        The result for a JPEG that is stored byte for byte is the row that the pipeline
        delivers for its record. See `consumers.preprocess`.

            probabilities = model.predict(pipeline.preprocess([path]))
            image = pipeline.preprocess(path)  # model.predict(image[None])

        Args:
            images: A path or the bytes of a file, or a list of paths or bytes; JPEG or
                another format that Pillow reads.
            apply_device_ops: Whether to apply `device_ops`, the ops that normalize. A
                model that begins with these ops needs False.

        Returns:
            [height, width, 3] for a single image, [n, height, width, 3] for a list.

        Raises:
            OSError: If a file cannot be read.
            ValueError: If a file is no image, or if the pipeline draws random numbers,
                as a pipeline for training does.
        """
        is_applied = errors.require_bool("", "apply_device_ops", apply_device_ops)
        ops = self.device_ops if is_applied else ()
        from tfpipe.consumers import preprocess  # imports Pillow

        return preprocess.preprocess(self.source, self.stages, ops, images)

    @property
    def paths(self) -> Mapping[str, Any]:
        """The paths of the data in the pipeline of a preset; otherwise empty.

        Each name, such as "whole_batches", has a `value` and a `reason`. The reason
        says why the faster path is not taken.
        """
        path = self._read_path
        return {} if path is None else dict(vars(path.taken_by(self.stages)))

    def __iter__(self) -> NoReturn:
        raise TypeError(_NOT_BUILT)

    # Keras asks an unknown object for an array, and an array for its shape.
    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(_NOT_BUILT)

    @property
    def shape(self) -> NoReturn:
        """Nothing: a Pipeline is no array."""
        raise AttributeError(_NOT_BUILT)

    def prefix(self, num_stages: int) -> "Pipeline":
        """Returns the pipeline with its first `num_stages` stages only."""
        most = len(self.stages)
        errors.require_int("", "num_stages", num_stages, least=0, most=most)
        return dataclasses.replace(self, stages=self.stages[:num_stages])

    def tuned_stages(self) -> list[Stage | Wrapper]:
        """Returns the stages with every knob set; every `Map` may have its own number.

        If all maps share one number, a map after `Batch` has at most one call a thread.
        """
        stages: Sequence[Any] = self.stages
        tuning, tuned = self.tuning, []
        num_maps, has_batches = 0, False
        for stage in stages:
            own = tuning
            has_batches = has_batches or hasattr(stage, "batch_size")
            if hasattr(stage, "num_parallel_calls"):
                calls = tuning.num_parallel_calls(num_maps)
                if has_batches and isinstance(tuning.num_parallel_maps, int):
                    calls = min(calls, tuning.num_threads)
                own = dataclasses.replace(tuning, num_parallel_maps=calls)
                num_maps += 1
            is_tunable = hasattr(stage, "with_tuning")
            tuned.append(stage.with_tuning(own) if is_tunable else stage)
        return tuned

    def __str__(self) -> str:
        lines = [f"   {self.source!r}"]
        lines += [
            f"{number:2} {stage!r}"
            for number, stage in enumerate(self.tuned_stages(), start=1)
        ]
        lines += [f"   on the device: {op!r}" for op in self.device_ops]
        lines += [f"   path: {n.replace('_', ' ')} {c}" for n, c in self.paths.items()]
        return "\n".join([*lines, f"   {self.tuning!r}"])

    def _repr_html_(self) -> str:
        return page.printed(str(self))


def _require_stage(number: int, stage: object) -> None:
    if isinstance(stage, type) and dataclasses.is_dataclass(stage):
        errors.require_callable("", f"Stage {number}", stage)
    if not callable(stage) and not isinstance(stage, Wrapper):
        raise TypeError(
            f"Stage {number} must be callable Dataset -> Dataset, got {stage!r}."
        )
