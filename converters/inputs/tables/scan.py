"""Reads a table once: image bytes go to the spool, all other values to a Parquet file.

In: sources, a query, names of columns. Out: `rows.parquet` with a row for every row of
the table: row (from 1), path, file, offset, num_bytes, label, name, split, extra_0, ...
. An image is a path, or a range of the file or the spool, see `Spool`. The rows
are streamed: memory holds a batch.
"""

import contextlib
import csv
import dataclasses
import functools
import itertools
import os
import pathlib
import re
import shutil
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters.inputs.meaning import Meaning
from converters.inputs.tables import databases, spool, sql, table_sources
from converters.inputs.tables.columns import Columns, kind_of
from converters.inputs.tables.table_sources import CSV, JSON, PARQUET, TableSource
from tfpipe.location.location import Location
from tfpipe.location.parts import require_same
from tfpipe.shards.split_names import TRAIN
from tfpipe.shards.sql import (
    about_parquet,
    column_types,
    engine,
    identifier,
    lock,
    quoted,
    read_files,
)

if TYPE_CHECKING:
    import duckdb

# Another number for other columns of the file of rows: an older file is not used then.
ROWS_VERSION = 5
INPUT = "input"
# Column of DuckDB beside the columns of a table.
_FILE = "tfpipe_file"
_COLUMNS = f"COLUMNS(lambda c: c <> '{_FILE}')"  # without this column
# Functions of the methods of `Spool`.
_FIND, _ADD = "tfpipe_find", "tfpipe_add"
_NO_BYTES = "NULL::BLOB"
_WHOLE = 1 << 31  # more than the bytes of a value
# Column with the split in the name of the file.
SPLIT_OF_FILE = "tfpipe_split"
_READERS = {CSV: "csv", JSON: "json", PARQUET: "parquet"}
_SIGNS = ",;\t|"  # between the cells of a CSV file
# Types that a Parquet file of DuckDB or its Python side cannot hold exactly.
_STORED = {
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "TIMESTAMPTZ_NS": "TIMESTAMP_NS",
    "UHUGEINT": "DECIMAL(38,0)",
    "HUGEINT": "DECIMAL(38,0)",
}
_CAST = re.compile(rf"\b({'|'.join(_STORED)})\b")

# For a column, its value in every file of a table.
ByFile = Mapping[str, Sequence[str]]


def scan(
    connection: "duckdb.DuckDBPyConnection",
    sources: Mapping[str, TableSource],
    query: str | None,
    columns: Columns,
    folder: pathlib.Path,
    by_file: ByFile,
) -> pathlib.Path:
    """Reads the rows of a table, and returns the Parquet file of their values.

    The sources have their names in the query; without a query all rows of INPUT are
    read. The folder gets the Parquet file and the bytes of images. After a query the
    connection reads the Parquet file alone.
    """
    path, copies = folder / spool.ROWS_NAME, folder / "copies"
    if path.exists():
        return path
    part = path.with_suffix(".part")
    states = [each.states() for each in sources.values()]
    copies.mkdir(exist_ok=True)

    def rows_of(name: str, source: TableSource, **own: Any) -> str:
        if source.has_cursor:
            lines = copies / f"{name}.jsonl"
            return databases.rows_in(lines, images, source, **own)
        return _read(connection, source, columns, by_file if name == INPUT else {})

    try:
        near = {n: table_sources.near(s, copies / n) for n, s in sources.items()}
        with spool.opened(folder) as images, _line_named(near.values(), columns):
            source, compared = near[INPUT], dict[str, int]()
            if query is None or (source.is_database and len(near) == 1):
                rows = rows_of(INPUT, source, query=query, columns=columns)
                if source.kind == PARQUET and source == sources[INPUT]:
                    compared = _num_compared(connection, source, columns.image_column)
                _write_rows(connection, images, rows, columns, compared, part, source)
            else:
                for name, each in near.items():
                    view = f"CREATE VIEW {identifier(name)} AS SELECT {_COLUMNS}"
                    connection.execute(f"{view} FROM {rows_of(name, each)}")
                files = [file for each in near.values() for file in each.files]
                files += map(str, (part, path, *copies.glob("*.jsonl")))
                with _only_select(connection, query, near, files) as rows:
                    _write_rows(connection, images, rows, columns, compared, part)
        for file, state in itertools.chain.from_iterable(map(dict.items, states)):
            require_same(Location(file), state)
    except BaseException:
        # Nothing can go on from a part of the rows.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(copies)
    os.replace(part, path)
    return path


def _create_functions(
    connection: "duckdb.DuckDBPyConnection", images: spool.Spool
) -> None:
    number, data, text = "BIGINT", "BLOB", "VARCHAR"
    create = functools.partial(connection.create_function, side_effects=True)
    create(_ADD, images.add, [data], number)
    null: Any = "special"  # values of NULL in and out
    create(_FIND, images.find, [text, number, data], number, null_handling=null)


@contextlib.contextmanager
def _only_select(
    connection: "duckdb.DuckDBPyConnection",
    query: str,
    names: Iterable[str],
    files: Iterable[str | pathlib.Path],
) -> Iterator[str]:
    """Yields the rows of a SELECT, which can read and write these files alone."""
    library = engine()
    must = f"--query must be one SELECT over {' and '.join(names)}"
    other = "--table=NAME=PLACE adds a table; no other file can be read."
    try:
        kinds = [each.type.name for each in connection.extract_statements(query)]
        if kinds != ["SELECT"]:
            got = " and ".join(kinds) or "nothing"
            raise ValueError(f"{must}: got {got}. {other}")
        lock(connection, files)
        yield f"({query.strip().rstrip(';')}\n)"
    except (
        library.ParserException,
        library.BinderException,
        library.CatalogException,
        library.PermissionException,
    ) as error:
        raise ValueError(f"{must}: {sql.in_one_line(error)}. {other}") from error


def _read(
    connection: "duckdb.DuckDBPyConnection",
    source: TableSource,
    columns: Columns,
    by_file: ByFile,
) -> str:
    """Returns the rows of the files of a source, with the column `tfpipe_file`."""
    options = [f"filename = {quoted(_FILE)}"]
    if len(source.files) > 1:
        options.append("union_by_name = true")
    if source.kind == CSV:
        options += _csv_options(source, columns)
    if source.kind == JSON:
        options.append(sql.LONG_ROWS)
        options += _json_options(connection, source, columns, options)
    values = ""
    for column, of_files in by_file.items():
        value = _of_file(zip(source.files, map(quoted, of_files), strict=True))
        values += f", {value} AS {identifier(column)}"
    files = read_files(_READERS[source.kind], source.files, *options)
    if twice := by_file.keys() & column_types(connection, files).keys():
        raise ValueError(
            f"--hive_columns must name no column of the files, got {min(twice)}, which "
            "stands in the files too. Leave it out, or choose one in --query."
        )
    return f"(SELECT *{values} FROM {files})"


def _csv_options(source: TableSource, columns: Columns) -> Iterator[str]:
    """Yields options to take all lines after the first for rows.

    DuckDB's own guess skips lines of another form, and takes a double quote for a
    letter if its end is missing. Columns with a meaning are texts: `007`, `t` and
    `01/02/2020` stay as they are.
    """
    yield from ("header = true", "skip = 0", "comment = ''", "sample_size = -1")
    yield "quote = '\"'"
    delimiter, header = _header(source.files[0], columns)
    there = [name.strip() for name in header]
    texts = [name for name in columns.texts if name in there]
    for name in texts:
        if (count := there.count(name)) > 1:
            raise ValueError(
                f"The header of {source.shown} must have the column {name} once, "
                f"got {count}. Rename one of them."
            )
    if texts:
        yield f"delim = {quoted(delimiter)}"
        types = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in texts)
        yield f"types = {{{types}}}"


def _header(file: str, columns: Columns) -> tuple[str, list[str]]:
    """Returns the delimiter that finds a column with a meaning, and the header."""
    with table_sources.opened_text(file) as text:
        line = text.readline()
    if "\0" in line:
        raise ValueError(
            f"{file} must be text in UTF-8, got a zero byte in its first line."
            f"{sql.SAVE_AS_UTF8}"
        )
    headers = {sign: next(csv.reader([line], delimiter=sign), []) for sign in _SIGNS}
    for sign, header in headers.items():
        if any(name.strip() in columns.texts for name in header):
            return sign, header
    return _SIGNS[0], headers[_SIGNS[0]]


@contextlib.contextmanager
def _line_named(sources: Iterable[TableSource], columns: Columns) -> Iterator[None]:
    """Names the line of a CSV file that is no row; DuckDB does not."""
    try:
        yield
    except engine().InvalidInputException as error:
        if "sniffing" in str(error):
            for source in sources:
                for file in source.files if source.kind == CSV else ():
                    _require_rows(file, columns)
        raise


def _require_rows(file: str, columns: Columns) -> None:
    """Checks that each line of a CSV file, or several with quotes, is a row."""
    delimiter, header = _header(file, columns)
    with table_sources.opened_text(file) as text:
        rows, line = csv.reader(text, delimiter=delimiter, strict=True), 1
        try:
            for row in rows:
                too_many = len(row) - len(header)
                # A delimiter at the end of a line begins no cell.
                if row and too_many and not (too_many == 1 and not row[-1]):
                    raise ValueError(
                        f"{file} must have {len(header)} cells in each line, as in its "
                        f"first one, got {len(row)} in line {line}. Correct the line, "
                        "or put a text with a delimiter in double quotes."
                    )
                line = rows.line_num + 1
        except csv.Error as error:
            raise ValueError(
                f"{file} must have a second double quote for each one that begins a "
                f"cell, and then the next cell, got another text in line {line}: "
                f"{error}. Correct the line; a double quote in a cell is written twice."
            ) from error
        if isinstance(text.newlines, tuple):
            raise ValueError(
                f"{file} must end all lines in one way, got "
                f"{' and '.join(map(repr, text.newlines))}. `dos2unix` makes them one."
            )


def _json_options(
    connection: "duckdb.DuckDBPyConnection",
    source: TableSource,
    columns: Columns,
    options: Sequence[str],
) -> Iterator[str]:
    """Yields the types of all columns; columns with a meaning are texts.

    Lists of truth values stay: they may be one-hot rows.
    """
    call = read_files("json", source.files, *options, "sample_size = -1")
    types = column_types(connection, call)
    del types[_FILE]
    for name in columns.texts:
        kind = types.get(name, "BOOLEAN[]")
        if kind != "BOOLEAN[]" and not kind.startswith(("STRUCT", "MAP")):
            types[name] = "VARCHAR[]" if kind.endswith("[]") else "VARCHAR"
    named = ", ".join(f"{identifier(name)}: {quoted(k)}" for name, k in types.items())
    yield f"columns = {{{named}}}"


def by_names(
    source: TableSource,
    columns: Columns,
    meaning: Meaning,
    hive_columns: Sequence[str],
) -> tuple[Columns, str | None, ByFile]:
    """Returns what the names of the files of a table say.

    Returns:
        columns: The columns, with a column of splits if the files are of several.
        split: The split of all rows; None if a column says the split.
        by_file: Columns with a value a file, also from folders `name=value` above.
    """
    by_file = {name: _folder_values(source, name) for name in hive_columns}
    if columns.split_column is not None or meaning.split is not None:
        return columns, meaning.split, by_file
    if source.has_cursor:
        return columns, TRAIN, by_file
    splits = [*meaning.splits_of_files(source.files, [source.top]).values()]
    if len(set(splits)) == 1:
        return columns, splits[0], by_file
    by_file[SPLIT_OF_FILE] = splits
    return dataclasses.replace(columns, split_column=SPLIT_OF_FILE), None, by_file


def _folder_values(source: TableSource, name: str) -> list[str]:
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


def _num_compared(
    connection: "duckdb.DuckDBPyConnection", source: TableSource, column: str
) -> dict[str, int]:
    """Returns the Parquet files that hold the bytes of images as they are.

    Returns:
        How many bytes of an image are compared with each file. Equal images of a
        dictionary stand in the file once: whole images are compared then.
    """
    names = ", ".join(map(quoted, (column, f"{column}, bytes")))
    is_plain = "regexp_full_match(encodings, '(PLAIN|RLE|BIT_PACKED|, )+')"
    found = connection.execute(
        f"SELECT file_name, if(bool_and({is_plain}), {spool.HEAD_BYTES}, {_WHOLE}) "
        f"FROM {about_parquet('metadata', *source.files)} "
        f"WHERE path_in_schema IN ({names}) GROUP BY file_name "
        "HAVING bool_and(compression = 'UNCOMPRESSED')"
    )
    return dict(found.fetchall())


def _of_file(values: Iterable[tuple[str, str]]) -> str:
    """Returns the expression of the value of a row's file; NULL for other files."""
    cases = "".join(f" WHEN {quoted(file)} THEN {value}" for file, value in values)
    return f"CASE {_FILE} WHEN '' THEN NULL{cases} END"


def _write_rows(
    connection: "duckdb.DuckDBPyConnection",
    images: spool.Spool,
    rows: str,
    columns: Columns,
    compared: Mapping[str, int],
    path: pathlib.Path,
    source: TableSource | None = None,
) -> None:
    """Writes the values of rows; images may stay in the files of `_num_compared`."""
    types = column_types(connection, rows)
    types.pop(_FILE, None)
    columns = columns.in_table(list(types), source.files if source else ())
    for name in columns.extra_columns if columns.extra_in_records else ():
        kind_of(name, types[name])
    image, data = _image_values(connection, rows, columns.image_column, types)
    compared = {} if data == _NO_BYTES else compared
    for is_quick in (True, False):
        file, num_bytes, offset = "''", f"octet_length({data})", f"{_ADD}({data})"
        if types[columns.image_column] == databases.SPOOLED:
            offset, num_bytes = f'{data}."offset"', f"{data}.num_bytes"
        elif data == _NO_BYTES:  # functions would bring NumPy
            offset = num_bytes
        elif is_quick:
            _create_functions(connection, images)
        if compared:
            # One thread finds the images of a file in their order.
            connection.execute("SET threads = 1")
            # DuckDB fetches pages ahead, with a copy more, also those of a disk.
            connection.execute("SET disable_parquet_prefetching = true")
            plain = [n for n, count in compared.items() if is_quick and count < _WHOLE]
            near = _of_file((name, quoted(name)) for name in plain)
            count = _of_file((name, str(count)) for name, count in compared.items())
            file = f"if({count} IS NULL, '', {_FILE})"
            # Taking the first bytes of an image copies the image.
            found = f"{_FIND}(nullif({file}, ''), {num_bytes}, {data}[1:{count}])"
            offset = f"coalesce({_FIND}({near}, {num_bytes}, NULL), {found}, {offset})"
        connection.execute(
            f"COPY (SELECT row_number() OVER () AS row, {image} AS path, "
            f'{file} AS file, {offset} AS "offset", {num_bytes} AS num_bytes, '
            f"{', '.join(_values(columns, types))} FROM {rows} AS q) "
            f"TO {quoted(path)} (FORMAT parquet)"
        )
        if not images.is_lost:
            break
        images.restart()


def _image_values(
    connection: "duckdb.DuckDBPyConnection",
    rows: str,
    column: str,
    types: Mapping[str, str],
) -> tuple[str, str]:
    """Returns the expressions of the path and of the bytes of an image."""
    kind, image = types[column], identifier(column)
    if kind == "VARCHAR":
        return image, _NO_BYTES
    if kind in ("BLOB", databases.SPOOLED):
        return "NULL::VARCHAR", image
    inner = {}
    if kind.startswith("STRUCT(") and not kind.endswith("[]"):
        inner = column_types(connection, f"(SELECT {image}.* FROM {rows} AS q)")
    if inner.get("bytes") != "BLOB":
        raise ValueError(
            f"--image_column={column} must hold text (a path or a URL), bytes (BLOB), "
            f"or structs with bytes and path; got {kind}. Choose another column, or "
            f"make one in --query, such as {column}[1] of a list of images."
        )
    has_path = inner.get("path") == "VARCHAR"
    return f"{image}.path" if has_path else "NULL::VARCHAR", f"{image}.bytes"


def _values(columns: Columns, types: Mapping[str, str]) -> list[str]:
    """Returns the columns beside the image, each exact; times are in UTC."""
    values = dict.fromkeys(("label", "name", "split"), "NULL::VARCHAR")
    for role, name in columns.by_role.items():
        kind = _CAST.sub(lambda match: _STORED[match[1]], types[name])
        cast = "" if kind == types[name] else f"::{kind}"
        cast += "::VARCHAR" if role in ("name", "split") else ""
        values[role] = f"{identifier(name)}{cast}"
    del values["image"]
    return [f"{value} AS {role}" for role, value in values.items()]
