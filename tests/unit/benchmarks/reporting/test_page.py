"""benchmarks.reporting.page: one HTML page about the results of a folder."""

import html.parser
import json
import pathlib
import sys
from typing import Any

import matplotlib.figure  # noqa: F401 - here, so that no test pays for its fonts
import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import report
from benchmarks.reporting import page

HOSTILE = "<script>alert('\"1\"')</script>&amp;"

ENVIRONMENT = {"tensorflow": "2.17.1", "cpu": "A CPU", "gpus": []}

RUN: dict[str, Any] = {
    "command": "benchmarks.train",
    "config": {"mode": "train", "model": "tiny", "batch_size": 4},
    "pipeline": ["TFRecordSource(...)", "Map(RandomCrop(image_size=32))"],
    "num_ranks": 2,
    "examples_per_second": 1234.5,
    "examples_per_second_per_rank": [600.0, 634.5],
    "wait_seconds_per_step": 0.001,
    "compute_seconds_per_step": 0.02,
    "stall_fraction": 0.048,
    "cpu_seconds_per_example": 0.0031,
    "num_timed_steps": 90,
    "environment": ENVIRONMENT,
}
TRAINED = RUN | {
    "epochs": [
        {"epoch": 0, "loss": 1.5, "accuracy": 0.25},
        {"epoch": 1, "loss": 0.5, "accuracy": 0.75},
    ],
    "bars": {"sentence": "Storage is not the limit."},
    "accuracy": 0.75,
}
EVALUATED = RUN | {
    "config": {"mode": "eval", "model": "tiny", "batch_size": 4},
    "num_ranks": 1,
    "accuracy": 0.875,
    "num_evaluated": 50_000,
}
EMULATED = RUN | {"config": RUN["config"] | {"mode": "infer", "emulate": "h100"}}
TRIAL = {
    "name": "4 threads",
    "elements_per_second": 1000.0,
    "cpu_seconds_per_element": 0.002,
    "ratio": 1.5,
    "against": "AUTOTUNE",
    "error": "",
}
INPUT: dict[str, Any] = {
    "command": "benchmarks.input",
    "config": {},
    "pipeline": [],
    "environment": ENVIRONMENT,
    "throughput": {},
    "examples_per_second": 2000.0,
    "cpu_seconds_per_example": 0.0005,
    "profile": {"bottleneck": {"sentence": "Decoding binds."}},
    "tune": {
        "sentence": "Four threads are best.",
        "trials": [TRIAL, TRIAL | {"name": "broken", "error": "out of memory"}],
    },
}


class _Texts(html.parser.HTMLParser):
    """The tags of a page, and the text of each, in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.texts.append("")
        self.attributes += [value or "" for _, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data


def _texts(page: str, *tags: str) -> list[str]:
    found = _Texts(page)
    pairs = zip(found.tags, found.texts, strict=True)
    return [text.strip() for tag, text in pairs if tag in tags]


def test_page_has_the_numbers_of_each_run(tmp_path: pathlib.Path) -> None:
    text = page.make_page({"a": TRAINED, "b": EVALUATED, "c": EMULATED}, tmp_path)

    assert text.startswith("<!doctype html>\n")
    assert text.endswith("</html>\n")
    assert _texts(text, "p") == [
        "Storage is not the limit.",
        "Training tiny on 2 ranks reached 1,234 images/s and waited for input 4.8% of "
        "the time.",
        "tiny is right on 87.5% of 50,000 validation images (on 1 rank).",
        "Inference with tiny on 2 ranks, an emulated accelerator (h100), reached 1,234 "
        "images/s and waited for input 4.8% of the time.",
    ]
    cells = _texts(text, "th", "td")
    assert cells[:3] == ["Run", "Ranks", "Batch a rank"]
    assert cells[11:22] == [
        *("train tiny", "2", "4", "1,234.5", "600.0, 634.5", "1.00", "20.00", "4.8%"),
        *("3.10", "75.0%", "90"),
    ]
    assert cells[31] == "87.5%"
    assert cells[42] == "-"  # no accuracy of inference
    assert "Map(RandomCrop(image_size=32))" in text
    assert cells[-6:] == ["tensorflow", "2.17.1", "cpu", "A CPU", "gpus", "[]"]
    assert text.count("<svg") == 1


def test_page_shows_what_was_measured_of_the_input(tmp_path: pathlib.Path) -> None:
    (tmp_path / "fed.png").write_bytes(b"picture")

    text = page.make_page({"fed": INPUT}, tmp_path)

    assert "Alone it feeds 2,000 images/s at 0.50 ms of CPU time each." in text
    assert "Decoding binds." in text
    assert "Four threads are best." in text
    assert _texts(text, "td")[:4] == [
        "4 threads",
        "1,000.0",
        "2.00",
        "1.50 of AUTOTUNE",
    ]
    assert "broken" not in text
    assert text.count('src="data:image/png;base64,cGljdHVyZQ=="') == 1
    assert "Learning" not in text


def test_pictures_of_first_batches_are_within_the_page(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.png").write_bytes(b"picture")

    text = page.make_page({"a": RUN, "b": EVALUATED}, tmp_path)

    assert text.count("Its first batch on rank 0, as the model sees it:") == 1
    assert text.count('alt="first batch of train" src="data:image/png;base64,') == 1
    assert "The pipeline of eval" in text


def test_hostile_texts_stay_texts(tmp_path: pathlib.Path) -> None:
    hostile = RUN | {
        "config": {"mode": "train", "model": HOSTILE, "batch_size": HOSTILE},
        "pipeline": [HOSTILE],
        "bars": {"sentence": HOSTILE},
        "environment": {HOSTILE: HOSTILE},
    }
    trial = TRIAL | {"name": HOSTILE, "against": HOSTILE}
    tuned = INPUT | {"tune": {"sentence": HOSTILE, "trials": [trial]}}

    text = page.make_page({"a": hostile, "b": tuned}, tmp_path)

    found = _Texts(text)
    assert "script" not in found.tags
    assert "alert" not in "".join(found.attributes)
    # headline 2, table 2, pipeline, environment 2, and of the tuning 3
    assert sum(text.count(HOSTILE) for text in found.texts) == 10


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "must hold JSON results, got none"),
        ({"a.json": "{}"}, r"a\.json must be a result of benchmarks\.train or"),
        ({"a.json": "no JSON"}, r"a\.json must be a result of benchmarks\.train"),
        (
            {"a.json": json.dumps(RUN | {"config": {"mode": HOSTILE}})},
            r"a\.json must be a result .*mode must be of",
        ),
    ],
)
def test_wrong_folder_is_an_error(
    tmp_path: pathlib.Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    with pytest.raises(ValueError, match=message):
        page.read_results(tmp_path)


def _main(**values: str) -> int:
    flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(**values):
        return report.main(["report"])


def test_command_writes_the_page(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(RUN))
    path = tmp_path / "report.html"

    code = _main(results=str(tmp_path), output=str(path))

    assert code == 0
    assert path.read_text().endswith("</html>\n")
    first, last = capsys.readouterr().out.splitlines()
    assert first == str(path)
    assert json.loads(last) == {
        "command": "benchmarks.report",
        "schema_version": 1,
        "num_results": 1,
        "output": str(path),
    }


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_package_that_is_missing_is_named_with_the_remedy(
    package: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(TRAINED))
    for name in list(sys.modules):
        if name.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails

    code = _main(results=str(tmp_path), output=str(tmp_path / "report.html"))

    (line,) = capsys.readouterr().err.splitlines()
    assert code == 1
    assert package in line
    assert "pip install 'tfpipe[report]'" in line


def test_a_folder_without_results_is_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(results=str(tmp_path), output="none") == 1
    assert capsys.readouterr().err.startswith("Error: --results ")
