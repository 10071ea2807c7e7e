"""The record format, both ways: encode an example and frame it; read it back.

In: the fields of one image. Out: the bytes of one TFRecord, as a list of buffers so
that the JPEG is never copied; and, the other way, the records of a shard, checked, and
the features of one. Imports no TensorFlow; parsing into tensors is `ops.Parse`.

A TFRecord is: length (uint64, little endian), masked CRC-32C of the length, data,
masked CRC-32C of the data. The data is a `tf.train.Example`, serialized as protobuf
serializes deterministically: keys sorted by their bytes. Keys are those of the
Inception ImageNet scripts, which tf_cnn_benchmarks, TF Model Garden, slim and DALI
read.
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from tfpipe import errors

Ints = npt.NDArray[np.int64]

HEADER_BYTES = 12
FOOTER_BYTES = 4
# The largest record that `read` reads: one system call gives no more, and protobuf
# parses no message of 2 GiB.
MAX_READ_BYTES = (1 << 31) - 4096

ENCODED = "image/encoded"
HEIGHT = "image/height"
WIDTH = "image/width"
LABEL = "image/class/label"

_MASK_DELTA = 0xA282EAD8

# Wire types of protobuf.
_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}

Buffers = list[bytes]


def encode_example(features: Mapping[str, Buffers]) -> Buffers:
    """A `tf.train.Example` from already encoded features, keys sorted."""
    entries: Buffers = []
    for key in sorted(features, key=str.encode):
        entries += encode_entry(key, features[key])
    return [example_head(sum(map(len, entries))), *entries]


def encode_entry(key: str, feature: Buffers) -> Buffers:
    """One feature with its key, as it stands in an example."""
    return _field(1, _field(1, [key.encode()]) + _field(2, feature))


def bytes_entry_head(key: str, num_bytes: int) -> bytes:
    """What an entry with one byte string of this length has before the string."""
    head = _field_head(1, num_bytes)
    head = _field_head(1, num_bytes + len(head)) + head
    head = _field_head(2, num_bytes + len(head)) + head
    head = b"".join(_field(1, [key.encode()])) + head
    return _field_head(1, num_bytes + len(head)) + head


def example_head(num_bytes: int) -> bytes:
    """What a `tf.train.Example` has before its entries, sorted by their keys.

    Args:
        num_bytes: Bytes of all entries.
    """
    return _field_head(1, num_bytes)


def bytes_feature(value: bytes) -> Buffers:
    """A `tf.train.Feature` that holds one byte string."""
    return _field(1, _field(1, [value]))


def float_feature(values: Sequence[float]) -> Buffers:
    """A `tf.train.Feature` that holds float32 values."""
    packed = struct.pack(f"<{len(values)}f", *values)
    return _field(2, _field(1, [packed]) if values else [])


def int64_feature(values: Sequence[int]) -> Buffers:
    """A `tf.train.Feature` that holds int64 values."""
    packed = b"".join(_varint(value) for value in values)
    return _field(3, _field(1, [packed]) if values else [])


def frame(data: Buffers) -> Buffers:
    """Wraps the pieces of one record's data in the TFRecord header and footer."""
    length = struct.pack("<Q", sum(map(len, data)))
    header = length + _masked(google_crc32c.value(length))
    crc = 0
    for piece in data:
        crc = google_crc32c.extend(crc, piece)
    return [header, *data, _masked(crc)]


class Place(NamedTuple):
    """Where one record lies in its shard, as `scan` finds it.

    Attributes:
        byte_offset: Where its header starts in the shard.
        num_bytes: With header and footer.
        data_crc: The masked CRC-32C of its data, as the footer states it.
    """

    byte_offset: int
    num_bytes: int
    data_crc: int


def scan(path: str | os.PathLike[str]) -> Iterator[Place]:
    """Yields the place of each record of a shard.

    Reads headers and footers only, both in one call, and checks the CRC of each
    header. The data is skipped, not checked.

    Raises:
        BadRecordError: If a header is damaged or the shard ends inside a record.
    """
    size = os.path.getsize(path)
    offset = number = 0
    with open(path, "rb", buffering=0) as file:
        header = os.pread(file.fileno(), HEADER_BYTES, 0)
        while offset < size:
            num_bytes = record_bytes(header)
            if num_bytes is None or offset + num_bytes > size:
                fault = "header is damaged" if num_bytes is None else "is cut short"
                raise errors.BadRecordError(
                    f"{os.fspath(path)}: record {number} at byte {offset} {fault} "
                    f"(the shard has {size} bytes). Convert the shard again."
                )
            footer_offset = offset + num_bytes - FOOTER_BYTES
            # The footer and the next header in one call.
            tail = os.pread(file.fileno(), FOOTER_BYTES + HEADER_BYTES, footer_offset)
            yield Place(
                offset, num_bytes, int.from_bytes(tail[:FOOTER_BYTES], "little")
            )
            header = tail[FOOTER_BYTES:]
            offset += num_bytes
            number += 1


class Record(NamedTuple):
    """One record as `read` finds it.

    Attributes:
        byte_offset: Where its header starts in the shard.
        num_bytes: With header and footer; of a damaged header, up to where reading
            goes on.
        data: The serialized example; nothing if the header is damaged.
        fault: What is wrong with it, for people; nothing if both CRCs are right.
    """

    byte_offset: int
    num_bytes: int
    data: bytes
    fault: str


def read(
    path: str | os.PathLike[str],
    *,
    byte_offsets: Sequence[int] = (),
    on_bytes: Callable[[bytes], object] = len,
) -> Iterator[Record]:
    """Yields every record of a shard, damaged ones too, after checking both CRCs.

    Wrong data costs that record alone. A damaged header hides where the next record
    is: reading goes on at the next of `byte_offsets`; without it, the rest of the shard
    belongs to the damaged record.

    Args:
        path: The shard.
        byte_offsets: Where each record starts, as far as that is known.
        on_bytes: Is given the bytes of whole records in order, for a digest.

    Raises:
        OSError: If the shard cannot be read.
    """
    with open(path, "rb", buffering=0) as file:
        descriptor, size = file.fileno(), os.path.getsize(path)
        offset = number = 0
        header = os.pread(descriptor, HEADER_BYTES, 0)
        on_bytes(header)
        while offset < size:
            num_bytes = record_bytes(header)
            if num_bytes is None or offset + num_bytes > size:
                record = _damaged(num_bytes, offset, size, byte_offsets[number + 1 :])
                header = os.pread(descriptor, HEADER_BYTES, offset + record.num_bytes)
            elif num_bytes > MAX_READ_BYTES:
                fault = (
                    f"the record has {num_bytes} bytes, of which at most "
                    f"{MAX_READ_BYTES} are read"
                )
                record = Record(offset, num_bytes, b"", fault)
                header = os.pread(descriptor, HEADER_BYTES, offset + num_bytes)
            else:
                footer_offset = offset + num_bytes - FOOTER_BYTES
                start = offset + HEADER_BYTES
                data = os.pread(descriptor, footer_offset - start, start)
                # The footer and the next header in one call.
                tail = os.pread(descriptor, FOOTER_BYTES + HEADER_BYTES, footer_offset)
                on_bytes(data)
                on_bytes(tail)
                record = Record(offset, num_bytes, data, data_fault(data, tail))
                header = tail[FOOTER_BYTES:]
            yield record
            offset += record.num_bytes
            number += 1


def _damaged(
    num_bytes: int | None, offset: int, size: int, next_offsets: Sequence[int]
) -> Record:
    """A record of unknown length, or of `num_bytes`, which the shard does not have."""
    known = int(next_offsets[0]) if len(next_offsets) else 0
    end = known if offset < known <= size else size
    if num_bytes is None:
        fault = "the header (length and its CRC) is damaged"
        if end == size:
            fault += f", so the last {size - offset} bytes of the shard cannot be read"
    else:
        fault = (
            f"the record is cut short: it must have {num_bytes} bytes, "
            f"got {size - offset} to the end of the shard"
        )
    return Record(offset, end - offset, b"", fault)


def data_fault(data: bytes, tail: bytes) -> str:
    """What is wrong with a record's data, for people; nothing if its CRC is right.

    Args:
        data: The data of the record.
        tail: What follows it on disk; the first FOOTER_BYTES are looked at.
    """
    expected, got = tail[:FOOTER_BYTES], _masked(google_crc32c.value(data))
    if got == expected:
        return ""
    return (
        "the CRC of the data is wrong: the record says "
        f"{expected[::-1].hex()}, its bytes give {got[::-1].hex()}"
    )


Kind = Literal["bytes", "float", "int64", "empty"]


class Feature(NamedTuple):
    """A decoded `tf.train.Feature`: the kind of its list and the list's values.

    A feature whose list is not set at all is of kind "empty".
    """

    kind: Kind
    values: list[Any]


def decode_example(data: bytes) -> dict[str, Feature]:
    """The features of a serialized `tf.train.Example`, by key.

    Raises:
        BadRecordError: If the bytes are not a `tf.train.Example`.
    """
    features: dict[str, Feature] = {}
    try:
        for message in _submessages(memoryview(data), 1):
            for entry in _submessages(message, 1):
                keys, values = _submessages(entry, 1), _submessages(entry, 2)
                key = bytes(keys[-1]).decode() if keys else ""
                features[key] = _decode_feature(values[-1] if values else entry[:0])
    except (ValueError, struct.error) as error:
        raise errors.BadRecordError(
            f"The data is not a tf.train.Example: {error}."
        ) from None
    return features


def _decode_feature(message: memoryview) -> Feature:
    feature = Feature("empty", [])
    for number, _, content in _fields(message):
        if number == 1:
            feature = Feature("bytes", [bytes(v) for v in _submessages(content, 1)])
        elif number == 2:
            feature = Feature("float", _decode_floats(content))
        elif number == 3:
            feature = Feature("int64", _decode_ints(content))
    return feature


def _decode_floats(message: memoryview) -> list[float]:
    """Packed or not: either way each value is 4 bytes, little endian."""
    pieces = (content for number, _, content in _fields(message) if number == 1)
    content = b"".join(pieces)
    return list(struct.unpack(f"<{len(content) // 4}f", content))


def _decode_ints(message: memoryview) -> list[int]:
    """Packed or not: either way each value is a varint."""
    values = []
    for number, _, content in _fields(message):
        position = 0
        while number == 1 and position < len(content):
            value, position = _read_varint(content, position)
            values.append(value - (1 << 64) if value >> 63 else value)
    return values


def _submessages(message: memoryview, wanted: int) -> list[memoryview]:
    """Contents of the length-delimited fields of one number.

    Raises:
        ValueError: If the bytes are not protobuf, or a field is of another type.
    """
    contents = []
    for number, wire_type, content in _fields(message):
        if number != wanted:
            continue
        if wire_type != _LENGTH_DELIMITED:
            raise ValueError(f"field {number} has wire type {wire_type}")
        contents.append(content)
    return contents


def _fields(message: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Number, wire type and content of each field of a protobuf message.

    Raises:
        ValueError: If the bytes are not protobuf.
    """
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        wire_type = tag & 7
        start = position
        if wire_type == _VARINT:
            _, end = _read_varint(message, position)
        elif wire_type == _LENGTH_DELIMITED:
            num_bytes, start = _read_varint(message, position)
            end = start + num_bytes
        elif wire_type in _FIXED_BYTES:
            end = start + _FIXED_BYTES[wire_type]
        else:
            raise ValueError(f"wire type {wire_type} does not exist")
        if end > len(message):
            raise ValueError(f"field {tag >> 3} ends beyond its message")
        yield tag >> 3, wire_type, message[start:end]
        position = end


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if position == len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise ValueError("a varint is cut short or too long")


def record_bytes(header: bytes) -> int | None:
    """Length on disk of the record with this header; None if the header is damaged."""
    length = header[:8]
    if len(header) < HEADER_BYTES or header[8:] != _masked(google_crc32c.value(length)):
        return None
    return int(struct.unpack("<Q", length)[0]) + HEADER_BYTES + FOOTER_BYTES


def _masked(crc: int) -> bytes:
    rotated = ((crc >> 15) | (crc << 17)) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + _MASK_DELTA) & 0xFFFFFFFF)


def _field(number: int, pieces: Buffers) -> Buffers:
    """A length-delimited protobuf field; the pieces are its content."""
    return [_field_head(number, sum(map(len, pieces))), *pieces]


def _field_head(number: int, num_bytes: int) -> bytes:
    """What stands before the content of a length-delimited protobuf field."""
    return bytes((number << 3 | _LENGTH_DELIMITED,)) + _varint(num_bytes)


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF  # protobuf writes a negative int64 as 10 bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
