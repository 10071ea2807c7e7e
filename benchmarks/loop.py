"""The loops: train and evaluation steps, timed as wait against compute.

In: a `Setting` and the ranks. Out: the figures of the run. Wait is the time blocked on
the next batch; compute is from there until the step's result is on the host, so
averaging gradients and waiting for slower ranks belong to compute.
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tqdm

import tfpipe
from benchmarks import metrics, models
from benchmarks.checkpoint import Checkpoint
from benchmarks.metrics import Step
from benchmarks.ranks import Ranks
from benchmarks.setting import Setting

Batch = dict[str, tf.Tensor]
StepFunction = Callable[[Batch], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]

_MOMENTUM = 0.9
_REFERENCE_BATCH = 256  # global batch that learning rates are given for
_RISE_FRACTION = 0.05  # of all steps, in which the learning rate rises to its peak
_RISE_STEPS = 100  # the same where the number of steps is open
_OPEN_STEPS = 1_000_000_000
_NUM_CLASSES = 1000  # of a model that is not to learn anything


def train(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Trains, from the newest checkpoint if there is one, and times the steps.

    Raises:
        ValueError: If a checkpoint does not fit, or no step is left to time.
    """
    model = _build(setting)
    optimizer = _make_optimizer(model, setting, ranks)
    checkpoint = Checkpoint(
        setting.config.checkpoint_dir,
        {"model": model, "optimizer": optimizer},
        [variable.value for variable in (*model.variables, *optimizer.variables)],
        ranks,
    )
    state = checkpoint.restore() or tfpipe.State()
    source = setting.pipeline.source
    tfpipe.preflight(setting.pipeline, ranks.gather, state=state)
    num_warmup, num_timed = setting.num_steps(state)
    dataset = setting.pipeline.build(state=state, num_epochs=None)
    function = _make_train_step(model, optimizer, setting.pipeline, ranks)
    recorder = metrics.Recorder(setting.num_records)
    for number, step in enumerate(
        _steps(setting, dataset, function, num_warmup + num_timed, ranks)
    ):
        recorder.add(step, state.epoch)
        state = source.advance(state)
        if state.step == 0:
            checkpoint.save(state)
            _report_faults(setting)
        if number + 1 == num_warmup:
            ranks.gather(None)  # a barrier: all ranks start together
            recorder.start_timing()
    if state.step:
        checkpoint.save(state)
    traces = ranks.gather(recorder.trace())
    return {
        **metrics.summarize(traces),
        **metrics.learning(traces),
        **_faults(setting, ranks),
        "num_warmup_steps": num_warmup,
        "num_parameters": model.count_params(),
    }


def evaluate(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Accuracy and loss of the newest checkpoint, every record of the split once.

    Raises:
        ValueError: If there is no checkpoint.
    """
    model = _build(setting)
    variables = [variable.value for variable in model.variables]
    folder = setting.config.checkpoint_dir
    state = Checkpoint(folder, {"model": model}, variables, ranks).restore()
    if state is None:
        raise ValueError(
            f"--checkpoint_dir {folder} must hold a checkpoint to evaluate, got none. "
            "Train with the same --checkpoint_dir first."
        )
    tfpipe.preflight(setting.pipeline, ranks.gather)
    recorder = metrics.Recorder(setting.num_records)
    dataset = setting.pipeline.build()
    num_steps = setting.steps_per_epoch
    # The first step compiles and fills the pipeline; it counts, but is not timed.
    num_warmup = min(1, num_steps - 1)
    function = _make_eval_step(model, setting)
    for number, step in enumerate(_steps(setting, dataset, function, num_steps, ranks)):
        recorder.add(step, state.epoch)
        if number + 1 == num_warmup:
            ranks.gather(None)
            recorder.start_timing()
    traces = ranks.gather(recorder.trace())
    result = metrics.learning(traces)
    _report_faults(setting)
    return {
        **metrics.summarize(traces),
        **_faults(setting, ranks),
        "loss": result["epochs"][-1]["loss"],
        "accuracy": result["accuracy"],
        "num_evaluated": result["epochs"][-1]["num_examples"],
        "epochs_trained": state.epoch,
        "num_warmup_steps": num_warmup,
        "num_parameters": model.count_params(),
    }


def _report_faults(setting: Setting) -> None:
    """Says on stderr, at the end of an epoch, which records were skipped so far."""
    log = setting.pipeline.faults
    if log is not None and log.faults:
        print(log.summary(), file=sys.stderr)


def _faults(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """The damaged records that all ranks met, each once."""
    log = setting.pipeline.faults
    met = ranks.gather([] if log is None else log.faults)
    found = {(fault.shard, fault.byte_offset): fault for rank in met for fault in rank}
    return {"faults": [dataclasses.asdict(found[place]) for place in sorted(found)]}


def _build(setting: Setting) -> keras.Model:
    keras.utils.set_random_seed(setting.config.seed)
    model = models.MODELS[setting.config.model]
    return model.build(setting.config.image_size, len(setting.class_names))


def _make_optimizer(
    model: keras.Model, setting: Setting, ranks: Ranks
) -> keras.Optimizer:
    """SGD with momentum; the rate rises to its peak, then falls along a cosine to 0."""
    num_steps = setting.num_training_steps
    global_batch_size = setting.config.batch_size * ranks.num_ranks
    rise = _RISE_STEPS if num_steps is None else round(num_steps * _RISE_FRACTION)
    schedule = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        warmup_target=setting.config.learning_rate
        * global_batch_size
        / _REFERENCE_BATCH,
        warmup_steps=max(1, rise),
        decay_steps=num_steps or _OPEN_STEPS,
    )
    optimizer = keras.optimizers.SGD(schedule, momentum=_MOMENTUM, nesterov=True)
    optimizer.build(model.trainable_variables)
    return optimizer


def make_step(
    name: str, pipeline: tfpipe.Pipeline, *, seed: int
) -> Callable[[Batch], tf.Tensor]:
    """A training step of a model for the batches of a pipeline: batch -> loss.

    Raises:
        ValueError: If the batches are none of images [batch, size, size, 3] and labels.
    """
    spec = pipeline.build().element_spec
    image = spec.get("image") if isinstance(spec, dict) else None
    if (
        image is None
        or "label" not in spec
        or image.shape[1:] != (*image.shape[1:3], 3)
    ):
        raise ValueError(
            "A training step needs batches with image [batch, size, size, 3] and "
            f"label, got {spec}."
        )
    keras.utils.set_random_seed(seed)
    model = models.MODELS[name].build(image.shape[1], _NUM_CLASSES)
    optimizer = keras.optimizers.SGD(0.01, momentum=_MOMENTUM)
    optimizer.build(model.trainable_variables)
    step = _make_train_step(model, optimizer, pipeline, Ranks())
    return lambda batch: step(batch)[0]


def _make_train_step(
    model: keras.Model,
    optimizer: keras.Optimizer,
    pipeline: tfpipe.Pipeline,
    ranks: Ranks,
) -> StepFunction:
    """batch -> (mean loss, correct predictions, examples); optimizes the model."""
    # Horovod and the tape need the tf.Variable inside each Keras variable.
    variables = [variable.value for variable in model.trainable_variables]

    @tf.function
    def step(batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        batch = pipeline.on_device(batch)
        with tf.GradientTape() as tape:
            logits = model(batch["image"], training=True)
            losses = _losses(batch, logits)
            # What stands in for a skipped record counts for nothing.
            mask = batch.get("mask", tf.ones_like(losses))
            num_real = tf.reduce_sum(mask)
            loss = tf.math.divide_no_nan(tf.reduce_sum(losses * mask), num_real)
        gradients = ranks.average(tape.gradient(loss, variables))
        optimizer.apply(gradients, model.trainable_variables)
        return loss, tf.reduce_sum(_correct(batch, logits) * mask), num_real

    return step


def _make_eval_step(model: keras.Model, setting: Setting) -> StepFunction:
    """The same without optimizing; examples whose mask is 0 do not count."""

    @tf.function
    def step(batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        batch = setting.pipeline.on_device(batch)
        logits = model(batch["image"], training=False)
        mask = batch["mask"]
        num_real = tf.reduce_sum(mask)
        loss_sum = tf.reduce_sum(_losses(batch, logits) * mask)
        num_correct = tf.reduce_sum(_correct(batch, logits) * mask)
        return tf.math.divide_no_nan(loss_sum, num_real), num_correct, num_real

    return step


def _losses(batch: Batch, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)


def _correct(batch: Batch, logits: tf.Tensor) -> tf.Tensor:
    predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return tf.cast(predicted == batch["label"], tf.float32)


def _steps(
    setting: Setting,
    dataset: tf.data.Dataset,
    function: StepFunction,
    num_steps: int,
    ranks: Ranks,
) -> Iterator[Step]:
    """Runs the steps, yields each when it is done, and shows progress on rank 0."""
    timer = tfpipe.StepTimer(setting.pipeline.source.batch_size)
    num_done = 0
    disable = None if ranks.is_first else True  # None: only on a terminal
    with tqdm.tqdm(
        total=num_steps, unit="step", file=sys.stderr, disable=disable
    ) as bar:
        for batch in itertools.islice(timer.batches(dataset), num_steps):
            loss, num_correct, num_examples = function(batch)
            result = float(loss)  # waits for the device
            step = Step(
                *timer.end_step(),
                loss=result,
                num_correct=int(num_correct),
                num_examples=int(num_examples),
                record_ids=_record_ids(batch),
            )
            yield step
            bar.update()
            bar.set_postfix(loss=f"{step.loss:.3f}", refresh=False)
            num_done += 1
    if num_done < num_steps:
        raise RuntimeError(f"The input ended after {num_done} of {num_steps} steps.")


def _record_ids(batch: Batch) -> npt.NDArray[np.int64]:
    """Which records a batch held, without padding; none if it is synthetic."""
    if "record_id" not in batch:
        return np.empty(0, np.int64)
    ids: npt.NDArray[np.int64] = batch["record_id"].numpy()
    return ids[batch["mask"].numpy() > 0] if "mask" in batch else ids
