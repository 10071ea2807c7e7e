"""Keras callbacks that save the state of a pipeline and log the waits for input.

In: the source of a pipeline, and a `CheckpointState` with the start of training; a
dataset and a `StepTimer`. Out: the same `CheckpointState`, updated after every step,
and on request a file at every checkpoint; the figures of the steps.
"""

import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.pipeline import Pipeline
from tfpipe.reading.state import CheckpointState
from tfpipe.stages.basic import as_it_is
from tfpipe.training.step_timer import StepTimer


class StateCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Counts the steps of `model.fit` in a state, from which another fit goes on.

        saved = tfpipe.CheckpointState()    # or from a checkpoint or a file
        model.fit(
            pipeline.for_keras(state=saved.state),
            initial_epoch=saved.state.epoch,
            epochs=num_epochs,
            callbacks=[
                tfpipe.StateCallback(pipeline, saved, path="run-{epoch}.state.json"),
                keras.callbacks.ModelCheckpoint("run-{epoch}.keras"),
            ],
        )

    To go on from `run-7.keras`:

        text = pathlib.Path("run-7.state.json").read_text()
        saved = tfpipe.CheckpointState(tfpipe.State.from_json(text))

    The state counts the batches of training, without the prefetched ones. `fit` as
    above goes on with exactly the next record: the first epoch of Keras finishes the
    interrupted epoch of the data, and the next epochs are whole. Keep the
    steps_per_execution with which the epoch was begun.

    A `tf.train.Checkpoint(model=model, data=saved)` of another callback holds both the
    model and the state; the other callback must come after `StateCallback`.

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> callback = tfpipe.StateCallback(pipeline, tfpipe.CheckpointState())
        >>> callback.saved.state.step
        0

    Args:
        pipeline: The pipeline of the training.
        saved: The start of training; holds the state after each step.
        path: File to write the state to, a line of JSON. `{epoch}` and `{batch}` stand
            for numbers from 1 on, as in Keras' ModelCheckpoint. The state is the same
            on all ranks: give the path to a single rank.
        save_freq: "epoch", or the number of batches after which to write, counted as
            by ModelCheckpoint.

    Raises:
        TypeError: If the source of the pipeline has no method `advance`.
        ValueError: If save_freq or path is wrong; when training begins, if the steps
            of an epoch are not a multiple of the model's steps_per_execution.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        saved: CheckpointState,
        *,
        path: str | os.PathLike[str] | None = None,
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__()
        errors.require_kind(self, "pipeline", pipeline, Pipeline)
        errors.require_kind(self, "saved", saved, CheckpointState)
        if not hasattr(pipeline.source, "advance"):
            raise TypeError(
                "StateCallback must have a pipeline whose source says where it is, as "
                f"TFRecordSource does with advance, got {pipeline.source!r}."
            )
        errors.require_int(self, "save_freq", save_freq, least=1, also=["epoch"])
        names = {} if save_freq == "epoch" else {"batch": 1}
        try:
            os.fspath(path or "").format(epoch=1, **names)
        except (KeyError, IndexError) as error:
            raise ValueError(
                f"path must hold no names but {{epoch}} and, unless save_freq is "
                f"'epoch', {{batch}}; got {path}."
            ) from error
        errors.require_local_path("StateCallback", "path", path)
        self.saved = saved
        self._source: Any = pipeline.source
        self._path = path
        self._save_freq = save_freq
        self._epoch = 0
        self._num_batches_since = 0

    def on_train_begin(self, logs: object = None) -> None:
        """Checks that the steps can be counted."""
        at_once, steps = self.model.steps_per_execution, self.params.get("steps")
        # Otherwise Keras runs fewer or more steps in the last call than it reports.
        if at_once > 1 and (steps is None or steps % at_once):
            raise ValueError(
                "The steps of an epoch must be a multiple of the model's "
                f"steps_per_execution, got {steps} and {at_once}: give fit a "
                "steps_per_epoch that is."
            )

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """Remembers the number of the epoch, for the name of the file."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Counts the steps of an execution."""
        # With several steps in an execution `batch` is the first or the last of them,
        # depending on the version of Keras.
        num_steps = self.model.steps_per_execution
        self.saved.state = self._source.advance(self.saved.state, num_steps)
        self._num_batches_since += num_steps
        if self._save_freq == "epoch":
            return
        if self._num_batches_since >= int(self._save_freq):
            self._num_batches_since = 0
            self._write(batch=batch + 1)

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Writes the state, if an epoch is the interval."""
        if self._save_freq == "epoch":
            self._write()

    def _write(self, **names: int) -> None:
        if self._path is None:
            return
        path = os.fspath(self._path).format(epoch=self._epoch + 1, **names)
        content = self.saved.state.to_json() + "\n"
        atomic.write_chosen(pathlib.Path(path), content.encode())


class WaitProbe:
    """Measures within tf.data how long the reader of a dataset waits for each batch.

    The probe serves readers inside a compiled function, where Python sees no request.
    The thread of the reader reads the clock twice, before a batch is requested and when
    the batch is there, in two small functions without Python.

    Args:
        clock: Returns seconds, float64 []; called in a tf.function.
    """

    def __init__(self, *, clock: Callable[[], tf.Tensor] = tf.timestamp) -> None:
        self._clock = clock
        # tf.data's functions run on the host and take no variable from elsewhere.
        with tf.device("/CPU:0"):
            zeros = tf.zeros([2], tf.float64)
            self._sums = tf.Variable(zeros, trainable=False)  # batches, seconds
        self._taken = (0, 0.0)
        self._taken_at = time.monotonic()
        self._kept: list[object] = []

    def watch(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the same dataset, watched. Read it directly, with no stage behind it.

        End the dataset with a prefetch, as every preset does: tf.data does not add its
        own prefetch behind a parallel stage here. The probe must live as long as the
        watched dataset.
        """
        ticks = tf.data.Dataset.from_tensors(0).repeat()
        spec = tf.TensorSpec([], tf.float64)
        asked_at = self._map(ticks, lambda _: self._clock(), spec)
        # Zip asks its inputs in turn: the clock is read before the batch is made.
        pairs = tf.data.Dataset.zip((asked_at, dataset))
        watched = self._map(pairs, self._note, dataset.element_spec)
        self._kept.append(dataset)
        options = tf.data.Options()
        # A prefetch behind this stage would request batches for its own buffer.
        options.experimental_optimization.inject_prefetch = False
        return watched.with_options(options)

    def take(self) -> tuple[int, float]:
        """Returns the batches read since the last call, and the seconds waited."""
        num_batches, seconds = self._sums.numpy().tolist()
        before, self._taken = self._taken, (int(num_batches), seconds)
        then, self._taken_at = self._taken_at, time.monotonic()
        waited = seconds - before[1]
        if self._clock is tf.timestamp:  # a clock that may be set forward
            waited = min(waited, self._taken_at - then)
        return self._taken[0] - before[0], waited

    def _note(self, element: tuple[tf.Tensor, Any]) -> Any:
        asked_at, batch = element
        # The clock of the machine may be set back meanwhile.
        wait = tf.maximum(self._clock() - asked_at, 0.0)
        self._sums.assign_add(tf.stack([tf.ones_like(wait), wait]), read_value=False)
        return batch

    def _map(
        self,
        dataset: tf.data.Dataset,
        function: Callable[[Any], Any],
        element_spec: Any,
    ) -> tf.data.Dataset:
        """Maps the dataset in the reader's own thread, to elements of `element_spec`.

        `Dataset.map` hands a call to a pool of threads and waits for the result. The
        wait is longer than these calls, and much longer where all processors are busy.
        """
        spec = dataset.element_spec
        parts = tf.nest.flatten(spec)
        if not all(isinstance(part, tf.TensorSpec) for part in parts):
            # Only tf.data knows the parts of sparse and ragged tensors.
            return dataset.map(as_it_is(lambda *parts: function(parts)))

        def flat(*parts: tf.Tensor) -> list[tf.Tensor]:
            element = function(tf.nest.pack_sequence_as(spec, parts))
            return list(tf.nest.flatten(element))

        concrete = tf.function(flat, autograph=False).get_concrete_function(*parts)
        self._kept.append(concrete)
        variant = tf.raw_ops.MapDataset(
            input_dataset=tf.data.experimental.to_variant(dataset),
            other_arguments=concrete.captured_inputs,
            f=concrete,
            output_types=[output.dtype for output in concrete.outputs],
            output_shapes=[output.shape for output in concrete.outputs],
            use_inter_op_parallelism=False,
            preserve_cardinality=True,
        )
        return tf.data.experimental.from_variant(variant, element_spec)


class LogInput(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Logs how long `model.fit` waits for its input and computes, step by step.

        log = tfpipe.LogInput(tfpipe.StepTimer(256, log_dir="logs"))
        model.fit(log.watch(dataset), callbacks=[log])

    Keras requests a batch inside its compiled train function, where no callback sees
    the request. With `watch`, tf.data reads the clock there. Give fit the watched
    dataset itself, with no stage behind it.

    Wait is the time from a request until the batch is there, plus the time from the
    begin of an epoch to its first step, in which fit opens the dataset. Compute is the
    rest of the time from the end of a step to the end of the next step, including other
    callbacks within an epoch. Validation and the end of an epoch count as neither.
    Where an execution has several steps (steps_per_execution), a step counts as their
    mean.

    Like every callback with on_train_batch_end, `LogInput` makes Keras fetch the losses
    of a step before the next step. On a GPU, compute is therefore the time of the
    device, and wait the time in which the device is idle. Otherwise the next request
    would come while the device still works.

    Example:
        >>> log = tfpipe.LogInput(tfpipe.StepTimer(batch_size=4))
        >>> len(log.watch(tf.data.Dataset.range(5).prefetch(1)))
        5

    Args:
        timer: Makes the figures and writes them; ends its group of steps with the
            epoch. Its `parallelism` is not called, because Keras keeps the iterator.

    Raises:
        ValueError: When training begins, if a tf.distribute strategy of several
            replicas reads the dataset, because it reads ahead; at the first step, if
            fit does not read the watched dataset.
    """

    def __init__(self, timer: StepTimer) -> None:
        super().__init__()
        errors.require_kind(self, "timer", timer, StepTimer)
        self.timer = timer
        self._probe = WaitProbe()
        self._ended_at: float = 0.0
        self._opening_seconds: float | None = None

    def watch(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the same batches, for fit. End the dataset with a prefetch."""
        return self._probe.watch(dataset)

    def on_train_begin(self, logs: object = None) -> None:
        """Checks that the reader of the dataset is the train function."""
        num_replicas = self.model.distribute_strategy.num_replicas_in_sync
        if num_replicas > 1:
            raise ValueError(
                "LogInput must have a model of one replica, got a tf.distribute "
                f"strategy of {num_replicas}: it reads ahead of the training step, so "
                "what that waits cannot be seen. Use a process a replica, or leave "
                "LogInput out."
            )

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """Reads the clock; fit opens the dataset next."""
        self.timer.begin()
        self._probe.take()
        self._ended_at = self.timer.clock()
        self._opening_seconds = None

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        """Measures before the first step how long opening the dataset took."""
        if self._opening_seconds is None:
            self._opening_seconds = self.timer.clock() - self._ended_at

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Counts the steps of an execution."""
        now = self.timer.clock()
        num_steps, wait_seconds = self._probe.take()
        if num_steps == 0:
            raise ValueError(
                "LogInput must watch what fit reads, but this step read none of it. "
                "Give fit log.watch(dataset), where log is this callback."
            )
        wait_seconds += self._opening_seconds or 0.0
        seconds, self._ended_at = now - self._ended_at, now
        self._opening_seconds = 0.0
        # The two clocks differ by microseconds.
        compute_seconds = max(seconds - wait_seconds, 0.0)
        self.timer.add(wait_seconds, compute_seconds, num_steps=num_steps)

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Ends the group of steps."""
        self.timer.flush()
