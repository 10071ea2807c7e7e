"""The methods of a pipeline for Keras: datasets, a layer, names and steps.

In: a pipeline. Out: what `fit`, `evaluate` and `predict` of a Keras model take.
"""

from typing import Any

import tensorflow as tf

from tfpipe import errors
from tfpipe.consumers import device_layer, for_keras
from tfpipe.consumers.for_keras import ClassWeights, DeviceOps
from tfpipe.consumers.reminder import Reminder
from tfpipe.reading.state import State


class KerasMethods:
    """Methods that `Pipeline` has for a Keras model."""

    source: Any
    device_ops: Any
    _reminder: Reminder

    def _built(
        self, state: State, num_epochs: int | None, *, is_continued: bool = False
    ) -> tf.data.Dataset:
        """Builds the pipeline."""
        raise NotImplementedError

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

        Each iteration of the dataset, and so each epoch of Keras, has the next
        `num_epochs` epochs of the data, with a new order and new random crops.

        In evaluation (`remainder="pad"`) the rows that fill up a batch are left out:
        the last batch is smaller, and the metrics of Keras are exact with `metrics` as
        well as with `weighted_metrics`. A rank without any real record has no batch.

        Element: (x, y, sample_weight).
            x: image [rows, height, width, 3]; normalized floats, or as `build` gives it
                with device_ops="layer"
            y: label, int32 [rows]; float32 [rows, classes] if `one_hot`, or if labels
                are such rows already (MixUp, several labels)
            sample_weight: float32 [rows], 0 for a row that stands in for a damaged
                record in training, otherwise 1, times the weight of its class

        Args:
            epoch: Number of the epoch at which the first iteration begins, >= 0.
            num_epochs: Number of epochs in an iteration, >= 1. None gives an endless
                dataset; `fit` then needs steps_per_epoch.
            state: The state at which the first iteration begins, instead of `epoch`: it
                finishes the interrupted epoch, and the next iterations are whole. Give
                the dataset to `fit` as it is, with no stage behind it; Keras then says
                once that its input ran out of data, and goes on.
            one_hot: Whether integer labels become rows, one column for each class of
                the index.
            device_ops: "apply" applies `device_ops`, so that the model gets normalized
                images; "layer" leaves them to a model that begins with
                `device_layer()`, which gets uint8 images, a quarter of the bytes.
            class_weights: Weight of each class, >= 0, a list or a dict from label to
                weight; Keras refuses its class_weight beside sample weights. A row of
                floats gets the sum of its values times these weights.

        Raises:
            ValueError: If an argument is wrong, the batches have no image and label, or
                the source cannot go on with the next epoch in each iteration.
            Exception: Any error of a stage, with a note that names the stage.
        """
        errors.require_int("", "num_epochs", num_epochs, least=1, also=[None])
        errors.require_int("", "epoch", epoch, least=0)
        errors.require_kind("", "state", state, State, or_none=True)
        if state is None:
            state = State(epoch=epoch)
        elif epoch:
            raise ValueError("Give either state or epoch; got both.")
        elif hasattr(self.source, "advance"):
            state = self.source.advance(state, 0)  # the next epoch if this one is over
        self._reminder.settle()
        made = for_keras.with_tuples(
            self,
            state,
            num_epochs,
            one_hot=one_hot,
            device_ops=device_ops,
            class_weights=class_weights,
        )
        dataset = made._built(state, num_epochs, is_continued=num_epochs is not None)
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
        return device_layer.device_layer(
            self.device_ops, self._built(State(), 1).element_spec["image"]
        )

    def record_names(self, *, epoch: int | None = None) -> list[str]:
        """Returns the source files of the rows of `model.predict(p.for_keras())`.

        The names are those of this rank's records in their order, as the catalog has
        them, relative to the folder that was converted. Call it after `predict`: it
        leaves out the records that were found damaged until then.

        Args:
            epoch: Number of the epoch, >= 0; it is needed if the source shuffles.

        Raises:
            BadIndexError: If the data set has no catalog.
            ValueError: If the order is not known: the source shuffles and `epoch` is
                None, or a stage may move or drop records.
        """
        return for_keras.record_names(self, epoch)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps that every rank makes in an epoch of `build`.

        Raises:
            ValueError: If the source does not know it.
        """
        known: int | None = getattr(self.source, "steps_per_epoch", None)
        if known is None:
            raise ValueError(
                "steps_per_epoch must come from the source, as TFRecordSource has it; "
                f"{self.source!r} does not say how many steps an epoch has. Count the "
                "batches of pipeline.build() once."
            )
        return known
