"""The same seeded training on stock and on native ops: the same losses and accuracy."""

import pathlib

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.training import loop
from benchmarks.training.setting import make_setting
from converters import synthesize
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import convert
from tfpipe.ops import crop
from tfpipe.stages.traced import traced

NUM_CLASSES = 5
NUM_EPOCHS = 6
CHANCE = 1 / NUM_CLASSES

# Of the mean loss of each epoch, relative. Where it was measured the ops did not differ
# in eight digits; what a difference must be to be told apart, the second test says.
TOLERANCE = 1e-3

Losses = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def records_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Photo-like images that a small model tells apart."""
    folder = tmp_path_factory.mktemp("synthesized")
    synthesize.synthesize(
        synthesize.SynthesizeOptions(
            output_dir=folder / "raw",
            num_images=300,
            num_classes=NUM_CLASSES,
            num_validation_images=100,
            size_scale=0.2,
        )
    )
    convert(folder / "raw", folder / "records", num_train_shards=2)
    return folder / "records"


def _config(
    records_dir: pathlib.Path, folder: pathlib.Path, **fields: object
) -> Config:
    return Config(
        data_dir=str(records_dir),
        model="tiny",
        image_size=32,
        batch_size=20,
        checkpoint_dir=str(folder),
        **fields,
    )


def _losses(
    records_dir: pathlib.Path, folder: pathlib.Path, crop_op: str, *, seed: int = 0
) -> Losses:
    """Returns the mean loss of each epoch; the model is saved in the folder."""
    config = _config(records_dir, folder, num_epochs=NUM_EPOCHS, seed=seed)
    setting = make_setting(config, Ranks())
    assert f"crop_op='{crop_op}'" in str(setting.pipeline)
    epochs = loop.train(setting, Ranks())["epochs"]
    return np.array([epoch["loss"] for epoch in epochs])


def _accuracy(records_dir: pathlib.Path, folder: pathlib.Path) -> float:
    """Returns the accuracy of the saved model on the validation split."""
    config = _config(records_dir, folder, mode="eval")
    accuracy: float = loop.evaluate(make_setting(config, Ranks()), Ranks())["accuracy"]
    return accuracy


@pytest.fixture(scope="module")
def stock(
    records_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Losses, float]:
    """Losses and accuracy on stock ops, as where the native one was never built."""
    folder = tmp_path_factory.mktemp("stock")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(folder / "empty"))
        losses = _losses(records_dir, folder, "stock")
        return losses, _accuracy(records_dir, folder)


@needs_native
def test_training_converges_alike(
    records_dir: pathlib.Path, stock: tuple[Losses, float], tmp_path: pathlib.Path
) -> None:
    losses = _losses(records_dir, tmp_path, "native")
    accuracy = _accuracy(records_dir, tmp_path)

    stock_losses, stock_accuracy = stock
    np.testing.assert_allclose(losses, stock_losses, rtol=TOLERANCE)
    assert abs(accuracy - stock_accuracy) <= 0.02  # 2 images of 100
    assert losses[-1] < losses[0] / 5
    assert accuracy > 3 * CHANCE


@pytest.mark.parametrize("change", ["seed", "channels"])
def test_another_training_is_told_apart(
    records_dir: pathlib.Path,
    stock: tuple[Losses, float],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path / "empty"))
    if change == "channels":
        whole = crop.crop_image
        swapped = lambda *a, **k: whole(*a, **k)[..., ::-1]  # noqa: E731
        monkeypatch.setattr(crop, "crop_image", swapped)
        # The graphs that were traced before have the function as it was.
        traced.cache_clear()

    losses = _losses(records_dir, tmp_path, "stock", seed=int(change == "seed"))

    traced.cache_clear()
    difference = np.abs(losses / stock[0] - 1)
    assert difference.max() > 10 * TOLERANCE
    assert difference.max() > 20 * TOLERANCE
