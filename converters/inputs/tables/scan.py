"""Reads a table once: image bytes go to the spool, all other values to a Parquet file.

In: sources, a query, names of columns. Out: `rows.parquet` with a row for every row of
the table: row (from 1), path, file, offset, num_bytes, label, name, split, extra_0, ...
. Without a query, uncompressed bytes of a local Parquet file stay where they are: then
`file` names the file. `file` is NULL for the spool. The rows are streamed: memory
holds a batch.
"""

import contextlib
import csv
import dataclasses
import itertools
import os
import pathlib
import shutil
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from converters.inputs import parquet
from converters.inputs.files import paths_below_one, require_same
from converters.inputs.meaning import Meaning
from converters.inputs.parquet import UnknownFormError
from converters.inputs.tables import databases, sql, table_sources
from converters.inputs.tables.columns import Columns
from converters.inputs.tables.spool import Spool
from tfpipe.location.location import Location
from tfpipe.shards.sql import identifier, lock, quoted, read_files, read_lines

if TYPE_CHECKING:
    import duckdb

ROWS_NAME = "rows.parquet"
# Another number for other columns of `rows.parquet`: an older file is not used then.
ROWS_VERSION = 2
INPUT = "input"
_NO_PATH, _NO_BYTES = "NULL::VARCHAR", "NULL::BLOB"
_PLACES_NAME = "places.jsonl"
# Columns of DuckDB beside the columns of a Parquet file.
_FILE, _ROW = "tfpipe_file", "file_row_number"
# Column with the split in the name of the file.
SPLIT_OF_FILE = "tfpipe_split"
_READERS = {
    table_sources.CSV: "csv",
    table_sources.JSON: "json",
    table_sources.PARQUET: "parquet",
}
_DELIMITERS = ",;\t|"

# For a column, its value in every file of a table.
ByFile = Mapping[str, Sequence[str]]


def scan(
    sources: Mapping[str, table_sources.TableSource],
    query: str | None,
    columns: Columns,
    folder: pathlib.Path,
    by_file: ByFile,
) -> pathlib.Path:
    """Reads the rows of a table, and returns the Parquet file of their values.

    Args:
        sources: Tables by their name in the query, with INPUT.
        query: A SELECT; None takes all rows of INPUT.
        columns: Names of columns of the result.
        folder: Folder for the Parquet file and the image bytes.
        by_file: Columns of INPUT with a value a file, see `by_names`.

    Raises:
        ValueError: If the query or a column is wrong.
        OSError: If a table cannot be read, or the disk is full.
    """
    path = folder / ROWS_NAME
    if path.exists():
        return path
    part = folder / f"{ROWS_NAME}.part"
    spool = Spool(folder)
    states = [each.states() for each in sources.values()]
    copies = folder / "copies"
    is_near = not any(source.is_remote for source in sources.values())
    try:
        sources = {n: table_sources.near(s, copies / n) for n, s in sources.items()}
        source = sources[INPUT]
        with sql.connected(folder) as connection, _spool_errors(spool):
            if len(sources) == 1 and source.is_database:
                databases.scan(connection, source, query, columns, spool, part)
            else:
                views = _make_tables(connection, sources, columns, folder, by_file)
                if query is not None:
                    _lock(connection, sources, query, part)
                wanted = query or f"SELECT * FROM {INPUT}"
                is_file = (
                    is_near and query is None and source.kind == table_sources.PARQUET
                )
                if is_file:  # a second thread holds as many images, and gains nothing
                    connection.execute("SET threads = 1")
                if not (
                    is_file and _scan_pages(connection, source, columns, part, by_file)
                ):
                    with _query_errors(query, views):
                        _scan_query(connection, wanted, columns, spool, part)
        for file, state in itertools.chain.from_iterable(map(dict.items, states)):
            require_same(file, state)
    except BaseException:
        # Nothing can go on from a part of the rows.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        spool.close()
        shutil.rmtree(copies, ignore_errors=True)
    os.replace(part, path)
    return path


@contextlib.contextmanager
def _spool_errors(spool: Spool) -> Iterator[None]:
    """Raises the error of a full disk in place of DuckDB's error."""
    try:
        yield
    except Exception as error:
        if spool.error is not None:
            raise spool.error from error
        raise


def _lock(
    connection: "duckdb.DuckDBPyConnection",
    sources: Mapping[str, table_sources.TableSource],
    query: str,
    path: pathlib.Path,
) -> None:
    """Checks that a query is one SELECT, and leaves it nothing but the tables."""
    with _query_errors(query, list(sources)):
        statements = connection.extract_statements(query)
    kinds = [statement.type.name for statement in statements]
    if kinds != ["SELECT"]:
        raise _refused(f"got {' and '.join(kinds) or 'nothing'}", list(sources))
    files = (file for s in sources.values() if not s.is_database for file in s.files)
    lock(connection, [*files, path])


@contextlib.contextmanager
def _query_errors(query: str | None, names: Sequence[str]) -> Iterator[None]:
    """Says what a query may name, where DuckDB refuses the query."""
    import duckdb

    refused = (
        duckdb.ParserException,
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.PermissionException,
    )
    try:
        yield
    except refused as error:
        if query is None:
            raise
        raise _refused(sql.in_one_line(error), names) from error


def _refused(why: str, names: Sequence[str]) -> ValueError:
    return ValueError(
        f"--query must be one SELECT over {' and '.join(names)}: {why}. "
        "--table=NAME=PLACE adds a table; no other file can be read."
    )


def _make_tables(
    connection: "duckdb.DuckDBPyConnection",
    sources: Mapping[str, table_sources.TableSource],
    columns: Columns,
    folder: pathlib.Path,
    by_file: ByFile,
) -> Sequence[str]:
    """Makes a view or a table of every source; returns their names."""
    for name, source in sources.items():
        if source.is_database:
            databases.copy(connection, name, source, folder)
            continue
        rows = _read(connection, source, columns, by_file if name == INPUT else {})
        connection.execute(
            f"CREATE VIEW {identifier(name)} AS SELECT * EXCLUDE ({_FILE}) FROM {rows}"
        )
    return list(sources)


def _read(
    connection: "duckdb.DuckDBPyConnection",
    source: table_sources.TableSource,
    columns: Columns,
    by_file: ByFile,
    *options: str,
) -> str:
    """Returns the rows of the files of a source, with the column `tfpipe_file`."""
    reader = _READERS[source.kind]
    more = [f"filename = {quoted(_FILE)}", *options]
    if len(source.files) > 1:
        more.append("union_by_name = true")
    if source.kind == table_sources.CSV:
        more += _csv_options(source, columns)
    if source.kind == table_sources.JSON:
        more.append(sql.LONG_ROWS)
        more += _json_options(connection, source, columns, more)
    values = "".join(
        f", CASE {_FILE} {_cases(source.files, of_files)} END AS {identifier(column)}"
        for column, of_files in by_file.items()
    )
    return f"(SELECT *{values} FROM {read_files(reader, source.files, *more)})"


def _cases(files: Sequence[str], values: Sequence[str]) -> str:
    return " ".join(
        f"WHEN {quoted(file)} THEN {quoted(value)}"
        for file, value in zip(files, values, strict=True)
    )


def _csv_options(source: table_sources.TableSource, columns: Columns) -> Iterator[str]:
    """Yields options to take all lines after the first for rows.

    DuckDB's own guess skips lines of another form. Columns with a meaning
    are texts: `007`, `t` and `01/02/2020` stay as they are.

    Raises:
        ValueError: If such a column is in the header twice.
    """
    yield from ("header = true", "skip = 0", "comment = ''", "sample_size = -1")
    with table_sources.opened_text(source.files[0]) as file:
        line = file.readline()
    for delimiter in _DELIMITERS:
        header = next(csv.reader([line], delimiter=delimiter), [])
        there = [name.strip() for name in header]
        texts = [name for name in columns.texts if name in there]
        for name in texts:
            if there.count(name) > 1:
                raise ValueError(
                    f"The header of {source.shown} must have the column {name} once, "
                    f"got {there.count(name)}. Rename one of them."
                )
        if texts:
            yield f"delim = {quoted(delimiter)}"
            types = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in texts)
            yield f"types = {{{types}}}"
            return


def _json_options(
    connection: "duckdb.DuckDBPyConnection",
    source: table_sources.TableSource,
    columns: Columns,
    options: Sequence[str],
) -> Iterator[str]:
    """Yields the types of all columns; columns with a meaning are texts."""
    call = read_files("json", source.files, *options, "sample_size = -1")
    described = connection.execute(f"DESCRIBE FROM {call}").fetchall()
    types = {str(row[0]): str(row[1]) for row in described if row[0] != _FILE}
    for name in columns.texts:
        if (kind := types.get(name)) and not kind.startswith(("STRUCT", "MAP")):
            types[name] = "VARCHAR[]" if kind.endswith("[]") else "VARCHAR"
    named = ", ".join(f"{identifier(name)}: {quoted(k)}" for name, k in types.items())
    yield f"columns = {{{named}}}"


def by_names(
    source: table_sources.TableSource,
    columns: Columns,
    meaning: Meaning,
    hive_columns: Sequence[str],
) -> tuple[Columns, str | None, ByFile]:
    """Returns the meaning of the names of the files of a table.

    Args:
        source: The table.
        columns: The columns in the words of a user.
        meaning: The words of a user about splits.
        hive_columns: Columns from folders `name=value` above the files.

    Returns:
        columns: The same, with a column of splits if the files are of several.
        split: The split of all rows; None if a column says the split.
        by_file: Columns with a value a file.

    Raises:
        ValueError: If a folder of `hive_columns` is not above every file.
    """
    by_file = {name: _folder_values(source, name) for name in hive_columns}
    if columns.split is not None or source.is_database or meaning.split is not None:
        return columns, meaning.split, by_file
    splits = meaning.splits_of_files(paths_below_one(source.files))
    if len(set(splits)) == 1:
        return columns, splits[0], by_file
    by_file[SPLIT_OF_FILE] = splits
    return dataclasses.replace(columns, split=SPLIT_OF_FILE), None, by_file


def _folder_values(source: table_sources.TableSource, name: str) -> list[str]:
    values = []
    for file in source.files:
        folders = (part.partition("=") for part in file.split("/")[:-1])
        found = [value for key, equals, value in folders if key == name and equals]
        if len(found) != 1:
            raise ValueError(
                f"--hive_columns={name} needs one folder {name}=... above each file, "
                f"got {len(found)} above {Location(file).shown}."
            )
        values.append(urllib.parse.unquote(found[0]))
    return values


def _scan_pages(
    connection: "duckdb.DuckDBPyConnection",
    source: table_sources.TableSource,
    columns: Columns,
    path: pathlib.Path,
    by_file: ByFile,
) -> bool:
    """Scans Parquet files whose image bytes stay in place; False in another form."""
    query = f"SELECT * FROM {INPUT}"
    types = _types(connection, query, columns)
    path_value, bytes_value = _image_values(
        connection, query, columns, types[columns.image]
    )
    own = {name.lower() for name in types} & {_FILE, _ROW}
    if own or bytes_value == _NO_BYTES:
        return False
    is_struct = types[columns.image] != "BLOB"
    names = [columns.image, "bytes"] if is_struct else [columns.image]
    lines = path.with_name(_PLACES_NAME)
    first_rows = _write_places(connection, source.files, names, lines)
    if not first_rows:
        return False
    kinds = dict.fromkeys(("row", "offset", "num_bytes"), "BIGINT")
    files = ", ".join(
        f"({quoted(file)}, {quoted(os.path.abspath(file))}, {first})"
        for file, first in zip(source.files, first_rows, strict=True)
    )
    rows = _read(connection, source, columns, by_file, f"{_ROW} = true")
    connection.execute(
        f'COPY (SELECT f.first_row + q.{_ROW} AS row, p."offset", p.num_bytes, '
        f"CASE WHEN p.row IS NOT NULL THEN f.place END AS file, "
        f"q.* EXCLUDE ({_FILE}, {_ROW}) "
        f"FROM (SELECT {_FILE}, {_ROW}, {path_value} AS path, "
        f"{', '.join(_values(columns, types))} FROM {rows}) AS q "
        f"JOIN (VALUES {files}) AS f(file, place, first_row) ON f.file = q.{_FILE} "
        f"LEFT JOIN {read_lines([lines], kinds)} AS p "
        f"ON p.row = f.first_row + q.{_ROW}) "
        f"TO {quoted(path)} (FORMAT parquet)"
    )
    lines.unlink()
    return True


def _write_places(
    connection: "duckdb.DuckDBPyConnection",
    files: Sequence[str],
    names: Sequence[str],
    lines: pathlib.Path,
) -> list[int] | None:
    """Writes the places of all images, as JSON lines; NULL has no line.

    Returns:
        The number of the first row of every file; None if DuckDB must read the images.
    """
    row, first_rows = 1, []
    try:
        chunks = [parquet.find_chunks(connection, file, names) for file in files]
        with open(lines, "w") as out:
            for file, found in zip(files, chunks, strict=True):
                first_rows.append(row)
                for value in parquet.values(file, found):
                    if value is not None:
                        out.write(
                            f'{{"row": {row}, "offset": {value.offset}, '
                            f'"num_bytes": {value.num_bytes}}}\n'
                        )
                    row += 1
    except UnknownFormError:
        lines.unlink(missing_ok=True)
        return None
    return first_rows


def _types(
    connection: "duckdb.DuckDBPyConnection", query: str, columns: Columns
) -> dict[str, str]:
    """Returns the types of the columns of a query, and requires the named columns."""
    described = connection.execute(
        f"DESCRIBE SELECT * FROM ({query}\n) AS q"
    ).fetchall()
    columns.require_in([str(row[0]) for row in described])
    types = {str(row[0]): str(row[1]) for row in described}
    columns.require_features(types)
    return types


def _scan_query(
    connection: "duckdb.DuckDBPyConnection",
    query: str,
    columns: Columns,
    spool: Spool,
    path: pathlib.Path,
) -> None:
    """Runs a query in DuckDB, whose threads pass the image bytes to the spool."""
    query = query.strip().rstrip(";")
    types = _types(connection, query, columns)
    path_value, bytes_value = _image_values(
        connection, query, columns, types[columns.image]
    )
    connection.create_function(
        "tfpipe_spool", spool.add, ["BLOB"], "BIGINT", side_effects=True
    )
    try:
        connection.execute(
            f"COPY (SELECT row_number() OVER () AS row, {path_value} AS path, "
            f"NULL::VARCHAR AS file, "
            f'tfpipe_spool({bytes_value}) AS "offset", '
            f"octet_length({bytes_value}) AS num_bytes, "
            f"{', '.join(_values(columns, types))} FROM ({query}\n) AS q) "
            f"TO {quoted(path)} (FORMAT parquet)"
        )
    finally:
        connection.remove_function("tfpipe_spool")


def _image_values(
    connection: "duckdb.DuckDBPyConnection", query: str, columns: Columns, kind: str
) -> tuple[str, str]:
    """Returns the expressions of the path and of the bytes of an image."""
    image = identifier(columns.image)
    path_value, bytes_value = _NO_PATH, _NO_BYTES
    if kind == "BLOB":
        return path_value, image
    if kind == "VARCHAR":
        return image, bytes_value
    if kind.startswith("STRUCT(") and not kind.endswith("[]"):
        inner = connection.execute(
            f"DESCRIBE SELECT {image}.* FROM ({query}\n) AS q"
        ).fetchall()
        found = {(str(row[0]), str(row[1])) for row in inner}
        if ("path", "VARCHAR") in found:
            path_value = f"{image}.path"
        if ("bytes", "BLOB") in found:
            return path_value, f"{image}.bytes"
    raise ValueError(
        f"--image_column={columns.image} must hold text (a path or a URL), bytes "
        f"(BLOB), or structs with bytes and path; got {kind}. Choose another column, "
        f"or make one in --query, such as {columns.image}[1] of a list of images."
    )


def _values(columns: Columns, types: Mapping[str, str]) -> list[str]:
    """Returns the expressions of all values beside the image.

    Times with a zone are stored in UTC: Python's side of DuckDB cannot take these.
    """

    def stored(name: str) -> str:
        kind = types[name].replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMP")
        kind = kind.replace("TIMESTAMPTZ_NS", "TIMESTAMP_NS")
        cast = "" if kind == types[name] else f"::{kind}"
        return f"{identifier(name)}{cast}"

    named = {"label": columns.label, "name": columns.name, "split": columns.split}
    values = [
        f"{stored(name)}{'' if each == 'label' else '::VARCHAR'} AS {each}"
        if name is not None
        else f"NULL::VARCHAR AS {each}"
        for each, name in named.items()
    ]
    return values + [
        f"{stored(name)} AS extra_{number}" for number, name in enumerate(columns.extra)
    ]
