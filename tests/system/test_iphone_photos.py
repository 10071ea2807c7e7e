"""A folder of HEIC photos of a telephone: converted, trained with, predicted.

With pillow-heif, and named clearly without it.
"""

import pathlib

import numpy as np
import PIL.Image
import pytest

import tfpipe
from tests.support.processes.warm_python import WarmPython

pillow_heif = pytest.importorskip(
    "pillow_heif", reason="pip install pillow-heif, which is in the extra test"
)
CLASSES = ("cat", "dog")
NUM_PHOTOS = 4
_ORIENTATION, _TURNED = 0x112, 6

# A Python in which nothing of the name can be imported.
WITHOUT = """
import runpy, sys
sys.modules["pillow_heif"] = sys.modules["pi_heif"] = None
module, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
PREPROCESS = """
import sys, tfpipe
sys.modules["pillow_heif"] = sys.modules["pi_heif"] = None
try:
    tfpipe.imagenet_eval(sys.argv[1], split="train").preprocess(sys.argv[2])
except ValueError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder for each class, of photos that are twice as wide as high, turned."""
    folder = tmp_path_factory.mktemp("telephone") / "photos"
    pillow_heif.register_heif_opener()
    exif = PIL.Image.Exif()
    exif[_ORIENTATION] = _TURNED
    for shade, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for photo in range(NUM_PHOTOS):
            color = (200 * shade, 20 * photo, 90)
            image = PIL.Image.new("RGB", (96, 48), color)
            image.save(folder / name / f"IMG_{photo:04}.HEIC", exif=exif)
    return folder


@pytest.fixture(scope="module")
def converted(photos: pathlib.Path, warm_python: WarmPython) -> pathlib.Path:
    out = photos.parent / "records"
    flags = (f"--input_dir={photos}", f"--output_dir={out}", "--num_workers=1")
    done = warm_python.run("-m", "converters.folder", *flags)
    assert done.returncode == 0, done.stderr
    assert '"decisions":{"converted_heif":8}' in done.stdout
    return out


def test_trains_a_step_and_predicts(
    photos: pathlib.Path, converted: pathlib.Path
) -> None:
    import keras

    train = tfpipe.imagenet_train(converted, batch_size=8, image_size=32)
    model = keras.Sequential(
        [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(len(CLASSES))]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    model.fit(train.for_keras(), epochs=1, verbose=0)
    test = tfpipe.imagenet_eval(converted, split="train", batch_size=8, image_size=32)

    paths = [str(photos / "dog" / f"IMG_{n:04}.HEIC") for n in range(NUM_PHOTOS)]
    images = test.preprocess(paths)
    scores = model.predict(images, verbose=0)

    assert scores.shape == (NUM_PHOTOS, len(CLASSES))
    assert np.isfinite(scores).all()
    stored = np.concatenate([x for x, *_ in test.for_keras()])
    for image in np.asarray(images, np.float32):  # the JPEGs differ by rounding
        distance = np.abs(np.asarray(stored, np.float32) - image)
        assert distance.mean((1, 2, 3)).min() < 3


def test_without_the_package_each_message_says_what_to_install(
    photos: pathlib.Path, converted: pathlib.Path, warm_python: WarmPython
) -> None:
    flags = (f"--input_dir={photos}", f"--output_dir={photos.parent / 'none'}")
    command = ("converters.folder", *flags, "--num_workers=1")
    done = warm_python.run("-c", WITHOUT, *command)
    photo = photos / "cat" / "IMG_0000.HEIC"
    said = warm_python.run("-c", PREPROCESS, converted, photo)

    assert (done.returncode, done.stdout) == (1, "")
    assert said.returncode == 0, said.stderr
    for message in (done.stderr, said.stdout):
        assert "IMG_000" in message
        assert "the format HEIF" in message
        assert "pip install pillow-heif" in message
