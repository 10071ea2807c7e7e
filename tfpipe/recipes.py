"""Recipes: what the published networks were trained and evaluated on, as lists of ops.

In: the size and the type of the pixels. Out: a `Recipe` for the presets: which window
of an image is decoded, what is done to its pixels, how they are normalized.
"""

import dataclasses

from tfpipe import errors
from tfpipe.ops.augment import DistortColor
from tfpipe.ops.basic import VGG_MEAN, Normalize
from tfpipe.ops.crop import CenterCrop, Dtype, Quality, RandomCrop, RandomScaleCrop
from tfpipe.stages.map import Op


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How images become the input of a network.

    Attributes:
        train: Ops from an encoded image to its pixels, 0..255, in training.
        evaluate: The same in evaluation.
        normalize: From pixels to what the network takes; on the device where pixels
            are delivered as uint8.
    """

    train: tuple[Op, ...]
    evaluate: tuple[Op, ...]
    normalize: Normalize

    def __post_init__(self) -> None:
        for name in ("train", "evaluate"):
            for op in getattr(self, name):
                errors.require_callable(self, name, op)
        errors.require_callable(self, "normalize", self.normalize)


def resnet(image_size: int, dtype: Dtype, quality: Quality) -> Recipe:
    """A random window of 8 to 100 % of the image, mirrored half of the time.

    Evaluation takes the center 224 of a short side of 256. Mean and standard deviation
    of ImageNet's training pixels. Sources: Szegedy et al., "Going Deeper with
    Convolutions", 2014, section 6, for the window, as used for ResNet by Goyal et al.,
    "Accurate, Large Minibatch SGD", 2017, section 5.1; He et al., "Deep Residual
    Learning for Image Recognition", 2015, section 3.4, for evaluation.
    """
    return Recipe(
        train=(
            RandomCrop(image_size=image_size, flip=True, dtype=dtype, quality=quality),
        ),
        evaluate=(CenterCrop(image_size=image_size, dtype=dtype, quality=quality),),
        normalize=Normalize(),
    )


def inception(image_size: int, dtype: Dtype, quality: Quality) -> Recipe:
    """A random window of 5 to 100 % of the image, its colors distorted.

    Evaluation takes the central 87.5 % of the short side. Pixels become -1..1. Sources:
    Szegedy et al., "Going Deeper with Convolutions", 2014, section 6, with the numbers
    of TensorFlow's Inception preprocessing, brightness and saturation only; there
    evaluation takes 87.5 % of both sides, which changes the aspect ratio.
    """
    return Recipe(
        train=(
            # Colors are distorted as uint8.
            RandomCrop(
                image_size=image_size,
                area=(0.05, 1.0),
                ratio=(0.75, 1.33),
                max_attempts=100,
                flip=True,
                quality=quality,
            ),
            DistortColor(),
        ),
        evaluate=(CenterCrop(image_size=image_size, dtype=dtype, quality=quality),),
        normalize=Normalize.inception(),
    )


def vgg(image_size: int, dtype: Dtype, quality: Quality) -> Recipe:
    """A random square at a random scale, mirrored half of the time.

    For 224 pixels the image is scaled to a short side of 256 to 512, for other sizes in
    proportion. Evaluation takes the center 224 of a short side of 256. The mean is
    subtracted, nothing is divided. Source: Simonyan and Zisserman, "Very Deep
    Convolutional Networks for Large-Scale Image Recognition", 2014, section 3.1,
    without its shift of colors.
    """
    errors.require_int("", "image_size", image_size, least=1)
    return Recipe(
        train=(
            RandomScaleCrop(
                image_size=image_size,
                short_side=(image_size * 256 // 224, image_size * 512 // 224),
                flip=True,
                dtype=dtype,
                quality=quality,
            ),
        ),
        evaluate=(CenterCrop(image_size=image_size, dtype=dtype, quality=quality),),
        normalize=Normalize(mean=VGG_MEAN, std=(1.0, 1.0, 1.0)),
    )
