"""benchmarks.models.catalog: every model, built once, as published and in use."""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.distributed.ranks import Ranks
from benchmarks.models import architectures, catalog
from benchmarks.options.config import Config
from benchmarks.training import loop, steps
from benchmarks.training.setting import Setting, make_setting
from tests.support.faults.torture import IS_LONG

# More of the blocks of resnet50: they take long, and run no other code.
DEEPER = ("resnet101", "resnet152")
NUM_CLASSES = 1003  # three more than published

# Parameters as published, of all and of those that are trained, for 1000 classes.
# Keras Applications: ResNets with biases of convolutions. GoogLeNet: BVLC's. Trained
# ones of ResNet-50 v1.5: torchvision's; of Inception-v4: TF-Slim's.
PUBLISHED = {
    "resnet50": (25_636_712, None),
    "resnet50_v1.5": (25_610_152, 25_557_032),
    "resnet101": (44_707_176, None),
    "resnet152": (60_419_944, None),
    "vgg16": (138_357_544, None),
    "googlenet": (6_998_552, None),
    "inception_v3": (23_851_784, 23_817_352),
    "inception_v4": (42_711_400, 42_648_232),
}
DROPOUT = {"vgg16": [0.5, 0.5], "googlenet": [0.4], "inception_v4": [0.2]}
# v1 halves in the first 1x1, v1.5 in the 3x3; both in the 1x1 of the shortcut.
STRIDED_KERNELS = {"resnet50": {1}, "resnet50_v1.5": {1, 3}}


class Built(NamedTuple):
    """A model with weights, at the smallest size of images that it accepts."""

    name: str
    model: keras.Model
    config: Config


@pytest.fixture(scope="module", params=catalog.MODELS)
def built(request: pytest.FixtureRequest, data_dir: pathlib.Path) -> Built:
    name = request.param
    config = Config(
        data_dir=str(data_dir),
        model=name,
        image_size=max(32, catalog.MODELS[name].min_image_size),
        batch_size=2,
        num_classes=NUM_CLASSES,
        num_steps=1,
        num_warmup_steps=0,
    )
    return Built(name, steps.build_model(make_setting(config, Ranks())), config)


@pytest.fixture
def eagerly() -> Iterator[None]:
    """Runs functions eagerly: to trace and optimize a deep graph takes minutes."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def test_numbers_of_parameters_are_the_published_ones(built: Built) -> None:
    if built.name == "tiny":
        # 3x3 kernels 3-16-32-64-128, four values a normalized channel, a dense layer
        assert built.model.count_params() == 97_200 + 4 * 240 + 129 * NUM_CLASSES
        return
    total, trained = PUBLISHED[built.name]
    (features,) = built.model.layers[-1].kernel.shape[:1]
    added = (NUM_CLASSES - 1000) * (features + 1)
    if built.name == "vgg16":
        # The first dense layer sees 7x7 pixels at the published size, here 1x1.
        added -= (7 * 7 - 1) * 512 * 4096

    num_trained = sum(np.prod(x.shape) for x in built.model.trainable_weights)

    assert catalog.MODELS[built.name].num_parameters == total
    assert built.model.count_params() == total + added
    assert trained is None or num_trained == trained + added


def test_images_are_one_tensor(built: Built) -> None:
    """Keras warns of a batch where a list of one batch is the input."""
    assert isinstance(built.model.input, keras.KerasTensor)


def test_logits_are_float32_without_an_activation(built: Built) -> None:
    output, last = built.model.output, built.model.layers[-1]

    assert (output.shape, output.dtype) == ((None, NUM_CLASSES), "float32")
    assert last.activation.__name__ == "linear"


def test_dropout_and_strides_are_as_published(built: Built) -> None:
    layers = built.model.layers
    rates = [x.rate for x in layers if isinstance(x, keras.layers.Dropout)]
    convs = [x for x in layers if isinstance(x, keras.layers.Conv2D)]
    halving = [x.kernel_size[0] for x in convs[1:] if x.strides == (2, 2)]

    assert rates == DROPOUT.get(built.name, [])
    if built.name in STRIDED_KERNELS:
        assert set(halving) == STRIDED_KERNELS[built.name]
        assert len(halving) == 6  # two in the first bottleneck of three stages


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_every_model_trains_and_infers(
    built: Built, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_model(setting: Setting) -> keras.Model:
        return built.model

    if not IS_LONG and built.name in DEEPER:
        pytest.skip("TORTURE=1: resnet50 is of the same blocks")
    monkeypatch.setattr(steps, "build_model", build_model)
    config = dataclasses.replace(built.config, mode=mode)
    work = loop.train if mode == "train" else loop.infer

    result = work(make_setting(config, Ranks()), Ranks())

    assert result["num_timed_steps"] == 1
    assert result["records"]["num_used"] == 2
    assert result["num_parameters"] == built.model.count_params()
    if mode == "train":
        assert np.isfinite(result["loss_last"])


def test_published_size_gives_logits() -> None:
    """The size of images changes no layer but VGG's first dense one."""
    model = catalog.MODELS["vgg16"]

    built = model.build(model.image_size, 1000)

    assert built.count_params() == model.num_parameters


def test_smallest_image_size_is_no_larger_than_needed() -> None:
    with pytest.raises(ValueError, match=r"empty output|negative"):
        architectures.inception_v4(74, 7)
