"""Reads a struct array from a MATLAB 5 file, the form of the list of synsets of ILSVRC.

In: the bytes of a .mat file (version 5 to 7: tagged elements, compressed or not). Out:
the texts and numbers of each struct; other fields are left out. Other parts of the
format, and files above the size of a synset list, are not supported.
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
    """Reads the texts and numbers of the structs in the array of a name."""
    # The last two bytes of the header give the byte order of all numbers.
    order = {b"IM": "<", b"MI": ">"}.get(data[126:_HEADER_BYTES])
    if order is None or not data.startswith(b"MATLAB 5.0"):
        raise ValueError("The .mat file must be of MATLAB version 5, got another file.")
    try:
        for content in _matrices(data[_HEADER_BYTES:], order):
            kind, own_name, parts = _array(content, order)
            if kind == _STRUCT_CLASS and own_name == name.encode():
                return _structs(parts, order)
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


def _array(content: bytes, order: str) -> tuple[int, bytes, Sequence[_Part]]:
    """Returns class, name and the further parts of an array; no parts if it is empty.

    The first parts are flags, whose lowest byte is the class, dimensions and the name.
    """
    parts = list(_elements(content, order))
    if len(parts) < 4:
        return 0, b"", ()
    (_, flags), _, (_, name), *others = parts
    return flags[0 if order == "<" else 3], name, others


def _structs(parts: Sequence[_Part], order: str) -> list[Fields]:
    """Returns structs: parts are the length of a name, all names, and the values."""
    (_, width), (_, fields), *values = parts
    (count,) = struct.unpack(f"{order}i", width)
    if count < 1 or not fields:
        raise IndexError(f"a struct with names of {count} bytes")
    names = [
        fields[start : start + count].partition(b"\0")[0].decode(errors="replace")
        for start in range(0, len(fields), count)
    ]
    all_values = [_value(content, order) for _, content in values]
    rows = range(0, len(values), len(names))
    structs = (zip(names, all_values[row:], strict=False) for row in rows)
    return [{n: v for n, v in each if v is not None} for each in structs]


def _value(content: bytes, order: str) -> str | float | None:
    """Returns the text or the single number in a matrix; None for anything else."""
    array_class, _, parts = _array(content, order)
    kind, packed = parts[0] if parts else (0, b"")
    if len(packed) > _MAX_VALUE_BYTES or kind not in (_UTF8, *_FORMATS):
        return None
    if kind == _UTF8:
        return packed.decode(errors="replace")
    values = [value for (value,) in struct.iter_unpack(order + _FORMATS[kind], packed)]
    if array_class == _CHAR_CLASS:
        return "".join(map(chr, values))
    return float(values[0]) if len(values) == 1 else None
