"""Reads a database as a table: a stream of rows, from a database opened read-only.

In: a `TableSource` that is a database, a query in its own language, and names of
columns. Out: rows in DuckDB, over JSON lines; bytes go to a spool. Memory holds a batch
of rows. Passwords come from the URL, the environment and the files of each database; no
error shows a password.
"""

import contextlib
import datetime
import decimal
import importlib
import json
import os
import pathlib
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from converters.inputs import servers
from converters.inputs.servers import MYSQL, POSTGRESQL
from converters.inputs.tables import sql
from converters.inputs.tables.columns import MAX_DIGITS, Columns
from converters.inputs.tables.documents import DocumentCursor
from converters.inputs.tables.spool import Spool
from converters.inputs.tables.table_sources import DOCUMENTS, SQLITE, TableSource
from tfpipe.shards.sql import Interruptible, read_lines

_BATCH_ROWS = 64
# Bytes in a spool.
SPOOLED = 'STRUCT("offset" BIGINT, num_bytes BIGINT)'
_BYTES = (bytes, bytearray, memoryview)
_TIMEOUT_SECONDS = 20
# MySQL's errors about the server, the user or the name of the database. From 2000 on,
# they are the client's own.
_MYSQL_UNREACHABLE = (1040, 1042, 1043, 1044, 1045, 1049, 1129, 1130, 1203, 1226, 1251)
_MYSQL_CLIENT = 2000


@contextlib.contextmanager
def rows(source: TableSource, query: str | None) -> Iterator[Any]:
    """Runs a SELECT of a database, and yields a cursor over its rows.

    Without a query the rows are those of the source's table.
    """
    if source.kind == DOCUMENTS:
        yield DocumentCursor(source.files)
        return
    openers = {SQLITE: _sqlite, POSTGRESQL: _postgresql, MYSQL: _mysql}
    with openers[source.kind](source, _statement(source, query)) as cursor:
        yield cursor


def _statement(source: TableSource, query: str | None) -> str:
    """Returns a SELECT; a query as its subquery cannot be another statement."""
    if query is not None:
        return f"SELECT * FROM ({query.strip().rstrip(';')}\n) AS input"
    if source.table is None:
        raise ValueError(
            f"{source.shown} is a database, and must be followed by the name of a "
            f"table: {source.shown}#table. --query of its own can choose the rows "
            "instead, without --table."
        )
    mark = "`" if source.kind == MYSQL else '"'
    parts = source.table.split(".")
    names = (f"{mark}{part.replace(mark, mark * 2)}{mark}" for part in parts)
    return f"SELECT * FROM {'.'.join(names)}"


@contextlib.contextmanager
def _sqlite(source: TableSource, statement: str) -> Iterator[Any]:
    path = pathlib.Path(source.files[0]).absolute()
    uri = f"file:{urllib.parse.quote(os.fsencode(path))}?mode=ro"
    with (
        _errors(source, sqlite3.Error, lambda error: False),
        contextlib.closing(sqlite3.connect(uri, uri=True)) as connection,
    ):
        connection.execute("PRAGMA query_only = ON")
        # ATTACH would make a file.
        deny, allow = sqlite3.SQLITE_DENY, sqlite3.SQLITE_OK
        attach = sqlite3.SQLITE_ATTACH
        connection.set_authorizer(lambda a, *_: deny if a == attach else allow)
        with Interruptible(connection.interrupt):
            yield connection.execute(statement)


def _driver(source: TableSource, name: str) -> Any:
    try:
        return importlib.import_module(name.lower())
    except ImportError as error:
        install = "pip install 'tfpipe[sql]'"
        raise ValueError(f"{source.shown} needs {name}: {install}.") from error


@contextlib.contextmanager
def _postgresql(source: TableSource, statement: str) -> Iterator[Any]:
    psycopg = _driver(source, "psycopg")

    def is_unreachable(error: Exception) -> bool:
        return isinstance(error, psycopg.OperationalError)

    with _errors(source, psycopg.Error, is_unreachable):
        try:
            connection = psycopg.connect(
                source.url,
                connect_timeout=_TIMEOUT_SECONDS,
                options="-c default_transaction_read_only=on",
                application_name="tfpipe",
            )
        except psycopg.ProgrammingError:
            # The error repeats a part of the URL.
            raise ValueError(
                f"{source.shown} is not a URL that PostgreSQL's library can read. "
                "Write special characters of a password as %XX."
            ) from None
        with connection, connection.cursor(name="tfpipe", binary=True) as cursor:
            cursor.itersize = _BATCH_ROWS
            cursor.execute(statement)
            yield cursor


@contextlib.contextmanager
def _mysql(source: TableSource, statement: str) -> Iterator[Any]:
    pymysql = _driver(source, "PyMySQL")
    parts = urllib.parse.urlsplit(source.url)
    settings: dict[str, Any] = {}
    if os.path.exists(own := os.path.expanduser("~/.my.cnf")):
        settings["read_default_file"] = own
    if password := urllib.parse.unquote(parts.password or "") or os.environ.get(
        "MYSQL_PWD"
    ):
        settings["password"] = password
    if parts.username:
        settings["user"] = urllib.parse.unquote(parts.username)
    with _errors(source, pymysql.MySQLError, _mysql_is_unreachable):
        connection = pymysql.connect(
            host=parts.hostname or "localhost",
            port=parts.port or 3306,
            database=urllib.parse.unquote(parts.path.lstrip("/")) or None,
            charset="utf8mb4",
            connect_timeout=_TIMEOUT_SECONDS,
            init_command="SET SESSION TRANSACTION READ ONLY",
            cursorclass=pymysql.cursors.SSCursor,
            **settings,
        )
        with connection, connection.cursor() as cursor:
            try:
                cursor.execute(statement)
                yield cursor
            finally:
                # After an error, closing would read all the other rows first.
                if (result := getattr(cursor, "_result", None)) is not None:
                    result.unbuffered_active = False


def _mysql_is_unreachable(error: Exception) -> bool:
    code = error.args[0] if error.args else None
    is_client = isinstance(code, int) and code >= _MYSQL_CLIENT
    return is_client or code in _MYSQL_UNREACHABLE


@contextlib.contextmanager
def _errors(
    source: TableSource,
    kind: type[Exception],
    is_unreachable: Callable[[Exception], bool],
) -> Iterator[None]:
    """Turns a database's error into one line without a password."""
    try:
        yield
    except kind as error:
        said = " ".join(str(word) for word in error.args).split("\nLINE ")[0]
        text = " ".join(said.split()) or type(error).__name__
        text = servers.masked(text, source.url).rstrip(".")
        if is_unreachable(error):
            raise OSError(
                f"{source.shown} cannot be read: {text}. Check that the database runs "
                "and that user, password and name are right."
            ) from None
        raise ValueError(f"{source.shown}: the database refused: {text}.") from None


def rows_in(
    lines: pathlib.Path,
    images: Spool,
    source: TableSource,
    *,
    query: str | None = None,
    columns: Columns | None = None,
) -> str:
    """Streams rows of a database to a file of JSON lines, and returns them in DuckDB.

    Of `columns`, the image column alone may hold bytes; without them all columns are
    taken. Bytes go to the spool, and their column is of the type SPOOLED then.
    """
    with rows(source, query) as cursor, open(lines, "w") as file:
        there = [column[0] for column in cursor.description]
        wanted = columns.in_table(there).by_role.values() if columns else there
        spooled = [columns.image_column] if columns else there
        types: dict[str, set[str]] = {column: set() for column in wanted}
        for values in cursor:
            fields = {}
            for column, seen in types.items():
                value, kind = values[there.index(column)], SPOOLED
                if column in spooled and isinstance(value, _BYTES):
                    offset = images.add(bytes(value))
                    fields[column] = {"offset": offset, "num_bytes": len(value)}
                else:
                    fields[column], kind = _plain(value)
                seen.add(kind)
            file.write(json.dumps(fields) + "\n")
    kinds = {column: _common(seen) for column, seen in types.items()}
    for column, seen in types.items():
        if SPOOLED in seen and kinds[column] != SPOOLED:
            raise ValueError(
                f"The column {column} of {source.shown} must hold bytes in each row, "
                "or in none, got both. Choose rows in a view of the database."
            )
    return f"(FROM {read_lines([lines], kinds, sql.LONG_ROWS)})"


def _plain(value: Any) -> tuple[Any, str]:
    """Returns a value as JSON has it, and its type in DuckDB."""
    if value is None:
        return None, ""
    if isinstance(value, bool):
        return value, "BOOLEAN"
    if isinstance(value, int):
        is_long = not -(2**63) <= value < 2**63
        return (str(value), "VARCHAR") if is_long else (value, "BIGINT")
    if isinstance(value, decimal.Decimal) and len(value.as_tuple().digits) > MAX_DIGITS:
        return str(value), "VARCHAR"
    if isinstance(value, float | decimal.Decimal):
        return float(value), "DOUBLE"
    if isinstance(value, list | tuple):
        found = [_plain(each) for each in value]
        return [each for each, _ in found], f"{_common({k for _, k in found})}[]"
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:  # stored in UTC, as those of files
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        return value.isoformat(sep=" "), "TIMESTAMP"
    if isinstance(value, dict):
        return json.dumps(value, default=str), "VARCHAR"
    if isinstance(value, datetime.date):
        return value.isoformat(), "DATE"
    if isinstance(value, _BYTES):
        return bytes(value).decode("utf-8", errors="backslashreplace"), "VARCHAR"
    return str(value), "VARCHAR"


def _common(types: set[str]) -> str:
    known = types - {""}
    if len(known) == 1:
        return known.pop()
    return "DOUBLE" if known == {"BIGINT", "DOUBLE"} else "VARCHAR"
