"""README's way from own photos to a model, run as it is printed, for fewer epochs."""

import functools
import pathlib
import re
import shlex

import keras
import numpy as np
import pytest

from tests.house.code import ROOT
from tests.support.data.own_photos import make_own_photos
from tests.support.processes.warm_python import WarmPython

MAX_LINES = 25


def test_own_photos_become_an_honestly_evaluated_model(
    tmp_path: pathlib.Path,
    warm_python: WarmPython,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    python (-m converters\.folder .*)$", text, re.M)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    photos = make_own_photos(tmp_path / "PHOTOS")
    monkeypatch.chdir(tmp_path)
    places = {"PHOTOS": str(tmp_path / "PHOTOS"), "DIR": str(tmp_path / "DIR")}
    for word, path in places.items():
        command = re.sub(rf"\b{word}\b", path, command)

    converted = warm_python.run(*shlex.split(command))
    found: dict[str, object] = {}
    # Without XLA, which would take longer to compile than the model to train.
    plain = functools.partialmethod(keras.Sequential.compile, jit_compile=False)
    monkeypatch.setattr(keras.Sequential, "compile", plain)
    shorter = code.replace("epochs=20", "epochs=2")
    assert shorter != code
    exec(compile(shorter, "README.md", "exec"), found)

    assert converted.returncode == 0, converted.stderr
    assert len([line for line in code.splitlines() if line]) <= MAX_LINES
    valid = found["valid"]
    labels = [photos.class_names.index(n.split("/")[0]) for n in valid.record_names()]
    model = found["model"]
    predicted = model.predict(valid.for_keras(), verbose=0).argmax(1)
    assert len(predicted) == len(labels) > 5
    assert found["accuracy"] == pytest.approx(np.mean(predicted == labels))
    printed = capsys.readouterr().out
    for name, label in zip(valid.record_names(), predicted, strict=True):
        assert f"{name} {photos.class_names[label]}\n" in printed
    loaded = keras.models.load_model("model.keras").predict(valid.for_keras())
    assert loaded.argmax(1).tolist() == predicted.tolist()
    assert (tmp_path / "batch.png").stat().st_size > 1000
    # A model that always says the same class is right on the photos of that class.
    model.layers[-1].bias.assign([1000.0, 0, 0, 0, 0])
    assert model.evaluate(valid.for_keras())[1] == pytest.approx(labels.count(0) / 10)
