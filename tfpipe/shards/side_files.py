"""The catalog beside an index, held against the index.

In: the folder of a data set. Out: nothing, or an error: a damaged catalog would change
labels, sizes or places of records in silence. Imports no TensorFlow.
"""

import functools
import os
import pathlib

from tfpipe import errors
from tfpipe.shards import index
from tfpipe.shards.index import CATALOG_NAME, INDEX_NAME, File, Index

Path = str | os.PathLike[str]


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
