"""Reads a table once: image bytes go to the spool, all other values to a Parquet file.

In: sources, a query, names of columns. Out: `rows.parquet` with one row for each row of
the table: row (from 1), path, offset, num_bytes, label, name, split, extra_0, ... . The
rows are streamed: memory holds a batch of them.
"""

import contextlib
import datetime
import decimal
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters.inputs.tables import databases, places, remote
from converters.inputs.tables.columns import Columns
from converters.inputs.tables.spool import Spool
from tfpipe import host

if TYPE_CHECKING:
    import duckdb

ROWS_NAME = "rows.parquet"
INPUT = "input"
# Each thread holds a vector of 2048 rows with their images.
_MAX_THREADS = 2
_READERS = {
    places.CSV: "read_csv",
    places.JSON: "read_json",
    places.PARQUET: "read_parquet",
}


def scan(
    sources: Mapping[str, places.Source],
    query: str | None,
    columns: Columns,
    folder: pathlib.Path,
) -> pathlib.Path:
    """Reads the rows of a table, and returns the Parquet file of their values.

    Args:
        sources: Tables by the name that the query gives them; INPUT is one.
        query: A SELECT; None takes all rows of INPUT.
        columns: Names of columns of the result.
        folder: Folder for that file and the image bytes.

    Raises:
        ValueError: If the query or a column is wrong.
        OSError: If a table cannot be read, or the disk is full.
    """
    path = folder / ROWS_NAME
    if path.exists():
        return path
    part = folder / f"{ROWS_NAME}.part"
    spool = Spool(folder)
    copies = folder / "copies"
    try:
        sources = {n: remote.near(s, copies / n) for n, s in sources.items()}
        source = sources[INPUT]
        with connected(folder) as connection, _spool_errors(spool):
            if len(sources) == 1 and source.is_database:
                _scan_database(connection, source, query, columns, spool, part)
            else:
                views = _make_tables(connection, sources, folder)
                wanted = query or f"SELECT * FROM {INPUT}"
                _scan_query(connection, wanted, columns, spool, part, views)
    finally:
        spool.close()
        shutil.rmtree(copies, ignore_errors=True)
    os.replace(part, path)
    return path


@contextlib.contextmanager
def connected(folder: pathlib.Path) -> Iterator["duckdb.DuckDBPyConnection"]:
    """Opens a database in memory that loads nothing by itself, and names its errors."""
    import duckdb

    settings: dict[str, Any] = {
        "threads": min(_MAX_THREADS, host.num_cores()),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": str(folder / "temporary"),
    }
    with duckdb.connect(config=settings) as connection:
        connection.execute("SET enable_progress_bar = false")
        try:
            yield connection
        except duckdb.Error as error:
            kind = OSError if isinstance(error, duckdb.IOException) else ValueError
            raise kind(f"The table cannot be read: {in_one_line(error)}.") from error
        except RuntimeError as error:
            if "nterrupted" in str(error):
                raise KeyboardInterrupt from error
            raise


def in_one_line(error: Exception) -> str:
    """Returns what a database says, on one line without its picture of the query."""
    text = str(error).split("\n\nLINE ")[0].split("\nLINE ")[0]
    return " ".join(text.split()).rstrip(".!")


@contextlib.contextmanager
def _spool_errors(spool: Spool) -> Iterator[None]:
    """Raises the error of a full disk in place of what DuckDB makes of it."""
    try:
        yield
    except Exception as error:
        if spool.error is not None:
            raise spool.error from error
        raise


def _make_tables(
    connection: "duckdb.DuckDBPyConnection",
    sources: Mapping[str, places.Source],
    folder: pathlib.Path,
) -> Sequence[str]:
    """Makes a view or a table of each source; returns their names."""
    for name, source in sources.items():
        if source.is_database:
            _copy_database(connection, name, source, folder)
            continue
        files = ", ".join(quoted(path) for path in source.files)
        options = ", union_by_name = true" if len(source.files) > 1 else ""
        if source.kind == places.JSON:
            options += ", maximum_object_size = 268435456"
        connection.execute(
            f"CREATE VIEW {identifier(name)} AS "
            f"SELECT * FROM {_READERS[source.kind]}([{files}]{options})"
        )
    return list(sources)


def identifier(name: str) -> str:
    """Returns a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Returns a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _scan_query(
    connection: "duckdb.DuckDBPyConnection",
    query: str,
    columns: Columns,
    spool: Spool,
    path: pathlib.Path,
    tables: Sequence[str],
) -> None:
    """Runs a query in DuckDB, whose threads pass the image bytes to the spool."""
    query = query.strip().rstrip(";")
    described = connection.execute(
        f"DESCRIBE SELECT * FROM ({query}\n) AS q"
    ).fetchall()
    types = {str(row[0]): str(row[1]) for row in described}
    columns.require_in([str(row[0]) for row in described])
    image = identifier(columns.image)
    kind = types[columns.image]
    fields = {"path": "NULL::VARCHAR", "bytes": "NULL::BLOB"}
    if kind == "BLOB":
        fields["bytes"] = image
    elif kind == "VARCHAR":
        fields["path"] = image
    elif kind.startswith("STRUCT("):
        inner = connection.execute(
            f"DESCRIBE SELECT {image}.* FROM ({query}\n) AS q"
        ).fetchall()
        found = {str(row[0]): str(row[1]) for row in inner}
        if found.get("bytes") == "BLOB":
            fields["bytes"] = f"{image}.bytes"
        if found.get("path") == "VARCHAR":
            fields["path"] = f"{image}.path"
    if not any(each.startswith('"') for each in fields.values()):
        raise ValueError(
            f"--image_column={columns.image} must hold text (a path or a URL), bytes "
            f"(BLOB), or structs with bytes and path; got {kind}. Choose another "
            "column, or cast it in --query."
        )
    connection.create_function(
        "tfpipe_spool", spool.add, ["BLOB"], "BIGINT", side_effects=True
    )
    try:
        connection.execute(
            f"COPY (SELECT row_number() OVER () AS row, {fields['path']} AS path, "
            f'tfpipe_spool({fields["bytes"]}) AS "offset", '
            f"octet_length({fields['bytes']}) AS num_bytes, "
            f"{', '.join(_values(columns))} FROM ({query}\n) AS q) "
            f"TO {quoted(str(path))} (FORMAT parquet)"
        )
    finally:
        connection.remove_function("tfpipe_spool")


def _values(columns: Columns) -> list[str]:
    """Returns the expression of each value that is not an image."""
    named = {"label": columns.label, "name": columns.name, "split": columns.split}
    values = [
        f"{identifier(name)}{'' if each == 'label' else '::VARCHAR'} AS {each}"
        if name is not None
        else f"NULL::VARCHAR AS {each}"
        for each, name in named.items()
    ]
    return values + [
        f"{identifier(name)} AS extra_{number}"
        for number, name in enumerate(columns.extra)
    ]


def _scan_database(
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
    kinds |= {"num_bytes": "BIGINT"}
    kinds |= {key: _common(seen) for key, seen in types.items()}
    kinds |= {"name": "VARCHAR", "split": "VARCHAR"}
    described = ", ".join(f"{identifier(k)}: {quoted(v)}" for k, v in kinds.items())
    connection.execute(
        f"COPY (SELECT * FROM read_json({quoted(str(lines))}, columns = {{{described}}}, "
        "format = 'newline_delimited', maximum_object_size = 268435456)) "
        f"TO {quoted(str(path))} (FORMAT parquet)"
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
        f"--image_column={columns.image} must hold text (a path or a URL) or bytes, got "
        f"{type(value).__name__} in row {row}. Choose another column."
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


def _copy_database(
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
        f"ATTACH IF NOT EXISTS {quoted(str(copies / 'tables.duckdb'))} AS copies"
    )
    with databases.rows(source, None) as found:
        marks = ", ".join("?" for _ in found.columns)
        for batch in found.batches:
            if not created:
                created = True
                types = [_type(values) for values in zip(*batch, strict=True)]
                described = ", ".join(
                    f"{identifier(column)} {kind}"
                    for column, kind in zip(found.columns, types, strict=True)
                )
                connection.execute(
                    f"CREATE TABLE copies.{identifier(name)} ({described})"
                )
            connection.executemany(
                f"INSERT INTO copies.{identifier(name)} VALUES ({marks})",
                [list(values) for values in batch],
            )
    if not created:
        raise ValueError(f"{source.shown} must hold a row, got none.")
    connection.execute(
        f"CREATE VIEW {identifier(name)} AS SELECT * FROM copies.{identifier(name)}"
    )


def _type(values: Sequence[Any]) -> str:
    """Returns the type of a column by the values of its first rows."""
    if any(isinstance(value, bytes | bytearray | memoryview) for value in values):
        return "BLOB"
    return _common({_plain(value)[1] for value in values})
