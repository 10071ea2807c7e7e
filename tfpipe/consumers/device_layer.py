"""The device ops of a pipeline as a Keras layer, which is saved with the model.

In: ops on images, and the shape and type of the images. Out: a Keras model of Keras'
own layers, so that a saved model loads where this library is not installed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfpipe.ops.basic import Cast, Normalize, ToNCHW


def device_layer(ops: Sequence[Callable[..., Any]], image: tf.TensorSpec) -> Any:
    """Returns a Keras model from images to the images after the ops.

    Args:
        ops: Device ops of a pipeline: `Normalize`, `Cast`, `ToNCHW`.
        image: Shape [rows, height, width, 3] and type of the images.

    Raises:
        ValueError: If an op has no equal among Keras' layers.
    """
    import keras

    for op in ops:
        if not isinstance(op, Normalize | Cast | ToNCHW):
            raise ValueError(
                f"device_layer cannot express {op!r} by layers of Keras, only "
                "Normalize, Cast and ToNCHW. Leave the layer out, and let "
                'for_keras(device_ops="apply") apply the op.'
            )
    given = keras.Input(image.shape[1:], dtype=image.dtype.name, name="image")
    made = given
    for op in ops:
        made = _applied(keras, op, made)
    if not ops:
        made = keras.layers.Identity(dtype=image.dtype.name)(made)
    return keras.Model(given, made, name="device_ops")


def _applied(keras: Any, op: Any, image: Any) -> Any:
    if isinstance(op, ToNCHW):
        return keras.layers.Permute((3, 1, 2), dtype=image.dtype)(image)
    if isinstance(op, Cast):
        return keras.ops.cast(image, op.dtype)
    layer = keras.layers.Rescaling(
        # Lists, as the layer saves them as text.
        scale=[1 / std for std in op.std],
        offset=[-m / s for m, s in zip(op.mean, op.std, strict=True)],
        # Whatever type the model computes with, as `Normalize` does.
        dtype="float32",
    )
    normalized = layer(image)
    return keras.ops.flip(normalized, -1) if op.bgr else normalized
