"""Recipes: the image processing of published networks, as lists of ops.

In: the size and the type of the pixels. Out: a `Recipe` for the presets: the crop box
that is decoded, the changes of its pixels, and their normalization.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tfpipe import errors
from tfpipe.native.selection import CropOp
from tfpipe.ops.augment import DistortColor
from tfpipe.ops.basic import VGG_MEAN, Cast, Flip, Normalize, OneHot
from tfpipe.ops.crop import (
    CROPS,
    CenterCrop,
    Dtype,
    ImageSize,
    Quality,
    RandomCrop,
    RandomScaleCrop,
)
from tfpipe.stages.traced import Op

# The modules of keras.applications and their models, by what `preprocess_input` does.
_TORCH = ("densenet", "DenseNet121", "DenseNet169", "DenseNet201")
_TF = (
    *("inception_resnet_v2", "InceptionResNetV2", "inception_v3", "InceptionV3"),
    *("mobilenet", "MobileNet", "mobilenet_v2", "MobileNetV2"),
    *("nasnet", "NASNetLarge", "NASNetMobile"),
    *("resnet_v2", "ResNet50V2", "ResNet101V2", "ResNet152V2"),
    *("xception", "Xception"),
)
_CAFFE = (
    *("resnet", "resnet50", "ResNet50", "ResNet101", "ResNet152"),
    *("vgg16", "VGG16", "vgg19", "VGG19"),
)
# These models begin with layers that normalize.
_AS_THEY_ARE = (
    *("convnext", "ConvNeXtTiny", "ConvNeXtSmall", "ConvNeXtBase", "ConvNeXtLarge"),
    *("ConvNeXtXLarge", "mobilenet_v3", "MobileNetV3Large", "MobileNetV3Small"),
    *("efficientnet", *(f"EfficientNetB{n}" for n in range(8))),
    *(
        "efficientnet_v2",
        *(f"EfficientNetV2{end}" for end in ("B0", "B1", "B2", "B3", "S", "M", "L")),
    ),
)
_KERAS: Mapping[str, Normalize | None] = {
    **dict.fromkeys(_TORCH, Normalize()),
    **dict.fromkeys(_TF, Normalize.inception()),
    **dict.fromkeys(_CAFFE, Normalize.caffe()),
    **dict.fromkeys(_AS_THEY_ARE),
}
# Height and width of the images of a model, where Keras' default is not 224.
_KERAS_SIZES = {
    **{"EfficientNetB1": 240, "EfficientNetB2": 260, "EfficientNetB3": 300},
    **{"EfficientNetB4": 380, "EfficientNetB5": 456, "EfficientNetB6": 528},
    **{"EfficientNetB7": 600, "EfficientNetV2B1": 240, "EfficientNetV2B2": 260},
    **{"EfficientNetV2B3": 300, "EfficientNetV2S": 384, "EfficientNetV2M": 480},
    **{"EfficientNetV2L": 480, "InceptionResNetV2": 299, "InceptionV3": 299},
    **{"inception_resnet_v2": 299, "inception_v3": 299, "NASNetLarge": 331},
    **{"xception": 299, "Xception": 299},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """The ops that turn images into the input of a network.

    Example:
        >>> crops = (tfpipe.CenterCrop(image_size=32),)
        >>> ops = {"train": crops, "evaluate": crops, "normalize": tfpipe.Normalize()}
        >>> recipe = tfpipe.recipes.Recipe(**ops)
        >>> options = {"batch_size": 4, "recipe": lambda *_: recipe}
        >>> pipeline = tfpipe.imagenet_train("DIR", **options)

    Attributes:
        train: Ops from an encoded image to its pixels, 0..255, for training.
        evaluate: Ops from an encoded image to its pixels, 0..255, for evaluation.
        normalize: Op from pixels to the values that the network takes. It runs on the
            device if the pixels are uint8. None leaves the pixels 0..255.
    """

    train: tuple[Op, ...]
    evaluate: tuple[Op, ...]
    normalize: Normalize | None

    def __post_init__(self) -> None:
        for name in ("train", "evaluate"):
            for op in getattr(self, name):
                errors.require_op(self, name, op)
        errors.require_kind(self, "normalize", self.normalize, Normalize, or_none=True)

    @property
    def device_ops(self) -> tuple[Normalize, ...]:
        """The ops that the device applies to uint8 pixels."""
        return () if self.normalize is None else (self.normalize,)

    def image_ops(
        self,
        purpose: Literal["train", "evaluate"],
        *,
        more: Sequence[Op],
        dtype: str,
        crop_op: CropOp,
        jpeg_only: bool,
    ) -> list[Op]:
        """Returns the ops from an encoded image to the pixels of a batch.

        Args:
            purpose: Whether the images are for training or for evaluation.
            more: Ops after those of the recipe, on pixels 0..255.
            dtype: "uint8" for pixels 0..255; "float32", "bfloat16" or "float16" for
                pixels that `normalize` has changed.
            crop_op: Kernel of the crops, see `crop.crop_image`.
            jpeg_only: Whether all images are JPEG.

        Raises:
            ValueError: If `more` has a `Flip` and a crop mirrors already.
        """
        crops = getattr(self, purpose)
        if Flip() in more and any(getattr(op, "flip", False) for op in crops):
            raise ValueError(
                "ops must have no Flip(), since the recipe mirrors images already. The "
                "second flip draws the same numbers and would turn the images back: "
                "leave it out."
            )
        kernel: dict[str, Any] = {"crop_op": crop_op, "jpeg_only": jpeg_only}
        *ops, last = (
            dataclasses.replace(op, **kernel) if isinstance(op, CROPS) else op
            for op in crops
        )
        if dtype == "uint8":
            return [*ops, last, *more]
        if not isinstance(last, CROPS) or "uint8" in (last.dtype, pixels(dtype, more)):
            return [*ops, last, *more, *self.device_ops, Cast(dtype)]
        # The crop op normalizes in the same pass as it resizes.
        fused = dataclasses.replace(last, normalize=self.normalize)
        if dtype == "bfloat16":
            return [*ops, dataclasses.replace(fused, dtype="bfloat16"), *more]
        return [*ops, fused, *([] if dtype == "float32" else [Cast(dtype)]), *more]


def pixels(dtype: str, more: Sequence[Op]) -> Dtype:
    """Returns the type of the pixels that a recipe has to make.

    "float32" saves rounding pixels before they are normalized. Other ops than `OneHot`
    get "uint8", which the ops of `ops.augment` need.

    Args:
        dtype: Type of the pixels of a batch.
        more: Ops after those of the recipe.
    """
    only_labels = all(isinstance(op, OneHot) for op in more)
    return "float32" if only_labels and dtype != "uint8" else "uint8"


def resnet(image_size: ImageSize, dtype: Dtype, quality: Quality) -> Recipe:
    """Returns ResNet's recipe: random crop boxes of 8 to 100 % of the image's area.

    A training image is stretched to 3/4 to 4/3 of its aspect ratio, whatever the shape
    of the result, and half of the images are mirrored. Evaluation takes the center 224
    of a short side of 256. Pixels are normalized by mean and standard deviation of
    ImageNet's training set; Keras' own ResNet50 takes other values, see `keras`.

    Sources: Szegedy et al., "Going Deeper with Convolutions", 2014, section 6, for the
    crop box, as used for ResNet by Goyal et al., "Accurate, Large Minibatch SGD", 2017,
    section 5.1; He et al., "Deep Residual Learning for Image Recognition", 2015,
    section 3.4, for evaluation.

    Example:
        >>> tfpipe.recipes.resnet(224, "uint8", "fast").normalize.mean
        (123.675, 116.28, 103.53)
    """
    crop = _crop(image_size, dtype, quality)
    ratio = _ratio(image_size, 3 / 4, 4 / 3)
    return Recipe(
        train=(RandomCrop(**crop, ratio=ratio, flip=True),),
        evaluate=(CenterCrop(**crop),),
        normalize=Normalize(),
    )


def inception(image_size: ImageSize, dtype: Dtype, quality: Quality) -> Recipe:
    """Returns Inception's recipe: random crop boxes of 5 to 100 % of the image's area.

    A training image is stretched to 0.75 to 1.33 of its aspect ratio and its colors are
    distorted. Half of the images are mirrored. Evaluation takes the central 87.5 % of
    the short side. Pixels become -1..1.

    Sources: Szegedy et al., "Going Deeper with Convolutions", 2014, section 6, with the
    numbers of TensorFlow's Inception preprocessing. Two things differ from TensorFlow's
    preprocessing: only brightness and saturation are distorted, and evaluation keeps
    the aspect ratio, as 87.5 % of both sides would not.

    Example:
        >>> tfpipe.recipes.inception(299, "uint8", "fast").train[1]
        DistortColor(fast=True)
    """
    boxes: dict[str, Any] = {"area": (0.05, 1.0), "max_attempts": 100, "flip": True}
    boxes["ratio"] = _ratio(image_size, 0.75, 1.33)
    # DistortColor takes uint8.
    crop = _crop(image_size, "uint8", quality)
    return Recipe(
        train=(RandomCrop(**crop, **boxes), DistortColor()),
        evaluate=(CenterCrop(**_crop(image_size, dtype, quality)),),
        normalize=Normalize.inception(),
    )


def vgg(image_size: ImageSize, dtype: Dtype, quality: Quality) -> Recipe:
    """Returns VGG's recipe: a random square of the image at a random scale.

    Half of the training images are mirrored. For 224 pixels the image is scaled to a
    short side of 256 to 512, for other sizes in proportion, see `RandomScaleCrop`.
    Evaluation takes the center 224 of a short side of 256. The mean is subtracted;
    there is no division by the standard deviation, and red comes first; Keras' own
    VGG16 takes blue first, see `keras`. Source: Simonyan and Zisserman,
    "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014, section
    3.1, without its shift of colors.

    Example:
        >>> tfpipe.recipes.vgg(224, "uint8", "fast").train[0].short_side
        (256, 512)
    """
    crop = _crop(image_size, dtype, quality)
    side = min(errors.require_sides("", "image_size", image_size))
    sides = (side * 256 // 224, side * 512 // 224)
    return Recipe(
        train=(RandomScaleCrop(**crop, short_side=sides, flip=True),),
        evaluate=(CenterCrop(**crop),),
        normalize=Normalize(mean=VGG_MEAN, std=(1.0, 1.0, 1.0)),
    )


@dataclasses.dataclass(frozen=True)
class _KerasRecipe:
    """The recipe of `keras`, as a callable that knows the size of its images."""

    model: str

    def __post_init__(self) -> None:
        errors.require_kind("recipes.keras", "model", self.model, str)
        alike = [name for name in _KERAS if _plain(name) == _plain(self.model)]
        if not alike:
            raise ValueError(
                "recipes.keras.model must be a model or a module of keras.applications,"
                f" got {self.model!r}.{errors.did_you_mean(self.model, _KERAS)} The "
                f"names are {', '.join(_KERAS)}."
            )
        errors.settle(self, "model", alike[0])

    @property
    def image_size(self) -> int:
        """Height and width in pixels that the model of Keras has by default."""
        return _KERAS_SIZES.get(self.model, 224)

    def __call__(self, image_size: ImageSize, dtype: Dtype, quality: Quality) -> Recipe:
        recipe = resnet(image_size, dtype, quality)
        return dataclasses.replace(recipe, normalize=_KERAS[self.model])


def keras(model: str) -> _KerasRecipe:
    """Returns a recipe whose pixels equal `preprocess_input` of a model of Keras.

    The crop boxes are those of `resnet`. A preset without `image_size` makes images of
    the size that the model of Keras has by default.

    | models | pixels |
    |---|---|
    | DenseNet | mode "torch": mean and standard deviation of ImageNet |
    | Inception, MobileNet, MobileNetV2, NASNet, ResNetV2, Xception | mode "tf": -1..1 |
    | ResNet, VGG | mode "caffe": blue first, less VGG's mean |
    | ConvNeXt, EfficientNet, EfficientNetV2, MobileNetV3 | 0..255; layers normalize |

    Example:
        >>> recipe = tfpipe.recipes.keras("mobilenet_v2")
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4, recipe=recipe)
        >>> next(iter(pipeline.for_keras()))[0].shape
        TensorShape([4, 224, 224, 3])

    Args:
        model: Name of a model of `keras.applications`, such as "MobileNetV2", or of its
            module, such as "mobilenet_v2"; capitals and underscores do not count.

    Raises:
        ValueError: If `keras.applications` has no such name.
    """
    return _KerasRecipe(model)


def _crop(image_size: ImageSize, dtype: Dtype, quality: Quality) -> dict[str, Any]:
    return {"image_size": image_size, "dtype": dtype, "quality": quality}


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _ratio(image_size: ImageSize, low: float, high: float) -> tuple[float, float]:
    """Returns the width / height of crop boxes that stretch images by `low` to `high`.

    Evaluation does not stretch images, so training must not depend on the shape of the
    result.
    """
    height, width = errors.require_sides("", "image_size", image_size)
    return low * (width / height), high * (width / height)
