"""The DuckDB connection for tables, and texts of SQL.

In: a folder for data beyond the memory. Out: a connection without extensions, whose
errors are Python's own.
"""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfpipe import host
from tfpipe.shards import sql

if TYPE_CHECKING:
    import duckdb

# A thread holds a vector of 2048 rows with their images.
_MAX_THREADS = 2
# Bytes of the longest row of JSON lines.
LONG_ROWS = f"maximum_object_size = {256 << 20}"
SAVE_AS_UTF8 = (
    " Save the file as UTF-8, as `iconv -f OLD -t UTF-8` does; OLD is its encoding, "
    "such as UTF-16 or LATIN1."
)
# DuckDB's errors repeat a whole line of a file.
_MAX_CHARACTERS = 200


@contextlib.contextmanager
def connected(folder: pathlib.Path) -> Iterator["duckdb.DuckDBPyConnection"]:
    """Opens a database in memory, and names its errors."""
    library = sql.engine()
    threads = min(_MAX_THREADS, host.num_cores())
    temporary = str(folder / "temporary")
    with sql.connected(threads=threads, temp_directory=temporary) as connection:
        try:
            yield connection
        except library.Error as error:
            kind = OSError if isinstance(error, library.IOException) else ValueError
            text = in_one_line(error)
            more = SAVE_AS_UTF8 if "not utf-8 encoded" in text else ""
            raise kind(f"The table cannot be read: {text}.{more}") from error


def in_one_line(error: Exception) -> str:
    """Returns the error of a database on a single line, without the query."""
    text = str(error)
    for after in (
        "\n\nLINE ",
        "\nLINE ",
        "Possible ",
        "The search space",
        "\n  file =",
    ):
        text = text.split(after)[0]
    lines = (line[:_MAX_CHARACTERS] for line in text.splitlines())
    return " ".join(" ".join(lines).split()).rstrip(".!")
