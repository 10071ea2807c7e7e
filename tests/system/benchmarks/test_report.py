"""python -m benchmarks.report over the results of real runs."""

import json
import pathlib
import subprocess
import sys

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.reporting import page
from benchmarks.training import run

ROOT = pathlib.Path(__file__).parents[3]


def test_page_of_a_training_and_an_evaluation(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    fields = {
        "data_dir": str(data_dir),
        "model": "tiny",
        "image_size": 32,
        "batch_size": 4,
        "checkpoint_dir": str(tmp_path / "checkpoint"),
        "report_dir": str(tmp_path),
    }
    run.run(Config(num_epochs=2, **fields), Ranks())
    run.run(Config(mode="eval", **fields), Ranks())
    path = tmp_path / "report.html"
    command = [sys.executable, "-m", "benchmarks.report", f"--results={tmp_path}"]

    done = subprocess.run(
        [*command, f"--output={path}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    results = page.read_results(tmp_path)
    assert sorted(r["config"]["mode"] for r in results.values()) == ["eval", "train"]
    trained = next(r for r in results.values() if r["config"]["mode"] == "train")
    text = path.read_text()
    assert f"{trained['examples_per_second']:,.0f} images/s" in text
    assert "validation images (on 1 rank)" in text
    assert text.count("<svg") == 1
    assert text.count("data:image/png;base64,") == 2
    assert "RandomCrop(image_size=32" in text
    assert "CenterCrop(image_size=32" in text
    assert json.loads(done.stdout.splitlines()[-1])["num_results"] == 2
