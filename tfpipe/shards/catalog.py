"""Questions that a catalog answers, without an array of all records.

In: the folder of a data set, or its catalog. Out: a count, a median, a name, the names
of columns. Imports no TensorFlow.
"""

import bisect
import itertools
import pathlib
from collections.abc import Iterable

from tfpipe.shards import index, sql
from tfpipe.shards.sql import PARQUET

# Column with a list of all labels of a record, where records have several.
LABELS = "labels"


def load_filename(
    data_dir: index.Path, split: str, *, shard: int, byte_offset: int
) -> str | None:
    """Returns the source file of the record at a byte offset; None without a record.

    Raises:
        BadIndexError: If the catalog is missing or unreadable.
    """
    query = (
        f"SELECT filename FROM {PARQUET} "
        "WHERE split = ? AND shard = ? AND byte_offset = ?"
    )
    rows = index.query_catalog(data_dir, query, [split, shard, byte_offset])
    return str(rows[0][0]) if rows else None


def median_short_side(data_dir: index.Path, split: str) -> float | None:
    """Returns the median short side of a split's images in pixels; None without sizes.

    Raises:
        BadIndexError: If the catalog is missing or unreadable.
    """
    # The function `median` of DuckDB keeps a number for each record.
    query = (
        f"SELECT least(height, width) AS side, count(*) FROM {PARQUET} WHERE split = ?"
        " GROUP BY side HAVING side IS NOT NULL ORDER BY side"
    )
    rows = index.query_catalog(data_dir, query, [split])
    ends = [*itertools.accumulate(count for _, count in rows)]
    if not ends:
        return None
    middle = ((ends[-1] - 1) // 2, ends[-1] // 2)
    low, high = (rows[bisect.bisect_right(ends, turn)][0] for turn in middle)
    return (float(low) + float(high)) / 2


def num_rows(data_dir: index.Path, split: str) -> int:
    """Returns the number of rows of a split in the catalog.

    Raises:
        BadIndexError: If the catalog is missing or unreadable.
    """
    query = f"SELECT count(*) FROM {PARQUET} WHERE split = ?"
    return int(index.query_catalog(data_dir, query, [split])[0][0])


def has_label_lists(data_dir: index.Path) -> bool:
    """Whether the catalog has the column `labels`, lists of all labels of a record.

    Raises:
        BadIndexError: If the catalog is missing or unreadable.
    """
    query = (
        f"SELECT count(*) FROM (DESCRIBE SELECT * FROM {PARQUET}) "
        f"WHERE column_name = '{LABELS}' AND column_type IN ('INTEGER[]', 'BIGINT[]')"
    )
    return bool(index.query_catalog(data_dir, query, [])[0][0])


def types(path: pathlib.Path) -> dict[str, str]:
    """Returns the types of DuckDB of the columns of a Parquet file, by name."""
    with index.catalog_connection() as connection:
        return sql.column_types(connection, sql.read_files("parquet", [path]))


def further_columns(path: pathlib.Path) -> list[str]:
    """Returns the columns of a Parquet file but those of every catalog."""
    return but_usual(types(path))


def but_usual(columns: Iterable[str]) -> list[str]:
    """Returns the columns but those of every catalog."""
    usual = {*index.CATALOG_COLUMNS, "file_row_number"}
    return [name for name in columns if name.lower() not in usual]
