"""Questions that a catalog answers, and the catalog held against its index.

In: the folder of a data set, or its catalog. Out: a count, a median, a name, the names
of columns, without an array of all records; or an error, because a damaged catalog
would change labels, sizes or places of records in silence. A question about a folder
raises a BadIndexError if the catalog is missing or unreadable. Imports no TensorFlow.
"""

import bisect
import functools
import itertools
import pathlib
from collections.abc import Iterable

from tfpipe import errors
from tfpipe.shards import index, sql
from tfpipe.shards.index import CATALOG_NAME, INDEX_NAME, File, Index, Path
from tfpipe.shards.sql import PARQUET

# Column with a list of all labels of a record, where records have several.
LABELS = "labels"


def load_filename(
    data_dir: Path, split: str, *, shard: int, byte_offset: int
) -> str | None:
    """Returns the source file of the record at a byte offset; None without a record."""
    query = (
        f"SELECT filename FROM {PARQUET} "
        "WHERE split = ? AND shard = ? AND byte_offset = ?"
    )
    rows = index.query_catalog(data_dir, query, [split, shard, byte_offset])
    return str(rows[0][0]) if rows else None


def median_short_side(data_dir: Path, split: str) -> float | None:
    """Returns the median short side of a split in pixels; None without sizes."""
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


def num_rows(data_dir: Path, split: str) -> int:
    """Returns the number of rows of a split in the catalog."""
    query = f"SELECT count(*) FROM {PARQUET} WHERE split = ?"
    return int(index.query_catalog(data_dir, query, [split])[0][0])


def has_label_lists(data_dir: Path) -> bool:
    """Whether the catalog has the column `labels`, lists of all labels of a record."""
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


def has_lost_index(folder: Path) -> bool:
    """Whether a folder has a catalog without its index."""
    has_index = (pathlib.Path(folder) / INDEX_NAME).exists()
    return not has_index and (pathlib.Path(folder) / CATALOG_NAME).exists()


# A larger catalog is read when a whole column is wanted, not when a source is made: the
# catalog of 1e8 records takes seconds. The spans of records are checked on their own.
_MOST_AT_OPENING = 1 << 30


def check_catalog(whole: Index, folder: Path, *, is_opening: bool = False) -> None:
    """Checks that the catalog has the digest that the index states, if one is stated.

    A process reads a catalog once, unless the file changes.

    Args:
        whole: The index of the data set.
        folder: The folder of the catalog.
        is_opening: Whether only the size of a catalog above 1 GiB is checked.

    Raises:
        BadIndexError: If the catalog is missing or has other bytes.
    """
    path = pathlib.Path(folder) / CATALOG_NAME
    wanted = (whole.files or {}).get(CATALOG_NAME)
    if wanted is None:
        return
    try:
        status = path.stat()
        is_large = wanted.num_bytes > _MOST_AT_OPENING
        if is_opening and is_large and status.st_size == wanted.num_bytes:
            return
        entry = _described(path, status.st_ino, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise index.unreadable(path, error) from None
    if entry != wanted:
        raise errors.BadIndexError(
            f"{path} cannot be read: its {wanted.num_bytes} bytes must have the digest "
            f"{wanted.digest} as {INDEX_NAME} says, got {entry.num_bytes} bytes with "
            f"{entry.digest}. Copy the file again or convert the data set again."
        )


@functools.lru_cache(maxsize=64)
def _described(path: pathlib.Path, *_: int) -> File:
    return index.describe_file(path)
