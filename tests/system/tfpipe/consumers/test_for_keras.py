"""Pipeline.for_keras in real fits; a saved model that begins with the device layer."""

import dataclasses
import pathlib
import subprocess

import keras
import numpy as np
import pytest

import tfpipe
from tests.support.processes.stopping import Stop
from tests.support.processes.warm_python import WarmPython

BATCH_SIZE = 4
STEPS = 6  # of an epoch of the 24 training records


def make_model(*layers):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [*layers, keras.layers.Flatten(), keras.layers.Dense(1000)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"], jit_compile=False)
    return model


def weights_of(model):
    return np.concatenate([value.ravel() for value in model.get_weights()])


@pytest.fixture(scope="module")
def train(data_dir):
    return tfpipe.imagenet_train(data_dir, image_size=8, batch_size=BATCH_SIZE, seed=1)


@pytest.fixture(scope="module")
def val(data_dir):
    return tfpipe.imagenet_eval(data_dir, image_size=8, batch_size=BATCH_SIZE)


@pytest.fixture(scope="module")
def weights(train, val):
    """Weights after a fit of three epochs, which is not interrupted."""
    model = make_model()
    model.fit(train.for_keras(), epochs=3, validation_data=val.for_keras(), verbose=0)
    return weights_of(model)


def test_epochs_of_fit_are_the_epochs_of_the_data_one_after_the_other(train, weights):
    other = make_model()

    for epoch in range(3):
        other.fit(train.for_keras(epoch=epoch), verbose=0)

    np.testing.assert_allclose(weights, weights_of(other), atol=1e-6)


def test_classes_are_weighed_by_keras_too(train):
    """Each epoch of such a fit is another epoch of the data as well."""
    of_class = {label: 1.0 + label for label in range(1000)}
    model, other = make_model(), make_model()

    model.fit(train.for_keras(), epochs=2, class_weight=of_class, verbose=0)
    weighed = train.for_keras(class_weights=of_class)
    other.fit(weighed, epochs=2, verbose=0)

    np.testing.assert_allclose(weights_of(model), weights_of(other), atol=1e-6)
    with pytest.raises(ValueError, match="`class_weight` and `sample_weight`"):
        model.fit(weighed, class_weight=of_class, verbose=0)


def test_a_pipeline_that_is_not_built_names_the_method_for_keras(train, val):
    model = make_model()

    for read in (
        lambda: model.fit(train, verbose=0),
        lambda: model.predict(val, verbose=0),
        lambda: model.evaluate(val, verbose=0),
        lambda: np.asarray(train),
        lambda: next(iter(train)),
    ):
        with pytest.raises((AttributeError, TypeError), match=r"for_keras\(\)"):
            read()
    assert not hasattr(train, "shape")


@pytest.mark.parametrize("name", ["ops", "batch_ops"])
def test_a_layer_among_the_ops_is_refused_with_what_to_use(data_dir, name):
    for layer in (keras.layers.RandomFlip(), make_model()):
        with pytest.raises(TypeError, match=f"{name}, .* Keras, which takes images"):
            tfpipe.imagenet_train(data_dir, batch_size=4, **{name: [layer]})
    with pytest.raises(TypeError, match="Begin the model with this layer"):
        tfpipe.Map(keras.layers.Rescaling(1 / 255))


def test_interrupted_fit_finishes_its_epoch_and_goes_on(train, weights):
    model, saved = make_model(), tfpipe.CheckpointState()

    with pytest.raises(KeyboardInterrupt):
        model.fit(
            train.for_keras(),
            epochs=3,
            callbacks=[tfpipe.StateCallback(train, saved), Stop(STEPS + 2)],
            verbose=0,
        )
    assert (saved.state.epoch, saved.state.step) == (1, 2)
    model.fit(
        train.for_keras(state=saved.state),
        initial_epoch=saved.state.epoch,
        epochs=3,
        callbacks=[tfpipe.StateCallback(train, saved)],
        verbose=0,
    )

    assert (saved.state.epoch, saved.state.step) == (3, 0)
    np.testing.assert_allclose(weights_of(model), weights, atol=1e-6)


LOAD = """
import sys
sys.modules["tfpipe"] = None  # an import of it is an error
import keras, numpy as np
folder = sys.argv[1]
model = keras.models.load_model(folder + "/model.keras")
np.save(folder + "/found.npy", model.predict(np.load(folder + "/image.npy"), verbose=0))
"""


def test_model_with_the_device_layer_is_saved_and_loads_without_this_library(
    data_dir: pathlib.Path, tmp_path: pathlib.Path, warm_python: WarmPython
) -> None:
    sizes = {"image_size": 8, "batch_size": BATCH_SIZE}
    pipeline = tfpipe.imagenet_train(data_dir, **sizes)
    pipeline = dataclasses.replace(pipeline, device_ops=[tfpipe.Normalize.caffe()])
    model = make_model(pipeline.device_layer())
    plain = make_model()
    options = {"epochs": 1, "verbose": 0}
    model.fit(pipeline.for_keras(device_ops="layer"), **options)
    plain.fit(pipeline.for_keras(), **options)
    np.testing.assert_allclose(
        weights_of(model), weights_of(plain), rtol=1e-3, atol=1e-4
    )
    image = next(iter(pipeline.build()))["image"].numpy()
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "image.npy", image)

    load = [*warm_python.command, "-c", LOAD, str(tmp_path)]
    subprocess.run(load, check=True, cwd="/")

    found = np.load(tmp_path / "found.npy")
    np.testing.assert_allclose(found, model.predict(image, verbose=0), rtol=1e-5)
