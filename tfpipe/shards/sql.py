"""Texts, names and paths as parts of DuckDB's SQL.

In: a text of any characters. Out: SQL that means this text and nothing else. DuckDB has
no escape character: a quote is doubled, and all others stand for themselves. Imports
nothing but Python's own modules.
"""

import glob
import os


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


def _unicode(text: str) -> str:
    """Checks that DuckDB can take a text; its own error does not name the text."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(
            f"A text or path in SQL must be Unicode, got {text!a}, which has bytes "
            "that are no UTF-8. Rename the file, the folder or the column."
        )
    return text
