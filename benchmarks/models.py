"""Models by name: how to build each, its image size, batch and learning rate.

In: a name. Out: a Keras model from normalized images [batch, size, size, 3] to logits
[batch, classes]. Keras lives here and in loop.py only.
"""

import dataclasses
from collections.abc import Callable

import keras


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """One model of the benchmark.

    Attributes:
        build: (image_size, num_classes) -> keras.Model that returns logits.
        image_size: Height and width it was published with, in pixels.
        batch_size: Default examples a step and rank.
        learning_rate: Peak learning rate for a global batch of 256; scaled linearly.
    """

    build: Callable[[int, int], keras.Model]
    image_size: int
    batch_size: int
    learning_rate: float


def resnet50(image_size: int, num_classes: int) -> keras.Model:
    """ResNet-50 v1 (He et al. 2015); 25,636,712 parameters with 1000 classes."""
    return keras.applications.ResNet50(
        weights=None,
        input_shape=(image_size, image_size, 3),
        classes=num_classes,
        classifier_activation=None,
    )


def tiny(image_size: int, num_classes: int) -> keras.Model:
    """Four strided convolutions: learns a few classes on a CPU within minutes."""
    layers: list[keras.Layer] = [keras.Input((image_size, image_size, 3))]
    for filters in (16, 32, 64, 128):
        layers += [
            keras.layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False),
            # The runs are short: the moving statistics must follow within one epoch.
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
        ]
    layers += [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(num_classes)]
    return keras.Sequential(layers, name="tiny")


# The default batch of resnet50 is the customary one of 256.
MODELS = {
    "resnet50": Model(
        build=resnet50, image_size=224, batch_size=256, learning_rate=0.1
    ),
    "tiny": Model(build=tiny, image_size=64, batch_size=64, learning_rate=0.4),
}
