"""Architectures: those of Keras Applications, three that it lacks, and a tiny one.

In: image size and number of classes. Out: a Keras model from normalized images to
logits. Data format and dtype policy are Keras' current ones, as in Keras Applications.
catalog.py gives the models their names.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import keras
from keras import layers

Tensor: TypeAlias = keras.KerasTensor

_RESNET50_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))  # blocks, filters

# Filters of each module: 1x1; reduced, 3x3; reduced, 5x5; pooled. None: max-pooling.
_GOOGLENET = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


def image_input(image_size: int) -> Tensor:
    """Returns the input of a model: float [batch, size, size, 3], or channels first."""
    first = channel_axis() == 1
    size = (image_size, image_size)
    tensor: Tensor = layers.Input((3, *size) if first else (*size, 3))
    return tensor


def channel_axis() -> int:
    """Returns the axis of a batch of images that holds the channels."""
    return 1 if keras.config.image_data_format() == "channels_first" else -1


def make_logits(features: Tensor, num_classes: int) -> Tensor:
    """Adds the last layer: float32 [batch, num_classes] under any dtype policy."""
    return layers.Dense(num_classes, dtype="float32", name="logits")(features)


def resnet50(image_size: int, num_classes: int) -> keras.Model:
    """Returns ResNet-50 of Keras Applications."""
    return _application(keras.applications.ResNet50, image_size, num_classes)


def resnet101(image_size: int, num_classes: int) -> keras.Model:
    """Returns ResNet-101 of Keras Applications."""
    return _application(keras.applications.ResNet101, image_size, num_classes)


def resnet152(image_size: int, num_classes: int) -> keras.Model:
    """Returns ResNet-152 of Keras Applications."""
    return _application(keras.applications.ResNet152, image_size, num_classes)


def inception_v3(image_size: int, num_classes: int) -> keras.Model:
    """Returns Inception-v3 of Keras Applications."""
    return _application(keras.applications.InceptionV3, image_size, num_classes)


def _application(
    make: Callable[..., keras.Model], image_size: int, num_classes: int
) -> keras.Model:
    image = image_input(image_size)
    features = _features(make, image, pooling="avg")
    logits = make_logits(features.output, num_classes)
    return keras.Model(image, logits, name=features.name)


def vgg16(image_size: int, num_classes: int) -> keras.Model:
    """Returns VGG-16, model D of the paper, with the dropout that Keras leaves out.

    Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
    Recognition", 2014, section 3.1. The first dense layer grows with the image size.
    """
    image = image_input(image_size)
    features = _features(keras.applications.VGG16, image, pooling=None)
    x = layers.Flatten()(features.output)
    for _ in range(2):
        x = layers.Dense(4096, activation="relu")(x)
        x = layers.Dropout(0.5)(x)
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
        x = layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(x)
        # Momentum 0.9, as runs are short: the moving statistics must settle within one
        # epoch.
        x = layers.BatchNormalization(axis=channel_axis(), momentum=0.9)(x)
        x = layers.ReLU()(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, make_logits(x, num_classes), name="tiny")


def resnet50_v1_5(image_size: int, num_classes: int) -> keras.Model:
    """Returns ResNet-50 with stride 2 in the 3x3 convolution of a bottleneck.

    v1 has it in the 1x1 convolution. He et al., "Deep Residual Learning for Image
    Recognition", 2015, with the stride of fb.resnet.torch, as in MLPerf Training and
    NVIDIA's examples. v1.5 takes 6 % more multiplications than v1 and is about 0.5 %
    more accurate. Its convolutions have no bias.
    """
    image = image_input(image_size)
    x = _resnet_conv(image, 64, 7, strides=2)
    x = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(x))
    for stage, (num_blocks, filters) in enumerate(_RESNET50_STAGES):
        for block in range(num_blocks):
            strides = 2 if stage > 0 and block == 0 else 1
            x = _bottleneck(x, filters, strides=strides, project=block == 0)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, make_logits(x, num_classes), name="resnet50_v1_5")


def _bottleneck(x: Tensor, filters: int, *, strides: int, project: bool) -> Tensor:
    shortcut = x
    if project:
        shortcut = _resnet_conv(x, 4 * filters, 1, strides=strides, relu=False)
    x = _resnet_conv(x, filters, 1)
    x = _resnet_conv(x, filters, 3, strides=strides)
    x = _resnet_conv(x, 4 * filters, 1, relu=False)
    return layers.ReLU()(layers.Add()([x, shortcut]))


def _resnet_conv(
    x: Tensor, filters: int, kernel: int, *, strides: int = 1, relu: bool = True
) -> Tensor:
    """Adds a convolution that pads all sides equally.

    Keras' padding="same" pads the sides differently if strides are 2.
    """
    if kernel > 1:
        x = layers.ZeroPadding2D(kernel // 2)(x)
    x = layers.Conv2D(
        filters,
        kernel,
        strides=strides,
        use_bias=False,
        kernel_initializer="he_normal",
    )(x)
    x = layers.BatchNormalization(axis=channel_axis(), momentum=0.9, epsilon=1e-5)(x)
    return layers.ReLU()(x) if relu else x


def googlenet(image_size: int, num_classes: int) -> keras.Model:
    """Returns GoogLeNet, also called Inception-v1.

    Szegedy et al., "Going Deeper with Convolutions", 2014, with its dropout of 40 %. As
    in tf_cnn_benchmarks, the auxiliary classifiers and the local response normalization
    (which has no parameters) are left out. The last pooling covers the whole feature
    map, 7x7 at the published size, so images may have any size.
    """
    image = image_input(image_size)
    x = _relu_conv(image, 64, 7, strides=2)
    x = _halve(x)
    x = _relu_conv(_relu_conv(x, 64, 1), 192, 3)
    x = _halve(x)
    for module in _GOOGLENET:
        x = _halve(x) if module is None else _googlenet_module(x, *module)
    x = layers.Dropout(0.4)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(image, make_logits(x, num_classes), name="googlenet")


def _googlenet_module(
    x: Tensor,
    single: int,
    reduce3: int,
    three: int,
    reduce5: int,
    five: int,
    pooled: int,
) -> Tensor:
    branches = [
        _relu_conv(x, single, 1),
        _relu_conv(_relu_conv(x, reduce3, 1), three, 3),
        _relu_conv(_relu_conv(x, reduce5, 1), five, 5),
        _relu_conv(layers.MaxPooling2D(3, strides=1, padding="same")(x), pooled, 1),
    ]
    return layers.Concatenate(axis=channel_axis())(branches)


def _relu_conv(x: Tensor, filters: int, kernel: int, *, strides: int = 1) -> Tensor:
    return layers.Conv2D(
        filters, kernel, strides=strides, padding="same", activation="relu"
    )(x)


def _halve(x: Tensor) -> Tensor:
    return layers.MaxPooling2D(3, strides=2, padding="same")(x)


class _Conv(NamedTuple):
    filters: int
    kernel: tuple[int, int] = (1, 1)
    strides: int = 1
    padding: str = "same"


_ROW, _COLUMN = (1, 3), (3, 1)
_LONG_ROW, _LONG_COLUMN = (1, 7), (7, 1)


def inception_v4(image_size: int, num_classes: int) -> keras.Model:
    """Returns Inception-v4.

    Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual
    Connections on Learning", 2016, figures 3 to 9. Batch normalization shifts but does
    not scale, as in the authors' TF-Slim code and in Keras' Inception-v3. The dropout
    is 20 %. Images must have at least 75 pixels for the unpadded convolutions.
    """
    image = image_input(image_size)
    x = _stem(image)
    for _ in range(4):
        x = _inception_a(x)
    x = _join(  # reduction A
        _shrink(x),
        _chain(x, _half(384)),
        _chain(x, _Conv(192), _square(224), _half(256)),
    )
    for _ in range(7):
        x = _inception_b(x)
    x = _join(  # reduction B
        _shrink(x),
        _chain(x, _Conv(192), _half(192)),
        _chain(
            x, _Conv(256), _Conv(256, _LONG_ROW), _Conv(320, _LONG_COLUMN), _half(320)
        ),
    )
    for _ in range(3):
        x = _inception_c(x)
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(image, make_logits(x, num_classes), name="inception_v4")


def _stem(x: Tensor) -> Tensor:
    x = _chain(x, _half(32), _square(32, padding="valid"), _square(64))
    x = _join(_shrink(x), _chain(x, _half(96)))
    x = _join(
        _chain(x, _Conv(64), _square(96, padding="valid")),
        _chain(
            x,
            _Conv(64),
            _Conv(64, _LONG_COLUMN),
            _Conv(64, _LONG_ROW),
            _square(96, padding="valid"),
        ),
    )
    return _join(_chain(x, _half(192)), _shrink(x))


def _inception_a(x: Tensor) -> Tensor:
    return _join(
        _chain(_average(x), _Conv(96)),
        _chain(x, _Conv(96)),
        _chain(x, _Conv(64), _square(96)),
        _chain(x, _Conv(64), _square(96), _square(96)),
    )


def _inception_b(x: Tensor) -> Tensor:
    return _join(
        _chain(_average(x), _Conv(128)),
        _chain(x, _Conv(384)),
        _chain(x, _Conv(192), _Conv(224, _LONG_ROW), _Conv(256, _LONG_COLUMN)),
        _chain(
            x,
            _Conv(192),
            _Conv(192, _LONG_ROW),
            _Conv(224, _LONG_COLUMN),
            _Conv(224, _LONG_ROW),
            _Conv(256, _LONG_COLUMN),
        ),
    )


def _inception_c(x: Tensor) -> Tensor:
    wide = _chain(x, _Conv(384))
    deep = _chain(x, _Conv(384), _Conv(448, _ROW), _Conv(512, _COLUMN))
    return _join(
        _chain(_average(x), _Conv(256)),
        _chain(x, _Conv(256)),
        _chain(wide, _Conv(256, _ROW)),
        _chain(wide, _Conv(256, _COLUMN)),
        _chain(deep, _Conv(256, _COLUMN)),
        _chain(deep, _Conv(256, _ROW)),
    )


def _square(filters: int, *, padding: str = "same") -> _Conv:
    return _Conv(filters, (3, 3), padding=padding)


def _half(filters: int) -> _Conv:
    """Returns a 3x3 convolution that halves height and width, as `_shrink` does."""
    return _Conv(filters, (3, 3), strides=2, padding="valid")


def _chain(x: Tensor, *convs: _Conv) -> Tensor:
    for filters, kernel, strides, padding in convs:
        x = layers.Conv2D(
            filters, kernel, strides=strides, padding=padding, use_bias=False
        )(x)
        x = layers.BatchNormalization(axis=channel_axis(), scale=False)(x)
        x = layers.ReLU()(x)
    return x


def _join(*branches: Tensor) -> Tensor:
    return layers.Concatenate(axis=channel_axis())(list(branches))


def _shrink(x: Tensor) -> Tensor:
    return layers.MaxPooling2D(3, strides=2)(x)


def _average(x: Tensor) -> Tensor:
    return layers.AveragePooling2D(3, strides=1, padding="same")(x)
