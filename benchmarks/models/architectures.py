"""Architectures: those of Keras Applications, three that it lacks, and a tiny one.

In: image size and number of classes. Out: a Keras model from normalized images to
logits. Data format and dtype policy are Keras' current ones, as in Keras Applications.
catalog.py gives the models their names. Keras 3 computes batch normalization in many
ops; the models here take one op of TensorFlow. cuDNN has a kernel for the op; on CPUs
it saves passes over memory.
"""

import re
from typing import Any, TypeAlias

import keras
import tensorflow as tf
from keras import layers

Tensor: TypeAlias = keras.KerasTensor

_FORMATS = {-1: "NHWC", 3: "NHWC", 1: "NCHW"}
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


def application(name: str, image_size: int, num_classes: int) -> keras.Model:
    """Returns a model of Keras Applications by its name there."""
    features = _features(name, image_size, pooling="avg")
    return _model(features.inputs[0], features.output, num_classes, features.name)


def _features(name: str, image_size: int, *, pooling: str | None) -> keras.Model:
    image = _image_input(image_size)
    return getattr(keras.applications, name)(
        weights=None,
        include_top=False,
        input_tensor=image,
        input_shape=image.shape[1:],
        pooling=pooling,
    )


def _image_input(image_size: int) -> Tensor:
    """Returns the input of a model: float [batch, size, size, 3], or channels first."""
    size = (image_size, image_size)
    tensor: Tensor = layers.Input((3, *size) if _channel_axis() == 1 else (*size, 3))
    return tensor


def _channel_axis() -> int:
    """Returns the axis of a batch of images that holds the channels."""
    return 1 if keras.config.image_data_format() == "channels_first" else -1


def _model(image: Tensor, features: Tensor, num_classes: int, name: str) -> keras.Model:
    """Adds the last layer: float32 [batch, num_classes] under any dtype policy."""
    logits = layers.Dense(num_classes, dtype="float32", name="logits")
    return keras.Model(image, logits(features), name=name)


def _pooled(x: Tensor, dropout: float = 0.0) -> Tensor:
    x = layers.GlobalAveragePooling2D()(x)
    return layers.Dropout(dropout)(x) if dropout else x


def vgg16(image_size: int, num_classes: int) -> keras.Model:
    """Returns VGG-16, model D of the paper, with the dropout that Keras leaves out.

    Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
    Recognition", 2014, section 3.1. The first dense layer grows with the image size.
    """
    features = _features("VGG16", image_size, pooling=None)
    x = layers.Flatten()(features.output)
    for _ in range(2):
        x = layers.Dense(4096, activation="relu")(x)
        x = layers.Dropout(0.5)(x)
    return _model(features.inputs[0], x, num_classes, "vgg16")


def tiny(image_size: int, num_classes: int) -> keras.Model:
    """Returns four strided convolutions, for tests: they learn on a CPU in minutes."""
    image = x = _image_input(image_size)
    for filters in (16, 32, 64, 128):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(x)
        # Momentum 0.9, as runs are short: the moving statistics must settle within one
        # epoch.
        x = layers.BatchNormalization(axis=_channel_axis(), momentum=0.9)(x)
        x = layers.ReLU()(x)
    return _model(image, _pooled(x), num_classes, "tiny")


def resnet50_v1_5(image_size: int, num_classes: int) -> keras.Model:
    """Returns ResNet-50 with stride 2 in the 3x3 convolution of a bottleneck.

    v1 has it in the 1x1 convolution. He et al., "Deep Residual Learning for Image
    Recognition", 2015, with the stride of fb.resnet.torch, as in MLPerf Training and
    NVIDIA's examples. v1.5 takes 6 % more multiplications than v1 and is about 0.5 %
    more accurate. Its convolutions have no bias.
    """
    image = _image_input(image_size)
    x = _resnet_conv(image, 64, 7, strides=2)
    x = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(x))
    for stage, (num_blocks, filters) in enumerate(_RESNET50_STAGES):
        for block in range(num_blocks):
            strides, wide, shortcut = 1, 4 * filters, x
            if block == 0:
                strides = 2 if stage > 0 else 1
                shortcut = _resnet_conv(x, wide, 1, strides=strides, relu=False)
            x = _resnet_conv(_resnet_conv(x, filters, 1), filters, 3, strides=strides)
            x = _resnet_conv(x, wide, 1, relu=False)
            x = layers.ReLU()(layers.Add()([x, shortcut]))
    return _model(image, _pooled(x), num_classes, "resnet50_v1_5")


def _resnet_conv(
    x: Tensor, filters: int, kernel: int, *, strides: int = 1, relu: bool = True
) -> Tensor:
    """Adds a convolution that pads all sides equally, also with strides of 2."""
    if kernel > 1:
        x = layers.ZeroPadding2D(kernel // 2)(x)
    start = {"use_bias": False, "kernel_initializer": "he_normal"}
    x = layers.Conv2D(filters, kernel, strides=strides, **start)(x)
    x = layers.BatchNormalization(axis=_channel_axis(), momentum=0.9, epsilon=1e-5)(x)
    return layers.ReLU()(x) if relu else x


def googlenet(image_size: int, num_classes: int) -> keras.Model:
    """Returns GoogLeNet, also called Inception-v1.

    Szegedy et al., "Going Deeper with Convolutions", 2014, with its dropout of 40 %. As
    in tf_cnn_benchmarks, the auxiliary classifiers and the local response normalization
    (which has no parameters) are left out. The last pooling covers the whole feature
    map, 7x7 at the published size, so images may have any size.
    """
    image = _image_input(image_size)
    x = _halve(_relu_conv(image, 64, 7, strides=2))
    x = _halve(_relu_conv(_relu_conv(x, 64, 1), 192, 3))
    for module in _GOOGLENET:
        x = _halve(x) if module is None else _googlenet_module(x, *module)
    return _model(image, _pooled(x, 0.4), num_classes, "googlenet")


def _googlenet_module(x: Tensor, *filters: int) -> Tensor:
    single, reduce3, three, reduce5, five, pooled = filters
    return _join(
        _relu_conv(x, single, 1),
        _relu_conv(_relu_conv(x, reduce3, 1), three, 3),
        _relu_conv(_relu_conv(x, reduce5, 1), five, 5),
        _relu_conv(layers.MaxPooling2D(3, strides=1, padding="same")(x), pooled, 1),
    )


def _relu_conv(x: Tensor, filters: int, kernel: int, *, strides: int = 1) -> Tensor:
    return layers.Conv2D(
        filters, kernel, strides=strides, padding="same", activation="relu"
    )(x)


def _halve(x: Tensor) -> Tensor:
    return layers.MaxPooling2D(3, strides=2, padding="same")(x)


# Branches of Inception-v4, whose layers follow each other. 96:3x3 is a convolution of
# 96 filters with a kernel of 3 x 3, and 96 is a convolution of 1 x 1. /2 and /1 are
# strides of a convolution without padding. max and avg are poolings of 3 x 3.
_V4_A = "avg 96", "96", "64 96:3x3", "64 96:3x3 96:3x3"
_V4_B = (
    *("avg 128", "384", "192 224:1x7 256:7x1"),
    "192 192:1x7 224:7x1 224:1x7 256:7x1",
)
_V4_STEM = (
    ("max", "96:3x3/2"),
    ("64 96:3x3/1", "64 64:7x1 64:1x7 96:3x3/1"),
    ("192:3x3/2", "max"),
)
_V4_TO_B = "max", "384:3x3/2", "192 224:3x3 256:3x3/2"
_V4_TO_C = "max", "192 192:3x3/2", "256 256:1x7 320:7x1 320:3x3/2"
_WORD = re.compile(r"(\d+)(?::(\d)x(\d))?(?:/(\d))?")


def inception_v4(image_size: int, num_classes: int) -> keras.Model:
    """Returns Inception-v4.

    Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual
    Connections on Learning", 2016, figures 3 to 9. Batch normalization shifts but does
    not scale, as in the authors' TF-Slim code and in Keras' Inception-v3. The dropout
    is 20 %. Images must have at least 75 pixels for the unpadded convolutions.
    """
    image = _image_input(image_size)
    x = _chain(image, "32:3x3/2 32:3x3/1 64:3x3")
    for branches in (*_V4_STEM, *4 * [_V4_A], _V4_TO_B, *7 * [_V4_B], _V4_TO_C):
        x = _join(*(_chain(x, words) for words in branches))
    for _ in range(3):
        wide, deep = _chain(x, "384"), _chain(x, "384 448:1x3 512:3x1")
        x = _join(
            *(_chain(x, "avg 256"), _chain(x, "256")),
            *(_chain(wide, "256:1x3"), _chain(wide, "256:3x1")),
            *(_chain(deep, "256:3x1"), _chain(deep, "256:1x3")),
        )
    return _model(image, _pooled(x, 0.2), num_classes, "inception_v4")


def _join(*branches: Tensor) -> Tensor:
    return layers.Concatenate(axis=_channel_axis())(list(branches))


def _chain(x: Tensor, words: str) -> Tensor:
    for word in words.split():
        if word == "max":
            x = layers.MaxPooling2D(3, strides=2)(x)
        elif word == "avg":
            x = layers.AveragePooling2D(3, strides=1, padding="same")(x)
        elif match := _WORD.fullmatch(word):
            filters, *kernel, strides = (int(text or 1) for text in match.groups())
            padding = "valid" if match[4] else "same"
            conv = layers.Conv2D(filters, kernel, strides, padding, use_bias=False)
            normalized = layers.BatchNormalization(axis=_channel_axis(), scale=False)
            x = layers.ReLU()(normalized(conv(x)))
    return x


class FusedBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Batch normalization of images [batch, height, width, channels] in one op.

    With channels first the axis is 1. The op computes the statistics in float32, also
    of float16 and bfloat16 images.
    """

    def call(
        self, inputs: tf.Tensor, training: bool | None = None, mask: Any = None
    ) -> tf.Tensor:
        """Normalizes images; in training also moves the mean and the variance."""
        is_training = bool(training and self.trainable)
        channels = inputs.shape[self.axis]
        values, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=tf.ones([channels]) if self.gamma is None else self.gamma.value,
            offset=tf.zeros([channels]) if self.beta is None else self.beta.value,
            mean=self.moving_mean.value,
            variance=self.moving_variance.value,
            epsilon=self.epsilon,
            data_format=_FORMATS[self.axis],
            is_training=is_training,
        )
        if is_training:
            # The op returns the variance of a sample, Keras uses that of the batch.
            count = tf.cast(tf.size(inputs) / channels, tf.float32)
            variance *= (count - 1) / count
            pairs = (self.moving_mean, mean), (self.moving_variance, variance)
            for moving, new in pairs:
                moving.assign(moving * self.momentum + new * (1 - self.momentum))
        return values


def with_fused_layers(model: keras.Model) -> keras.Model:
    """Returns the same model with new weights, whose normalization is fused."""

    def clone(layer: keras.Layer) -> keras.Layer:
        is_plain = type(layer) is keras.layers.BatchNormalization
        kind = FusedBatchNormalization if is_plain else type(layer)
        return kind.from_config(layer.get_config())

    return keras.models.clone_model(model, clone_function=clone)
