"""benchmarks.models.catalog: parameters as published, logits of the right shape."""

import functools

import keras
import numpy as np
import pytest

import tfpipe
from benchmarks.models import catalog

SLOW = pytest.mark.slow  # Keras' own, and large


@functools.cache
def _build(name: str) -> keras.Model:
    """As it was published; takes seconds."""
    return catalog.MODELS[name].build(catalog.MODELS[name].image_size, 1000)


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    [
        ("resnet50", 25_636_712),  # Keras Applications: with biases of convolutions
        ("resnet50_v1.5", 25_610_152),
        pytest.param("resnet101", 44_707_176, marks=SLOW),
        pytest.param("resnet152", 60_419_944, marks=SLOW),
        ("vgg16", 138_357_544),
        ("googlenet", 6_998_552),  # BVLC's
        pytest.param("inception_v3", 23_851_784, marks=SLOW),
        ("inception_v4", 42_711_400),
    ],
)
def test_number_of_parameters_is_the_published_one(
    name: str, num_parameters: int
) -> None:
    built = _build(name)

    assert built.count_params() == num_parameters
    assert catalog.MODELS[name].num_parameters == num_parameters
    assert (built.output.shape, built.output.dtype) == ((None, 1000), "float32")
    assert built.layers[-1].activation.__name__ == "linear"


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    [
        ("resnet50_v1.5", 25_557_032),  # as torchvision's
        pytest.param("inception_v3", 23_817_352, marks=SLOW),
        ("inception_v4", 42_648_232),  # as TF-Slim's
    ],
)
def test_number_of_trained_parameters(name: str, num_parameters: int) -> None:
    weights = _build(name).trainable_weights

    assert sum(np.prod(weight.shape) for weight in weights) == num_parameters


def test_number_of_parameters_of_the_tiny_model() -> None:
    model = catalog.tiny(64, 10)

    # 3x3 kernels 3-16-32-64-128, four values a normalized channel, one dense layer
    assert model.count_params() == 97_200 + 4 * 240 + 1_290


@pytest.mark.parametrize("name", ["googlenet", "tiny"])
def test_small_images_and_few_classes_give_logits(name: str) -> None:
    """See test_compute for the other models."""
    built = catalog.MODELS[name].build(32, 7)

    logits = built(np.zeros((2, 32, 32, 3), np.float32))

    assert (logits.shape, logits.dtype) == ((2, 7), "float32")


@pytest.mark.parametrize(
    ("name", "least"),
    [("resnet50", 32), ("vgg16", 32), ("inception_v3", 75), ("inception_v4", 75)],
)
def test_images_too_small_for_a_model_are_an_error(name: str, least: int) -> None:
    with pytest.raises(
        ValueError, match=f"--image_size must be >= {least}.*got {least - 1}"
    ):
        catalog.MODELS[name].build(least - 1, 7)


def test_less_than_the_least_size_would_leave_nothing() -> None:
    """The number in the table is no larger than it has to be."""
    with pytest.raises(ValueError, match=r"empty output|negative"):
        catalog.MODELS["inception_v4"].architecture(74, 7)


@pytest.mark.parametrize("name", catalog.MODELS)
def test_recipe_is_one_of_tfpipe(name: str) -> None:
    recipe = getattr(tfpipe, catalog.MODELS[name].recipe)

    assert recipe(32, "uint8", "exact").train


@pytest.mark.parametrize(
    ("name", "rates"),
    [("vgg16", [0.5, 0.5]), ("googlenet", [0.4]), ("inception_v4", [0.2])],
)
def test_dropout_is_as_published(name: str, rates: list[float]) -> None:
    layers = _build(name).layers

    found = [x.rate for x in layers if isinstance(x, keras.layers.Dropout)]
    assert found == rates


@pytest.mark.parametrize(
    ("name", "strided_kernels"),
    [("resnet50", {1}), ("resnet50_v1.5", {1, 3})],
)
def test_stride_of_bottlenecks(name: str, strided_kernels: set[int]) -> None:
    """v1 halves in the first 1x1, v1.5 in the 3x3; both in that of the shortcut."""
    convs = [x for x in _build(name).layers if isinstance(x, keras.layers.Conv2D)]

    halving = [x.kernel_size[0] for x in convs[1:] if x.strides == (2, 2)]

    assert set(halving) == strided_kernels
    assert len(halving) == 6  # two in the first bottleneck of each of three stages
