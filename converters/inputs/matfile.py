"""Reads a struct array from a MATLAB 5 file, as ILSVRC lists its synsets in one.

In: the bytes of a .mat file (version 5 to 7: tagged elements, compressed or not). Out:
the fields of each struct that are a text or a number; other fields are left out. Only
this part of the format is supported, and only files of the size of a synset list.
"""

import struct
import zlib
from collections.abc import Iterator

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
        return _find(data[_HEADER_BYTES:], order, name)
    except (IndexError, StopIteration, struct.error, zlib.error) as error:
        raise ValueError(f"The .mat file is damaged or cut short: {error}.") from error


def _find(data: bytes, order: str, name: str) -> list[Fields]:
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
            kind, content = next(_elements(unpacked, order))
        parts = list(_elements(content, order)) if kind == _MATRIX else []
        if len(parts) < 5 or parts[2][1].decode(errors="replace") != name:
            continue
        if _class_of(parts, order) == _STRUCT_CLASS:
            return _structs(parts, order)
    raise ValueError(f"The .mat file must hold a struct array named {name}, got none.")


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yields type and content of each element in a sequence of elements."""
    position = 0
    while position + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, position)
        if kind >> 16:
            # A small element: up to four bytes of content take the place of the size.
            kind, size, start, end = (
                kind & 0xFFFF,
                kind >> 16,
                position + 4,
                position + 8,
            )
        else:
            start = position + 8
            # Elements are padded to a multiple of eight bytes, except compressed ones.
            end = start + (size if kind == _COMPRESSED else -(-size // 8) * 8)
        if start + size > len(data):
            raise IndexError(f"an element of {size} bytes at byte {position}")
        yield kind, data[start : start + size]
        position = end


def _class_of(parts: list[tuple[int, bytes]], order: str) -> int:
    """Returns the class of an array, which is the lowest byte of its flags."""
    return parts[0][1][0 if order == "<" else 3]


def _structs(parts: list[tuple[int, bytes]], order: str) -> list[Fields]:
    # The parts are: flags, dimensions, name, length of a field name, all field names,
    # and then the values, struct by struct.
    (width,) = struct.unpack(f"{order}i", parts[3][1])
    if width < 1 or not parts[4][1]:
        raise IndexError(f"a struct with names of {width} bytes")
    names = [
        parts[4][1][start : start + width].partition(b"\0")[0].decode(errors="replace")
        for start in range(0, len(parts[4][1]), width)
    ]
    values = [_value(content, order) for _, content in parts[5:]]
    return [
        {
            name: value
            for name, value in zip(names, values[start:], strict=False)
            if value is not None
        }
        for start in range(0, len(values), len(names))
    ]


def _value(content: bytes, order: str) -> str | float | None:
    """Returns the text or the single number in a matrix; None for anything else."""
    parts = list(_elements(content, order))
    if len(parts) < 4 or parts[3][0] not in {*_FORMATS, _UTF8}:
        return None
    kind, packed = parts[3]
    if len(packed) > _MAX_VALUE_BYTES:
        return None
    if kind == _UTF8:
        return packed.decode(errors="replace")
    code = _FORMATS[kind]
    values = struct.unpack(
        f"{order}{len(packed) // struct.calcsize(code)}{code}", packed
    )
    if _class_of(parts, order) == _CHAR_CLASS:
        return "".join(map(chr, values))
    return float(values[0]) if len(values) == 1 else None
