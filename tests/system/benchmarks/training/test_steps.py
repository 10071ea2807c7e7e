"""benchmarks.training.steps with Keras models: dtypes, layouts, XLA, two ranks."""

import functools
import pathlib
import statistics
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.training import loop, steps
from benchmarks.training.recorder import StepResult
from benchmarks.training.setting import make_setting
from tests.support.data.tiny_training import first_batch, tiny_setting
from tests.support.processes.rank_pool import RankPool
from tests.support.processes.warm_python import WarmPython


@functools.cache
def _train(**fields: object) -> tuple[list[float], list[np.ndarray]]:
    """Trains three steps; returns their losses and the weights after them."""
    setting = tiny_setting(**fields)
    model = steps.build_model(setting)
    optimizer = steps.make_optimizer(model, setting, Ranks())
    step = steps.make_train_step(model, optimizer, setting, Ranks())
    batch = first_batch(setting)
    return [step(batch).loss for _ in range(3)], model.get_weights()


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_layers_compute_in_the_precision_and_logits_are_float32(precision: str) -> None:
    model = steps.build_model(tiny_setting(precision=precision))

    logits = model(np.zeros((1, 32, 32, 3), np.float32))

    assert logits.dtype == "float32"
    assert {layer.compute_dtype for layer in model.layers[1:-1]} == {precision}
    assert {str(weight.dtype) for weight in model.weights} == {"float32"}
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_lower_precision_learns_nearly_the_same(precision: str) -> None:
    expected, _ = _train(precision="float32")

    losses, _ = _train(precision=precision)

    assert losses == pytest.approx(expected, rel=0.1)
    assert losses != expected
    assert losses[-1] < losses[0]


def test_float16_leaves_out_a_step_whose_gradients_overflow() -> None:
    setting = tiny_setting(precision="float16")
    model = steps.build_model(setting)
    optimizer = steps.make_optimizer(model, setting, Ranks())
    optimizer.dynamic_scale.assign(1e38)
    before = [weight.numpy() for weight in model.trainable_weights]
    step = steps.make_train_step(model, optimizer, setting, Ranks())

    outcome = step(first_batch(setting))

    assert np.isfinite(outcome.loss)
    assert float(optimizer.dynamic_scale) == pytest.approx(0.5e38)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        np.testing.assert_array_equal(weight, old)


@pytest.mark.parametrize(
    "fields",
    [
        # XLA with NHWC: see test_two_ranks_train_alike_with_xla.
        {"xla": True, "data_format": "NCHW"},
        {"xla": True, "data_format": "NCHW", "precision": "float16"},
    ],
    ids=str,
)
def test_xla_and_data_format_change_nothing_but_time(fields: dict[str, object]) -> None:
    reference = {"precision": fields.get("precision", "float32")}
    losses, weights = _train(**reference)

    others, other_weights = _train(**fields)

    tolerance = 1e-4 if reference["precision"] == "float32" else 0.05
    assert others == pytest.approx(losses, rel=tolerance)
    for one, other in zip(weights, other_weights, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=20 * tolerance)
    assert keras.config.image_data_format() == "channels_last"


def test_layers_hold_channels_first() -> None:
    model = steps.build_model(tiny_setting(data_format="NCHW", xla=True))

    (inner,) = [x for x in model.layers if isinstance(x, keras.Model)]
    convs = [x for x in inner.layers if isinstance(x, keras.layers.Conv2D)]
    assert model.input_shape == (None, 32, 32, 3)
    assert {conv.data_format for conv in convs} == {"channels_first"}


@pytest.mark.parametrize("xla", [False, True])
def test_inference_changes_nothing_and_counts_no_padding(xla: bool) -> None:
    setting = tiny_setting(xla=xla)
    model = steps.build_model(setting)
    before = model.get_weights()
    batch = first_batch(setting)
    step = steps.make_infer_step(model, setting)

    outcomes = [step(batch), step(batch | {"mask": tf.constant([1.0, 1, 1, 0])})]

    assert [outcome.num_examples for outcome in outcomes] == [4, 3]
    assert all(np.isnan(outcome.loss) for outcome in outcomes)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_masked_examples_do_not_count_in_training_and_evaluation() -> None:
    setting = tiny_setting(learning_rate=0.0)
    model = steps.build_model(setting)
    batch = first_batch(setting) | {"mask": tf.constant([0.0, 1, 1, 0])}
    step = steps.make_eval_step(model, setting)
    first, last = (
        {key: value[at:][:1] for key, value in batch.items()} for at in (1, 2)
    )

    outcome = step(batch)

    assert outcome.num_examples == 2
    mean = np.mean([step(first).loss, step(last).loss])
    assert outcome.loss == pytest.approx(mean, rel=1e-4)


def test_a_step_for_the_batches_of_a_pipeline_gives_its_loss() -> None:
    setting = tiny_setting()

    step = steps.make_step("tiny", setting.pipeline, seed=0)
    losses = [float(step(first_batch(setting))) for _ in range(4)]

    assert losses[0] == pytest.approx(np.log(1000), rel=0.2)
    assert losses[-1] < losses[0]


_COPY_AHEAD = """
import sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
one = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [one, one])
devices = tf.config.list_logical_devices("CPU")
from benchmarks.training import caches
import tfpipe
pipeline = tfpipe.imagenet_eval(
    sys.argv[1], image_size=16, batch_size=2, with_record_id=True)
tf.config.list_logical_devices = lambda kind: devices[1:]  # as if it were a GPU
ids, places = [], set()
for batch in caches.to_device(pipeline.build()):
    ids += batch["record_id"].numpy()[batch["mask"].numpy() > 0].tolist()
    places |= {tensor.device[-5:] for tensor in batch.values()}
endless = iter(caches.to_device(pipeline.build(num_epochs=None)))
next(endless)  # left in the middle: the process must end all the same
print(sorted(ids), places)
"""


def test_batches_are_copied_to_the_device_ahead(
    data_dir: pathlib.Path, warm_python: WarmPython
) -> None:
    """A second logical CPU stands for the GPU."""
    done = warm_python.run("-c", _COPY_AHEAD, data_dir)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 1, 2, 3, 4, 5, 6] {'CPU:1'}\n"


def _train_with_and_without_xla(
    ranks: Ranks, data_dir: pathlib.Path
) -> list[list[dict[str, float]]]:
    """Returns the epochs of both trainings, which all ranks agree on."""
    fields = {"data_dir": str(data_dir), "model": "tiny", "image_size": 32}
    fields |= {"batch_size": 2, "num_steps": 4, "num_warmup_steps": 0}
    return [
        loop.train(make_setting(Config(xla=xla, **fields), ranks), ranks)["epochs"]
        for xla in (False, True)
    ]


def test_two_ranks_train_alike_with_xla(
    rank_pool: RankPool, data_dir: pathlib.Path
) -> None:
    first, second = rank_pool.run(_train_with_and_without_xla, data_dir)

    assert first == second
    plain, compiled = first
    for one, other in zip(plain, compiled, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-3)


def _waited(outcome: StepResult) -> float:
    done, averaged = outcome.averaging or (0.0, 0.0)
    return averaged - done


def _sync_seconds(ranks: Ranks) -> float:
    """Takes steps of 20 ms on rank 0 and of 120 ms on rank 1."""
    setting = tiny_setting(ranks, step_time_ms=5.0)
    seconds = 0.02 if ranks.is_first else 0.12
    step = steps.make_emulated_step(setting, ranks, seconds)
    batch = first_batch(setting)
    return [_waited(step(batch)) for _ in range(3)][-1]


def _sync_seconds_in_training(ranks: Ranks) -> list[list[float]]:
    """Takes real steps, late by 0.2 s on rank 1, without XLA and with it."""
    found = []
    for xla in (False, True):
        setting = tiny_setting(ranks, xla=xla)
        model = steps.build_model(setting)
        optimizer = steps.make_optimizer(model, setting, ranks)
        step = steps.make_train_step(model, optimizer, setting, ranks)
        batch = first_batch(setting)
        step(batch)  # compiles
        seconds = []
        for _ in range(3):
            ranks.gather(None)
            time.sleep(0.0 if ranks.is_first else 0.2)
            seconds.append(_waited(step(batch)))
        found.append(seconds)
    return found


def test_training_step_tells_waiting_for_others_from_its_own_work(
    rank_pool: RankPool,
) -> None:
    fast, slow = rank_pool.run(_sync_seconds_in_training)

    for waited, late in zip(fast, slow, strict=True):
        assert statistics.median(waited) > 0.1
        assert statistics.median(late) < 0.1
        assert len({*waited, *late}) == 6  # each step looks at the clock anew


def test_fast_rank_waits_for_the_slow_one(rank_pool: RankPool) -> None:
    fast, slow = rank_pool.run(_sync_seconds)

    assert fast > 0.08  # a step of the other rank takes 0.1 s longer
    assert slow < fast
