"""Names of exported images: safe, each once; boxes as XML that is read again."""

import array
import collections
import re

import pytest
from hypothesis import given, settings, strategies

from converters.checks.record import CatalogRow
from converters.exports import naming, parquet, tree
from converters.exports.plan import ExportedRecord
from converters.inputs import boxes
from tfpipe.shards import index

NAMED = [
    ("source", "train/n01/a.JPEG", "train/n01/a.JPEG"),
    ("source", "/etc/passwd.jpg", "etc/passwd.jpg"),
    ("source", "../../a/./b//c.jpg", "a/b/c.jpg"),
    ("source", ".converting/a.jpg", "_converting/a.jpg"),
    ("source", "..", "record-train-00000-00000.jpg"),
    ("source", None, "record-train-00000-00000.jpg"),
    ("split", "x/y/a.jpg", "train/cat/big/a.jpg"),
    ("split", "", "train/cat/big/record-train-00000-00000.jpg"),
    ("key", "train/n01/a.b.JPEG", "train/n01/a_b"),
    ("key", "v1.0/a", "v1_0/a"),
]


def _paths(
    style: naming.Style, rows: list[tuple[str, int, int, int, str, str | None]]
) -> list[str]:
    with index.catalog_connection() as connection:
        connection.execute(
            "CREATE TEMP TABLE chosen (split VARCHAR, shard INT, record INT, "
            "label INT, synset VARCHAR, filename VARCHAR)"
        )
        connection.executemany("INSERT INTO chosen VALUES (?, ?, ?, ?, ?, ?)", rows)
        naming.add_paths(connection, style)
        found = connection.execute("SELECT path FROM named ORDER BY split, record")
        return [path for (path,) in found.fetchall()]


@pytest.mark.parametrize(("style", "filename", "path"), NAMED)
def test_path_of_one_image(
    style: naming.Style, filename: str | None, path: str
) -> None:
    assert _paths(style, [("train", 0, 0, 1, "../cat/big", filename)]) == [path]


def test_equal_paths_are_numbered_and_splits_have_folders() -> None:
    names = ["a.jpg", "a.jpg", "a-2.jpg", "b/a.jpg", "a.jpg"]
    rows = [("train", 0, n, 1, "cat", name) for n, name in enumerate(names)]
    rows += [("validation", 0, 0, 1, "", "a.jpg"), ("test", 0, 0, 2, "", "b")]

    source, split = (_paths(style, rows) for style in ("source", "split"))

    assert len(set(source)) == len(set(split)) == 7
    assert split[0] == "test/class_0002/b"
    assert split[1] == "train/cat/a.jpg"
    assert split[-1] == "val/class_0001/a.jpg"


def test_a_name_that_is_no_utf8_becomes_its_bytes_again() -> None:
    assert naming.on_disk("a/\\udcff\\udc80.jpg") == "a/\udcff\udc80.jpg"
    assert naming.on_disk("a/é\\u.jpg") == "a/é\\u.jpg"


@settings(max_examples=100, deadline=None)
@given(
    strategies.lists(
        strategies.tuples(*[strategies.floats(0, 1, width=32)] * 4), max_size=3
    ),
    strategies.integers(1, 5000),
    strategies.integers(1, 5000),
)
def test_boxes_come_back_from_their_xml(
    sides: list[tuple[float, float, float, float]], height: int, width: int
) -> None:
    kept = [
        box
        for box in sides
        if box[0] < box[2] and box[1] < box[3] and box == tuple(array.array("f", box))
    ]
    row = CatalogRow(0, 0, 0, 1, "n01", height, width, "", "kept", "")
    path = "train/n01/n01_1.JPEG"

    text = tree.annotation(
        ExportedRecord(row, path, b"", b"", kept, [1] * len(kept)), {1: "n01"}
    )

    decisions: collections.Counter[str] = collections.Counter()
    assert boxes.parse_xml(text.encode(), "n01_1", ["n01"], decisions) == kept


def test_sides_are_whole_pixels_where_these_give_the_same_side_again() -> None:
    row = CatalogRow(0, 0, 0, 1, "n01", 30, 40, "", "kept", "")
    third = array.array("f", [10 / 30])[0]
    box = (0.25, third, 0.51, 1.0)

    text = tree.annotation(ExportedRecord(row, "a.JPEG", b"", b"", [box], [1]), {})

    sides = re.findall("<[xy]m..>(.*)</", text)
    assert sides == ["10", "10", repr(0.51 * 40), "30"]


@given(strategies.lists(strategies.integers(1, 20_000_000), min_size=1, max_size=40))
def test_row_groups_have_each_row_once_and_are_bounded(sizes: list[int]) -> None:
    found = parquet.groups(sizes)

    assert [n for start, stop in found for n in range(start, stop)] == list(
        range(len(sizes))
    )
    assert all(start < stop for start, stop in found)
    assert all(
        stop - start == 1 or sum(sizes[start:stop]) <= 16_000_000
        for start, stop in found
    )


def test_a_first_row_above_the_bound_is_a_row_group_of_its_own() -> None:
    big, small = 16_000_001, 8_000_000

    assert parquet.groups([big]) == [(0, 1)]
    assert parquet.groups([big, small, small, 1]) == [(0, 1), (1, 3), (3, 4)]
    assert parquet.groups([small, big, big]) == [(0, 1), (1, 2), (2, 3)]
