"""Models by name: how to build each, its published settings, and its image recipe.

In: a name. Out: a Keras model from normalized images [batch, size, size, 3] to logits
[batch, classes]. Models of Keras Applications and a tiny one are here, the others in
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
        image_size: Height and width of the images in the publication, in pixels.
        min_image_size: Smallest image size that the architecture accepts, in pixels.
        batch_size: Default number of examples a step and rank.
        learning_rate: Peak learning rate for a global batch of 256; scaled linearly.
        recipe: Name of the function in tfpipe that makes the recipe of its images:
            "resnet", "inception" or "vgg".
        num_parameters: Published number of parameters for 1000 classes at the published
            size, trained or not; None if the model is not published.
    """

    architecture: Callable[[int, int], keras.Model]
    image_size: int
    min_image_size: int
    batch_size: int
    learning_rate: float
    recipe: str
    num_parameters: int | None

    def check_image_size(self, image_size: int) -> None:
        """Checks that images are large enough for all layers.

        Raises:
            ValueError: If image_size is below min_image_size.
        """
        if image_size < self.min_image_size:
            raise ValueError(
                f"--image_size must be >= {self.min_image_size} for this model, got "
                f"{image_size}. It was published with {self.image_size}."
            )

    def build(self, image_size: int, num_classes: int) -> keras.Model:
        """Returns the model with new weights.

        Data format and dtype policy are Keras' current ones.

        Raises:
            ValueError: If images are too small for the model.
        """
        self.check_image_size(image_size)
        return self.architecture(image_size, num_classes)


def _application(
    make: Callable[..., keras.Model], image_size: int, num_classes: int
) -> keras.Model:
    """Returns a network of Keras Applications with float32 logits."""
    image = image_input(image_size)
    features = _features(make, image, pooling="avg")
    logits = make_logits(features.output, num_classes)
    return keras.Model(image, logits, name=features.name)


def _vgg16(image_size: int, num_classes: int) -> keras.Model:
    """Returns VGG-16, model D of the paper, with the dropout that Keras leaves out.

    Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
    Recognition", 2014, section 3.1. The first dense layer grows with the image size.
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
    """Returns a model of four strided convolutions, for tests and demonstrations.

    It learns a few classes on a CPU within minutes.
    """
    image = x = image_input(image_size)
    for filters in (16, 32, 64, 128):
        x = keras.layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(
            x
        )
        # Momentum 0.9, as runs are short: the moving statistics must settle within one
        # epoch.
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

# The numbers of parameters are those of Keras Applications: its ResNets have biases in
# their convolutions, its Inception has no scales in batch normalization. Batches: 256
# for ResNet-50 and 128 for the others, as HPE and Weka ran them on GPUs of 16 GB.
# Learning rates: 0.1 with batch normalization, as in ResNet's paper; 0.01 without, as
# in VGG's.
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
    # Caffe's reference model has the same number of parameters.
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
    # 42,648,232 trained parameters (batch normalization has beta, no gamma) and 63,168
    # moving statistics.
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
