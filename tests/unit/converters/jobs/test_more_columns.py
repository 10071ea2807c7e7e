"""jobs.more_columns: columns that a feature holds, by type of DuckDB."""

import math
import pathlib
import shutil
from typing import Any

import pytest

from converters.jobs.more_columns import MoreColumns
from tests.support.data.conversions import conversion
from tests.support.data.tables import examples
from tests.support.data.trees import make_jpeg
from tfpipe.shards import index
from tfpipe.shards.example import decode_example, encode_example

# A value in SQL, and the kind and the values of its feature.
HELD: list[tuple[str, str, list[Any]]] = [
    ("true", "int64", [1]),
    ("3::TINYINT", "int64", [3]),
    ("-4::BIGINT", "int64", [-4]),
    ("5::UINTEGER", "int64", [5]),
    ("1.5::FLOAT", "float", [1.5]),
    ("0.25::DOUBLE", "float", [0.25]),
    ("7.5::DECIMAL(9,2)", "float", [7.5]),
    ("'é'", "bytes", ["é".encode()]),
    ("'a'::BLOB", "bytes", [b"a"]),
    ("'x'::ENUM('x', 'y')", "bytes", [b"x"]),
    ("'{\"a\": 1}'::JSON", "bytes", [b'{"a": 1}']),
    ("[1, 2]", "int64", [1, 2]),
    ("[1.5, 2]::DOUBLE[2]", "float", [1.5, 2.0]),
    ("['a', 'b']", "bytes", [b"a", b"b"]),
    ("NULL::INTEGER", "int64", []),
    ("NULL::VARCHAR", "bytes", []),
    ("[]::VARCHAR[]", "bytes", []),
]
# A value in SQL, and the cast that the error shows.
REFUSED: list[tuple[str, str]] = [
    ("1::UBIGINT", "::BIGINT"),
    ("1.5::DECIMAL(30,2)", "::DOUBLE"),
    ("DATE '2026-11-25'", "::VARCHAR"),
    ("TIME '10:00:00'", "::VARCHAR"),
    ("TIMESTAMP '2026-11-25 10:00:00'", "::VARCHAR"),
    ("INTERVAL 1 DAY", "::VARCHAR"),
    ("{'a': 1}", "::VARCHAR"),
    ("map {'a': 1}", "::VARCHAR"),
    ("[[1], [2]]", "::VARCHAR"),
    ("[{'a': 1}]", "::VARCHAR"),
    ("[DATE '2026-11-25']", "::VARCHAR"),
    ("[1.5::DECIMAL(30,2)]", "::DOUBLE"),
]


def _file(folder: pathlib.Path, value: str) -> pathlib.Path:
    path = folder / "extras.parquet"
    with index.catalog_connection() as connection:
        connection.execute(
            f"COPY (SELECT 'a.jpg' AS filename, {value} AS \"my x\") TO '{path}' "
            "(FORMAT parquet)"
        )
    return path


@pytest.mark.parametrize(("value", "kind", "values"), HELD)
def test_numbers_texts_and_their_lists_are_features(
    tmp_path: pathlib.Path, value: str, kind: str, values: list[Any]
) -> None:
    more = MoreColumns(path=_file(tmp_path, value), in_records=("my x",))

    features = more.features(["a.jpg"])["a.jpg"]

    found = decode_example(b"".join(encode_example(features)))["extra/my x"]
    assert list(found.values) == values
    assert found.kind == kind


@pytest.mark.parametrize(("value", "cast"), REFUSED)
def test_other_types_are_refused_with_a_cast(
    tmp_path: pathlib.Path, value: str, cast: str
) -> None:
    path = _file(tmp_path, value)
    assert MoreColumns(path=path).in_records == ()  # the catalog holds every type

    with pytest.raises(
        ValueError, match=r"my x of type .* Cast it in --query"
    ) as error:
        MoreColumns(path=path, in_records=("my x",))

    assert f'"my x"{cast},' in str(error.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[1, NULL]", r"without NULL, got \[1, None\] in my x of a"),
        ("1e300::DOUBLE", r"as a float32, got 1e\+300 in my x of a.* Divide them"),
        ("[1, -1e39::DOUBLE]", r"as a float32, got \[1.0, -1e\+39\] in my x of a"),
    ],
)
def test_values_that_no_feature_holds_are_refused(
    tmp_path: pathlib.Path, value: str, message: str
) -> None:
    path = _file(tmp_path, value)

    with pytest.raises(ValueError, match=message):
        MoreColumns(path=path, in_records=["my x"])


def test_a_table_is_refused_before_an_image_is_copied(tmp_path: pathlib.Path) -> None:
    query = "SELECT 'a' AS label, DATE '2026-11-25' AS day, 'x'::BLOB AS image"
    with index.catalog_connection() as connection:
        connection.execute(f"COPY ({query}) TO '{tmp_path}/t.parquet' (FORMAT parquet)")
    options = {"extra_columns": ["day"], "output_dir": str(tmp_path / "out")}
    values = {"input": str(tmp_path / "t.parquet"), "query": "SELECT * FROM input"}
    conversion("table", **values, **options).make_job()
    shutil.rmtree(tmp_path / "out")

    with pytest.raises(ValueError, match="day of type DATE"):
        conversion("table", **values, **options, extra_in_records=True).make_job()

    assert not list(tmp_path.rglob("images"))


# A value in --query, and its feature or the type in the refusal.
_OF_QUERIES: dict[str, bytes | float | str] = {
    "'b'::ENUM('a', 'b')": b"b",
    "'nan'::FLOAT": math.nan,
    "'-inf'::DOUBLE": -math.inf,
    "7.25::DECIMAL(12,2)": 7.25,
    "7.25::DECIMAL(38,2)": "DECIMAL",
    "3::HUGEINT": "HUGEINT",
    "3::UHUGEINT": "UHUGEINT",
    "sum(3) OVER ()": "HUGEINT",
    "INTERVAL 1 DAY": "INTERVAL",
    "[INTERVAL 1 DAY]": "INTERVAL",
}


@pytest.mark.parametrize("value", _OF_QUERIES)
def test_columns_of_a_query_are_stored_as_they_are_or_refused(
    value: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "t.csv").write_text("image,label\na.jpg,a\n")
    (tmp_path / "a.jpg").write_bytes(make_jpeg(0))
    made = conversion(
        "table",
        input=str(tmp_path / "t.csv"),
        query=f"SELECT *, {value} AS x FROM input",
        extra_columns=["x"],
        extra_in_records=True,
        output_dir=str(tmp_path / "out"),
        num_workers=1,
    )
    right = _OF_QUERIES[value]
    if isinstance(right, str):
        with pytest.raises(ValueError, match=f"got x of type {right}.* Cast it"):
            made.convert()
        assert not (tmp_path / "out").exists()
        return

    made.convert()

    (example,) = examples(tmp_path / "out")
    assert example["extra/x"] == pytest.approx([right], nan_ok=True)


def test_columns_may_have_any_name(tmp_path: pathlib.Path) -> None:
    names = ["row", "part", "path", "file", "a b", "x", "v"]
    query = ", ".join(f'{n} AS "{name}"' for n, name in enumerate(names))
    query += ", 'l' AS label, 'b'::BLOB AS image"
    with index.catalog_connection() as connection:
        connection.execute(f"COPY (SELECT {query}) TO '{tmp_path}/t.parquet'")

    made = conversion(
        "table",
        input=str(tmp_path / "t.parquet"),
        extra_columns=names,
        output_dir=str(tmp_path / "out"),
    ).make_job()

    with index.catalog_connection() as connection:
        rows = connection.execute(f"FROM '{made.more_columns.path}'")
        assert [column[0] for column in rows.description] == ["filename", *names]
        assert rows.fetchall() == [("row-000000001", *range(len(names)))]
