"""The only place that connects to DuckDB, and texts, names and paths as parts of SQL.

In: settings, or a text of any characters. Out: a connection that downloads nothing and
ends at once on Ctrl-C; SQL that means the text and nothing else. DuckDB has no escape
character: a quote is doubled, and all others stand for themselves. A text or a path
that is not Unicode is a ValueError, see `one_file` for paths. Imports nothing but
Python's own modules until a connection is made.
"""

import contextlib
import errno
import glob
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

_ENDING = (signal.SIGINT, signal.SIGTERM)
_QUOTED = re.compile(r'"(.+)"')
# The rows of the Parquet file whose `one_file` is a parameter of the query.
PARQUET = "read_parquet(?, hive_partitioning = false)"
# The same with file_row_number.
PARQUET_ROWS = "read_parquet(?, hive_partitioning = false, file_row_number = true)"


def engine() -> Any:
    """Returns the module `_duckdb`, which has connections and errors.

    `import duckdb` takes six times as long, because it brings relations as objects of
    Python: `connection.sql`, `table`, `view` and others. Who needs these imports duckdb
    as well. The classes of both modules are the same.
    """
    try:
        import _duckdb
    except ImportError:  # before DuckDB 1.4
        import duckdb

        return duckdb
    return _duckdb


def connect(**settings: Any) -> "duckdb.DuckDBPyConnection":
    """Opens a database in memory; `connected` also closes it.

    Times are in UTC on every host. One thread, the default, keeps the order of rows and
    the bytes of files, and lets the process fork its workers afterwards.

    Args:
        settings: More settings of DuckDB, such as threads=2.
    """
    library = engine()
    config = {
        "threads": 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    for value in settings.values():
        _unicode(str(value))
    connection: duckdb.DuckDBPyConnection = library.connect(config=config | settings)
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    with contextlib.suppress(library.CatalogException):  # DuckDB 1 has no such threads
        connection.execute("SET async_threads = 0")
    return connection


def lock(
    connection: "duckdb.DuckDBPyConnection", files: Iterable[str | os.PathLike[str]]
) -> None:
    """Takes the disk, the network and the settings from a connection, for good.

    Afterwards a text of SQL of a user can do no harm. Views that were made before
    can still be read.

    Args:
        connection: The connection.
        files: The only files that it may still read and write.
    """
    # DuckDB checks the pattern and the file that it finds.
    allowed = [name for path in files for name in (os.fspath(path), one_file(path))]
    connection.execute(f"SET allowed_paths = [{', '.join(map(quoted, allowed))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


@contextlib.contextmanager
def connected(**settings: Any) -> Iterator["duckdb.DuckDBPyConnection"]:
    """Yields a connection of `connect` in a `guarded` block."""
    with connect(**settings) as connection, guarded(connection):
        yield connection


@contextlib.contextmanager
def guarded(connection: "duckdb.DuckDBPyConnection") -> Iterator[None]:
    """A block whose queries Ctrl-C and SIGTERM end at once, with errors of the system.

    Raises:
        KeyboardInterrupt: In place of any error, if such a signal came.
        OSError: If the system refuses a file, see `system_error`.
    """
    try:
        with Interruptible(connection.interrupt):
            yield
    except engine().IOException as error:
        system = system_error(error)
        if system is None:
            raise
        raise system from error


def system_error(error: Exception) -> OSError | None:
    """Returns the error of the system that an error is or repeats, or None.

    DuckDB has the same class for a disk that fails and for some damaged files of
    Parquet. The words of strerror(3) tell them apart.

    Example:
        >>> text = 'IO Error: Cannot open file "a.parquet": Permission denied'
        >>> system_error(duckdb.IOException(text))
        PermissionError(13, 'Permission denied')
    """
    if isinstance(error, OSError):
        return error
    said = str(error).partition("\n")[0]
    for number in errno.errorcode if isinstance(error, engine().IOException) else ():
        if said.endswith(f": {os.strerror(number)}"):
            path = _QUOTED.search(said)
            return OSError(number, os.strerror(number), path and path[1])
    return None


class Interruptible:
    """A block whose query ends when a signal comes that raises KeyboardInterrupt.

    Python runs the handler of a signal when the query of a C library has ended. A
    thread learns of the signal at once. An exception alone would leave DuckDB's other
    threads at work. A class, because signals break generators.

    Args:
        interrupt: Ends the query that is running; called by another thread.

    Raises:
        KeyboardInterrupt: In place of any error, if such a signal came.

    Example:
        with Interruptible(connection.interrupt):
            connection.execute(query)
    """

    def __init__(self, interrupt: Callable[[], object]) -> None:
        self._interrupt = interrupt
        self._ending: list[int] = []
        self._received = False

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            keyboard = signal.default_int_handler
            self._ending = [n for n in _ENDING if signal.getsignal(n) is keyboard]
        if self._ending:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._writer, False)
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
            self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def _watch(self) -> None:
        while number := os.read(self._reader, 1):
            if number[0] in self._ending:
                self._received = True
                self._interrupt()

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if self._ending:
            signal.set_wakeup_fd(self._before)
            os.close(self._writer)
            self._thread.join()
            os.close(self._reader)
        if self._received and isinstance(error, Exception):
            raise KeyboardInterrupt from error


def quoted(text: str | os.PathLike[str]) -> str:
    """Returns a text or a path as a literal of SQL."""
    return "'" + _unicode(os.fspath(text)).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Returns the name of a column or table as an identifier of SQL.

    Raises:
        ValueError: If the name is empty.
    """
    if not name:
        raise ValueError("A name in SQL must have at least one character, got none.")
    return '"' + _unicode(name).replace('"', '""') + '"'


def one_file(path: str | os.PathLike[str]) -> str:
    """Returns the pattern of files that matches one path alone.

    DuckDB's readers of files take *, ? and [ for a pattern. The pattern is a value for
    a parameter of a query; `quoted` makes a literal of it.

    Raises:
        ValueError: If the path is not Unicode, or has a backslash beside such a
            character: DuckDB divides patterns at backslashes.
    """
    text = _unicode(os.fspath(path))
    pattern = glob.escape(text)
    if "\\" in text and pattern != text:
        raise ValueError(
            f"A path must not have a backslash together with one of * ? [, got {text}: "
            "DuckDB has no pattern for it. Rename the file or the folder."
        )
    return pattern


def read_files(
    kind: str, paths: Sequence[str | os.PathLike[str]], *options: str
) -> str:
    """Returns the call of DuckDB that reads files, each by its own name.

    No name of a file or a folder changes the rows: a folder `label=zebra` is no column.

    Args:
        kind: "parquet", "csv", "json" or "blob".
        paths: The files.
        options: More options, such as "header = true".
    """
    more = "".join(f", {option}" for option in options)
    return f"read_{kind}([{_listed(paths)}], hive_partitioning = false{more})"


def _listed(paths: Iterable[str | os.PathLike[str]]) -> str:
    return ", ".join(quoted(one_file(path)) for path in paths)


def read_lines(
    paths: Sequence[str | os.PathLike[str]], types: Mapping[str, str], *options: str
) -> str:
    """Returns the call of DuckDB that reads JSON lines.

    Args:
        paths: The files.
        types: Type of each column, by its name.
        options: More options.
    """
    columns = ", ".join(f"{identifier(k)}: {quoted(v)}" for k, v in types.items())
    named = (f"columns = {{{columns}}}", "format = 'newline_delimited'")
    return read_files("json", paths, *named, *options)


def about_parquet(what: str, *paths: str | os.PathLike[str]) -> str:
    """Returns the call of DuckDB that describes Parquet files.

    Args:
        what: "metadata", "schema", "file_metadata" or "kv_metadata".
        paths: The files.
    """
    return f"parquet_{what}([{_listed(paths)}])"


def column_types(connection: "duckdb.DuckDBPyConnection", rows: str) -> dict[str, str]:
    """Returns the types of the columns of rows: a table, a call or a subquery."""
    described = connection.execute(f"DESCRIBE FROM {rows}").fetchall()
    return {str(name): str(kind) for name, kind, *_ in described}


def _unicode(text: str) -> str:
    """Checks that DuckDB can take a text; its own error does not name the text."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(
            f"A text or path in SQL must be Unicode, got {text!a}, which has bytes "
            "that are no UTF-8. Rename the file, the folder or the column."
        )
    return text
