"""What a step computes: the model, its optimizer, and the steps that take a batch.

In: a `Setting` and the ranks. Out: functions batch -> `Outcome` that return when the
device is done, to train, to evaluate, to infer, or to take the time that an accelerator
would. Reading the batches and timing the steps is left to loop.py.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.models import catalog
from benchmarks.options.config import Config
from benchmarks.training.setting import Setting

Batch = dict[str, tf.Tensor]
Sums = tuple[tf.Tensor, tf.Tensor, tf.Tensor]

_MOMENTUM = 0.9
_REFERENCE_BATCH = 256  # global batch that learning rates are given for
_RISE_FRACTION = 0.05  # of all steps, in which the learning rate rises to its peak
_RISE_STEPS = 100  # the same where the number of steps is open
_OPEN_STEPS = 1_000_000_000
_NUM_CLASSES = 1000  # of a model that is not to learn anything
_BATCHES_AHEAD = 2  # on the GPU, beside the one in work
_SPIN_SECONDS = 1e-3  # a sleep may end that late, so the last of it is not slept


class Outcome(NamedTuple):
    """What a step gave, on the host.

    num_examples counts no padding; loss is their mean, and NaN where the step has none.
    sync_seconds is how long the step waited for other ranks when its own work was done,
    as far as that can be told apart.
    """

    num_examples: int
    loss: float = math.nan
    num_correct: int = 0
    sync_seconds: float = 0.0


StepFunction = Callable[[Batch], Outcome]


def build_model(setting: Setting) -> keras.Model:
    """The model with new weights: images [batch, size, size, 3] -> float32 logits.

    Its weights are float32; its layers compute in the config's precision. With NCHW
    they hold channels first, and the device transposes the images.

    Raises:
        ValueError: If the images are too small, or the data format cannot be had.
    """
    config = setting.config
    _check_data_format(config)
    keras.utils.set_random_seed(config.seed)
    size = config.image_size
    with _keras_defaults(config):
        model = catalog.MODELS[config.model].build(size, config.num_classes)
        if config.data_format == "NHWC":
            return model
        image = keras.Input((size, size, 3))
        logits = model(keras.layers.Permute((3, 1, 2))(image))
        return keras.Model(image, logits, name=model.name)


def _check_data_format(config: Config) -> None:
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    if config.data_format == "NCHW" and not has_gpu and not config.xla:
        raise ValueError(
            "--data_format=NCHW must have a GPU or --xla: on CPUs TensorFlow's "
            "convolutions are NHWC only. Add --xla, or leave it out."
        )


@contextlib.contextmanager
def _keras_defaults(config: Config) -> Iterator[None]:
    """What layers that are made meanwhile compute in, and where their channels are."""
    policy, layout = keras.config.dtype_policy(), keras.config.image_data_format()
    keras.config.set_dtype_policy(
        "float32" if config.precision == "float32" else f"mixed_{config.precision}"
    )
    keras.config.set_image_data_format(
        "channels_last" if config.data_format == "NHWC" else "channels_first"
    )
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        keras.config.set_image_data_format(layout)


def make_optimizer(
    model: keras.Model, setting: Setting, ranks: Ranks
) -> keras.Optimizer:
    """SGD with momentum; the rate rises to its peak, then falls along a cosine to 0.

    With float16 the loss is scaled, so that small gradients do not become 0; a step
    whose gradients overflow is left out and the scale halved.
    """
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
    if setting.config.precision == "float16":
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    return optimizer


def make_train_step(
    model: keras.Model, optimizer: keras.Optimizer, setting: Setting, ranks: Ranks
) -> StepFunction:
    """A step that optimizes the model; the loss is this rank's.

    XLA compiles what is before and what is after the average over ranks, each by
    itself: it cannot compile Horovod's part.
    """
    function = _train_function(
        model, optimizer, setting.pipeline, ranks, xla=setting.config.xla
    )
    return lambda batch: _outcome(function(batch))


def make_eval_step(model: keras.Model, setting: Setting) -> StepFunction:
    """The same without optimizing; examples whose mask is 0 do not count."""

    @tf.function(jit_compile=setting.config.xla or None)
    def function(batch: Batch) -> Sums:
        batch = setting.pipeline.on_device(batch)
        return _sums(batch, model(batch["image"], training=False))

    return lambda batch: _outcome(function(batch))


def make_infer_step(model: keras.Model, setting: Setting) -> StepFunction:
    """A step that predicts the class of each image, which is brought to the host."""

    @tf.function(jit_compile=setting.config.xla or None)
    def function(batch: Batch) -> tf.Tensor:
        batch = setting.pipeline.on_device(batch)
        return tf.argmax(model(batch["image"], training=False), axis=-1)

    def step(batch: Batch) -> Outcome:
        function(batch).numpy()  # waits for the device
        return Outcome(_num_examples(batch))

    return step


def make_emulated_step(setting: Setting, ranks: Ranks, seconds: float) -> StepFunction:
    """A step that takes as long as an accelerator would, and computes nothing.

    The batch is copied as for a real step, within the time of the step: real ones find
    their batch copied while the one before was in work. So a step lasts longer only
    where the copy alone does. With a GPU `to_device` has copied it; without one it is
    copied in memory, into the same place each time, as drivers do from memory that is
    not pinned.

    In training with several ranks each step ends with an average over ranks of one
    number: ranks that were late hold up the others as they do in real training. That
    time is `Outcome.sync_seconds`, and no part of `seconds`. What the average of real
    gradients would take is not emulated.
    """
    is_together = setting.config.mode == "train" and ranks.num_ranks > 1
    # A number of its own would be folded: each rank would average it once, not wait.
    meet = tf.function(lambda number: ranks.average([number])[0])
    number = tf.zeros([])
    if is_together:
        meet(number)  # traces, which is no part of the first step

    places: dict[str, npt.NDArray[Any]] = {}

    def step(batch: Batch) -> Outcome:
        end = time.perf_counter() + seconds
        if not tf.config.list_logical_devices("GPU"):
            _copy(batch, places)
        _sleep_until(end)
        if not is_together:
            return Outcome(_num_examples(batch))
        done_at = time.perf_counter()
        meet(number).numpy()
        sync_seconds = time.perf_counter() - done_at
        return Outcome(_num_examples(batch), sync_seconds=sync_seconds)

    return step


def make_step(
    name: str, pipeline: tfpipe.Pipeline, *, seed: int
) -> Callable[[Batch], tf.Tensor]:
    """A training step of a model for the batches of a pipeline: batch -> loss.

    Raises:
        ValueError: If the batches are none of images [batch, size, size, 3] and labels,
            or the images are too small for the model.
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
    model = catalog.MODELS[name].build(image.shape[1], _NUM_CLASSES)
    optimizer = keras.optimizers.SGD(0.01, momentum=_MOMENTUM)
    optimizer.build(model.trainable_variables)
    function = _train_function(model, optimizer, pipeline, Ranks(), xla=False)
    return lambda batch: function(batch)[0]


def to_device(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The batches, copied to the GPU before they are asked for, where there is one."""
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        return dataset
    return dataset.apply(
        tf.data.experimental.prefetch_to_device(gpus[0].name, _BATCHES_AHEAD)
    )


def _train_function(
    model: keras.Model,
    optimizer: keras.Optimizer,
    pipeline: tfpipe.Pipeline,
    ranks: Ranks,
    *,
    xla: bool,
) -> Callable[[Batch], Sums]:
    """batch -> (mean loss, correct predictions, examples); optimizes the model."""
    # Horovod and the tape need the tf.Variable inside each Keras variable.
    variables = [variable.value for variable in model.trainable_variables]

    # Without XLA all is one graph, and a gradient is sent as soon as it is there.
    part = tf.function(jit_compile=True) if xla else lambda function: function

    @part
    def differentiate(batch: Batch) -> tuple[list[tf.Tensor], Sums]:
        batch = pipeline.on_device(batch)
        with tf.GradientTape() as tape:
            sums = _sums(batch, model(batch["image"], training=True))
            loss = optimizer.scale_loss(sums[0])
        return tape.gradient(loss, variables), sums

    @part
    def update(gradients: Sequence[tf.Tensor]) -> None:
        optimizer.apply(gradients, model.trainable_variables)

    @tf.function
    def step(batch: Batch) -> Sums:
        gradients, sums = differentiate(batch)
        update(ranks.average(gradients))
        return sums

    return step


def _sums(batch: Batch, logits: tf.Tensor) -> Sums:
    """(mean loss, correct predictions, examples) of a batch."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)
    # What stands in for a skipped record, or pads a batch, counts for nothing.
    mask = batch.get("mask", tf.ones_like(losses))
    num_real = tf.reduce_sum(mask)
    predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
    correct = tf.cast(predicted == batch["label"], tf.float32)
    return (
        tf.math.divide_no_nan(tf.reduce_sum(losses * mask), num_real),
        tf.reduce_sum(correct * mask),
        num_real,
    )


def _outcome(sums: Sums) -> Outcome:
    """The same on the host, so when the device is done."""
    loss, num_correct, num_examples = sums
    return Outcome(
        loss=float(loss), num_correct=int(num_correct), num_examples=int(num_examples)
    )


def _num_examples(batch: Batch) -> int:
    if "mask" in batch:
        return int(batch["mask"].numpy().sum())
    return int(batch["image"].shape[0])


def _copy(batch: Batch, places: dict[str, npt.NDArray[Any]]) -> None:
    """Copies every tensor of a batch to its place, which it gets the first time."""
    for name, tensor in batch.items():
        value = tensor.numpy()  # the tensor's own memory
        if name not in places:
            places[name] = np.empty_like(value)
        np.copyto(places[name], value)


def _sleep_until(end: float) -> None:
    """Returns at a time of time.perf_counter, and not 0.1 ms later."""
    left = end - time.perf_counter() - _SPIN_SECONDS
    if left > 0:
        time.sleep(left)
    while time.perf_counter() < end:
        pass
