"""Tables for a terminal: columns declared as data, as wide as their cells.

In: columns and rows. Out: a line for each row, below the titles.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclasses.dataclass(frozen=True)
class Column(Generic[Row]):
    """A column.

    Attributes:
        title: Text above the column.
        cell: Returns the text of a row.
        is_left: Whether the texts begin at the left.
    """

    title: str
    cell: Callable[[Row], str]
    is_left: bool = False


def lines(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> list[str]:
    """Returns the titles and the rows as lines.

    Example:
        >>> columns = [Column("ranks", str), Column("double", lambda n: f"{2 * n}")]
        >>> lines(columns, [8, 16])
        ['ranks  double', '    8      16', '   16      32']
    """
    cells = [[column.cell(row) for column in columns] for row in rows]
    table = [[column.title for column in columns], *cells]
    widths = [max(map(len, texts)) for texts in zip(*table, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if column.is_left else text.rjust(width)
            for column, text, width in zip(columns, texts, widths, strict=True)
        ).rstrip()
        for texts in table
    ]


def filled(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> list[Column[Row]]:
    """Returns the columns in which a row has more than a dash; the first one stays."""
    return [
        column
        for index, column in enumerate(columns)
        if not index or any(column.cell(row) not in ("-", "—") for row in rows)
    ]
