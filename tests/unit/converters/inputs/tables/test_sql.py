"""DuckDB's readers take a path for a pattern; files of the spool are one file each."""

import pathlib

import duckdb

from tfpipe.shards import sql


def test_lines_are_those_of_one_file(tmp_path: pathlib.Path) -> None:
    for folder, line in (("a[1]", '{"x": 1}'), ("a1", '{"x": 2}')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "lines").write_text(f"{line}\n")

    query = sql.read_lines([tmp_path / "a[1]" / "lines"], {"x": "BIGINT"})

    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT x FROM {query}").fetchall() == [(1,)]
