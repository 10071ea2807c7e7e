"""The command converters.query as users run it: on folders and by URL, in a browser."""

import pathlib
import shutil
from typing import Any

import PIL.Image
import pytest

from converters import query, verify
from converters.options.query import QueryOptions
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import convert, digests, make_jpeg
from tests.support.processes import commands
from tests.support.servers import browser
from tfpipe.shards import index, subset

CLAUSE = "height > 32 AND split = 'train'"
# As names of classes, of files, and in a clause.
HOSTILE = (
    "<script>window.isHacked = true<_script>",
    "'><img src=x onerror='window.isHacked = true'>",
    "مجموعة بيانات",
    "画像 🦊",
    "long" * 50,
)


def _run(*arguments: object, code: int = 0) -> Any:
    done = commands.run("converters.query", *arguments)
    assert done.returncode == code, done.stderr
    return done.result if done.stdout else done.stderr


def test_a_query_writes_everything_at_once(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    before = digests(data_dir)
    flags = [
        f"--save={tmp_path}/s.parquet",
        f"--sheet={tmp_path}/s.png",
        f"--report={tmp_path}/s.html",
        f"--materialize={tmp_path}/out",
    ]

    done = _run(data_dir, CLAUSE, "--sample=5", "--num_workers=2", *flags)

    assert digests(data_dir) == before
    number = done["num_chosen"]
    assert 0 < number < 24
    assert done["splits"] == {"train": number}
    chosen = subset.read(tmp_path / "s.parquet")
    assert (chosen.query, chosen.num_records) == (CLAUSE, number)
    with PIL.Image.open(tmp_path / "s.png") as sheet:
        assert sheet.format == "PNG"
    assert (tmp_path / "s.html").read_text().count("data:image/jpeg;base64,") == 5
    config = verify.VerifyOptions(
        data_dir=str(tmp_path / "out"), level="decode", num_workers=1
    )
    assert verify.verify(config).faults == []
    assert index.load(tmp_path / "out").num_records("train") == number
    # The same command again, on the chosen records, chooses all of them.
    again = query.ask(QueryOptions(data_dir=str(tmp_path / "out"), clause=CLAUSE))
    assert (again["num_records"], again["num_chosen"]) == (number, number)
    error = _run(data_dir, "true", f"--materialize={tmp_path}/out", code=1)
    assert error.startswith(f"Error: --materialize {tmp_path}/out already holds")
    assert len(error.splitlines()) == 1


def test_a_data_set_at_a_url(
    raw_dir: pathlib.Path, s3_folder: str, tmp_path: pathlib.Path
) -> None:
    shards = {"seed": 1, "num_train_shards": 3, "num_validation_shards": 1}
    convert(raw_dir, tmp_path / "local", **shards)
    convert(raw_dir, s3_folder, work_dir=str(tmp_path / "work"), **shards)

    found = {}
    for name, place in (("here", str(tmp_path / "local")), ("there", s3_folder)):
        outputs = {
            "save": str(tmp_path / f"{name}.parquet"),
            "sheet": str(tmp_path / f"{name}.png"),
            "report": str(tmp_path / f"{name}.html"),
            "materialize": str(tmp_path / name),
        }
        config = QueryOptions(data_dir=place, clause=CLAUSE, num_workers=1, **outputs)
        answer = query.ask(config)
        found[name] = (answer["num_chosen"], answer["sample"], answer["sizes"])

    assert found["here"] == found["there"]
    chosen = [subset.read(tmp_path / f"{name}.parquet") for name in found]
    assert chosen[0].digest == chosen[1].digest
    for suffix in (".png", ".html"):
        pair = [(tmp_path / f"{name}{suffix}").read_bytes() for name in found]
        assert pair[0] == pair[1]
    shards_of = [index.load(tmp_path / name).splits for name in found]
    assert shards_of[0] == shards_of[1]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The page of a data set with names of any script, copies and bad files."""
    folder = tmp_path_factory.mktemp("page")
    for number, name in enumerate(HOSTILE):
        for split in ("train", "validation"):
            (folder / "raw" / split / name).mkdir(parents=True)
        for image in range(number + 2):
            place = folder / "raw" / "train" / name / f"{image}<b>.jpg"
            place.write_bytes(make_jpeg(10 * number + image, height=30 + 9 * image))
        (folder / "raw" / "validation" / name / "v.jpg").write_bytes(make_jpeg(number))
    bad = folder / "raw" / "train" / HOSTILE[1] / "'><b onload='window.isHacked=1'>.jpg"
    bad.write_bytes(b"")
    shutil.copy(place, folder / "raw" / "validation" / HOSTILE[0] / "leak.jpg")
    conversions.convert(
        conversion(
            "folder",
            input_dir=str(folder / "raw"),
            output_dir=str(folder / "set"),
            num_workers=1,
        )
    )
    query.ask(
        QueryOptions(
            data_dir=str(folder / "set"),
            clause="filename <> '</pre><script>window.isHacked = true</script>'",
            report=str(folder / "page.html"),
        )
    )
    return folder / "page.html"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_in_a_browser(
    page: pathlib.Path, tab: browser.Page, width: int, scheme: str
) -> None:
    tab.open(page, width=width, scheme=scheme, is_drawn=False)

    assert tab.complaints() == []
    outside = [u for u in tab.requests() if not u.startswith(("data:", "file:"))]
    assert outside == []
    assert tab.value("window.isHacked") is None
    assert tab.value("document.documentElement.scrollWidth") <= width
    names = tab.value(
        "[...document.querySelectorAll('.bars .name')].map(e => e.innerText)"
    )
    assert set(HOSTILE) <= set(names)
    pictures = "[...document.querySelectorAll('.gallery img')]"
    assert tab.value(f"{pictures}.length") == 16
    assert tab.value(f"{pictures}.every(e => e.complete && e.naturalWidth > 9)") is True
    charts = "[...document.querySelectorAll('figure svg')]"
    bars = tab.value(
        f"{charts}.map(e => [...e.querySelectorAll('rect')]"
        ".filter(r => r.getBoundingClientRect().height > 0).length)"
    )
    assert len(bars) == 5
    assert min(bars) > 0
    letters = f"{charts}.flatMap(e => [...e.querySelectorAll('text')])"
    low = tab.value(
        f"Math.min(...{letters}.map(e => e.getBoundingClientRect().height))"
    )
    assert low > 9
    ink = tab.value("getComputedStyle(document.querySelector('svg text')).fill")
    assert ink == {"light": "rgb(84, 92, 102)", "dark": "rgb(169, 177, 187)"}[scheme]
