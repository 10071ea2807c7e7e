"""Each format, exported and converted back by the printed command: the same data."""

import pathlib
from typing import Any

import pytest

from converters.exports.plan import FORMATS, Format
from converters.inputs.exported import COLUMNS_NAME
from converters.jobs.more_columns import is_key
from tests.support.data.carried import (
    COLUMNS,
    converted_back,
    exported,
    make_table,
)
from tests.support.data.conversions import conversion
from tests.support.data.trees import convert, make_jpeg, make_tree
from tfpipe.shards import index, records
from tfpipe.shards.example import decode_example

READ_BACK: list[Format] = [name for name in FORMATS if name != "arrayrecord"]
Rows = list[tuple[Any, ...]]


def _rows(data_dir: pathlib.Path, columns: str = "") -> Rows:
    query = f"SELECT split, digest, label, synset{columns} FROM read_parquet(?)"
    return index.query_catalog(data_dir, f"{query} ORDER BY ALL", [])


def _same(source: pathlib.Path, back: pathlib.Path) -> None:
    before, after = index.load(source), index.load(back)
    assert after.classes == before.classes
    assert after.label_base == before.label_base
    assert list(after.splits) == list(before.splits)
    assert not after.made_by.get("ignored")  # no file of the export itself


def _features(data_dir: pathlib.Path) -> Rows:
    """Returns the further features of each record."""
    found = (
        decode_example(record.data)
        for shards in index.load(data_dir).splits.values()
        for shard in shards
        for record in records.read(data_dir / shard.name)
    )
    return sorted(
        tuple((key, tuple(each[key].values)) for key in each if is_key(key))
        for each in found
    )


@pytest.mark.parametrize("kind", READ_BACK)
@pytest.mark.parametrize(
    "options",
    [{"label_base": 0}, {"extra_in_records": True}],
    ids=["from 0", "in records"],
)
def test_columns_and_all_labels_come_back(
    kind: Format, options: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    source = make_table(tmp_path, **options)

    done = exported(source, tmp_path / "out", kind)
    back = converted_back(done, tmp_path / "back")

    wanted = f", labels, {COLUMNS}"
    assert done["columns"] == wanted[2:].split(", ")
    assert _rows(back, wanted) == _rows(source, wanted)
    assert _features(back) == _features(source) != []
    assert done["limits"] == []
    _same(source, back)


@pytest.mark.parametrize("kind", READ_BACK)
def test_odd_names_come_back(kind: Format, tmp_path: pathlib.Path) -> None:
    names = ("a#b/c%20d", "é'\"", "t rue", "10", "[x]*")
    for number, name in enumerate(names * 2):
        path = tmp_path / "raw" / name / f"{number} #{number}?.é.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number))
    options = {"label_base": 0, "label_type": "text", "num_workers": 1}
    raw, out = str(tmp_path / "raw"), str(tmp_path / "set")
    conversion("folder", input_dir=raw, output_dir=out, **options).convert()

    done = exported(tmp_path / "set", tmp_path / "out", kind)
    back = converted_back(done, tmp_path / "back")

    assert not (tmp_path / "out" / COLUMNS_NAME).exists()
    assert _rows(back) == _rows(tmp_path / "set")
    _same(tmp_path / "set", back)


@pytest.mark.parametrize("kind", READ_BACK)
def test_classes_called_as_splits_come_back(
    kind: Format, tmp_path: pathlib.Path
) -> None:
    for number, name in enumerate(("train", "Test set", "train", "Test set")):
        path = tmp_path / "raw" / name / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number))
    options = {"no_split_names": True, "num_workers": 1, "fsync": False}
    raw, out = str(tmp_path / "raw"), str(tmp_path / "set")
    conversion("folder", input_dir=raw, output_dir=out, **options).convert()

    done = exported(tmp_path / "set", tmp_path / "out", kind)
    back = converted_back(done, tmp_path / "back")

    assert _rows(back) == _rows(tmp_path / "set")
    _same(tmp_path / "set", back)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_does_not_come_back_is_named(kind: Format, tmp_path: pathlib.Path) -> None:
    if kind == "arrayrecord":
        pytest.importorskip("array_record")
    raw = make_tree(tmp_path / "raw", num_images=4)
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    (image,) = (raw / "train/n01440764").iterdir()
    path = raw / "bbox/n01440764" / f"{image.stem}.xml"
    path.parent.mkdir(parents=True)
    size = "<size><width>40</width><height>32</height></size>"
    named = f"<object><name>n01440764</name>{box}</object>"
    path.write_text(f"<annotation>{size}{named}</annotation>")
    convert(raw, tmp_path / "set")

    done = exported(tmp_path / "set", tmp_path / "out", kind)

    assert done["num_boxes"] == 1
    assert (
        done["limits"]
        == {
            "tree": [],
            "webdataset": [
                "converters.webdataset does not read 1 bounding boxes back."
            ],
            "parquet": ["converters.table does not read 1 bounding boxes back."],
            "arrayrecord": ["No converter reads arrayrecord files back."],
        }[kind]
    )


def test_a_column_that_parquet_cannot_hold_is_named(tmp_path: pathlib.Path) -> None:
    query = "SELECT *, n AS class, INTERVAL 1 DAY AS age FROM input"
    columns = ["class", "age", "n"]
    source = make_table(tmp_path, query=query, extra_columns=columns)

    done = exported(source, tmp_path / "out", "parquet")
    back = converted_back(done, tmp_path / "back")

    (line,) = done["limits"]
    assert line.startswith("The Parquet files lack age, class: ")
    assert _rows(back, ", class, age, n") == _rows(source, ", class, age, n")


def test_rows_that_do_not_fit_the_images_are_refused(tmp_path: pathlib.Path) -> None:
    source = make_table(tmp_path)
    done = exported(source, tmp_path / "out", "webdataset")

    wanted = r"columns\.pqt must have a row for each image"
    with pytest.raises(ValueError, match=wanted):
        converted_back(done, tmp_path / "back", file_in_names=True)
    (tmp_path / "few.txt").write_text("0 cat\n1 a b\n2 #dog\n")
    options = {"label_map": str(tmp_path / "few.txt"), "classes": ("a b",)}
    wanted = "must name the class of each number in the input, got no name for 3"
    with pytest.raises(ValueError, match=wanted):
        converted_back(done, tmp_path / "back", **options)


def _names(out: pathlib.Path) -> Rows:
    query = "SELECT filename FROM read_parquet(?) ORDER BY list_contains(labels, 'cat')"
    with index.catalog_connection() as connection:
        return connection.execute(query, [str(out / COLUMNS_NAME)]).fetchall()
