"""benchmarks.models: parameters as published, logits of the right shape."""

import numpy as np
import pytest

from benchmarks import models


@pytest.mark.parametrize(
    ("name", "num_classes", "num_parameters"),
    [
        ("resnet50", 1000, 25_636_712),  # Keras Applications: with conv biases
        # 3x3 kernels 3-16-32-64-128, four values a normalized channel, one dense layer
        ("tiny", 10, 97_200 + 4 * 240 + 1_290),
    ],
)
def test_number_of_parameters(name: str, num_classes: int, num_parameters: int) -> None:
    model = models.MODELS[name].build(models.MODELS[name].image_size, num_classes)

    assert model.count_params() == num_parameters


def test_outputs_are_logits() -> None:
    model = models.tiny(32, 7)

    logits = model(np.zeros((2, 32, 32, 3), np.float32))

    assert logits.shape == (2, 7)
    assert model.layers[-1].activation.__name__ == "linear"
