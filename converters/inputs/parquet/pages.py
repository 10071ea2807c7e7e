"""Finds the values in the pages of a column chunk of Parquet.

In: a Parquet file and the place of a column chunk of byte strings. Out: offset and size
of each value, None for NULL. Pages may be of version 1 or 2, plain or with a
dictionary. Uncompressed pages stay where they are: only sizes and levels are read.
Format: https://parquet.apache.org/docs/file-format/data-pages/
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from converters.inputs.parquet import thrift
from converters.inputs.parquet.forms import UnknownFormError
from converters.inputs.parquet.inflate import UNCOMPRESSED, Inflater

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
        is_unpacked: Whether its file is that of the unpacked pages.
    """

    offset: int
    num_bytes: int
    is_unpacked: bool


class Chunk(NamedTuple):
    """A column chunk: the values of a column in a row group.

    Attributes:
        start: Offset of its first page in the file.
        stop: End of its last page.
        num_values: Number of rows.
        levels: Number of the structs and the column itself that may be NULL.
        codec: Name of its codec.
    """

    start: int
    stop: int
    num_values: int
    levels: int
    codec: str = UNCOMPRESSED


class _Page(NamedTuple):
    """A page: the fields of its header, and where its content is."""

    header: dict[int, Any]
    descriptor: int
    start: int
    stop: int
    is_unpacked: bool


def values(descriptor: int, chunk: Chunk, inflater: Inflater) -> Iterator[Value | None]:
    """Yields the place of each value of a chunk, in order.

    Args:
        descriptor: The open file.
        chunk: The chunk.
        inflater: Unpacks the pages if they are compressed.

    Raises:
        UnknownFormError: If the pages are damaged or in another form.
        OSError: If the file cannot be read.
    """
    _require(os.fstat(descriptor).st_size >= chunk.stop)
    number, dictionary = 0, list[Value]()
    try:
        for page in _pages(descriptor, chunk, inflater):
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


def _require(known: bool) -> None:
    if not known:
        raise UnknownFormError("A page is damaged or in another form.")


def _pages(descriptor: int, chunk: Chunk, inflater: Inflater) -> Iterator[_Page]:
    _require(chunk.num_values <= _MAX_CHUNK_ROWS)
    position = chunk.start
    while position < chunk.stop:
        header, num_bytes = _header(descriptor, position, chunk.stop)
        start = position + num_bytes
        stop = start + header[3]
        _require(start <= stop <= chunk.stop and header[2] >= 0)
        position = stop
        if chunk.codec == UNCOMPRESSED:
            _require(header[2] == header[3])
            yield _Page(header, descriptor, start, stop, False)
            continue
        codec, head = chunk.codec, 0
        if header[1] == _DATA_2:  # its levels are never compressed
            info = header[8]
            head = info[5] + info[6]
            codec = codec if info.get(7, True) else UNCOMPRESSED
        begin = inflater.unpack(
            descriptor, start, stop, size=header[2], codec=codec, head=head
        )
        unpacked = inflater.sink.descriptor
        yield _Page(header, unpacked, begin, begin + header[2], True)


def _header(descriptor: int, start: int, stop: int) -> tuple[dict[int, Any], int]:
    """Returns the fields of the header of a page, and its size in bytes."""
    size = _HEADER_BYTES
    while True:
        # A header may hold the smallest and the largest value of its page.
        data = os.pread(descriptor, min(size, stop - start), start)
        try:
            return thrift.struct(memoryview(data), 0)
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
        found = _plain(page, first, num_present)
    else:
        _require(encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY))
        data = _read(page.descriptor, first, page.stop) or b"\0"
        found = [dictionary[each] for each in hybrid(data[1:], data[0], num_present)]
    if num_present == count:
        return list(found)
    rest = iter(found)
    return [next(rest) if each == levels else None for each in present]


def _size(descriptor: int, position: int) -> int:
    return int.from_bytes(_read(descriptor, position, position + 4), "little")


def _plain(page: _Page, start: int, count: int) -> list[Value]:
    """Returns values from `start` on, each of them behind its size of four bytes."""
    found = []
    position = start
    for _ in range(count):
        size = _size(page.descriptor, position)
        position += 4 + size
        # Checked here, because sizes of other bytes lead anywhere.
        _require(position <= page.stop)
        found.append(Value(position - size, size, page.is_unpacked))
    _require(position == page.stop)
    return found


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
    found: list[int] = []
    view, position = memoryview(data), 0
    mask, num_bytes = (1 << width) - 1, (width + 7) // 8
    while len(found) < count:
        head, position = thrift.varint(view, position)
        size = (head >> 1) * width if head & 1 else num_bytes
        if position + size > len(view):
            raise IndexError("The bytes end too early.")
        packed = view[position : position + size]
        position += size
        if head & 1:
            for start in range(0, size, width):
                group = int.from_bytes(packed[start : start + width], "little")
                found += [group >> width * each & mask for each in range(8)]
        else:
            run = min(head >> 1, count - len(found))
            found += [int.from_bytes(packed, "little")] * run
    return found[:count]
