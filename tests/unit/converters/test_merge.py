"""Trees merged in this process: classes, names, copies across sources, refusals."""

import json
import pathlib
from typing import Any

import pytest

from converters import merge
from converters.inputs.merged import sources
from converters.options.own import reading
from tests.support.data import digests, make_jpeg
from tfpipe.shards import index


def _write(root: pathlib.Path, images: dict[str, int]) -> str:
    """Writes a picture under each name, drawn from its seed."""
    for name, seed in images.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(seed))
    return str(root)


@pytest.fixture
def trees(tmp_path: pathlib.Path) -> dict[str, str]:
    """Two trees with one equal image; the second has splits and other names."""
    first = {"cat/1.jpg": 1, "dog/2.jpg": 2, "dog/3.jpg": 3}
    second = {
        "train/Hund/2.jpg": 2,
        "train/cat/5.jpg": 5,
        "train/junk/6.jpg": 6,
        "val/Hund/7.jpg": 7,
    }
    return {
        "own": _write(tmp_path / "a", first),
        "web.v2": _write(tmp_path / "b" / "c", second),
    }


def _merge(out: pathlib.Path, trees: dict[str, str], **options: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"num_workers": 1, "fsync": False, **options}
    return merge.convert(merge.Config(sources=trees, output_dir=str(out), **values))


def _rows(folder: pathlib.Path) -> list[tuple[Any, ...]]:
    query = "SELECT split, filename, synset, label FROM read_parquet(?)"
    return sorted(index.query_catalog(folder, query, []))


def test_classes_and_splits_are_joined(
    tmp_path: pathlib.Path, trees: dict[str, str]
) -> None:
    mapping = tmp_path / "map.tsv"
    mapping.write_text("Hund\tdog\n\njunk\t\n")

    done = _merge(tmp_path / "out", trees, class_map={"web.v2": str(mapping)})

    assert _rows(tmp_path / "out") == [
        ("train", "own/cat/1.jpg", "cat", 1),
        ("train", "own/dog/2.jpg", "dog", 2),
        ("train", "own/dog/3.jpg", "dog", 2),
        ("train", "web.v2/train/Hund/2.jpg", "dog", 2),
        ("train", "web.v2/train/cat/5.jpg", "cat", 1),
        ("validation", "web.v2/val/Hund/7.jpg", "dog", 2),
    ]
    lines = (tmp_path / "out/duplicates.jsonl").read_text().splitlines()
    names = [json.loads(line)["names"] for line in lines]
    assert [sorted(group) for group in names] == [
        ["own/dog/2.jpg", "web.v2/train/Hund/2.jpg"]
    ]
    assert done["decisions"]["ignored_class_not_mapped"] == 1
    rejects = (tmp_path / "out/rejects.jsonl").read_text()
    assert "web.v2/train/junk/6.jpg" in rejects

    # The order of the sources has no effect, and copies can be left out.
    turned = dict(reversed(trees.items()))
    _merge(tmp_path / "turned", turned, class_map={"web.v2": str(mapping)})
    assert digests(tmp_path / "turned") == digests(tmp_path / "out")
    fewer = _merge(tmp_path / "fewer", trees, drop_duplicates="all")
    assert fewer["num_records"] == 6
    assert len({label for *_, label in _rows(tmp_path / "fewer")}) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Hund dog\n", r"got 'Hund dog' in line 1"),
        ("Hund\tdog\nHund\tcat\n", r"once, got 'Hund' twice"),
        ("Katze\tcat\n", r"got 'Katze'. It has 3, the first is 'Hund'"),
    ],
)
def test_a_wrong_class_map_is_refused(
    tmp_path: pathlib.Path, trees: dict[str, str], text: str, message: str
) -> None:
    (tmp_path / "map.tsv").write_text(text)
    with pytest.raises(ValueError, match=message):
        _merge(tmp_path / "out", trees, class_map={"web.v2": str(tmp_path / "map.tsv")})
    assert not (tmp_path / "out").exists()


def test_wrong_sources_are_refused(
    tmp_path: pathlib.Path, trees: dict[str, str]
) -> None:
    out, first = tmp_path / "out", trees["own"]
    refused: list[tuple[dict[str, str], dict[str, Any], str]] = [
        ({}, {}, "must be given as NAME=PLACE"),
        ({"../x": first}, {}, "letters, digits"),
        ({"a": first, "b": f"{first}/dog"}, {}, "beside each other"),
        ({"a": str(tmp_path / "none")}, {}, "Source a: .*no such file or folder"),
        (trees, {"validation_fraction": 0.5}, "already has a validation split"),
        (trees, {"class_map": {"wbe": "map.tsv"}}, "one of the sources own, web.v2"),
    ]
    for given, options, message in refused:
        with pytest.raises(ValueError, match=message):
            _merge(out, given, **options)
        assert not out.exists()
    with pytest.raises(ValueError, match="must not be in"):
        _merge(pathlib.Path(first) / "out", trees)
    for words, message in ((["a"], "got 'a'"), (["a=b", "a=c"], "got 'a' twice")):
        with pytest.raises(ValueError, match=message):
            reading.by_name("Sources", words, may_be_empty=False)
    assert sources.Source(name="v1.0_x-y", place=str(out)).name == "v1.0_x-y"
