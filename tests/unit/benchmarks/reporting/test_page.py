"""benchmarks.report: one page over the results of a folder."""

import json
import pathlib
import subprocess
import sys

import pytest

from benchmarks import report
from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.training import run


@pytest.fixture(scope="module")
def results_dir(
    data_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """The results of a training and an evaluation."""
    folder = tmp_path_factory.mktemp("results")
    fields = {
        "data_dir": str(data_dir),
        "model": "tiny",
        "image_size": 32,
        "batch_size": 4,
        "checkpoint_dir": str(folder / "checkpoint"),
        "report_dir": str(folder),
    }
    run.run(Config(num_epochs=2, **fields), Ranks())
    run.run(Config(mode="eval", **fields), Ranks())
    return folder


def test_page_has_numbers_chart_and_batches(
    results_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    results = report.read_results(results_dir)

    page = report.make_page(results, results_dir)

    assert sorted(r["config"]["mode"] for r in results.values()) == ["eval", "train"]
    trained = next(r for r in results.values() if r["config"]["mode"] == "train")
    assert f"{trained['examples_per_second']:,.0f} images/s" in page
    assert "validation images (on 1 rank)" in page
    assert page.count("<svg") == 1
    assert page.count("data:image/png;base64,") == 2
    assert "RandomCrop(image_size=32" in page
    assert "CenterCrop(image_size=32" in page


def test_command_writes_the_page(
    results_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    output = tmp_path / "report.html"

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.report",
            f"--results={results_dir}",
            f"--output={output}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert output.read_text().endswith("</html>\n")
    assert json.loads(done.stdout.splitlines()[-1])["num_results"] == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "must hold JSON results, got none"),
        ({"a.json": "{}"}, r"a\.json must be a result of benchmarks\.train or"),
        ({"a.json": "no JSON"}, r"a\.json must be a result of benchmarks\.train"),
    ],
)
def test_wrong_folder_is_an_error(
    tmp_path: pathlib.Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    with pytest.raises(ValueError, match=message):
        report.read_results(tmp_path)
