"""Finds the values of a column of a Parquet file.

In: a local Parquet file, the name of a column or of a field of a struct. Out: offset
and size of each value, in the file or among its unpacked pages. DuckDB reads the file's
own index.
"""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from converters.inputs import files
from converters.inputs.parquet import pages
from converters.inputs.parquet.forms import UnknownFormError
from converters.inputs.parquet.inflate import CODECS, UNCOMPRESSED, Inflater

if TYPE_CHECKING:
    import duckdb


def find_chunks(
    connection: "duckdb.DuckDBPyConnection", file: str, names: Sequence[str]
) -> list[pages.Chunk]:
    """Returns the column chunks of a column, in the order of their rows.

    Args:
        connection: A DuckDB connection.
        file: Path of the Parquet file.
        names: Name of the column, and of the field of a struct.

    Raises:
        UnknownFormError: If values of the column cannot be read in place.
    """
    levels = _levels(connection, file, names)
    rows = connection.execute(
        "SELECT type, compression, num_values, dictionary_page_offset, "
        "data_page_offset, total_compressed_size "
        "FROM parquet_metadata(?) WHERE path_in_schema = ? ORDER BY row_group_id",
        [file, ", ".join(names)],
    ).fetchall()
    found = []
    for kind, compression, count, dictionary, data, num_bytes in rows:
        if kind != "BYTE_ARRAY" or compression not in (UNCOMPRESSED, *CODECS):
            raise UnknownFormError(f"The column is {kind}, {compression}.")
        start = min(dictionary or data, data)
        found.append(pages.Chunk(start, start + num_bytes, count, levels, compression))
    num_rows = connection.execute(
        "SELECT num_rows FROM parquet_file_metadata(?)", [file]
    ).fetchone()
    if num_rows != (sum(chunk.num_values for chunk in found),):
        raise UnknownFormError("The column has another number of values than rows.")
    return found


def _levels(
    connection: "duckdb.DuckDBPyConnection", file: str, names: Sequence[str]
) -> int:
    """Returns how many of a column and the structs around it may be NULL."""
    schema = connection.execute(
        "SELECT name, repetition_type, num_children FROM parquet_schema(?)", [file]
    ).fetchall()
    by_path: dict[tuple[str, ...], list[str]] = {}

    def walk(at: int, path: tuple[str, ...], kinds: list[str]) -> int:
        name, kind, num_children = schema[at]
        own, own_kinds = (*path, name), [*kinds, kind]
        if at == 0:
            own, own_kinds = (), []
        by_path[own] = own_kinds
        at += 1
        for _ in range(num_children or 0):
            at = walk(at, own, own_kinds)
        return at

    walk(0, (), [])
    kinds = by_path.get(tuple(names), ["REPEATED"])
    if "REPEATED" in kinds:
        raise UnknownFormError("The column repeats.")
    return kinds.count("OPTIONAL")


def values(
    file: str, chunks: Sequence[pages.Chunk], inflater: Inflater
) -> Iterator[pages.Value | None]:
    """Yields the place of each value of a column, None for NULL.

    Args:
        file: Path of the Parquet file.
        chunks: Its chunks, see `find_chunks`.
        inflater: Unpacks the pages of compressed chunks into another file.

    Raises:
        UnknownFormError: If pages are in another form.
        OSError: If the file cannot be read.
    """
    descriptor = files.open_file(file)
    try:
        for chunk in chunks:
            yield from pages.values(descriptor, chunk, inflater)
    finally:
        os.close(descriptor)
