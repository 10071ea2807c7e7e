"""A text of SQL of a user reads the tables of the command line, and nothing else."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from converters.catalog import question
from converters.catalog.question import Question
from converters.exports.source import open_source
from tests.support.data import conversions
from tests.support.data.tables import config, make_rows, write_tables
from tests.support.data.trees import convert, make_tree
from tfpipe.location.location import Location

_SECRET = "hidden-word"
# Rows of a table function, in which {} is the path of a file with a secret.
_TABLES = (
    *("read_text('{}')", "read_blob('{}')", "read_csv('{}')", "'{}'", "glob('{}*')"),
    *(
        "read_csv_auto('{}')",
        "sniff_csv('{}')",
        "read_json('{}')",
        "parquet_scan('{}')",
    ),
    *("read_ndjson_objects('{}')", "read_parquet('{}')", "parquet_metadata('{}')"),
    *("read_text('file:{}')", "read_text('/tmp/../{}')", "'https://127.0.0.1:9/x.csv'"),
    *("'s3://x/y.parquet'", "read_duckdb('{}')", "sqlite_scan('{}', 'x')"),
    "query('FROM read_text(''{}'')')",
    "json_execute_serialized_sql(json_serialize_sql('FROM read_text(''{}'')'))",
    "enable_logging(storage := 'file', storage_path := '{}.log')",
    # Variables of Python.
    *("columns", "query", "duckdb_secrets()"),
)
# Statements, and texts that would end the query around them.
_STATEMENTS = (
    *("COPY (SELECT 1) TO '{}.x'", "ATTACH '{}.x'", "INSTALL httpfs", "LOAD httpfs"),
    *(
        "PRAGMA enable_profiling",
        "SET threads = 1",
        "CALL pragma_version()",
        "USE main",
    ),
    *("EXPORT DATABASE '{}.x'", "IMPORT DATABASE '{}'", "CREATE TABLE x AS SELECT 1"),
    *("DROP VIEW input", "SELECT 1; SELECT 2", "EXPLAIN SELECT 1", "CHECKPOINT", ""),
    *("SELECT 1) AS q) TO '{}.x'; --", "SELECT 1; COPY (SELECT 1) TO '{}.x'"),
    *("SELECT getenv('HOME')", "CREATE SECRET (TYPE s3)"),
)

Run = Callable[[pathlib.Path, str], object]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with a data set, tables, and a file with a secret."""
    folder = tmp_path_factory.mktemp("its [1]")
    raw = make_tree(folder / "raw", num_images=3, num_validation_images=0)
    convert(raw, folder / "set", num_train_shards=1)
    write_tables(folder, make_rows(folder / "rows", num_images=3))
    (folder / "other").mkdir()
    (folder / "other" / "secret.csv").write_text(f"word\n{_SECRET}\n")
    return folder


def _options(folder: pathlib.Path, form: str) -> dict[str, Any]:
    """Returns the options that read a form of the table, with others to join."""
    names = {"csv": "rows.csv", "jsonl": "rows.jsonl", "parquet": "paths.parquet"}
    return {
        "input": str(folder / names[form]),
        "image_column": "path",
        "root": str(folder / "rows"),
        "table": {
            "more": str(folder / "bytes.parquet"),
            "other": f"{folder}/rows.db#photos",
        },
    }


def _query(folder: pathlib.Path, text: str) -> object:
    return conversions.convert(
        config(folder / "out", query=text, **_options(folder, "csv"))
    )


def _ask(folder: pathlib.Path, text: str, name: str = "clause") -> object:
    source = open_source(Location(str(folder / "set")), folder, ())
    more: dict[str, Any] = {"limit": 1} if name == "order_by" else {}
    asked = Question(**{name: text, **more})
    with question.ask(source, asked, num_threads=1) as rows:
        return rows.execute("FROM chosen").fetchall()


# What runs a text of SQL, and a text around a table function.
_RUNS: dict[str, tuple[Run, str]] = {
    "--query": (_query, "SELECT 'x' AS path, 'a' AS label FROM {}"),
    "clause": (_ask, "(SELECT count(*) FROM {}) > 0"),
}


def _refusal(run: Run, folder: pathlib.Path, text: str) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        run(folder, text)
    return str(caught.value)


# One lock of DuckDB forbids the files to both runs, so a few tables are enough for one.
@pytest.mark.parametrize(
    ("hostile", "name"),
    [
        *((hostile, name) for hostile in _STATEMENTS for name in _RUNS),
        *((hostile, "clause") for hostile in _TABLES),
        *((hostile, "--query") for hostile in (*_TABLES[3:5], *_TABLES[-3:])),
    ],
)
def test_no_text_of_sql_reads_or_writes_another_file(
    hostile: str, name: str, folder: pathlib.Path
) -> None:
    run, around = _RUNS[name]
    text = around.format(hostile) if hostile in _TABLES else hostile
    before = sorted(folder.rglob("*"))

    said = _refusal(run, folder, text.format(folder / "other" / "secret.csv"))

    assert _SECRET not in said
    assert "\n" not in said
    assert sorted(folder.rglob("*")) == before
    if name == "--query" and "the configuration has been locked" not in said:
        assert "--query must be one SELECT over input and more and other: " in said
        assert "--table=NAME=PLACE adds a table" in said


@pytest.mark.parametrize("name", ["weight", "order_by"])
def test_other_expressions_are_as_safe(name: str, folder: pathlib.Path) -> None:
    for hostile in ("read_text('{}')", "'{}'", "glob('{}*')"):
        text = (
            f"(SELECT count(*) FROM {hostile.format(folder / 'other' / 'secret.csv')})"
        )
        said = _refusal(functools.partial(_ask, name=name), folder, text)
        assert _SECRET not in said


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_query_reads_the_tables_of_the_command_line(
    form: str, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    query = (
        "WITH a AS (SELECT path FROM more) SELECT i.*, o.score AS s FROM input i "
        "JOIN a USING (path) JOIN other o USING (path) -- all;"
    )

    for number, text in enumerate(
        [query, "FROM input;", "TABLE input", "(FROM input)"]
    ):
        out = tmp_path / str(number)
        done = conversions.convert(config(out, query=text, **_options(folder, form)))
        assert done["num_records"] == 3


def test_names_of_files_are_no_patterns_for_the_lock(tmp_path: pathlib.Path) -> None:
    rows = make_rows(tmp_path / "rows", num_images=3)
    for name in ("a[1]", "a1"):
        (tmp_path / name).mkdir()
        write_tables(tmp_path / name, rows[: len(name)])
    options: dict[str, Any] = {
        "input": str(tmp_path / "a[1]" / "rows.csv"),
        "image_column": "path",
        "root": str(tmp_path / "rows"),
    }

    hostile = f"FROM read_csv('{tmp_path}/a1/rows.csv')"
    with pytest.raises(ValueError, match="Cannot access file"):
        conversions.convert(config(tmp_path / "no", query=hostile, **options))
    done = conversions.convert(config(tmp_path / "out", query="FROM input", **options))
    assert done["num_records"] == 3
