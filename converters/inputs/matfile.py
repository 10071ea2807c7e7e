"""Reads a struct array from a MATLAB 5 file, as ILSVRC lists its synsets in one.

In: the bytes of a .mat file (version 5 to 7: tagged elements, compressed or not). Out:
the fields of each struct that are a text or a number; other fields are left out. Only
this part of the format is supported, and only files of the size of a synset list.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence

_HEADER_BYTES = 128
_COMPRESSED, _MATRIX = 15, 14
_STRUCT_CLASS, _CHAR_CLASS = 2, 4
# The `struct` code of the values of each type of element.
_FORMATS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d"}
_FORMATS |= {12: "q", 13: "Q", 17: "H"}
_UTF8 = 16
# The meta.mat of ILSVRC-2012 unpacks to some 2 MB.
_MAX_UNPACKED_BYTES = 16 << 20
_MAX_VALUE_BYTES = 1 << 16

Fields = dict[str, str | float]
_Part = tuple[int, bytes]  # type and content of an element


def read_structs(data: bytes, name: str) -> list[Fields]:
    """Reads the structs of the array with this name.

    Args:
        data: The content of the file.
        name: Name of the struct array.

    Returns:
        For each struct, its texts and numbers by the name of the field.

    Raises:
        ValueError: If the file is not of version 5, is damaged, unpacks to more than
            16 MiB, or has no such array.
    """
    # The last two bytes of the header give the byte order of all numbers.
    order = {b"IM": "<", b"MI": ">"}.get(data[126:_HEADER_BYTES])
    if order is None or not data.startswith(b"MATLAB 5.0"):
        raise ValueError("The .mat file must be of MATLAB version 5, got another file.")
    try:
        for content in _matrices(data[_HEADER_BYTES:], order):
            # The parts are: flags, dimensions, name, length of a field name, all field
            # names, and then the values, struct by struct.
            parts = list(_elements(content, order))
            is_named = len(parts) >= 5 and parts[2][1] == name.encode()
            if is_named and _class_of(parts, order) == _STRUCT_CLASS:
                return _structs(parts[3:], order)
    except (IndexError, struct.error, zlib.error) as error:
        raise ValueError(f"The .mat file is damaged or cut short: {error}.") from error
    raise ValueError(f"The .mat file must hold a struct array named {name}, got none.")


def _matrices(data: bytes, order: str) -> Iterator[bytes]:
    """Yields the content of each array of the file."""
    left = _MAX_UNPACKED_BYTES
    for kind, content in _elements(data, order):
        if kind == _COMPRESSED:
            unpacked = zlib.decompressobj().decompress(content, left + 1)
            left -= len(unpacked)
            if left < 0:
                raise ValueError(
                    f"The .mat file must unpack to at most {_MAX_UNPACKED_BYTES:,} "
                    "bytes, got more: it is no list of synsets."
                )
            kind, content = next(_elements(unpacked, order), (_MATRIX, b""))
        if kind == _MATRIX:
            yield content


def _elements(data: bytes, order: str) -> Iterator[_Part]:
    """Yields type and content of each element in a sequence of elements."""
    position = 0
    while position + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, position)
        start = position + 8
        if kind >> 16:
            # A small element: up to four bytes of content take the place of the size.
            kind, size, start = kind & 0xFFFF, kind >> 16, position + 4
        if start + size > len(data):
            raise IndexError(f"an element of {size} bytes at byte {position}")
        yield kind, data[start : start + size]
        # Elements are padded to a multiple of eight bytes, except compressed ones.
        used = start + size - position
        position += used if kind == _COMPRESSED else used + -used % 8


def _class_of(parts: Sequence[_Part], order: str) -> int:
    """Returns the class of an array, which is the lowest byte of its flags."""
    return parts[0][1][0 if order == "<" else 3]


def _structs(parts: Sequence[_Part], order: str) -> list[Fields]:
    (_, width), (_, fields), *values = parts
    (count,) = struct.unpack(f"{order}i", width)
    if count < 1 or not fields:
        raise IndexError(f"a struct with names of {count} bytes")
    names = [
        fields[start : start + count].partition(b"\0")[0].decode(errors="replace")
        for start in range(0, len(fields), count)
    ]
    rows: list[Fields] = []
    for index, (_, content) in enumerate(values):
        if index % len(names) == 0:
            rows.append({})
        if (value := _value(content, order)) is not None:
            rows[-1][names[index % len(names)]] = value
    return rows


def _value(content: bytes, order: str) -> str | float | None:
    """Returns the text or the single number in a matrix; None for anything else."""
    parts = list(_elements(content, order))
    kind, packed = parts[3] if len(parts) > 3 else (0, b"")
    if kind == _UTF8 and len(packed) <= _MAX_VALUE_BYTES:
        return packed.decode(errors="replace")
    if kind not in _FORMATS or len(packed) > _MAX_VALUE_BYTES:
        return None
    values = [value for (value,) in struct.iter_unpack(order + _FORMATS[kind], packed)]
    if _class_of(parts, order) == _CHAR_CLASS:
        return "".join(map(chr, values))
    return float(values[0]) if len(values) == 1 else None
