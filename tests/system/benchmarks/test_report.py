"""python -m benchmarks.report over real results, and its pages in a real browser."""

import json
import pathlib

import pytest

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.results import collection as results
from benchmarks.training import run
from tests.support.data import sample_results
from tests.support.processes import commands
from tests.support.servers import browser

ROOT = pathlib.Path(__file__).parents[3]
MAX_BYTES = 3_000_000
NAMES = ("مجموعة بيانات", "画像データ 🦊", "</script><b onload='1'>", "long" * 90)


def _report(*flags: str) -> str:
    """Returns the last line that the command printed."""
    done = commands.run("benchmarks.report", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The page of results of every kind, with names of any script, and a comparison."""
    folder = tmp_path_factory.mktemp("made-up")
    found = sample_results.every_kind()
    for name in NAMES:
        document = sample_results.train(model=name, data=f"/data/{name}", num_ranks=2)
        del document["environment"]["data"]
        found[f"name-{len(found)}"] = document
    old = {"old": sample_results.train(rate=700, number=900)}
    new = sample_results.write(folder / "new", found)
    before = sample_results.write(folder / "old", old)
    path = folder / "made-up.html"
    _report(f"--results={new}", f"--compare={before}", f"--output={path}")
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_page_in_a_browser(
    made_up: pathlib.Path, tab: browser.Page, width: int, scheme: str
) -> None:
    tab.open(made_up, width=width, scheme=scheme)

    assert tab.complaints() == []
    outside = [u for u in tab.requests() if not u.startswith(("data:", "file:"))]
    assert outside == []
    assert tab.value("document.documentElement.scrollWidth") <= width
    if width < 600:  # tables are cards, which nobody has to scroll
        wider = "[...document.querySelectorAll('.scroll')]"
        wider += ".filter(e => e.scrollWidth > e.clientWidth).length"
        assert tab.value(wider) == 0
    drawings = "[...document.querySelectorAll('.drawing')]"
    marks = "d.querySelectorAll('svg .mark-rect path, svg .mark-line path')"
    num_marks = tab.value(f"{drawings}.map(d => {marks}.length)")
    assert len(num_marks) > 30
    assert min(num_marks) > 0
    # The charts have the colours of the scheme, from the style sheet.
    ink = tab.value(
        "getComputedStyle(document.querySelector('.drawing svg text')).fill"
    )
    assert ink == {"light": "rgb(84, 92, 102)", "dark": "rgb(169, 177, 187)"}[scheme]


def test_page_is_small(made_up: pathlib.Path) -> None:
    assert made_up.stat().st_size < MAX_BYTES


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

    line = _report(f"--results={tmp_path}", f"--output={path}")

    found = {r.values.config.mode: r for r in results.read([tmp_path]).results}
    assert sorted(found) == ["eval", "train"]
    text = path.read_text()
    assert f"{found['train'].values.examples_per_second:,.0f}" in text
    assert "validation images" in text
    assert 'id="learning-1"' in text
    assert text.count("data:image/jpeg;base64,") == 2
    assert "RandomCrop(image_size=32" in text
    assert "CenterCrop(image_size=32" in text
    assert json.loads(line)["num_results"] == 2
