"""Models by name: how to build each, what it was published with, what feeds it.

In: a name. Out: a Keras model from normalized images [batch, size, size, 3] to logits
[batch, classes]. Those of Keras Applications and a tiny one are here, the others in
architectures.py.
"""

import dataclasses
import functools
from collections.abc import Callable

import keras

from benchmarks.models import architectures
from benchmarks.models.architectures import image_input, make_logits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """One model of the benchmark.

    Attributes:
        architecture: (image_size, num_classes) -> keras.Model that returns logits,
            float32 [batch, num_classes].
        image_size: Height and width it was published with, in pixels.
        min_image_size: The least that its layers leave anything of, in pixels.
        batch_size: Default examples a step and rank.
        learning_rate: Peak learning rate for a global batch of 256; scaled linearly.
        recipe: What its images are made by: "resnet", "inception" or "vgg", the
            functions of that name in tfpipe.
        num_parameters: As published, for 1000 classes at the published size, those
            that are not trained included; None if it is not of a publication.
    """

    architecture: Callable[[int, int], keras.Model]
    image_size: int
    min_image_size: int
    batch_size: int
    learning_rate: float
    recipe: str
    num_parameters: int | None

    def check_image_size(self, image_size: int) -> None:
        """Says at once whether images are too small.

        Raises:
            ValueError: If nothing would be left of them in the last layers.
        """
        if image_size < self.min_image_size:
            raise ValueError(
                f"--image_size must be >= {self.min_image_size} for this model, got "
                f"{image_size}. It was published with {self.image_size}."
            )

    def build(self, image_size: int, num_classes: int) -> keras.Model:
        """The model, in Keras' current layout and dtype policy, with new weights.

        Raises:
            ValueError: If images are too small for it.
        """
        self.check_image_size(image_size)
        return self.architecture(image_size, num_classes)


def _application(
    make: Callable[..., keras.Model], image_size: int, num_classes: int
) -> keras.Model:
    """A network of Keras Applications with logits in float32."""
    image = image_input(image_size)
    features = _features(make, image, pooling="avg")
    logits = make_logits(features.output, num_classes)
    return keras.Model(image, logits, name=features.name)


def _vgg16(image_size: int, num_classes: int) -> keras.Model:
    """VGG-16, model D, with its dropout, which Keras leaves out.

    Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
    Recognition", 2014, section 3.1. The first dense layer grows with the images.
    """
    image = image_input(image_size)
    features = _features(keras.applications.VGG16, image, pooling=None)
    x = keras.layers.Flatten()(features.output)
    for _ in range(2):
        x = keras.layers.Dense(4096, activation="relu")(x)
        x = keras.layers.Dropout(0.5)(x)
    return keras.Model(image, make_logits(x, num_classes), name="vgg16")


def _features(
    make: Callable[..., keras.Model], image: keras.KerasTensor, *, pooling: str | None
) -> keras.Model:
    return make(
        weights=None,
        include_top=False,
        input_tensor=image,
        input_shape=image.shape[1:],
        pooling=pooling,
    )


def tiny(image_size: int, num_classes: int) -> keras.Model:
    """Four strided convolutions: learns a few classes on a CPU within minutes."""
    image = x = image_input(image_size)
    for filters in (16, 32, 64, 128):
        x = keras.layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(
            x
        )
        # The runs are short: the moving statistics must follow within one epoch.
        x = keras.layers.BatchNormalization(
            axis=architectures.channel_axis(), momentum=0.9
        )(x)
        x = keras.layers.ReLU()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, make_logits(x, num_classes), name="tiny")


_RESNET = Model(
    architecture=functools.partial(_application, keras.applications.ResNet50),
    image_size=224,
    min_image_size=32,
    batch_size=256,
    learning_rate=0.1,
    recipe="resnet",
    num_parameters=25_636_712,
)

# Keras Applications counts the biases of ResNet's convolutions and no scales of
# Inception's batch normalization. Batches: 256 for ResNet-50 and 128 for the others, as
# HPE and Weka ran them on GPUs of 16 GB. Learning rates: 0.1 with batch normalization,
# as in ResNet's paper; 0.01 without, as in VGG's.
MODELS = {
    "resnet50": _RESNET,
    "resnet50_v1.5": dataclasses.replace(
        _RESNET, architecture=architectures.resnet50_v1_5, num_parameters=25_610_152
    ),
    "resnet101": dataclasses.replace(
        _RESNET,
        architecture=functools.partial(_application, keras.applications.ResNet101),
        batch_size=128,
        num_parameters=44_707_176,
    ),
    "resnet152": dataclasses.replace(
        _RESNET,
        architecture=functools.partial(_application, keras.applications.ResNet152),
        batch_size=128,
        num_parameters=60_419_944,
    ),
    "vgg16": Model(
        architecture=_vgg16,
        image_size=224,
        min_image_size=32,
        batch_size=128,
        learning_rate=0.01,
        recipe="vgg",
        num_parameters=138_357_544,
    ),
    # Caffe's reference model has as many.
    "googlenet": Model(
        architecture=architectures.googlenet,
        image_size=224,
        min_image_size=1,
        batch_size=128,
        learning_rate=0.01,
        recipe="inception",
        num_parameters=6_998_552,
    ),
    "inception_v3": Model(
        architecture=functools.partial(_application, keras.applications.InceptionV3),
        image_size=299,
        min_image_size=75,
        batch_size=128,
        learning_rate=0.1,
        recipe="inception",
        num_parameters=23_851_784,
    ),
    # 42,648,232 trained ones, beta without gamma, and 63,168 moving statistics.
    "inception_v4": Model(
        architecture=architectures.inception_v4,
        image_size=299,
        min_image_size=75,
        batch_size=128,
        learning_rate=0.1,
        recipe="inception",
        num_parameters=42_711_400,
    ),
    "tiny": Model(
        architecture=tiny,
        image_size=64,
        min_image_size=1,
        batch_size=64,
        learning_rate=0.4,
        recipe="resnet",
        num_parameters=None,
    ),
}
