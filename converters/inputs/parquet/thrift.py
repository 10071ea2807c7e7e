"""Reads structs of Thrift's compact protocol, in which Parquet writes page headers.

In: bytes. Out: the fields of a struct by their numbers, and the end of the struct.
Format: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from typing import Any

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_MAX_DEPTH = 16


def varint(data: memoryview, position: int) -> tuple[int, int]:
    """Returns an integer of 7 bits a byte, and its end.

    Raises:
        IndexError: If the bytes end before.
    """
    value = shift = 0
    while (byte := data[position]) & 128:
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
    return value | byte << shift, position + 1


def struct(
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
    number = 0
    while head := data[position]:
        position += 1
        if head >> 4:
            number += head >> 4
        else:
            value, position = varint(data, position)
            number = _signed(value)
        fields[number], position = _value(data, position, head & 15, depth)
    return fields, position + 1


def _signed(value: int) -> int:
    return value >> 1 ^ -(value & 1)


def _value(data: memoryview, position: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, position
    if kind in _INTEGERS:
        value, position = varint(data, position)
        return _signed(value), position
    if kind == _BYTE:
        return data[position], position + 1
    if kind == _DOUBLE:
        return None, position + 8
    if kind == _BINARY:
        size, position = varint(data, position)
        return None, position + size
    if kind == _STRUCT and depth < _MAX_DEPTH:
        return struct(data, position, depth=depth + 1)
    raise ValueError(f"A header must hold known types, got type {kind}.")
