"""examples/: own photos with Keras, and a loop of one's own on two Horovod ranks."""

import contextlib
import io
import pathlib
import re
import runpy
import sys

import pytest

from benchmarks.distributed.ranks import Ranks
from tests.support.data.trees import make_jpeg
from tests.support.processes.rank_pool import RankPool
from tests.support.processes.warm_python import WarmPython

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def _photos(folder: pathlib.Path) -> pathlib.Path:
    for number in range(31):
        path = folder / f"class {number % 5}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number, height=60, width=80))
    return folder


def test_own_photos_train_a_model_that_names_its_predictions(
    tmp_path: pathlib.Path,
    warm_python: WarmPython,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    photos, records = _photos(tmp_path / "photos"), tmp_path / "records"
    script = EXAMPLES / "keras_own_photos.py"
    (command,) = re.findall(
        r"python (-m converters.folder .*?)\n    python", script.read_text(), re.S
    )
    words = command.replace("\\\n", " ").split()
    words = [word.replace("=photos", f"={photos}") for word in words]
    words = [word.replace("=records", f"={records}") for word in words]
    done = warm_python.run(*words)
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(sys, "argv", [str(script), str(records), "1"])
    monkeypatch.chdir(tmp_path)

    runpy.run_path(str(script), run_name="__main__")

    printed = capsys.readouterr().out
    rows = re.findall(r"^(class \d)/(\d+\.jpg): class \d \(\d+%\)$", printed, re.M)
    assert re.search(r"^accuracy [01]\.\d+, loss \d", printed, re.M)
    assert 4 <= len(rows) <= 8
    assert all((photos / folder / name).exists() for folder, name in rows)
    assert (tmp_path / "own_photos.keras").exists()


def test_a_model_of_keras_is_fine_tuned_on_a_part_and_validated_on_the_rest(
    data_dir: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """VGG16 has the fewest layers, so that its graph is made in seconds."""
    script = str(EXAMPLES / "fine_tune_keras.py")
    monkeypatch.setattr(sys, "argv", [script, str(data_dir), "VGG16", "none", "32"])

    runpy.run_path(script, run_name="__main__")

    printed = capsys.readouterr().out
    assert len(re.findall(r"val_loss: \d", printed)) == 2
    assert len(re.findall(r"^train/n\d+/\S+: .+ \(\d+%\)$", printed, re.M)) == 5


def _run(_: Ranks, script: str, data_dir: str) -> str:
    """Runs an example on this rank; returns what it prints."""
    printed = io.StringIO()
    before, sys.argv = sys.argv, [script, data_dir]
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv = before
    return printed.getvalue()


def test_own_loop_on_two_ranks_counts_every_record_once(
    rank_pool: RankPool, data_dir: pathlib.Path
) -> None:
    script = EXAMPLES / "horovod_loop.py"

    first, second = rank_pool.run(_run, str(script), str(data_dir))

    found = re.findall(r"epoch (\d): (\d) of (\d) right", first)
    assert [(epoch, total) for epoch, _, total in found] == [("0", "7"), ("1", "7")]
    assert second == ""
