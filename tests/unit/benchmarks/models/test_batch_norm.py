"""benchmarks.models.architectures: one op with weights and values of Keras' layer."""

from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.models import architectures, catalog
from benchmarks.models.architectures import FusedBatchNormalization


@pytest.fixture(params=["float32", "mixed_bfloat16", "mixed_float16"])
def policy(request: pytest.FixtureRequest) -> Iterator[str]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy(before)


def _step(
    layer: keras.Layer, images: tf.Tensor
) -> tuple[tf.Tensor, list[tf.Tensor], list[np.ndarray], tf.Tensor]:
    """Returns the values in training, gradients, weights after, and later values."""
    variables = [variable.value for variable in layer.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(images)
        values = layer(images, training=True)
        loss = tf.reduce_sum(tf.cast(values, tf.float32) ** 3)
    gradients = tape.gradient(loss, [images, *variables])
    return values, gradients, layer.get_weights(), layer(images, training=False)


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("axis", [-1, 1])
def test_values_gradients_and_statistics_are_those_of_keras(
    policy: str, axis: int, scale: bool
) -> None:
    random = np.random.default_rng(0)
    shape = (8, 6, 5, 4) if axis == -1 else (8, 4, 6, 5)
    images = tf.constant(random.normal(2, 3, shape), tf.float32)
    kinds = (keras.layers.BatchNormalization, FusedBatchNormalization)
    layers = [kind(axis=axis, momentum=0.9, scale=scale) for kind in kinds]
    for layer in layers:
        layer.build(shape)
    weights = [random.uniform(0.5, 2, w.shape) for w in layers[0].get_weights()]
    for layer in layers:
        layer.set_weights(weights)

    expected, found = (_step(layer, images) for layer in layers)

    error = 1e-4 if policy == "float32" else 1e-2
    for first, second in zip(
        tf.nest.flatten(expected), tf.nest.flatten(found), strict=True
    ):
        assert first.dtype == second.dtype
        np.testing.assert_allclose(
            np.asarray(first, np.float32), np.asarray(second, np.float32), error, error
        )


def test_frozen_layer_uses_and_keeps_its_statistics() -> None:
    layer = FusedBatchNormalization()
    layer.trainable = False
    images = tf.random.normal([4, 3, 3, 2]) * 5

    values = layer(images, training=True)

    np.testing.assert_allclose(values, images / np.sqrt(1.001), rtol=1e-5)
    assert np.array_equal(layer.moving_variance, [1, 1])


def test_every_normalization_of_a_step_is_fused() -> None:
    model = catalog.MODELS["tiny"].build(32, 7)

    @tf.function
    def step(images: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(images, training=True))
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    graph = step.get_concrete_function(tf.TensorSpec([2, 32, 32, 3])).graph
    ops = [op.type for op in graph.get_operations()]

    assert ops.count("FusedBatchNormV3") == ops.count("FusedBatchNormGradV3") == 4


def test_a_clone_has_the_same_layers_and_weights() -> None:
    image = keras.Input((8, 8, 3))
    values = keras.layers.BatchNormalization(name="norm", momentum=0.7)(image)
    model = keras.Model(image, keras.layers.ReLU()(values), name="small")

    found = architectures.with_fused_layers(model)

    assert found.name == "small"
    assert found.count_params() == model.count_params()
    assert type(found.get_layer("norm")) is FusedBatchNormalization
    assert found.get_layer("norm").momentum == 0.7
