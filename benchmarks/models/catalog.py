"""Models by name: how to build each, its published settings, and its image recipe.

In: a name. Out: a Keras model from normalized images [batch, size, size, 3] to logits
[batch, classes]. Keras is imported when a model is built, because it takes seconds and
a command needs the names alone to parse its flags.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True)
class Model:
    """One model of the benchmark.

    Attributes:
        architecture: Name of the function in architectures.py that builds the model:
            (image_size, num_classes) -> keras.Model that returns logits, float32
            [batch, num_classes]. Otherwise a name of Keras Applications.
        learning_rate: Peak learning rate for a global batch of 256; scaled linearly.
        recipe: Name of the function in tfpipe that makes the recipe of its images:
            "resnet", "inception" or "vgg".
        num_parameters: Published number of parameters for 1000 classes at the published
            size, trained or not; None if the model is not published.
    """

    architecture: str
    image_size: int
    min_image_size: int
    batch_size: int
    learning_rate: float
    recipe: str
    num_parameters: int | None

    def check_image_size(self, image_size: int) -> None:
        if image_size < self.min_image_size:
            raise ValueError(
                f"--image_size must be >= {self.min_image_size} for this model, got "
                f"{image_size}. It was published with {self.image_size}."
            )

    def build(self, image_size: int, num_classes: int) -> "keras.Model":
        """Returns the model with new weights."""
        self.check_image_size(image_size)
        from benchmarks.models import architectures

        make = getattr(
            architectures,
            self.architecture,
            functools.partial(architectures.application, self.architecture),
        )
        return architectures.with_fused_layers(make(image_size, num_classes))


# The numbers of parameters are those of Keras Applications: its ResNets have biases in
# their convolutions, its Inception has no scales in batch normalization. Batches: 256
# for ResNet-50 and 128 for the others, as HPE and Weka ran them on GPUs of 16 GB.
# Learning rates: 0.1 with batch normalization, as in ResNet's paper; 0.01 without, as
# in VGG's.
# The rows have the fields of `Model` in their order.
MODELS = {
    "resnet50": Model("ResNet50", 224, 32, 256, 0.1, "resnet", 25_636_712),
    "resnet50_v1.5": Model("resnet50_v1_5", 224, 32, 256, 0.1, "resnet", 25_610_152),
    "resnet101": Model("ResNet101", 224, 32, 128, 0.1, "resnet", 44_707_176),
    "resnet152": Model("ResNet152", 224, 32, 128, 0.1, "resnet", 60_419_944),
    "vgg16": Model("vgg16", 224, 32, 128, 0.01, "vgg", 138_357_544),
    # Caffe's reference model has the same number of parameters.
    "googlenet": Model("googlenet", 224, 1, 128, 0.01, "inception", 6_998_552),
    "inception_v3": Model("InceptionV3", 299, 75, 128, 0.1, "inception", 23_851_784),
    # 42,648,232 trained parameters (batch normalization has beta, no gamma) and 63,168
    # moving statistics.
    "inception_v4": Model("inception_v4", 299, 75, 128, 0.1, "inception", 42_711_400),
    "tiny": Model("tiny", 64, 1, 64, 0.4, "resnet", None),
}


def image_size(model: object, size: float | None) -> float | None:
    """Returns a size of images, or that of a model; None for an unknown model."""
    named = MODELS.get(str(model))
    return size or (float(named.image_size) if named else None)
