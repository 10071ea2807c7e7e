"""Reads the rows of a database's query as a stream, with the database opened read-only.

In: a `Source` that is a database, and a query in its own language. Out: column names
and batches of rows. Memory holds one batch. Passwords come from the URL, the
environment and the files of each database; no error holds one.
"""

import contextlib
import os
import pathlib
import re
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from converters.inputs.tables import places

_BATCH_ROWS = 64
_TIMEOUT_SECONDS = 20
_INSTALL = "pip install 'tfpipe[sql]'"
# MySQL's errors about the server, the user or the name of the database. From 2000 on,
# they are the client's own.
_MYSQL_UNREACHABLE = (1040, 1042, 1043, 1044, 1045, 1049, 1129, 1130, 1203, 1226, 1251)
_MYSQL_CLIENT = 2000


class Rows(NamedTuple):
    """Rows of a query: the names of its columns, and the rows in batches."""

    columns: Sequence[str]
    batches: Iterator[Sequence[tuple[Any, ...]]]


@contextlib.contextmanager
def rows(source: places.Source, query: str | None) -> Iterator[Rows]:
    """Runs a query in a database, and yields its rows.

    Args:
        source: The database.
        query: A SELECT in the database's language; None reads the source's table.

    Raises:
        ValueError: If neither a query nor a table is given, the query is wrong, or the
            database's package is not installed.
        OSError: If the database cannot be reached.
    """
    opened = {
        places.SQLITE: _sqlite,
        places.POSTGRESQL: _postgresql,
        places.MYSQL: _mysql,
    }[source.kind]
    with opened(source, _statement(source, query)) as cursor:
        columns = [column[0] for column in cursor.description]
        yield Rows(columns, _batches(cursor))


def _batches(cursor: Any) -> Iterator[Sequence[tuple[Any, ...]]]:
    while batch := cursor.fetchmany(_BATCH_ROWS):
        yield batch


def _statement(source: places.Source, query: str | None) -> str:
    """Returns a SELECT; a query as its subquery cannot be another statement."""
    if query is not None:
        return f"SELECT * FROM ({query.strip().rstrip(';')}\n) AS input"
    if source.table is None:
        raise ValueError(
            f"{source.shown} is a database, of which --query must select rows, or "
            f"which must be followed by the name of a table: {source.shown}#table."
        )
    mark = "`" if source.kind == places.MYSQL else '"'
    parts = source.table.split(".")
    names = (f"{mark}{part.replace(mark, mark * 2)}{mark}" for part in parts)
    return f"SELECT * FROM {'.'.join(names)}"


@contextlib.contextmanager
def _sqlite(source: places.Source, statement: str) -> Iterator[Any]:
    path = pathlib.Path(source.files[0]).absolute()
    uri = f"file:{urllib.parse.quote(str(path))}?mode=ro"
    with (
        _errors(source, sqlite3.Error, lambda error: False),
        contextlib.closing(sqlite3.connect(uri, uri=True)) as connection,
    ):
        connection.execute("PRAGMA query_only = ON")
        # ATTACH would make a file.
        connection.set_authorizer(_allow)
        yield connection.execute(statement)


def _allow(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


@contextlib.contextmanager
def _postgresql(source: places.Source, statement: str) -> Iterator[Any]:
    try:
        import psycopg
    except ImportError as error:
        raise ValueError(f"{source.shown} needs psycopg: {_INSTALL}.") from error

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
def _mysql(source: places.Source, statement: str) -> Iterator[Any]:
    try:
        import pymysql
        import pymysql.cursors
    except ImportError as error:
        raise ValueError(f"{source.shown} needs PyMySQL: {_INSTALL}.") from error
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
    source: places.Source,
    kind: type[Exception],
    is_unreachable: Callable[[Exception], bool],
) -> Iterator[None]:
    """Turns a database's error into one line without a password."""
    try:
        yield
    except kind as error:
        said = " ".join(str(word) for word in error.args).split("\nLINE ")[0]
        text = " ".join(said.split()) or type(error).__name__
        text = _without_password(text, source.url).rstrip(".")
        if is_unreachable(error):
            raise OSError(
                f"{source.shown} cannot be read: {text}. Check that the database runs "
                "and that user, password and name are right."
            ) from None
        raise ValueError(f"{source.shown}: the database refused: {text}.") from None


def _without_password(text: str, url: str) -> str:
    password = re.search(r"(?<=://)[^/@]*?:([^/@]*)@|[?&]password=([^&]*)", url)
    for word in password.groups() if password else ():
        for form in (word, urllib.parse.unquote(word)) if word else ():
            text = text.replace(form, "***")
    return text
