"""Streams the rows of a database: to a Parquet file and the spool, or into DuckDB.

In: a `Source` that is a database, and names of columns. Out: as of `scan`, or a table
that a query of DuckDB joins. Memory holds one batch of rows.
"""

import datetime
import decimal
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from converters.inputs.tables import databases, places, sql
from converters.inputs.tables.columns import Columns
from converters.inputs.tables.spool import Spool

if TYPE_CHECKING:
    import duckdb


def scan(
    connection: "duckdb.DuckDBPyConnection",
    source: places.Source,
    query: str | None,
    columns: Columns,
    spool: Spool,
    path: pathlib.Path,
) -> None:
    """Streams the rows of a database: images to the spool, values to JSON lines."""
    lines = path.with_suffix(".jsonl")
    wanted = {"label": columns.label, "name": columns.name, "split": columns.split}
    wanted |= {f"extra_{number}": name for number, name in enumerate(columns.extra)}
    types: dict[str, set[str]] = {key: set() for key in wanted}
    with databases.rows(source, query) as found, open(lines, "w") as file:
        columns.require_in(found.columns)
        places_of = {
            key: found.columns.index(name) for key, name in wanted.items() if name
        }
        image_at, row = found.columns.index(columns.image), 0
        for batch in found.batches:
            for values in batch:
                row += 1
                fields = {"row": row} | _image_fields(
                    values[image_at], row, columns, spool
                )
                for key, at in places_of.items():
                    fields[key], kind = _plain(values[at])
                    types[key].add(kind)
                file.write(json.dumps(fields) + "\n")
    kinds = {"row": "BIGINT", "path": "VARCHAR", "offset": "BIGINT"}
    kinds |= {"num_bytes": "BIGINT", "file": "VARCHAR"}
    kinds |= {key: _common(seen) for key, seen in types.items()}
    kinds |= {"name": "VARCHAR", "split": "VARCHAR"}
    connection.execute(
        f"COPY (SELECT * FROM {sql.read_lines(lines, kinds)}) "
        f"TO {sql.quoted(str(path))} (FORMAT parquet)"
    )
    lines.unlink()


def _image_fields(
    value: Any, row: int, columns: Columns, spool: Spool
) -> dict[str, Any]:
    """Returns the place of the image of a row: its path, or its bytes in the spool."""
    if value is None or isinstance(value, str):
        return {"path": value}
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return {"offset": spool.add(data), "num_bytes": len(data)}
    raise ValueError(
        f"--image_column={columns.image} must hold text (a path or a URL) or bytes, "
        f"got {type(value).__name__} in row {row}. Choose another column."
    )


def _plain(value: Any) -> tuple[Any, str]:
    """Returns a value as JSON has it, and its type in DuckDB."""
    if value is None:
        return None, ""
    if isinstance(value, bool):
        return value, "BOOLEAN"
    if isinstance(value, int):
        return value, "BIGINT"
    if isinstance(value, float | decimal.Decimal):
        return float(value), "DOUBLE"
    if isinstance(value, list | tuple):
        found = [_plain(each) for each in value]
        return [each for each, _ in found], f"{_common({k for _, k in found})}[]"
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" "), "TIMESTAMPTZ" if value.tzinfo else "TIMESTAMP"
    if isinstance(value, datetime.date):
        return value.isoformat(), "DATE"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", errors="backslashreplace"), "VARCHAR"
    return str(value), "VARCHAR"


def _common(types: set[str]) -> str:
    """Returns the type that holds values of all these types."""
    known = types - {""}
    if len(known) == 1:
        return known.pop()
    return "DOUBLE" if known == {"BIGINT", "DOUBLE"} else "VARCHAR"


def copy(
    connection: "duckdb.DuckDBPyConnection",
    name: str,
    source: places.Source,
    folder: pathlib.Path,
) -> None:
    """Copies a table of a database into DuckDB, for a query that joins it."""
    if source.table is None:
        raise ValueError(
            f"A query over several tables needs the name of the one in {source.shown}: "
            f"{source.shown}#table."
        )
    created = False
    copies = folder / "copies"
    copies.mkdir(exist_ok=True)
    connection.execute(
        f"ATTACH IF NOT EXISTS {sql.quoted(str(copies / 'tables.duckdb'))} AS copies"
    )
    with databases.rows(source, None) as found:
        marks = ", ".join("?" for _ in found.columns)
        for batch in found.batches:
            if not created:
                created = True
                types = [_type(values) for values in zip(*batch, strict=True)]
                described = ", ".join(
                    f"{sql.identifier(column)} {kind}"
                    for column, kind in zip(found.columns, types, strict=True)
                )
                connection.execute(
                    f"CREATE TABLE copies.{sql.identifier(name)} ({described})"
                )
            connection.executemany(
                f"INSERT INTO copies.{sql.identifier(name)} VALUES ({marks})",
                [list(values) for values in batch],
            )
    if not created:
        raise ValueError(f"{source.shown} must hold a row, got none.")
    view = sql.identifier(name)
    connection.execute(f"CREATE VIEW {view} AS SELECT * FROM copies.{view}")


def _type(values: Sequence[Any]) -> str:
    """Returns the type of a column by the values of its first rows."""
    if any(isinstance(value, bytes | bytearray | memoryview) for value in values):
        return "BLOB"
    return _common({_plain(value)[1] for value in values})
