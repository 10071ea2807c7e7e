"""Byte strings of a Parquet file, located page by page and read in place.

In: a local Parquet file whose column is not compressed, and the name of the column or
of a field of a struct. Out: the offset and size of each value, None for NULL. DuckDB
reads the file's own index; this module reads page headers, levels and sizes. Pages may
be of version 1 or 2, plain or with a dictionary.
Formats: https://parquet.apache.org/docs/file-format/data-pages/ and
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from converters.inputs import files
from tfpipe.shards.sql import about_parquet

if TYPE_CHECKING:
    import duckdb


class UnknownFormError(Exception):
    """A file is in a form that this room does not read; DuckDB may read it."""


_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_MAX_DEPTH = 16


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Returns an integer of 7 bits a byte, and its end.

    Raises:
        IndexError: If the bytes end before.
    """
    value = shift = 0
    while (byte := data[position]) & 128:
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
    return value | byte << shift, position + 1


def _struct(
    data: memoryview, position: int, *, depth: int = 0
) -> tuple[dict[int, Any], int]:
    """Returns the fields of a struct by number, and its end.

    Texts and floating-point numbers are skipped: their fields are None.

    Args:
        data: The bytes.
        position: Start of the struct in them.
        depth: Number of structs around this one.

    Raises:
        IndexError: If the bytes end before.
        ValueError: If they are no struct.
    """
    fields: dict[int, Any] = {}
    field_id = 0
    while head := data[position]:
        position += 1
        if head >> 4:
            field_id += head >> 4
        else:
            value, position = _varint(data, position)
            field_id = _signed(value)
        fields[field_id], position = _value(data, position, head & 15, depth)
    return fields, position + 1


def _signed(value: int) -> int:
    return value >> 1 ^ -(value & 1)


def _value(data: memoryview, position: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, position
    if kind in _INTEGERS:
        value, position = _varint(data, position)
        return _signed(value), position
    if kind == _BYTE:
        return data[position], position + 1
    if kind == _DOUBLE:
        return None, position + 8
    if kind == _BINARY:
        size, position = _varint(data, position)
        return None, position + size
    if kind == _STRUCT and depth < _MAX_DEPTH:
        return _struct(data, position, depth=depth + 1)
    raise ValueError(f"A header must hold known types, got type {kind}.")


_DATA, _INDEX, _DICTIONARY, _DATA_2 = range(4)
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_HEADER_BYTES = 1 << 10
# A row group of images has far fewer; numbers of a damaged file may be anything.
_MAX_CHUNK_ROWS = 1 << 24


class Value(NamedTuple):
    """The place of a byte string.

    Attributes:
        offset: Its offset in its file.
        num_bytes: Its size.
    """

    offset: int
    num_bytes: int


class Chunk(NamedTuple):
    """A column chunk: the values of a column in a row group.

    Attributes:
        start: Offset of its first page in the file.
        stop: End of its last page.
        num_values: Number of rows.
        levels: Number of the structs and the column itself that may be NULL.
    """

    start: int
    stop: int
    num_values: int
    levels: int


class _Page(NamedTuple):
    """A page: the fields of its header, and where its content is."""

    header: dict[int, Any]
    descriptor: int
    start: int
    stop: int


def _chunk_values(descriptor: int, chunk: Chunk) -> Iterator[Value | None]:
    """Yields the place of each value of a chunk, in order.

    Args:
        descriptor: The open file.
        chunk: The chunk.

    Raises:
        UnknownFormError: If the pages are damaged or in another form.
    """
    _require(os.fstat(descriptor).st_size >= chunk.stop)
    number, dictionary = 0, list[Value]()
    try:
        for page in _pages(descriptor, chunk):
            kind = page.header[1]
            if kind == _DICTIONARY:
                info = page.header[7]
                _require(info[2] in (_PLAIN, _PLAIN_DICTIONARY))
                dictionary = _plain(page, page.start, info[1])
            elif kind in (_DATA, _DATA_2):
                found = _data(page, chunk.levels, dictionary)
                number += len(found)
                _require(number <= chunk.num_values)
                yield from found
            else:
                _require(kind == _INDEX)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise UnknownFormError("A page is damaged or in another form.") from error
    _require(number == chunk.num_values)


def _require(is_right: bool) -> None:
    if not is_right:
        raise UnknownFormError("A page is damaged or in another form.")


def _pages(descriptor: int, chunk: Chunk) -> Iterator[_Page]:
    _require(chunk.num_values <= _MAX_CHUNK_ROWS)
    position = chunk.start
    while position < chunk.stop:
        header, num_bytes = _header(descriptor, position, chunk.stop)
        start = position + num_bytes
        stop = start + header[3]
        _require(start <= stop <= chunk.stop and header[2] == header[3])
        position = stop
        yield _Page(header, descriptor, start, stop)


def _header(descriptor: int, start: int, stop: int) -> tuple[dict[int, Any], int]:
    """Returns the fields of the header of a page, and its size in bytes."""
    size = _HEADER_BYTES
    while True:
        # A header may hold the smallest and the largest value of its page.
        data = os.pread(descriptor, min(size, stop - start), start)
        try:
            return _struct(memoryview(data), 0)
        except IndexError:
            if size >= stop - start:
                raise
            size *= 16


def _read(descriptor: int, start: int, stop: int) -> bytes:
    data = os.pread(descriptor, stop - start, start)
    if len(data) != stop - start:
        raise IndexError("The file ends too early.")
    return data


def _data(page: _Page, levels: int, dictionary: Sequence[Value]) -> list[Value | None]:
    """Returns the values of a page of data."""
    start, width = page.start, levels.bit_length()
    if page.header[1] == _DATA:
        info = page.header[5]
        encoding, num_level_bytes = info[2], 0
        if width:
            _require(info[3] == _RLE)
            num_level_bytes = _size(page.descriptor, start)
            start += 4
    else:
        info = page.header[8]
        encoding, num_level_bytes = info[4], info[5]
        _require(info[6] == 0)
    count = info[1]
    _require(0 <= count <= _MAX_CHUNK_ROWS)
    _require(0 <= num_level_bytes <= page.stop - start)
    first = start + num_level_bytes
    present = [levels] * count
    if width:
        present = hybrid(_read(page.descriptor, start, first), width, count)
    num_present = present.count(levels)
    if encoding == _PLAIN:
        places = _plain(page, first, num_present)
    else:
        _require(encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY))
        data = _read(page.descriptor, first, page.stop) or b"\0"
        places = [dictionary[each] for each in hybrid(data[1:], data[0], num_present)]
    if num_present == count:
        return list(places)
    rest = iter(places)
    return [next(rest) if each == levels else None for each in present]


def _size(descriptor: int, position: int) -> int:
    return int.from_bytes(_read(descriptor, position, position + 4), "little")


def _plain(page: _Page, start: int, count: int) -> list[Value]:
    """Returns values from `start` on, each of them behind its size of four bytes."""
    places = []
    position = start
    for _ in range(count):
        size = _size(page.descriptor, position)
        position += 4 + size
        # Checked here, because sizes of other bytes lead anywhere.
        _require(position <= page.stop)
        places.append(Value(position - size, size))
    _require(position == page.stop)
    return places


def hybrid(data: bytes, width: int, count: int) -> list[int]:
    """Returns integers that are run-length encoded and bit-packed.

    Args:
        data: The encoded integers.
        width: Bits of each integer, from 0 to 32.
        count: Number of integers.

    Raises:
        IndexError: If the bytes end before.
        ValueError: If the width is another one.
    """
    if not 0 <= width <= 32:
        raise ValueError(f"The width must be 0 to 32 bits, got {width}.")
    if not width:
        return [0] * count
    integers: list[int] = []
    view, position = memoryview(data), 0
    mask, num_bytes = (1 << width) - 1, (width + 7) // 8
    while len(integers) < count:
        head, position = _varint(view, position)
        size = (head >> 1) * width if head & 1 else num_bytes
        if position + size > len(view):
            raise IndexError("The bytes end too early.")
        packed = view[position : position + size]
        position += size
        if head & 1:
            for start in range(0, size, width):
                group = int.from_bytes(packed[start : start + width], "little")
                integers += [group >> width * each & mask for each in range(8)]
        else:
            run = min(head >> 1, count - len(integers))
            integers += [int.from_bytes(packed, "little")] * run
    return integers[:count]


def find_chunks(
    connection: "duckdb.DuckDBPyConnection", file: str, names: Sequence[str]
) -> list[Chunk]:
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
        f"FROM {about_parquet('metadata', file)} WHERE path_in_schema = ? "
        "ORDER BY row_group_id",
        [", ".join(names)],
    ).fetchall()
    chunks = []
    for kind, compression, count, dictionary, data, num_bytes in rows:
        if kind != "BYTE_ARRAY" or compression != "UNCOMPRESSED":
            raise UnknownFormError(f"The column is {kind}, {compression}.")
        start = min(dictionary or data, data)
        chunks.append(Chunk(start, start + num_bytes, count, levels))
    num_rows = connection.execute(
        f"SELECT num_rows FROM {about_parquet('file_metadata', file)}"
    ).fetchone()
    if num_rows != (sum(chunk.num_values for chunk in chunks),):
        raise UnknownFormError("The column has another number of values than rows.")
    return chunks


def _levels(
    connection: "duckdb.DuckDBPyConnection", file: str, names: Sequence[str]
) -> int:
    """Returns how many of a column and the structs around it may be NULL."""
    schema = connection.execute(
        "SELECT name, repetition_type, num_children "
        f"FROM {about_parquet('schema', file)}"
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


def values(file: str, chunks: Sequence[Chunk]) -> Iterator[Value | None]:
    """Yields the place of each value of a column, None for NULL.

    Args:
        file: Path of the Parquet file.
        chunks: Its chunks, see `find_chunks`.

    Raises:
        UnknownFormError: If pages are in another form.
    """
    descriptor = files.open_file(file)
    try:
        for chunk in chunks:
            yield from _chunk_values(descriptor, chunk)
    finally:
        os.close(descriptor)
