"""benchmarks.training.steps: dtypes, layouts, XLA, and the emulated accelerator."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.models import catalog
from benchmarks.options.config import Config
from benchmarks.training import steps
from benchmarks.training.setting import Setting, make_setting
from benchmarks.training.steps import Batch

ROOT = pathlib.Path(__file__).parents[4]


def _setting(**fields: object) -> Setting:
    values = {
        "model": "tiny",
        "image_size": 32,
        "batch_size": 4,
        "num_classes": 5,
        "num_steps": 2,
        "learning_rate": 1.0,
        **fields,
    }
    return make_setting(Config(synthetic=True, **values), Ranks())


def _batch(setting: Setting) -> Batch:
    return next(iter(setting.pipeline.build()))


def _train(setting: Setting, num_steps: int) -> tuple[list[float], list[np.ndarray]]:
    """Losses of the steps and the weights after them."""
    model = steps.build_model(setting)
    optimizer = steps.make_optimizer(model, setting, Ranks())
    step = steps.make_train_step(model, optimizer, setting, Ranks())
    batch = _batch(setting)
    return [step(batch).loss for _ in range(num_steps)], model.get_weights()


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_layers_compute_in_the_precision_and_logits_are_float32(precision: str) -> None:
    model = steps.build_model(_setting(precision=precision))

    logits = model(np.zeros((1, 32, 32, 3), np.float32))

    assert logits.dtype == "float32"
    assert {layer.compute_dtype for layer in model.layers[1:-1]} == {precision}
    assert {str(weight.dtype) for weight in model.weights} == {"float32"}
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_lower_precision_learns_nearly_the_same(precision: str) -> None:
    expected, _ = _train(_setting(), 4)

    losses, _ = _train(_setting(precision=precision), 4)

    assert losses == pytest.approx(expected, rel=0.1)
    assert losses != expected
    assert losses[-1] < losses[0]


def test_float16_leaves_out_a_step_whose_gradients_overflow() -> None:
    setting = _setting(precision="float16")
    model = steps.build_model(setting)
    optimizer = steps.make_optimizer(model, setting, Ranks())
    optimizer.dynamic_scale.assign(1e38)
    before = [weight.numpy() for weight in model.trainable_weights]
    step = steps.make_train_step(model, optimizer, setting, Ranks())

    outcome = step(_batch(setting))

    assert np.isfinite(outcome.loss)
    assert float(optimizer.dynamic_scale) == pytest.approx(0.5e38)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_channels_first_on_a_cpu_without_xla_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"--data_format=NCHW must have a GPU or --xla"
    ):
        steps.build_model(_setting(data_format="NCHW"))


@pytest.mark.parametrize(
    "fields",
    [
        {"xla": True, "data_format": "NCHW"},
        pytest.param({"xla": True}, marks=pytest.mark.slow),
        pytest.param(
            {"xla": True, "data_format": "NCHW", "precision": "float16"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_xla_and_data_format_change_nothing_but_time(fields: dict[str, object]) -> None:
    reference = {"precision": fields.get("precision", "float32")}
    losses, weights = _train(_setting(**reference), 3)

    others, other_weights = _train(_setting(**fields), 3)

    tolerance = 1e-4 if reference["precision"] == "float32" else 0.05
    assert others == pytest.approx(losses, rel=tolerance)
    for one, other in zip(weights, other_weights, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=20 * tolerance)
    assert keras.config.image_data_format() == "channels_last"


def test_layers_hold_channels_first() -> None:
    model = steps.build_model(_setting(data_format="NCHW", xla=True))

    (inner,) = [x for x in model.layers if isinstance(x, keras.Model)]
    convs = [x for x in inner.layers if isinstance(x, keras.layers.Conv2D)]
    assert model.input_shape == (None, 32, 32, 3)
    assert {conv.data_format for conv in convs} == {"channels_first"}


@pytest.mark.parametrize("xla", [False, True])
def test_inference_changes_nothing_and_counts_no_padding(xla: bool) -> None:
    setting = _setting(xla=xla)
    model = steps.build_model(setting)
    before = model.get_weights()
    batch = _batch(setting)
    step = steps.make_infer_step(model, setting)

    outcomes = [step(batch), step(batch | {"mask": tf.constant([1.0, 1, 1, 0])})]

    assert [outcome.num_examples for outcome in outcomes] == [4, 3]
    assert all(np.isnan(outcome.loss) for outcome in outcomes)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_masked_examples_do_not_count_in_training_and_evaluation() -> None:
    setting = _setting(learning_rate=0.0)
    model = steps.build_model(setting)
    batch = _batch(setting) | {"mask": tf.constant([0.0, 1, 1, 0])}
    step = steps.make_eval_step(model, setting)
    first, last = (
        {key: value[at:][:1] for key, value in batch.items()} for at in (1, 2)
    )

    outcome = step(batch)

    assert outcome.num_examples == 2
    mean = np.mean([step(first).loss, step(last).loss])
    assert outcome.loss == pytest.approx(mean, rel=1e-4)


class Clock:
    """Stands in for the module time: sleeps end late, looking takes a little."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        self.now += 1e-5
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds + 4e-4


@pytest.mark.parametrize(
    ("step_seconds", "copy_seconds", "expected"),
    [
        (0.050, 0.010, 0.050),  # the copy is within the step
        (0.050, 0.080, 0.080),  # unless it alone takes longer
        (0.0005, 0.0, 0.0005),  # too short to sleep
        (0.0, 0.0, 0.0),
    ],
)
def test_emulated_step_takes_its_time(
    monkeypatch: pytest.MonkeyPatch,
    step_seconds: float,
    copy_seconds: float,
    expected: float,
) -> None:
    setting = _setting(step_time_ms=1.0)
    batch = _batch(setting)
    clock = Clock()
    monkeypatch.setattr(steps, "time", clock)
    copied = []

    def copy(batch: Batch, places: object) -> None:
        copied.append(sorted(batch))
        clock.now += copy_seconds

    monkeypatch.setattr(steps, "_copy", copy)
    step = steps.make_emulated_step(setting, Ranks(), step_seconds)
    began = clock.now

    outcome = step(batch)

    assert clock.now - began == pytest.approx(expected, abs=1e-4)
    assert copied == [["image", "label"]]
    assert (outcome.num_examples, outcome.sync_seconds) == (4, 0.0)


def test_emulated_step_copies_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = []
    real = np.copyto
    monkeypatch.setattr(
        np, "copyto", lambda to, value: copied.append((to, value)) or real(to, value)
    )
    setting = _setting(step_time_ms=0.0)
    step = steps.make_emulated_step(setting, Ranks(), 0.0)
    batch = _batch(setting)

    for _ in range(2):
        step(batch | {"mask": tf.ones(4), "record_id": tf.range(4, dtype=tf.int64)})

    types = ["uint8", "int32", "float32", "int64"]
    assert [value.dtype for _, value in copied] == types * 2
    for to, value in copied:
        np.testing.assert_array_equal(to, value)
        assert not np.shares_memory(to, value)
    assert copied[0][0] is copied[4][0]  # no new memory


@pytest.mark.parametrize(("mode", "synced"), [("train", 0.25), ("infer", 0.0)])
def test_waiting_for_other_ranks_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, mode: str, synced: float
) -> None:
    """In inference ranks have nothing to say to each other."""
    clock = Clock()
    monkeypatch.setattr(steps, "time", clock)

    class Late(Ranks):
        def average(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
            tf.py_function(lambda: setattr(clock, "now", clock.now + 0.25), [], [])
            return gradients

    setting = _setting(step_time_ms=1.0)
    config = dataclasses.replace(setting.config, mode=mode)
    setting = dataclasses.replace(setting, config=config)
    step = steps.make_emulated_step(setting, Late(num_ranks=2), 0.01)

    outcome = step(_batch(setting))

    assert outcome.sync_seconds == pytest.approx(synced, abs=1e-3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"image": tf.zeros([32, 32, 3])}, "needs batches with image"),
        ({"image": tf.zeros([32, 32, 1]), "label": 0}, "needs batches with image"),
        ({"image": tf.zeros([16, 16, 3]), "label": 0}, "must be >= 32.*got 16"),
    ],
)
def test_batches_that_no_model_takes_are_an_error(
    spec: dict[str, object], message: str
) -> None:
    dataset = tf.data.Dataset.from_tensors(spec).batch(1)
    pipeline = tfpipe.Pipeline(lambda state, num_epochs: dataset, [])

    with pytest.raises(ValueError, match=message):
        steps.make_step("resnet50", pipeline, seed=0)


def test_a_step_for_the_batches_of_a_pipeline_gives_its_loss() -> None:
    setting = _setting()

    step = steps.make_step("tiny", setting.pipeline, seed=0)
    losses = [float(step(_batch(setting))) for _ in range(4)]

    assert losses[0] == pytest.approx(np.log(1000), rel=0.2)
    assert losses[-1] < losses[0]


def test_without_a_gpu_batches_stay_where_they_are() -> None:
    dataset = tf.data.Dataset.range(3)

    assert steps.to_device(dataset) is dataset


_COPY_AHEAD = """
import sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
one = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [one, one])
devices = tf.config.list_logical_devices("CPU")
from benchmarks import compute
import tfpipe
pipeline = tfpipe.imagenet_eval(
    sys.argv[1], image_size=16, batch_size=2, with_record_id=True)
tf.config.list_logical_devices = lambda kind: devices[1:]  # as if it were a GPU
ids, places = [], set()
for batch in compute.to_device(pipeline.build()):
    ids += batch["record_id"].numpy()[batch["mask"].numpy() > 0].tolist()
    places |= {tensor.device[-5:] for tensor in batch.values()}
endless = iter(compute.to_device(pipeline.build(num_epochs=None)))
next(endless)  # left in the middle: the process must end all the same
print(sorted(ids), places)
"""


def _run(*command: str, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.slow
def test_batches_are_copied_to_the_device_ahead(data_dir: pathlib.Path) -> None:
    """With a second logical CPU for the GPU."""
    done = _run(sys.executable, "-c", _COPY_AHEAD, str(data_dir), timeout=120)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 1, 2, 3, 4, 5, 6] {'CPU:1'}\n"


_TWO_RANKS = """
import json, sys
from benchmarks import compute, loop, ranks
from benchmarks.options.config import Config
from benchmarks.training.setting import make_setting
world = ranks.connect()
fields = dict(data_dir=sys.argv[1], model="tiny", image_size=32, batch_size=2,
    num_steps=4, num_warmup_steps=0)
compiled = [loop.train(make_setting(Config(xla=xla, **fields), world), world)
    for xla in (False, True)]
setting = make_setting(Config(step_time_ms=5.0, **fields), world)
step = compute.make_emulated_step(setting, world, 0.02 if world.is_first else 0.12)
batch = next(iter(setting.pipeline.build()))
synced = [step(batch).sync_seconds for _ in range(3)][-1]
told = world.gather(synced)
if world.is_first:
    print("TOLD" + json.dumps([[c["epochs"] for c in compiled], told]))
"""


@pytest.mark.slow
def test_two_ranks_train_with_xla_and_keep_in_step(data_dir: pathlib.Path) -> None:
    program = str(pathlib.Path(sys.executable).with_name("horovodrun"))

    command = (program, "-np", "2", sys.executable, "-c", _TWO_RANKS, str(data_dir))
    done = _run(*command, timeout=300)

    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "TOLD" in line]
    (plain, compiled), (fast, slow) = json.loads(line.partition("TOLD")[2])
    for one, other in zip(plain, compiled, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-3)
    assert fast > 0.08  # waits for the other, whose step takes 0.1 s longer
    assert slow < fast


@pytest.mark.slow
@pytest.mark.parametrize("name", catalog.MODELS)
def test_every_model_trains_and_infers_two_steps(
    data_dir: pathlib.Path, name: str, request: pytest.FixtureRequest
) -> None:
    from benchmarks.training import loop

    # To trace and to optimize a deep graph takes minutes; another test does it.
    tf.config.run_functions_eagerly(True)
    request.addfinalizer(lambda: tf.config.run_functions_eagerly(False))
    image_size = max(32, catalog.MODELS[name].min_image_size)
    fields = {"image_size": image_size, "batch_size": 2, "num_warmup_steps": 0}
    fields["num_classes"] = 1003
    for mode, work in (("train", loop.train), ("infer", loop.infer)):
        config = Config(
            data_dir=str(data_dir), model=name, mode=mode, num_steps=2, **fields
        )

        result = work(make_setting(config, Ranks()), Ranks())

        assert result["num_timed_steps"] == 2
        assert result["records"]["num_used"] == 4
        if name not in ("vgg16", "tiny"):  # VGG's depends on the size of images
            added = result["num_parameters"] - catalog.MODELS[name].num_parameters
            assert added in (3 * (1024 + 1), 3 * (1536 + 1), 3 * (2048 + 1))
        if mode == "train":
            assert np.isfinite(result["loss_last"])
