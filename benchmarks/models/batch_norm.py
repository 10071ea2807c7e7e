"""Batch normalization in one op of TensorFlow, which Keras 3 computes in many ops.

In: the arguments of `keras.layers.BatchNormalization`. Out: a layer with the same
weights and values. cuDNN has a kernel for the op; on CPUs it saves passes over memory.
"""

from typing import Any

import keras
import tensorflow as tf

_FORMATS = {-1: "NHWC", 3: "NHWC", 1: "NCHW"}


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
            self._move(mean, variance, tf.size(inputs) / channels)
        return values

    def _move(self, mean: tf.Tensor, variance: tf.Tensor, count: tf.Tensor) -> None:
        """Moves the statistics toward those of a batch.

        The op returns the variance of a sample, Keras uses that of the batch.
        """
        count = tf.cast(count, tf.float32)
        variance *= (count - 1) / count
        for moving, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(moving * self.momentum + new * (1 - self.momentum))


def with_fused_layers(model: keras.Model) -> keras.Model:
    """Returns the same model with new weights, whose normalization is fused."""

    def clone(layer: keras.Layer) -> keras.Layer:
        is_plain = type(layer) is keras.layers.BatchNormalization
        kind = FusedBatchNormalization if is_plain else type(layer)
        return kind.from_config(layer.get_config())

    return keras.models.clone_model(model, clone_function=clone)
