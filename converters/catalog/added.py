"""Columns of other files, beside those of the catalog: scores, tags, other splits.

In: the path of a CSV, a Parquet or a JSONL file with a column `filename` or `digest`.
Out: a table of DuckDB, and the join that brings its columns to the records.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfpipe.shards.catalog import LABELS
from tfpipe.shards.sql import identifier, read_files

if TYPE_CHECKING:
    import duckdb

# A file with a filename may say the split, too, where splits share names.
_KEYS = (("filename", "split"), ("filename",), ("digest",))
_READERS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}


@dataclasses.dataclass(frozen=True)
class Added:
    """A file with columns for the records.

    Attributes:
        path: CSV, TSV, Parquet, JSON or JSONL file.
        columns: Columns to take; empty takes all.

    Raises:
        ValueError: If the name does not end like one of these formats, or there is no
            such file.
    """

    path: pathlib.Path
    columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.path.suffix.lower() not in _READERS:
            raise ValueError(
                f"--add_column must name a file that ends in one of "
                f"{', '.join(_READERS)}, got {self.path}."
            )
        if not self.path.is_file():
            raise ValueError(f"--add_column must name a file, got {self.path}.")


def parse(value: str) -> Added:
    """Returns the file and the columns of FILE or NAME,NAME=FILE.

    Raises:
        ValueError: If there is no such file.
    """
    names, is_named, path = value.partition("=")
    if not is_named or pathlib.Path(value).expanduser().is_file():
        return Added(pathlib.Path(value).expanduser())
    columns = tuple(name.strip() for name in names.split(","))
    if not all(columns):
        raise ValueError(f"--add_column must be NAME,NAME=FILE or FILE, got {value!r}.")
    return Added(pathlib.Path(path).expanduser(), columns)


def load(
    connection: "duckdb.DuckDBPyConnection",
    files: Sequence[Added],
    *,
    known: Sequence[str],
) -> tuple[list[str], list[str]]:
    """Loads the files as tables `added_0`, `added_1` and so on.

    Args:
        connection: Connection with the view `file` of the catalog.
        files: The files.
        known: Columns that there are already.

    Returns:
        joins: The joins of the tables to `file`, in SQL.
        columns: Their columns, in SQL.

    Raises:
        ValueError: If a file cannot be read, has no key or no such column, has a key
            twice, or has a column that there is already.
    """
    # A column `labels` would be read as all labels of each image.
    joins, columns, taken = [], [], {name.lower() for name in (*known, LABELS)}
    for number, item in enumerate(files):
        table = f"added_{number}"
        names = _read(connection, item, table)
        keys = _keys(item, names)
        wanted = _wanted(item, names, keys)
        if clash := [name for name in wanted if name.lower() in taken]:
            raise ValueError(
                f"{item.path} has a column {clash[0]}, which catalogs have already. "
                "Rename it, or name the columns to take: --add_column=NAME,NAME=FILE."
            )
        taken |= {name.lower() for name in wanted}
        _require_unique(connection, item, table, keys)
        on = " AND ".join(f"file.{key} = {table}.{key}" for key in keys)
        joins.append(f"LEFT JOIN {table} ON {on}")
        columns += [f"{table}.{identifier(name)}" for name in wanted]
    return joins, columns


def require_matches(
    connection: "duckdb.DuckDBPyConnection", files: Sequence[Added]
) -> None:
    """Checks that each file has a row for at least one record.

    Raises:
        ValueError: If one has none.
    """
    for number, item in enumerate(files):
        names = connection.table(f"added_{number}").columns
        keys = _keys(item, names)
        on = " AND ".join(f"file.{key} = a.{key}" for key in keys)
        query = f"SELECT 1 FROM file JOIN added_{number} a ON {on} LIMIT 1"
        if connection.execute(query).fetchone():
            continue
        key = keys[0]
        mine = connection.execute(f"SELECT {key} FROM file LIMIT 1").fetchone()
        its = connection.execute(f"SELECT {key} FROM added_{number} LIMIT 1").fetchone()
        raise ValueError(
            f"Column {key} of {item.path} must name records of the data set, such as "
            f"{mine[0] if mine else 'none'}, got only unknown ones, the first is "
            f"{its[0] if its else 'no row'}."
        )


def _read(
    connection: "duckdb.DuckDBPyConnection", item: Added, table: str
) -> list[str]:
    import duckdb

    kind = _READERS[item.path.suffix.lower()]
    try:
        connection.execute(
            f"CREATE TABLE {table} AS SELECT * FROM {read_files(kind, [item.path])}"
        )
    except duckdb.Error as error:
        said = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"{item.path} cannot be read: {said}.") from error
    return connection.table(table).columns


def _keys(item: Added, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns that say to which record a row belongs."""
    there = {name.lower() for name in names}
    for keys in _KEYS:
        is_wanted = "split" in keys and "split" in map(str.lower, item.columns)
        if there.issuperset(keys) and not is_wanted:
            return keys
    raise ValueError(
        f"{item.path} must have a column filename or digest, as the catalog has them, "
        f"got {', '.join(names)}."
    )


def _wanted(item: Added, names: Sequence[str], keys: Sequence[str]) -> list[str]:
    if not item.columns:
        others = ("filename", "digest", *keys)
        found = [name for name in names if name.lower() not in others]
        if not found:
            raise ValueError(
                f"{item.path} must have a column besides {', '.join(keys)}, got none."
            )
        return found
    by_name = {name.lower(): name for name in names}
    for name in item.columns:
        if name.lower() not in by_name:
            raise ValueError(
                f"{item.path} has no column {name}: choose from {', '.join(names)}."
            )
    return [by_name[name.lower()] for name in item.columns]


def _require_unique(
    connection: "duckdb.DuckDBPyConnection",
    item: Added,
    table: str,
    keys: Sequence[str],
) -> None:
    listed = ", ".join(keys)
    query = (
        f"SELECT {listed} FROM {table} WHERE {keys[0]} IS NOT NULL GROUP BY ALL "
        "HAVING count(*) > 1 LIMIT 1"
    )
    if (row := connection.execute(query).fetchone()) is not None:
        raise ValueError(
            f"{item.path} must have one row for each {' and '.join(keys)}, got several "
            f"for {' of split '.join(map(str, row))}."
        )
