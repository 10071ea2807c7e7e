"""recipes.keras beside keras.applications: names, sizes and pixels of each model."""

import functools
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe import recipes

MODULES = {
    name: module
    for name, module in vars(keras.applications).items()
    if isinstance(module, types.ModuleType) and name != "imagenet_utils"
}
MODELS = {
    name: function
    for name, function in vars(keras.applications).items()
    if isinstance(function, types.FunctionType)
}
# A module of each mode: torch, tf, caffe, and pixels as they are.
OF_EACH_MODE = ("densenet", "mobilenet_v2", "vgg16", "efficientnet")


@functools.cache
def pixels(data_dir, name, dtype, crop_op="auto"):
    """The first validation batch of the recipe of a model, as Keras gets it."""
    pipeline = tfpipe.imagenet_eval(
        data_dir,
        recipe=tfpipe.recipes.keras(name),
        dtype=dtype,
        image_size=16,
        batch_size=4,
        crop_op=crop_op,
    )
    x, _, weight = next(iter(pipeline.for_keras()))
    assert weight.numpy().tolist() == [1] * 4
    return x.numpy()


def preprocessed(data_dir, name, dtype, crop_op="auto"):
    """The same batch, 0..255, after Keras' own function, which changes its argument."""
    plain = pixels(data_dir, "convnext", dtype, crop_op).astype(np.float32)
    return MODULES[name].preprocess_input(plain)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_pixels_equal_those_of_preprocess_input(data_dir, name):
    expected = preprocessed(data_dir, name, "uint8")

    np.testing.assert_allclose(pixels(data_dir, name, "uint8"), expected, atol=1e-5)
    assert np.ptp(expected) > 1


@pytest.mark.parametrize("crop_op", ["auto", "stock"])
@pytest.mark.parametrize("name", OF_EACH_MODE)
def test_floats_are_normalized_before_they_are_rounded(data_dir, name, crop_op):
    expected = preprocessed(data_dir, name, "float32", crop_op)

    whole = pixels(data_dir, name, "float32", crop_op)
    np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-5)
    # bfloat16 has 8 bits: 1 / 256 of a value.
    short = pixels(data_dir, name, "bfloat16", crop_op)
    assert short.dtype == tf.bfloat16.as_numpy_dtype
    short = short.astype(np.float32)
    np.testing.assert_allclose(short, expected, rtol=1 / 256, atol=1e-3)


@pytest.mark.parametrize("name", OF_EACH_MODE)
def test_a_photo_is_preprocessed_as_the_records_are(data_dir, raw_dir, name):
    options = {"image_size": 16, "batch_size": 1}
    photo = next((raw_dir / "val").glob("*.JPEG"))
    made, plain = (
        tfpipe.imagenet_eval(
            data_dir, recipe=tfpipe.recipes.keras(each), **options
        ).preprocess([photo])
        for each in (name, "convnext")
    )

    expected = MODULES[name].preprocess_input(plain.astype(np.float32))

    np.testing.assert_allclose(made, expected, atol=1e-5)


def test_each_name_of_keras_is_known_and_no_other():
    assert {*MODULES, *MODELS} == {*recipes._KERAS}


class _SizeError(Exception):
    """Ends the making of a model where Keras looks at its size."""


# Keras makes MobileNetV3 without a call of this function, of 224 pixels too.
@pytest.mark.parametrize("name", sorted(n for n in MODELS if "NetV3" not in n))
def test_images_have_the_size_that_the_model_has_by_default(name, monkeypatch):
    def stop(*_, default_size, **__):
        raise _SizeError(default_size)

    from keras.src.applications import imagenet_utils

    monkeypatch.setattr(imagenet_utils, "obtain_input_shape", stop)

    with pytest.raises(_SizeError) as raised:
        MODELS[name](weights=None)

    assert raised.value.args == (tfpipe.recipes.keras(name).image_size,)


def test_sizes_are_those_of_the_models_of_a_module():
    """A module of models with several sizes has the size of the smallest images."""
    for name, module in MODULES.items():
        models = {*dir(module)} & {*MODELS}
        sizes = [tfpipe.recipes.keras(model).image_size for model in models]
        assert tfpipe.recipes.keras(name).image_size == min(sizes, default=224)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("MobileNetV2", "mobilenet_v2"),
        ("ResNet50", "resnet50"),
        ("EfficientNetB0", "efficientnet"),
    ],
)
def test_a_model_is_fine_tuned_with_the_batches_as_they_are(data_dir, name, module):
    """EfficientNet gets uint8, which its first layer scales."""
    pipeline = tfpipe.imagenet_train(
        data_dir, recipe=recipes.keras(name), image_size=32, batch_size=4
    )
    body = getattr(keras.applications, name)(
        include_top=False, weights=None, input_shape=(32, 32, 3), pooling="max"
    )
    plain = np.tile(pixels(data_dir, "convnext", "uint8"), (1, 2, 2, 1))
    images = np.tile(pixels(data_dir, name, "uint8"), (1, 2, 2, 1))
    usual = body(MODULES[module].preprocess_input(plain.astype(np.float32)))

    np.testing.assert_allclose(body(images), usual, rtol=1e-3, atol=1e-4)
    head = keras.layers.Dense(pipeline.num_classes, activation="softmax")
    model = keras.Sequential([body, head])
    # Graphs of these models take a minute to make.
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    before = body.trainable_variables[0].numpy()
    history = model.fit(pipeline.for_keras(), steps_per_epoch=1, verbose=0)

    assert np.isfinite(history.history["loss"]).all()
    assert np.any(body.trainable_variables[0].numpy() != before)
