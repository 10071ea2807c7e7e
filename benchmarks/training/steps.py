"""The model, its optimizer, and the step functions on a batch.

In: a `Setting` and the ranks. Out: functions batch -> `StepResult` that return when the
device is done: to train, to evaluate, to infer, or to take as long as an accelerator
would. timed_steps.py reads the batches and times the steps. `largest_batch` tries steps
on random images for the largest batch that fits in the memory of every GPU: sizes are
doubled, then halved in between. Each rank tries its own GPU and exchanges nothing.
"""

import contextlib
import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.models import catalog
from benchmarks.options.config import Config
from benchmarks.training import caches
from benchmarks.training.caches import Batch
from benchmarks.training.recorder import StepResult
from benchmarks.training.setting import Setting, make_setting

Sums = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
TrainFunction = Callable[
    [Batch, tf.Tensor], tuple[Sums, tf.Tensor, tf.Tensor, tf.Tensor]
]

F = TypeVar("F", bound=Callable[..., Any])

_MOMENTUM = 0.9
_REFERENCE_BATCH = 256  # the global batch that --learning_rate is given for
_RISE_FRACTION = 0.05  # part of all steps in which the learning rate rises to its peak
_RISE_STEPS = 100  # number of such steps if the number of all steps is not known
_OPEN_STEPS = 1_000_000_000  # stands for an unknown number of steps
_NUM_CLASSES = 1000  # outputs of a model whose loss does not matter
_SPIN_SECONDS = 1e-3  # a sleep may end this late: the last of it is a busy wait

StepFunction = Callable[[Batch], StepResult]


def build_model(setting: Setting) -> keras.Model:
    """Returns the model with new weights.

    Images, float [batch, size, size, 3], become logits, float32 [batch, classes]. The
    weights are float32; the layers compute in the config's precision. With NCHW the
    layers work channels first, and the device transposes the images.
    """
    config = setting.config
    if (
        config.data_format == "NCHW"
        and not config.xla
        and not tf.config.list_physical_devices("GPU")
    ):
        raise ValueError(
            "--data_format=NCHW must have a GPU or --xla: on CPUs TensorFlow's "
            "convolutions are NHWC only. Add --xla, or leave it out."
        )
    keras.utils.set_random_seed(config.seed)
    chosen = catalog.MODELS[config.model]
    size = config.image_size or chosen.image_size
    with _keras_defaults(config):
        model = chosen.build(size, config.num_classes or len(setting.class_names))
        if config.data_format == "NHWC":
            return model
        image = keras.Input((size, size, 3))
        logits = model(keras.layers.Permute((3, 1, 2))(image))
        return keras.Model(image, logits, name=model.name)


@contextlib.contextmanager
def _keras_defaults(config: Config) -> Iterator[None]:
    """Sets the dtype policy and data format of the layers made in the block."""
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
    """Returns SGD with Nesterov momentum and a learning rate schedule.

    The rate rises linearly to its peak, then falls along a cosine to 0. The peak is
    proportional to the global batch. With float16 the loss is scaled, so that small
    gradients do not become 0; a step whose gradients overflow changes no weight and
    halves the scale.
    """
    config, num_steps = setting.config, setting.num_training_steps
    peak = config.learning_rate or catalog.MODELS[config.model].learning_rate
    global_batch_size = setting.batch_size * ranks.num_ranks
    rise = _RISE_STEPS if num_steps is None else round(num_steps * _RISE_FRACTION)
    schedule = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        warmup_target=peak * global_batch_size / _REFERENCE_BATCH,
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
    """Returns a step for training the model, with the loss of the rank.

    Its averaging lasts from the last gradient of the rank to the last average: the wait
    for slower ranks, and the communication that no computing hides. XLA compiles the
    parts before and after the average, because XLA has no operation of Horovod.
    """
    config, pipeline = setting.config, setting.pipeline
    how = {"xla": config.xla, "fp16": config.fp16_allreduce}
    function = _train_function(model, optimizer, pipeline, ranks, **how)
    stop, asked = setting.stop, (tf.zeros([]), tf.ones([]))

    def step(batch: Batch) -> StepResult:
        sums, means, done_at, averaged_at = function(batch, asked[stop.is_asked])
        mean_loss, share_asked = means.numpy().tolist()
        result = _outcome(sums)._replace(
            is_sound=math.isfinite(mean_loss), is_last=share_asked > 0
        )
        if ranks.num_ranks == 1:
            return result
        averaged_at = float(averaged_at)
        # Averages may be there before TensorFlow looks at the clock.
        done_at = min(float(done_at), averaged_at)
        return result._replace(averaging=(done_at, averaged_at))

    return step


def make_eval_step(model: keras.Model, setting: Setting) -> StepFunction:
    """Returns a step for loss and correct predictions, without masked examples."""

    @_compiled(xla=setting.config.xla)
    def function(batch: Batch) -> Sums:
        batch = setting.pipeline.on_device(batch)
        return _sums(batch, model(batch["image"], training=False))

    return lambda batch: _outcome(function(batch))


def make_infer_step(model: keras.Model, setting: Setting) -> StepFunction:
    """Returns a step for the predicted classes of images, copied to the host."""

    @_compiled(xla=setting.config.xla)
    def function(batch: Batch) -> tf.Tensor:
        batch = setting.pipeline.on_device(batch)
        return tf.argmax(model(batch["image"], training=False), axis=-1)

    def step(batch: Batch) -> StepResult:
        function(batch).numpy()  # waits for the device
        return StepResult(_num_examples(batch))

    return step


def make_emulated_step(setting: Setting, ranks: Ranks, seconds: float) -> StepFunction:
    """Returns a step that takes as long as an accelerator would, and computes nothing.

    The batch is copied within the time of the step, as by a real accelerator. A step
    lasts longer than `seconds` only if the copy alone does. Without a GPU the batch is
    copied in memory, to the same place in every step, as drivers do with memory that is
    not pinned.

    In training with several ranks a step ends with the average of a number over the
    ranks, so that late ranks delay the others. The wait is `StepResult.averaging` and
    not part of `seconds`. The time to average real gradients is not emulated.
    """
    is_together = setting.config.mode == "train" and ranks.num_ranks > 1
    # The value is an argument. TensorFlow would fold a constant: the average would run
    # once, while tracing, and no step would wait.
    meet = tf.function(lambda value: ranks.average([value])[0])
    zero = tf.zeros([])
    if is_together:
        meet(zero)  # tracing takes time that is not part of the first step

    copies: dict[str, npt.NDArray[Any]] = {}

    def step(batch: Batch) -> StepResult:
        end = time.perf_counter() + seconds
        if not tf.config.list_logical_devices("GPU"):
            _copy(batch, copies)
        if (left := end - time.perf_counter() - _SPIN_SECONDS) > 0:
            time.sleep(left)
        while (done_at := time.perf_counter()) < end:
            pass
        if is_together:
            meet(zero).numpy()
        averaging = (done_at, time.perf_counter()) if is_together else None
        return StepResult(_num_examples(batch), averaging=averaging)

    return step


def make_step(
    name: str, pipeline: tfpipe.Pipeline, *, seed: int
) -> Callable[[Batch], tf.Tensor]:
    """Returns a training step for the batches of a pipeline: batch -> loss."""
    spec = pipeline.build().element_spec
    parts = spec if isinstance(spec, dict) else {}
    shape: Any = parts["image"].shape if {"image", "label"} <= {*parts} else ()
    if shape[1:] != (*shape[1:3], 3):
        raise ValueError(
            "A training step needs batches with image [batch, size, size, 3] and "
            f"label, got {spec}."
        )
    keras.utils.set_random_seed(seed)
    model = catalog.MODELS[name].build(shape[1], _NUM_CLASSES)
    optimizer = keras.optimizers.SGD(0.01, momentum=_MOMENTUM)
    optimizer.build(model.trainable_variables)
    function = _train_function(model, optimizer, pipeline, Ranks())
    return lambda batch: function(batch, tf.zeros([]))[1][0]


def _train_function(
    model: keras.Model,
    optimizer: keras.Optimizer,
    pipeline: tfpipe.Pipeline,
    ranks: Ranks,
    *,
    xla: bool = False,
    fp16: bool = False,
) -> TrainFunction:
    """Returns a function that optimizes the model for a batch.

    The function takes a batch, and float32 [], 1 to ask all ranks for the end of the
    training. It returns the sums of the rank; the means over all ranks of the loss and
    of the request, float32 [2], averaged with the gradients; and the times of the last
    gradient of the rank and of the last average: float64, of `time.perf_counter`, 0
    without other ranks.
    """
    # Horovod and the tape need the tf.Variable inside each Keras variable.
    variables = [variable.value for variable in model.trainable_variables]

    with tf.device("CPU:0"):
        on_host = tf.Variable(tf.zeros([1]), trainable=False)

    # Without XLA the step is one graph: a gradient is sent as soon as it is computed.
    @_compiled(xla=True, when=xla)
    def differentiate(batch: Batch) -> tuple[list[tf.Tensor], Sums]:
        batch = pipeline.on_device(batch)
        with tf.GradientTape() as tape:
            sums = _sums(batch, model(batch["image"], training=True))
            loss = optimizer.scale_loss(sums[0])
        return tape.gradient(loss, variables), sums

    @_compiled(xla=True, when=xla)
    def update(gradients: Sequence[tf.Tensor]) -> None:
        optimizer.apply(gradients, model.trainable_variables)

    @_compiled()
    def step(
        batch: Batch, asked: tf.Tensor
    ) -> tuple[Sums, tf.Tensor, tf.Tensor, tf.Tensor]:
        gradients, sums = differentiate(batch)
        averages = ranks.average(gradients, fp16=fp16)
        # Not float16: an overflow of the loss must stay visible.
        (means,) = ranks.average([tf.stack([sums[0], asked])])
        update(averages)
        if ranks.num_ranks == 1:
            never = tf.zeros([], tf.float64)
            return sums, means, never, never
        done_at, averaged_at = (_time_of(t, on_host) for t in (gradients, averages))
        return sums, means, done_at, averaged_at

    return step


def _compiled(*, xla: bool = False, when: bool = True) -> Callable[[F], F]:
    """Returns `tf.function` as a typed decorator, or a decorator without effect."""
    decorate: Callable[[F], F] = tf.function(jit_compile=xla or None)
    return decorate if when else lambda function: function


def _time_of(tensors: Sequence[tf.Tensor], on_host: tf.Variable) -> tf.Tensor:
    """Returns the time at which the device has computed all tensors.

    The time is float64, of `time.perf_counter`: tf.timestamp follows a wall clock that
    is set forward and back. `on_host` is float32 [1] on the host, for a copy of one
    element. A GPU works through a queue, so the copy ends when all earlier work is
    done. TensorFlow would leave out a copy that is stored nowhere.
    """
    with tf.control_dependencies(tensors):
        element = tf.reshape(tensors[0], [-1])[:1]
    with tf.device(on_host.device), tf.control_dependencies([on_host.assign(element)]):
        return tf.numpy_function(_now, [], tf.float64)


def _now() -> np.float64:
    # A step without a graph would make a float32 of a Python float: after nine hours
    # since the start of the host, its numbers are 4 ms apart.
    return np.float64(time.perf_counter())


def _sums(batch: Batch, logits: tf.Tensor) -> Sums:
    """Returns (mean loss, correct predictions, examples) of a batch, float32 each."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)
    # The mask is 0 for padding and for images that replace a damaged record.
    mask = batch.get("mask", tf.ones_like(losses))
    num_real = tf.reduce_sum(mask)
    predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
    correct = tf.cast(predicted == batch["label"], tf.float32)
    return (
        tf.math.divide_no_nan(tf.reduce_sum(losses * mask), num_real),
        tf.reduce_sum(correct * mask),
        num_real,
    )


def _outcome(sums: Sums) -> StepResult:
    """Copies the sums of a batch to the host, after the work of the device."""
    loss, num_correct, num_examples = sums
    return StepResult(int(num_examples), float(loss), int(num_correct))


def _num_examples(batch: Batch) -> int:
    if "mask" in batch:
        return int(batch["mask"].numpy().sum())
    return int(batch["label"].shape[0])


def _copy(batch: Batch, copies: dict[str, npt.NDArray[Any]]) -> None:
    """Copies the tensors of a batch to their arrays in `copies`, made once."""
    for name, tensor in batch.items():
        value = tensor.numpy()  # shares the memory of the tensor
        if name not in copies:
            copies[name] = np.empty_like(value)
        np.copyto(copies[name], value)


_MULTIPLE = 8  # of examples, as Tensor Cores like them
_BATCH_PRECISION = 16  # the answer is right within this part of it
_MOST_EXAMPLES = 1 << 16
_NUM_TRIED = 3  # the second uses other memory than the first, which compiles
_NO_MEMORY = ("RESOURCE_EXHAUSTED", "OOM", "out of memory")  # XLA has no error class


def largest_batch(config: Config, ranks: Ranks) -> int:
    """Returns the largest batch for the GPUs of all ranks; all ranks call it."""
    if not tf.config.list_physical_devices("GPU"):
        raise ValueError(
            "--find_batch_size must have a GPU, whose memory limits the batch, and "
            "TensorFlow sees none here. Give --batch_size."
        )
    start = catalog.MODELS[config.model].batch_size
    batch_size: int = min(
        ranks.gather(search_batch(lambda size: fits(config, size), start))
    )
    if not batch_size:
        raise ValueError(
            f"A batch of {_MULTIPLE} examples of --model={config.model} must fit in "
            "the memory of every GPU, and does not. Choose a smaller --image_size, or "
            "--precision=float16."
        )
    return batch_size


def search_batch(fits: Callable[[int], bool], start: int) -> int:
    """Returns the largest number of examples that fits, a multiple of 8; 0 for none.

    Example:
        >>> search_batch(lambda size: size <= 1000, start=64)
        960
    """
    low, high = 0, start
    while high <= _MOST_EXAMPLES and fits(high):
        low, high = high, 2 * high
    while high - low > max(_MULTIPLE, low // _BATCH_PRECISION):
        middle = (low + high) // 2 // _MULTIPLE * _MULTIPLE
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def fits(config: Config, batch_size: int) -> bool:
    """Tries some steps on random images; returns whether the memory was enough."""
    same = ("model", "mode", "image_size", "seed", "precision", "data_format", "xla")
    kept = {name: getattr(config, name) for name in (*same, "num_classes")}
    try:
        _try_steps(Config(synthetic=True, batch_size=batch_size, **kept))
    except tf.errors.OpError as error:
        if not any(sign in str(error) for sign in _NO_MEMORY):
            raise
        return False
    finally:
        # The next try needs the memory of these models.
        keras.backend.clear_session()
        gc.collect()
    return True


def _try_steps(config: Config) -> None:
    alone = Ranks()
    setting = make_setting(config, alone)
    model = build_model(setting)
    if config.mode == "train":
        optimizer = make_optimizer(model, setting, alone)
        step = make_train_step(model, optimizer, setting, alone)
    else:
        step = make_infer_step(model, setting)
    # Batches wait on the device while a step runs.
    batches = caches.to_device(setting.pipeline.build(num_epochs=None))
    for batch in itertools.islice(batches, _NUM_TRIED):
        step(batch)
