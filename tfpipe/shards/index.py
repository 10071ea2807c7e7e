"""The index of a data set: index.json and catalog.parquet, read, written, checked.

In: what a converter wrote, or a folder of shards with its index. Out: `Index` (splits,
shards, sizes, classes) and the catalog's columns as numpy arrays, one row a record.
The index is written last, so that its presence says the data set is complete. Imports
no TensorFlow.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import xxhash

from tfpipe import errors
from tfpipe.shards import index_format

# What an index is made of, for those who have this module.
from tfpipe.shards.index_format import (
    DIGEST_ALGORITHM as DIGEST_ALGORITHM,
    FORMAT_VERSION as FORMAT_VERSION,
    File as File,
    Index as Index,
    Shard as Shard,
    require_base_name as require_base_name,
)

if TYPE_CHECKING:
    import duckdb
    import numpy.typing as npt

INDEX_NAME = "index.json"
CATALOG_NAME = "catalog.parquet"

# One row a record, in the order of splits, shards and records within a shard.
CATALOG_COLUMNS: Mapping[str, str] = {
    "split": "VARCHAR",
    "shard": "INTEGER",  # number of the shard in its split
    "record": "INTEGER",  # number of the record in its shard
    "byte_offset": "BIGINT",  # where the record's header starts in the shard
    "num_bytes": "BIGINT",  # with header and footer
    "label": "INTEGER",
    "synset": "VARCHAR",
    "height": "INTEGER",  # pixels
    "width": "INTEGER",
    "filename": "VARCHAR",  # of the source, relative to the input folder
    "decision": "VARCHAR",  # what was done to the image, see converters.images.prepare
    "digest": "VARCHAR",  # of the stored JPEG bytes
}

Path = str | os.PathLike[str]
_In = TypeVar("_In")
_Out = TypeVar("_Out")

_PIECE_BYTES = 1 << 20


def load(data_dir: Path) -> Index:
    """Reads `data_dir/index.json`.

    Raises:
        BadIndexError: If it is missing, is not an index, or is of a later format.
    """
    path = pathlib.Path(data_dir) / INDEX_NAME
    document = _as_bad_index(path, json.loads, _read(path))
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise errors.BadIndexError(
            f"{path} must have format_version {FORMAT_VERSION}, got {version!r}. "
            "It was written by another version of tfpipe."
        )
    try:
        return index_format.decode(document)
    except ValueError as error:
        raise errors.BadIndexError(
            f"{path} is not a tfpipe index: {error}. Convert the data set again."
        ) from error


def change(data_dir: Path) -> str:
    """How index.json differs from what was written, for people; nothing if it does not.

    Of an index that an older version wrote nothing is known.

    Raises:
        BadIndexError: If it is missing or is not an index.
    """
    path = pathlib.Path(data_dir) / INDEX_NAME
    return _as_bad_index(path, index_format.change, _read(path))


def _read(path: pathlib.Path) -> str:
    """The text of an index.json."""
    if path.exists() and not path.is_file():
        # A named pipe would be read without end.
        raise errors.BadIndexError(f"{path} cannot be read: it is no regular file.")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise errors.BadIndexError(
            f"No data set in {path.parent}: {INDEX_NAME} is missing. Create one with "
            f"python -m converters.imagenet --output_dir={path.parent}."
        ) from None
    except OSError as error:
        raise errors.BadIndexError(
            f"{path} cannot be read: {error.strerror}."
        ) from error
    return _as_bad_index(path, bytes.decode, content)


def _as_bad_index(
    path: pathlib.Path, function: "Callable[[_In], _Out]", value: "_In"
) -> "_Out":
    """Calls a function on what was read; what it cannot read is a bad index."""
    try:
        return function(value)
    except (ValueError, RecursionError) as error:
        raise errors.BadIndexError(f"{path} cannot be read: {error}.") from error


def write(index: Index, data_dir: Path, *, fsync: bool = True) -> None:
    """Writes `data_dir/index.json` so that it is there whole or not at all.

    Args:
        index: What to write.
        data_dir: Folder of the data set.
        fsync: As for `replace_file`.
    """
    content = index_format.encode(index).encode()
    replace_file(pathlib.Path(data_dir) / INDEX_NAME, content, fsync=fsync)


def describe(content: bytes) -> File:
    """What an index says of a file beside the shards with this content."""
    digest = xxhash.xxh3_128_hexdigest(content)
    return File(num_bytes=len(content), digest=digest)


def describe_file(path: pathlib.Path) -> File:
    """As `describe`, of a file on disk, read in pieces.

    Raises:
        OSError: If it cannot be read.
    """
    digest, num_bytes = xxhash.xxh3_128(), 0
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            num_bytes += len(piece)
    return File(num_bytes=num_bytes, digest=digest.hexdigest())


def replace_file(path: pathlib.Path, content: bytes, *, fsync: bool = True) -> None:
    """Gives `path` this content at once: a reader sees the old file or the new one.

    Args:
        path: The file.
        content: What it is to hold.
        fsync: Whether it is on the disk, and not only with the kernel, at the end.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if fsync:
        sync_folder(path.parent)


def sync_folder(folder: pathlib.Path) -> None:
    """Makes renames inside a folder survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check(index: Index, data_dir: Path, split: str) -> None:
    """Checks that every shard of a split is there with the size the index states.

    One `stat` a shard: TensorFlow's own error for a cut shard names no file, so this
    runs before anything is read.

    Raises:
        BadIndexError: If the split is unknown, or a shard is missing or has another
                size.
    """
    if split not in index.splits:
        raise errors.BadIndexError(
            f"Unknown split {split!r} in {data_dir}: choose one of "
            f"{', '.join(sorted(index.splits))}."
        )
    for shard in index.splits[split]:
        path = pathlib.Path(data_dir) / shard.name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise errors.BadIndexError(
                f"Shard {path} is listed in {INDEX_NAME} but cannot be read: "
                f"{error.strerror}. Copy it again or convert the data set again."
            ) from None
        if size != shard.num_bytes:
            raise errors.BadIndexError(
                f"Shard {path} must have {shard.num_bytes} bytes as {INDEX_NAME} says, "
                f"got {size}. Copy it again or convert the data set again."
            )


@contextlib.contextmanager
def catalog_connection() -> "Iterator[duckdb.DuckDBPyConnection]":
    """What the catalog is written and queried with while it is made.

    One for all steps: opening one takes longer than a query over a small catalog.
    """
    import duckdb

    # One thread: rows keep their order and the file its bytes.
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def write_catalog(
    connection: "duckdb.DuckDBPyConnection",
    fragments: Sequence[pathlib.Path],
    path: pathlib.Path,
) -> None:
    """Joins the shards' catalog fragments, in the order given, into one Parquet file.

    Args:
        connection: A `catalog_connection`.
        fragments: Files of one JSON object a line with the keys of CATALOG_COLUMNS.
        path: The catalog to write.
    """
    rows = connection.read_json(
        [os.fspath(path) for path in fragments],  # type: ignore[arg-type]  # lists are right
        columns=dict(CATALOG_COLUMNS),
        format="newline_delimited",
    )
    rows.write_parquet(os.fspath(path), compression="zstd")


def record_places(
    connection: "duckdb.DuckDBPyConnection", catalog: pathlib.Path, index: Index
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Name and (byte offset, bytes with frame) of each record, shard by shard.

    Those of a whole ImageNet at once would take 150 MB.
    """
    query = (
        "SELECT byte_offset, num_bytes FROM read_parquet(?) "
        "WHERE split = ? ORDER BY shard, record"
    )
    for split, shards in index.splits.items():
        rows = connection.execute(query, [os.fspath(catalog), split])
        for shard in shards:
            yield shard.name, rows.fetchmany(shard.num_records)


def digest(text: str) -> str:
    """32 hexadecimal digits of a text, to tell descriptions of data apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def load_filename(
    data_dir: Path, split: str, *, shard: int, byte_offset: int
) -> str | None:
    """The source file of the record at a place; None if no record begins there.

    Raises:
        BadIndexError: If the catalog is missing or unreadable.
    """
    query = (
        "SELECT filename FROM read_parquet(?) "
        "WHERE split = ? AND shard = ? AND byte_offset = ?"
    )
    rows = query_catalog(data_dir, query, [split, shard, byte_offset])
    return str(rows[0][0]) if rows else None


def median_short_side(data_dir: Path, split: str) -> float:
    """Of the images of a split, in pixels.

    Raises:
        BadIndexError: If the catalog is missing or unreadable, or has no sizes.
    """
    query = "SELECT median(least(height, width)) FROM read_parquet(?) WHERE split = ?"
    ((median,),) = query_catalog(data_dir, query, [split])
    if median is None:
        raise _bad_catalog(data_dir, f"it has no sizes of split {split!r}.")
    return float(median)


def load_catalog(
    data_dir: Path, split: str, columns: Sequence[str]
) -> "dict[str, npt.NDArray[Any]]":
    """Columns of the catalog for one split, in record order.

    Raises:
        BadIndexError: If the catalog is missing or unreadable, or a column is not of
            its type or has no value somewhere.
    """
    import numpy as np

    query = (
        f"SELECT {', '.join(columns)} FROM read_parquet(?) WHERE split = ?"
        " ORDER BY shard, record"
    )
    rows = _from_catalog(data_dir, query, [split], lambda result: result.fetchnumpy())
    for name in columns:
        kind = "O" if CATALOG_COLUMNS[name] == "VARCHAR" else "i"
        if rows[name].dtype.kind != kind or np.any(getattr(rows[name], "mask", False)):
            raise _bad_catalog(
                data_dir,
                f"column {name} must be {CATALOG_COLUMNS[name]} without empty values.",
            )
    return {name: np.asarray(rows[name]) for name in columns}


def query_catalog(
    data_dir: Path, query: str, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    """The rows that a query gives of the catalog.

    Args:
        data_dir: Folder of the data set.
        query: SQL; its first ? is for the path of the catalog.
        values: For the other ones.

    Raises:
        BadIndexError: If the catalog is missing or unreadable.
    """
    rows = _from_catalog(data_dir, query, values, lambda result: result.fetchall())
    return list(rows)


def _from_catalog(
    data_dir: Path,
    query: str,
    values: Sequence[object],
    fetch: "Callable[[duckdb.DuckDBPyConnection], Any]",
) -> Any:
    """What a query gives, whose first ? is the catalog's path and the rest `values`."""
    import duckdb

    path = pathlib.Path(data_dir) / CATALOG_NAME
    if path.exists() and not path.is_file():
        raise _bad_catalog(data_dir, "it is no regular file.")
    try:
        with _database().cursor() as connection:
            return fetch(connection.execute(query, [os.fspath(path), *values]))
    except duckdb.Error as error:
        raise _bad_catalog(data_dir, str(error).splitlines()[0]) from error


def _bad_catalog(data_dir: Path, why: str) -> errors.BadIndexError:
    path = pathlib.Path(data_dir) / CATALOG_NAME
    return errors.BadIndexError(
        f"{path} cannot be read: {why} Convert the data set again."
    )


@functools.cache
def _database() -> "duckdb.DuckDBPyConnection":
    """One for all queries: opening it takes 30 ms, and a query of a small catalog 1."""
    import duckdb

    # One thread, the caller's: threads of its own would rule out forks.
    return duckdb.connect(config={"threads": 1})
