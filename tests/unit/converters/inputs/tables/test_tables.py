"""converters.table without a server: labels, names, splits, columns and bad rows."""

import contextlib
import datetime
import decimal
import pathlib
import sqlite3
from typing import Any

import pytest

from converters.catalog import question
from converters.catalog.question import Question
from converters.exports.source import open_source
from converters.inputs.image import read_image
from converters.inputs.tables import databases, scan, spool, table_sources
from converters.inputs.tables.rows import Root
from converters.jobs import run
from tests.support.data import conversions
from tests.support.data.tables import config, examples
from tests.support.data.trees import make_jpeg
from tfpipe.location.location import Location
from tfpipe.shards import index
from tfpipe.shards.sql import one_file

# A row is (img, label, name, split, score).
_COLUMNS = "img BLOB, label {kind}, name VARCHAR, split VARCHAR, score DOUBLE"
_IMAGE = make_jpeg(0)


def write(path: pathlib.Path, labels: list[Any], *, kind: str = "VARCHAR") -> str:
    """Writes a Parquet file with an image a label; returns its path."""
    with index.catalog_connection() as connection:
        connection.execute(f"CREATE TEMP TABLE t ({_COLUMNS.format(kind=kind)})")
        for number, label in enumerate(labels):
            row = [_IMAGE, label, f"{number}.jpg", "train", number / 2]
            connection.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?)", row)
        connection.execute(f"COPY t TO '{path}'")
    return str(path)


def job(path: str, out: pathlib.Path, **options: Any) -> Any:
    """Returns the job that the options plan."""
    options = {"image_column": "img"} | options
    return conversions.make_job(config(out, input=path, **options))


def labels_of(made: Any) -> dict[str, int]:
    """Returns the label of each image, by its name."""
    return {
        image.name: made.classes[image.class_index].label
        for plan in made.plans
        for image in plan.images
    }


@pytest.mark.parametrize(
    ("labels", "kind", "options", "expected", "classes"),
    [
        (["b", "a", "b"], "VARCHAR", {}, [2, 1, 2], ["a", "b"]),
        (["b", "a"], "VARCHAR", {"label_base": 0}, [1, 0], ["a", "b"]),
        ([10, 2, 0], "INTEGER", {}, [10, 2, 0], [str(n) for n in range(11)]),
        ([3, 1], "UTINYINT", {}, [3, 1], ["1", "2", "3"]),
        ([2, 0], "BIGINT", {"label_base": 1}, [3, 1], ["0", "1", "2"]),
        ([True, False], "BOOLEAN", {}, [2, 1], ["false", "true"]),
        (["b|a", "c"], "VARCHAR", {"label_separator": "|"}, [2, 3], ["a", "b", "c"]),
        ([[2, 0], [1]], "INTEGER[]", {}, [2, 1], ["0", "1", "2"]),
    ],
)
def test_labels_come_from_texts_numbers_and_lists(
    labels: list[Any],
    kind: str,
    options: dict[str, Any],
    expected: list[int],
    classes: list[str],
    tmp_path: pathlib.Path,
) -> None:
    path = write(tmp_path / "t.parquet", labels, kind=kind)

    made = job(path, tmp_path / "out", name_column="name", **options)

    found = labels_of(made)
    assert [found[f"{number}.jpg"] for number in range(len(labels))] == expected
    assert [item.text for item in made.classes] == classes


def test_a_label_map_names_numbers(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "t.parquet", [7, 2], kind="INTEGER")
    lines = "".join(f"{number} class{number}\n" for number in range(1, 8))
    (tmp_path / "map").write_text(lines)

    made = job(path, tmp_path / "out", label_map=str(tmp_path / "map"))

    assert labels_of(made) == {"row-000000001": 7, "row-000000002": 2}
    assert made.classes[6].text == "class7"


_BAD = {
    "--image_column must name one column": {"image_column": "nope"},
    "The columns are img, label, name, split, score": {"label_column": "Label"},
    'Binder Error: Referenced column "nope"': {"query": "SELECT nope FROM input"},
    "one SELECT over input: got DROP. --table=NAME=PLACE": {"query": "DROP VIEW input"},
    "the catalog has a column of this name": {"extra_columns": ("label",)},
    r"Row 2 (row-000000002) must have a label": {
        "query": "SELECT img, nullif(label, 'b') AS label FROM input"
    },
    "Row 1 (row-000000001) must have an image, got NULL": {
        "query": "SELECT NULL::BLOB AS img, label FROM input"
    },
    "Row 1 (x.jpg) must have an image that exists": {
        "query": "SELECT 'x.jpg' AS img, label FROM input"
    },
    "Row 1 names ../x.jpg, which must be below": {
        "query": "SELECT '../x.jpg' AS img, label FROM input"
    },
    "got a in rows 1 and 2": {
        "query": "SELECT img, label, 'a' AS name FROM input",
        "name_column": "name",
    },
    "The split of row 1 must be one of": {
        "query": "SELECT img, label, 'fold1' AS split FROM input",
        "split_column": "split",
    },
    "The label of row 1 must be a whole number from 0 on, got -2": {
        "query": "SELECT img, -2 AS label FROM input"
    },
    "The label of row 2 must be a whole number from 0 on": {"label_column": "score"},
    "--label_column must hold text or whole numbers": {
        "query": "SELECT img, MAP {'a': 1} AS label FROM input"
    },
    "must hold text (a path or a URL), bytes": {"image_column": "score"},
    "The table must have a row": {"query": "FROM input WHERE score < 0"},
}


@pytest.mark.parametrize("said", _BAD, ids=range(len(_BAD)))
def test_bad_tables_are_refused_in_one_line_and_leave_nothing(
    said: str, tmp_path: pathlib.Path
) -> None:
    path, out = write(tmp_path / "t.parquet", ["a", "b"]), tmp_path / "out"
    options = {"image_column": "img"} | _BAD[said]

    with pytest.raises(ValueError, match=r".") as caught:
        conversions.convert(config(out, input=path, **options))

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not out.exists()


def test_uncompressed_bytes_of_files_stay_where_they_are(
    tmp_path: pathlib.Path,
) -> None:
    # These names of columns are those that the scan uses itself.
    own = '1 AS file, 2 AS "row", 3 AS place, 4 AS path, label AS q'
    for name, images in {
        "a/x": [b"one", None],
        "b/y": [b"three", b"", b"five"],
    }.items():
        path = tmp_path / "in" / f"{name}.parquet"
        path.parent.mkdir(parents=True)
        with index.catalog_connection() as connection:
            connection.execute("CREATE TEMP TABLE t (img BLOB, label VARCHAR)")
            for image in images:
                label = str(len(image or b""))
                connection.execute("INSERT INTO t VALUES (?, ?)", [image, label])
            connection.execute(
                f"COPY (SELECT {{'bytes': img}} AS \"offset\", {own} FROM t) "
                f"TO '{path}' (COMPRESSION uncompressed)"
            )
    options = {"image_column": "offset", "label_column": "q", "on_null": "skip"}

    made = conversions.make_job(
        config(tmp_path / "out", input=str(tmp_path / "in"), **options)
    )

    images = {image.name: image for plan in made.plans for image in plan.images}
    assert {name: read_image(made.input_dir, images[name]) for name in images} == {
        "row-000000001": b"one",
        "row-000000003": b"three",
        "row-000000004": b"",
        "row-000000005": b"five",
    }
    texts = {name: made.classes[each.class_index].text for name, each in images.items()}
    assert texts == {
        "row-000000001": "3",
        "row-000000003": "5",
        "row-000000004": "0",
        "row-000000005": "4",
    }
    assert [item["name"] for item in made.left_out] == ["row-000000002"]
    assert {image.file for image in images.values()} == {"a/x.parquet", "b/y.parquet"}
    assert not list((tmp_path / "in" / "out").rglob("images"))


def test_an_image_that_seems_to_stand_in_another_column_is_found_in_its_own(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column before the images has the bytes of their sizes, as if they began."""
    starts: list[int] = []
    restart = spool.Spool.restart
    monkeypatch.setattr(
        spool.Spool, "restart", lambda self: starts.append(1) or restart(self)
    )
    images = [b"image %05d" % n * 4 for n in range(3000)]
    notes = [len(images[0]).to_bytes(4, "little") + b"%05d" % n for n in range(3000)]
    path = tmp_path / "t.parquet"
    with index.catalog_connection() as connection:
        connection.execute("CREATE TEMP TABLE t (note BLOB, image BLOB)")
        query = "INSERT INTO t SELECT unnest(?::BLOB[]), unnest(?::BLOB[])"
        connection.execute(query, [notes, images])
        connection.execute(
            f"COPY (SELECT *, 'a' AS label FROM t) TO '{path}' "
            "(COMPRESSION uncompressed, ROW_GROUP_SIZE 2048)"
        )

    made = conversions.make_job(config(tmp_path / "out", input=str(path)))

    planned = [image for plan in made.plans for image in plan.images]
    assert {read_image(made.input_dir, each) for each in planned} == {*images}
    assert {image.file for image in planned} == {"t.parquet"}
    assert len(starts) == 2


@pytest.mark.parametrize(
    "options",
    [
        "COMPRESSION uncompressed, ROW_GROUP_SIZE 2048",
        "COMPRESSION uncompressed, PARQUET_VERSION v2",
        "COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 1000000",
        "COMPRESSION snappy",
        "COMPRESSION zstd",
    ],
)
def test_images_are_the_bytes_of_the_table_whatever_form_a_file_of_it_has(
    tmp_path: pathlib.Path, options: str
) -> None:
    """Equal images, empty ones and images that hold other ones stay what they are."""
    images = [bytes([n % 7]) * (n % 50) * (n % 3) for n in range(3000)]
    images += [bytes(20) + bytes([n * n % 11]) for n in range(100)]
    images += [b"\xff\xd8" + images[n] + images[n + 1] for n in range(100)]
    (tmp_path / "in").mkdir()
    for number, more in enumerate([options, "COMPRESSION uncompressed"]):
        with index.catalog_connection() as connection:
            connection.execute("CREATE TEMP TABLE t (image BLOB, name VARCHAR)")
            names = [f"{number}-{n}" for n in range(len(images))]
            query = "INSERT INTO t SELECT unnest(?::BLOB[]), unnest(?)"
            connection.execute(query, [images, names])
            connection.execute(
                f"COPY (SELECT image, name, 'a' AS label FROM t) "
                f"TO '{tmp_path}/in/{number}.parquet' ({more})"
            )

    made = conversions.make_job(
        config(tmp_path / "out", input=str(tmp_path / "in"), name_column="name")
    )

    planned = [image for plan in made.plans for image in plan.images]
    assert {each.name: read_image(made.input_dir, each) for each in planned} == {
        f"{number}-{n}": each for number in (0, 1) for n, each in enumerate(images)
    }
    assert "in/1.parquet" in {image.file for image in planned}


def test_rows_of_nulls_are_left_out_by_name_if_wished(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "t.parquet", ["a", None, "b"])

    made = job(path, tmp_path / "out", name_column="name", on_null="skip")

    assert sorted(labels_of(made)) == ["0.jpg", "2.jpg"]
    assert [(item["name"], item["reason"]) for item in made.left_out] == [
        ("1.jpg", "null_label")
    ]


def test_more_columns_are_in_the_catalog_and_the_records(
    tmp_path: pathlib.Path,
) -> None:
    path = write(tmp_path / "t.parquet", [["b", "a"], ["c"]], kind="VARCHAR[]")
    options = config(
        tmp_path / "out",
        input=path,
        image_column="img",
        name_column="name",
        extra_columns=("score",),
        extra_in_records=True,
    )

    run.run(conversions.make_job(options))

    with index.catalog_connection() as connection:
        rows = connection.execute(
            "SELECT filename, label, labels, score FROM read_parquet(?) ORDER BY 1",
            [str(tmp_path / "out" / "catalog.parquet")],
        ).fetchall()
    assert rows == [("0.jpg", 2, [2, 1], 0.0), ("1.jpg", 3, [3], 0.5)]
    found = {each["image/filename"][0]: each for each in examples(tmp_path / "out")}
    assert found[b"0.jpg"]["image/class/labels"] == [2, 1]
    assert found[b"1.jpg"]["image/class/labels"] == [3]
    assert found[b"1.jpg"]["extra/score"] == [0.5]


def test_a_folder_whose_name_is_a_pattern_reads_its_own_rows(
    tmp_path: pathlib.Path,
) -> None:
    path = write(tmp_path / "t.parquet", ["a", "b"])
    made = job(path, tmp_path / "out[1]", extra_columns=("score",))
    # The same files in a folder that the pattern matches, with another label each.
    (rows,) = (tmp_path / "out[1]").rglob("rows.parquet")
    for file in (rows, made.more_columns.path):
        other = tmp_path / "out1" / file.relative_to(tmp_path / "out[1]")
        other.parent.mkdir(parents=True, exist_ok=True)
        with index.catalog_connection() as connection:
            wrong = "'c' AS label" if file == rows else "7.0 AS score"
            connection.execute(
                f"COPY (SELECT * REPLACE ({wrong}) FROM "
                f"read_parquet('{one_file(file)}')) TO '{other}' (FORMAT parquet)"
            )

    again = job(path, tmp_path / "out[1]", extra_columns=("score",))
    run.run(again)

    assert again.classes == made.classes
    catalog = one_file(tmp_path / "out[1]" / "catalog.parquet")
    with index.catalog_connection() as connection:
        query = "SELECT score FROM read_parquet(?) ORDER BY 1"
        assert connection.execute(query, [catalog]).fetchall() == [(0.0,), (0.5,)]


def test_a_root_is_never_left(tmp_path: pathlib.Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(b"12")
    root = Root(location=Location(str(tmp_path / "in")), is_given=True)
    good = ["a.jpg", "./x/../a.jpg", str(tmp_path / "in" / "a.jpg")]
    bad = ["../in.jpg", "..", ".", "", "/etc/passwd", str(tmp_path / "in2"), "a/../.."]

    found = root.find(dict(enumerate(good)))

    files = [(each.name, each.num_bytes) for each in found.values()]
    assert files == [("a.jpg", 2)] * 3
    for path in [*bad, "s3://bucket/a.jpg"]:
        with pytest.raises(ValueError, match=r"Row 7 names .*below --root"):
            root.find({7: path})


def test_a_sqlite_file_is_only_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    before = path.read_bytes()
    source = table_sources.find("--input", str(path))
    other = tmp_path / "other.db"

    for query in (
        "DELETE FROM t",
        f"SELECT 1) AS x; ATTACH '{other}' AS y; SELECT (1",
        "INSERT INTO t VALUES (1) RETURNING a",
    ):
        with (
            pytest.raises(ValueError, match="the database refused"),
            databases.rows(source, query),
        ):
            pass

    assert path.read_bytes() == before
    assert not other.exists()


@pytest.mark.parametrize("is_known", [True, False])
def test_rows_without_a_state_are_read_again_after_a_failure(
    is_known: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing shows that a server's rows were corrected."""
    path = tmp_path / "t.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (img TEXT, label TEXT)")
        connection.execute("INSERT INTO t VALUES ('a.jpg', 'old')")
        connection.commit()
    (tmp_path / "a.jpg").write_bytes(_IMAGE)
    state = {"t.db": "1 1 1"} if is_known else {}
    monkeypatch.setattr(table_sources.TableSource, "states", lambda _: state)
    monkeypatch.setattr(scan, "require_same", lambda *_: None)

    with monkeypatch.context() as patch:
        patch.setattr(Root, "find", _unreachable)
        with pytest.raises(OSError, match="unreachable"):
            job(f"{path}#t", tmp_path / "out")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE t SET label = 'new'")
        connection.commit()
    made = job(f"{path}#t", tmp_path / "out")

    assert [item.text for item in made.classes] == ["old" if is_known else "new"]


def _unreachable(*_: Any) -> Any:
    raise OSError("The root is unreachable.")


# Values in SQL, and the texts of the catalog. DuckDB needs pytz for times with a zone.
_VALUES = {
    "'2024-03-01 12:00:00+05'::TIMESTAMPTZ": "2024-03-01 07:00:00",
    "['2024-03-01 12:00:00+05'::TIMESTAMPTZ]": "['2024-03-01 07:00:00']",
    "{'t': '2024-03-01 12:00:00+05'::TIMESTAMPTZ}": "{'t': '2024-03-01 07:00:00'}",
    "'12:00:00+05'::TIMETZ": "07:00:00+00",
    "INTERVAL 3 DAY": "3 days",
    "3::HUGEINT": "3.0",
    "'101'::BIT": "101",
    "MAP {'a': 1}": "{a=1}",
    "[[1], [2]]": "[[1], [2]]",
    "DATE '2024-03-01'": "2024-03-01",
    "18446744073709551615::UBIGINT": "18446744073709551615",
    "1.50::DECIMAL(9,2)": "1.50",
    "NULL": None,
}


def _write_values(path: pathlib.Path) -> list[str]:
    names = [f"v{number}" for number in range(len(_VALUES))]
    values = ", ".join(f"{v} AS {n}" for v, n in zip(_VALUES, names, strict=True))
    with index.catalog_connection() as connection:
        connection.execute(
            f"COPY (SELECT 'a.jpg' AS img, 'x' AS label, {values}) TO '{path}'"
        )
    path.with_name("a.jpg").write_bytes(_IMAGE)
    return names


def test_columns_of_every_type_are_carried_to_the_catalog(
    tmp_path: pathlib.Path,
) -> None:
    names = _write_values(tmp_path / "t.parquet")
    options: dict[str, Any] = {"image_column": "img", "extra_columns": tuple(names)}

    conversions.convert(
        config(tmp_path / "out", input=f"{tmp_path}/t.parquet", **options)
    )

    with index.catalog_connection() as connection:
        texts = ", ".join(f"{name}::VARCHAR" for name in names)
        rows = connection.execute(
            f"SELECT {texts} FROM read_parquet(?)",
            [str(tmp_path / "out" / "catalog.parquet")],
        ).fetchall()
    assert rows == [tuple(_VALUES.values())]
    data = open_source(Location(str(tmp_path / "out")), tmp_path, ())
    clause = "v0 = TIMESTAMPTZ '2024-03-01 08:00:00+01'"
    with question.ask(data, Question(clause=clause), num_threads=1) as chosen:
        assert chosen.execute("SELECT count(*) FROM chosen").fetchall() == [(1,)]


def test_labels_and_names_of_every_type_are_taken_or_refused_in_one_line(
    tmp_path: pathlib.Path,
) -> None:
    path = str(tmp_path / "t.parquet")
    names = _write_values(tmp_path / "t.parquet")
    for value, name in zip(_VALUES, names, strict=True):
        if value in ("'101'::BIT", "DATE '2024-03-01'", "3::HUGEINT"):
            made = job(path, tmp_path / "out", label_column=name)
            assert made.classes[-1].text == _VALUES[value]
            continue
        with pytest.raises(ValueError, match=r"label|Classes") as caught:
            job(path, tmp_path / "out", label_column=name)
        assert "\n" not in str(caught.value)
        assert "module" not in str(caught.value)
    made = job(path, tmp_path / "out", name_column="v0")
    assert list(labels_of(made)) == ["2024-03-01 07:00:00"]


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (
            datetime.datetime(
                2024, 3, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=5))
            ),
            ("2024-03-01 07:00:00", "TIMESTAMP"),
        ),
        (datetime.datetime(2024, 3, 1), ("2024-03-01 00:00:00", "TIMESTAMP")),
        (datetime.timedelta(days=3), ("3 days, 0:00:00", "VARCHAR")),
        (2**63, ("9223372036854775808", "VARCHAR")),
        (-(2**63), (-(2**63), "BIGINT")),
        (decimal.Decimal("1.50"), (1.5, "DOUBLE")),
        (decimal.Decimal("1234567890123456.5"), ("1234567890123456.5", "VARCHAR")),
        ({"a": [1]}, ('{"a": [1]}', "VARCHAR")),
        ([1, None], ([1, None], "BIGINT[]")),
    ],
)
def test_values_of_databases(value: Any, stored: tuple[Any, str]) -> None:
    assert databases._plain(value) == stored


@pytest.mark.parametrize("header", ["path,label,label", "path, label,label ,path"])
def test_a_column_that_is_in_the_header_twice_is_refused(
    tmp_path: pathlib.Path, header: str
) -> None:
    """DuckDB takes the first, and calls the second label_1."""
    (tmp_path / "a.jpg").write_bytes(make_jpeg(0))
    row = ",".join("x" for _ in header.split(",")).replace("x", "a.jpg", 1)
    (tmp_path / "t.csv").write_text(f"{header}\n{row}\n")
    options = {"image_column": "path", "label_column": "label"}

    with pytest.raises(ValueError, match=r"must have the column .* once, got 2"):
        conversions.convert(
            config(tmp_path / "out", input=str(tmp_path / "t.csv"), **options)
        )


@pytest.mark.parametrize("sign", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["0.jpg,a,1", "1.jpg,b"], "must have 3 cells .* got 2 in line 3"),
        (["0.jpg,a,1", "1.jpg,b,2,3"], "must have 3 cells .* got 4 in line 3"),
        (["0.jpg,a,1,", "1.jpg,b,2,", "Total"], "must have 3 cells .* got 1 in line 4"),
        (["0.jpg,a,1"] * 25_000 + ["1.jpg,b"], "got 2 in line 25002"),
        (["0.jpg,a,1", "image,label,n,m"], "got 4 in line 3"),
        (['0.jpg,"a\nb",1', "1.jpg,b"], "got 2 in line 4"),
    ],
)
def test_a_row_with_another_number_of_cells_is_named(
    lines: list[str], said: str, sign: str, tmp_path: pathlib.Path
) -> None:
    text = "".join(f"{line}\n" for line in ["image,label,n", *lines])
    (tmp_path / "t.csv").write_text(text.replace(",", sign))

    with pytest.raises(ValueError, match=said):
        job(f"{tmp_path}/t.csv", tmp_path / "out", image_column="image")

    assert not list(tmp_path.rglob("rows.parquet"))


def test_blanks_around_the_values_of_a_csv_file_are_no_part_of_a_label(
    tmp_path: pathlib.Path,
) -> None:
    """Roboflow writes a blank after each comma."""
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(make_jpeg(number))
    lines = ["path, label", "0.jpg, 0", "1.jpg, 1 ", "2.jpg, 2"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    options = {"image_column": "path", "label_column": "label"}
    made = config(tmp_path / "out", input=str(tmp_path / "t.csv"), **options)

    assert conversions.convert(made)["label_base"] == 0


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "db#t"])
@pytest.mark.parametrize("column", ["split", "Split"])
@pytest.mark.parametrize(
    ("values", "options", "splits"),
    [
        ("Training validation_set TEST", {}, ["train", "validation", "test"]),
        ("val val val", {}, ["validation"]),
        ("train val fold2", {}, ["train"]),
        ("train val test", {"split": "test"}, ["test"]),
        ("train val test", {"no_split_names": True}, ["train"]),
        ("train val test", {"split_column": "own"}, ["validation"]),
    ],
)
def test_a_column_named_split_says_the_splits_if_its_values_do(
    tmp_path: pathlib.Path,
    form: str,
    column: str,
    values: str,
    options: dict[str, Any],
    splits: list[str],
) -> None:
    rows = [(f"{n}.jpg", "a", v, "dev") for n, v in enumerate(values.split())]
    for name, *_ in rows:
        (tmp_path / name).write_bytes(_IMAGE)
    path = tmp_path / f"t.{form.partition('#')[0]}"
    if form == "db#t":
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute(f"CREATE TABLE t (image, label, {column}, own)")
            database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    else:
        lines = "".join(f"{','.join(row)}\n" for row in rows)
        (tmp_path / "t.txt").write_text(f"image,label,{column},own\n{lines}")
        read = f"COPY (FROM read_csv('{tmp_path}/t.txt')) TO '{path}'"
        with index.catalog_connection() as connection:
            connection.execute(read + (" (FORMAT json)" if form == "jsonl" else ""))

    made = job(
        f"{tmp_path}/t.{form}", tmp_path / "out", image_column="image", **options
    )

    assert [plan.split for plan in made.plans] == splits


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    ("columns", "asked", "expected"),
    [
        ("image, label", [], ["a", "b"]),
        ("image", ["label"], ["owl", "zebra"]),
        ("image", [], "label: .* --hive_columns=label takes it from the folders"),
        ("image, label", ["label"], "no column of the files, got label, which stan"),
        ("image, label", ["split"], "--hive_columns=split needs one folder split=..."),
    ],
)
def test_a_folder_is_a_column_only_if_the_user_says_so(
    tmp_path: pathlib.Path,
    form: str,
    columns: str,
    asked: list[str],
    expected: list[str] | str,
) -> None:
    for folder, label in (("label=zebra", "a"), ("label=owl", "b")):
        (tmp_path / "in" / folder).mkdir(parents=True)
        (tmp_path / f"{label}.jpg").write_bytes(_IMAGE)
        row = f"SELECT '{label}.jpg' AS image, '{label}' AS label"
        query = f"COPY (SELECT {columns} FROM ({row})) TO"
        kind = " (FORMAT json)" if form == "jsonl" else ""
        with index.catalog_connection() as connection:
            connection.execute(f"{query} '{tmp_path}/in/{folder}/t.{form}'{kind}")
    options = {"image_column": "image", "root": str(tmp_path), "hive_columns": asked}

    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            job(f"{tmp_path}/in", tmp_path / "out", **options)
        return
    made = job(f"{tmp_path}/in", tmp_path / "out", **options)
    assert [each.synset for each in made.classes] == expected


def test_a_user_hears_what_to_do_about_splits_paths_and_encodings(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "image,label,split\n0.jpg,a,val\n"
    (tmp_path / "0.jpg").write_bytes(_IMAGE)
    (tmp_path / "a.csv").write_text(line)
    (tmp_path / "b.csv").write_bytes(line.encode("utf-16"))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "c.csv").write_text(line)
    out: dict[str, Any] = {"output_dir": str(tmp_path / "out")}

    (tmp_path / "d.csv").write_text(line.replace("val", "second fold"))
    second = {"input": f"{tmp_path}/d.csv", **out}
    conversions.conversion("table", **second).make_job()
    assert "as its value 'second fold' is no split" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"no split.*\(--strict makes this"):
        conversions.conversion("table", **second, strict=True).make_job()
    for name, said in (("b.csv", "Save the file as UTF-8"), ("c", "with --root. If")):
        with pytest.raises(ValueError, match=said):
            conversions.conversion("table", input=f"{tmp_path}/{name}", **out).convert()
