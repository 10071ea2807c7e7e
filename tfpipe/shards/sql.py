"""Texts, names and paths as parts of DuckDB's SQL.

In: a text of any characters. Out: SQL that means this text and nothing else. DuckDB has
no escape character: a quote is doubled, and all others stand for themselves. Imports
nothing but Python's own modules.
"""

import glob
import os
from collections.abc import Sequence

# The rows of the Parquet file whose `one_file` is a parameter of the query.
PARQUET = "read_parquet(?, hive_partitioning = false)"


def quoted(text: str | os.PathLike[str]) -> str:
    """Returns a text or a path as a literal of SQL.

    Raises:
        ValueError: If the text is not Unicode, such as a path whose bytes are no UTF-8.
    """
    return "'" + _unicode(os.fspath(text)).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Returns the name of a column or table as an identifier of SQL.

    Raises:
        ValueError: If the name is empty or not Unicode.
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
        kind: "parquet", "csv" or "json".
        paths: The files.
        options: More options, such as "header = true".

    Raises:
        ValueError: If a path is not Unicode, see `one_file`.
    """
    files = ", ".join(quoted(one_file(path)) for path in paths)
    more = "".join(f", {option}" for option in options)
    return f"read_{kind}([{files}], hive_partitioning = false{more})"


def _unicode(text: str) -> str:
    """Checks that DuckDB can take a text; its own error does not name the text."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(
            f"A text or path in SQL must be Unicode, got {text!a}, which has bytes "
            "that are no UTF-8. Rename the file, the folder or the column."
        )
    return text
