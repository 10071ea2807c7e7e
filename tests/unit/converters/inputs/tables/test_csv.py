"""CSV files of other tools: each line is a row, or an error that names the line."""

import pathlib

import pytest

from tests.support.data import conversions
from tests.support.data.tables import config
from tests.support.data.trees import make_jpeg
from tests.unit.converters.inputs.tables.test_tables import job, labels_of
from tfpipe.shards import index
from tfpipe.shards.sql import PARQUET

_LINES = ["image,label", "0.jpg,dog", "1.jpg,cat", "2.jpg,dog"]
_TEXT = "".join(f"{line}\n" for line in _LINES)


def _classes(root: pathlib.Path, data: bytes | str, name: str = "t.csv") -> list[str]:
    """The classes of the images of a CSV file, by the names of the images."""
    for number in range(3):
        (root / f"{number}.jpg").write_bytes(make_jpeg(number))
    (root / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    made = job(f"{root}/{name}", root / "out", image_column="image")
    base = made.classes[0].label
    labels = labels_of(made)
    return [made.classes[labels[image] - base].synset for image in sorted(labels)]


@pytest.mark.parametrize(("sign", "line"), [(",", 1), (";", 2), ("\t", 3), ("|", 3)])
@pytest.mark.parametrize("label", ['"dog', '"', '"dog" big', '"a"b"'])
def test_a_quote_without_its_second_is_an_error_that_names_the_line(
    tmp_path: pathlib.Path, sign: str, line: int, label: str
) -> None:
    lines = [*_LINES]
    lines[line] = f"{line - 1}.jpg,{label}"

    with pytest.raises(ValueError, match=rf"second double quote .* line {line + 1}: "):
        _classes(tmp_path, "\n".join(lines).replace(",", sign) + "\n")

    assert not list(tmp_path.rglob("rows.parquet"))


def test_paths_in_tables_of_several_folders_need_a_root(tmp_path: pathlib.Path) -> None:
    """Each folder has images of these names: a wrong image would be taken."""
    for split, name in (("train", "0.jpg"), ("val", "1.jpg")):
        (tmp_path / "in" / split).mkdir(parents=True)
        for number in range(2):
            image = tmp_path / "in" / split / f"{number}.jpg"
            image.write_bytes(make_jpeg(number))
        lines = f"image,label\n{name},dog\n{tmp_path}/in/val/0.jpg,cat\n"
        (tmp_path / "in" / split / "t.csv").write_text(lines)
    options = {"image_column": "image", "root": str(tmp_path)}
    with pytest.raises(ValueError, match=r"Row 1 names 0\.jpg, .* in 2 folders: say"):
        job(f"{tmp_path}/in", tmp_path / "out", image_column="image")

    text = lines.splitlines()[0] + f"\n{tmp_path}/in/train/0.jpg,dog\n"
    (tmp_path / "in" / "train" / "t.csv").write_text(text)
    text = text.replace("train/0", "val/1")
    (tmp_path / "in" / "val" / "t.csv").write_text(text)
    assert labels_of(job(f"{tmp_path}/in", tmp_path / "out", **options))


def test_two_lost_quotes_that_join_rows_are_warned_about(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = _TEXT.replace("0.jpg,dog", '0.jpg,"dog').replace("1.jpg,cat", '1.jpg,cat"')

    assert _classes(tmp_path, text) == ["dog\n1.jpg,cat", "dog"]
    assert "if a double quote of a CSV file was lost" in capsys.readouterr().err


def test_single_quotes_are_letters_and_are_warned_about_around_every_class(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = _TEXT.replace("dog", "'dog'")
    (tmp_path := tmp_path / "in").mkdir()

    assert _classes(tmp_path, text) == ["'dog'", "cat", "'dog'"]
    assert capsys.readouterr().err == ""
    assert _classes(tmp_path, text.replace("cat", "'cat'"))[1] == "'cat'"
    assert "such as 'cat', stand in single quotes" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_lost_quote_among_many_rows_is_named(
    tmp_path: pathlib.Path, place: str
) -> None:
    rows = [f"0.jpg,{'a' * 50}"] * 25_000
    rows[0 if place == "first" else -1] = '0.jpg,"dog'
    line = 2 if place == "first" else 25_001

    with pytest.raises(ValueError, match=rf"second double quote .* line {line}: "):
        _classes(tmp_path, "\n".join(["image,label", *rows]))


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ('d"og', 'd"og'),
        ('5" pipe', '5" pipe'),
        ('"do""g"', 'do"g'),
        (r'"do\"g"', 'do"g'),
        ("'dog", "'dog"),
        ('"do,g"', "do,g"),
        ("NULL", "NULL"),
        ("NA", "NA"),
        ("می‌خواهم", "می‌خواهم"),
    ],
)
def test_quotes_and_words_that_are_part_of_a_label(
    tmp_path: pathlib.Path, label: str, expected: str
) -> None:
    text = _TEXT.replace("0.jpg,dog", f"0.jpg,{label}")

    assert _classes(tmp_path, text) == [expected, "cat", "dog"]


# Numbers and texts of a CSV file, and values of a query, as the catalog has them.
@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        (f"{2**70 + 1}", None, f"{2**70 + 1}"),
        (f"{2**63}", None, f"{2**63}"),
        ("007", None, "007"),
        ("1", f"{2**100 + 1}::HUGEINT", f"{2**100 + 1}"),
        ("1", f"[{2**100 + 1}::UHUGEINT]", f"[{2**100 + 1}]"),
        ("3", "sum(n) OVER ()", "3"),
        ("1", f"{2**64 - 1}::UBIGINT", f"{2**64 - 1}"),
    ],
)
def test_further_columns_keep_all_their_digits(
    tmp_path: pathlib.Path, text: str, query: str | None, expected: str
) -> None:
    """DuckDB takes long numbers for HUGEINT, which its Parquet rounds."""
    (tmp_path / "0.jpg").write_bytes(make_jpeg(0))
    (tmp_path / "t.csv").write_text(f"image,label,n\n0.jpg,a,{text}\n")
    query = query and f"SELECT *, {query} AS x FROM input"
    column = "x" if query else "n"
    options = {"input": f"{tmp_path}/t.csv", "query": query, "extra_columns": (column,)}

    conversions.convert(
        config(tmp_path / "out", image_column="image", label_column="label", **options)
    )

    query = f"SELECT {column}::VARCHAR FROM {PARQUET}"
    assert index.query_catalog(tmp_path / "out", query, []) == [(expected,)]


_BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    "data",
    [
        _TEXT.rstrip().encode(),
        _TEXT.replace("\n", "\r\n").encode(),
        _TEXT.replace("\n", "\r").encode(),
        _TEXT.replace("1.jpg", "\n1.jpg").encode() + b"\n\n",
        _BOM + _TEXT.encode(),
        _BOM + _TEXT.replace("image", '"image"').encode(),
        _BOM + _TEXT.replace("image,label", '"image","label"').encode(),
    ],
)
def test_line_ends_and_byte_order_marks_are_no_part_of_a_row(
    tmp_path: pathlib.Path, data: bytes
) -> None:
    assert _classes(tmp_path, data) == ["dog", "cat", "dog"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (_TEXT.replace("\n", "\r\n", 2), r"all lines in one way, got '\\n' and"),
        (_TEXT.replace("\n", "\r", 2), r"all lines in one way, got '\\r' and"),
        (_TEXT.encode("utf-16"), r"zero byte in its first line. Save the file as UTF"),
        (_TEXT.encode("utf-16-le"), "zero byte in its first line. Save the file as UT"),
        (_TEXT.replace("dog", "chèvre").encode("latin-1"), "as UTF-8, as `iconv -f O"),
        (_TEXT + "\0" * 100, "must have 2 cells in each line, .* got 1 in line 5"),
        (_TEXT.replace("1.jpg,cat", "1.jpg;cat"), "must have 2 cells .* in line 3"),
        (_TEXT.replace("cat", "c\rat"), "must have 2 cells .* in line 4"),
        (_TEXT.replace("cat", "x" * 3_000_000), "CSV Error on Line.{,400}$"),
        (_TEXT.replace("cat", "c\0at"), r"Row 2 \(1.jpg\) has a label that is no"),
        (_TEXT.replace("cat", "x" * 1001), r"Row 2 \(1.jpg\) has a label that is no"),
    ],
)
def test_a_file_that_is_no_table_of_texts_is_an_error_with_the_remedy(
    tmp_path: pathlib.Path, data: bytes | str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        _classes(tmp_path, data)
