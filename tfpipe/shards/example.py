"""`tf.train.Example` as bytes: encoded from features, and decoded into features.

In: the features of one image. Out: the serialized example, as a list of buffers so that
the JPEG is never copied; and the inverse. Imports no TensorFlow; `ops.parse.Parse`
parses examples into tensors. Both read the same features: the rules of decoding are
those of tf.io.parse_example, as in native/src/example.h.

Protobuf's wire format is written and read by hand, as protobuf serializes
deterministically: keys sorted by their bytes.
"""

import contextlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tfpipe import errors

# Wire types of protobuf.
_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}

Buffers = list[bytes]


def encode_example(features: Mapping[str, Buffers]) -> Buffers:
    """Encodes a `tf.train.Example` from encoded features, its keys sorted."""
    entries: Buffers = []
    for key in sorted(features, key=_encode_key):
        entries += encode_entry(key, features[key])
    return [example_head(sum(map(len, entries))), *entries]


def encode_entry(key: str, feature: Buffers) -> Buffers:
    """Encodes one feature with its key, as an entry of an example."""
    return _field(1, _field(1, [_encode_key(key)]) + _field(2, feature))


def _encode_key(key: str) -> bytes:
    """Returns the bytes of a key; a key of foreign records may be no UTF-8."""
    return key.encode("utf-8", "surrogateescape")


def bytes_entry_head(key: str, num_bytes: int) -> bytes:
    """Encodes the start of an entry with one byte string, up to the string itself."""
    head = _field_head(1, num_bytes)
    head = _field_head(1, num_bytes + len(head)) + head
    head = _field_head(2, num_bytes + len(head)) + head
    head = b"".join(_field(1, [key.encode()])) + head
    return _field_head(1, num_bytes + len(head)) + head


def example_head(num_bytes: int) -> bytes:
    """Encodes the start of a `tf.train.Example`, up to its entries.

    Args:
        num_bytes: Bytes of all entries. Entries must follow in the order of their keys.
    """
    return _field_head(1, num_bytes)


def bytes_feature(value: bytes) -> Buffers:
    """Encodes a `tf.train.Feature` of one byte string."""
    return _field(1, _field(1, [value]))


def texts_feature(values: Sequence[bytes]) -> Buffers:
    """Encodes a `tf.train.Feature` of any number of byte strings."""
    pieces = [piece for value in values for piece in _field(1, [value])]
    return _field(1, pieces)


def float_feature(values: Sequence[float]) -> Buffers:
    """Encodes a `tf.train.Feature` of float32 values."""
    packed = struct.pack(f"<{len(values)}f", *values)
    return _field(2, _field(1, [packed]) if values else [])


def int64_feature(values: Sequence[int]) -> Buffers:
    """Encodes a `tf.train.Feature` of int64 values."""
    packed = b"".join(_varint(value) for value in values)
    return _field(3, _field(1, [packed]) if values else [])


Kind = Literal["bytes", "float", "int64", "empty"]


class Feature(NamedTuple):
    """A decoded `tf.train.Feature`.

    Attributes:
        kind: Type of the list; "empty" if no list is set.
        values: Values of the list.
    """

    kind: Kind
    values: list[Any]


def decode_example(data: bytes) -> dict[str, Feature]:
    """Decodes a serialized `tf.train.Example` into its features by key.

    Raises:
        BadRecordError: If the bytes are not a `tf.train.Example`.
    """
    entries = locate(data).entries
    with _as_bad_record("The data is not a tf.train.Example"):
        return {key: _decode_feature(feature) for key, feature in entries.items()}


class Located(NamedTuple):
    """A serialized `tf.train.Example`, split into features that are not decoded.

    Attributes:
        entries: The encoded feature of each key.
    """

    entries: Mapping[str, memoryview]

    def feature(self, key: str) -> Feature:
        """Decodes one of the features.

        Raises:
            BadRecordError: If it is no `tf.train.Feature`.
        """
        with _as_bad_record(f"Feature {key} is not a tf.train.Feature"):
            return _decode_feature(self.entries[key])

    def replaced(self, changes: Mapping[str, Buffers]) -> Buffers:
        """Encodes the example with other features under some of its keys.

        All other features keep their bytes.
        """
        kept = {key: [bytes(feature)] for key, feature in self.entries.items()}
        return encode_example({**kept, **changes})


def locate(data: bytes) -> Located:
    """Finds the features of a serialized `tf.train.Example` without decoding them.

    An entry has a key and a feature, in any order. The last feature of a key counts,
    but an empty feature hides no other. Every feature of the key begins with a list.

    Raises:
        BadRecordError: If the bytes are not a `tf.train.Example`.
    """
    features: dict[str, memoryview] = {}
    with _as_bad_record("The data is not a tf.train.Example"):
        for field, wire_type, message in fields_of(memoryview(data)):
            if (field, wire_type) != (1, _LENGTH_DELIMITED):
                continue
            for _, entry in _contents(message, 1):
                parts = [*_contents(entry, 1, 2)]
                if len(parts) != 2:
                    raise ValueError(f"an entry has {len(parts)} fields in place of 2")
                content = dict(parts)
                key = str(content.get(1, b""), "utf-8", "surrogateescape")
                feature = content.get(2, entry[:0])
                if len(features.get(key, b"")):
                    _first_list(features[key])
                if len(feature) or key not in features:
                    features[key] = feature
    return Located(features)


@contextlib.contextmanager
def _as_bad_record(fault: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, struct.error) as error:
        raise errors.BadRecordError(f"{fault}: {error}.") from None


def _decode_feature(message: memoryview) -> Feature:
    """Decodes the first list of a feature; nothing after the list counts."""
    if not len(message):
        return Feature("empty", [])
    field, content = _first_list(message)
    if field == 1:
        return Feature("bytes", [bytes(value) for _, value in _contents(content, 1)])
    if field == 2:
        floats = _packed(content, wire_type=5)
        return Feature("float", [*struct.unpack(f"<{len(floats) // 4}f", floats)])
    return Feature("int64", _decode_ints(_packed(content, wire_type=_VARINT)))


def _first_list(message: memoryview) -> tuple[int, memoryview]:
    """Returns the number and the content of the first field of a feature, a list.

    Raises:
        ValueError: If the field is no list.
    """
    field, wire_type, content = next(fields_of(message))
    if wire_type != _LENGTH_DELIMITED or field not in (1, 2, 3):
        raise ValueError(f"a feature has field {field} of wire type {wire_type}")
    return field, content


def _packed(message: memoryview, *, wire_type: int) -> bytes:
    """Returns the numbers of a list, one after another.

    Args:
        message: A packed run, after which nothing counts, or a field for each number.
        wire_type: Type of such a field.

    Raises:
        ValueError: If the list has another field.
    """
    pieces: list[memoryview] = []
    for field, kind, content in fields_of(message):
        if (field, kind) == (1, _LENGTH_DELIMITED) and not pieces:
            return bytes(content)
        if (field, kind) != (1, wire_type):
            raise ValueError(f"a list has field {field} of wire type {kind}")
        pieces.append(content)
    return b"".join(pieces)


def _decode_ints(content: bytes) -> list[int]:
    values, position = [], 0
    while position < len(content):
        value, position = _read_varint(content, position)
        values.append(value - (1 << 64) if value >> 63 else value)
    return values


def _contents(message: memoryview, *wanted: int) -> Iterator[tuple[int, memoryview]]:
    """Yields the number and the content of each field, all length-delimited.

    Raises:
        ValueError: If the bytes are not protobuf, or a field is not one of the wanted.
    """
    for field, wire_type, content in fields_of(message):
        if wire_type != _LENGTH_DELIMITED or field not in wanted:
            raise ValueError(f"field {field} has wire type {wire_type}")
        yield field, content


def fields_of(message: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yields the number, wire type and content of each field of a protobuf message.

    Raises:
        ValueError: If the bytes are not protobuf.
    """
    position, size = 0, len(message)
    while position < size:
        tag, start = _read_varint(message, position)
        wire_type = tag & 7
        if wire_type == _LENGTH_DELIMITED:
            num_bytes, start = _read_varint(message, start)
            position = start + num_bytes
        elif wire_type == _VARINT:
            _, position = _read_varint(message, start)
        elif wire_type in _FIXED_BYTES:
            position = start + _FIXED_BYTES[wire_type]
        else:
            raise ValueError(f"wire type {wire_type} does not exist")
        if position > size:
            raise ValueError(f"field {tag >> 3} ends beyond its message")
        yield tag >> 3, wire_type, message[start:position]


def _read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Reads an unsigned varint.

    Returns:
        The value, and the position after the varint.

    Raises:
        ValueError: If the varint is cut short or too long.
    """
    if position < len(data) and data[position] < 0x80:  # most varints, and fast
        return data[position], position + 1
    value = 0
    for shift, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + shift + 1
    raise ValueError("a varint is cut short or too long")


def _field(number: int, pieces: Buffers) -> Buffers:
    """Encodes a length-delimited protobuf field; the pieces are its content."""
    return [_field_head(number, sum(map(len, pieces))), *pieces]


def _field_head(number: int, num_bytes: int) -> bytes:
    """Encodes the tag and the length of a length-delimited protobuf field."""
    return bytes((number << 3 | _LENGTH_DELIMITED,)) + _varint(num_bytes)


_SMALL = [bytes([value]) for value in range(0x80)]


def _varint(value: int) -> bytes:
    if 0 <= value <= 0x7F:  # most values: lengths of keys and of small features
        return _SMALL[value]
    value &= 0xFFFFFFFFFFFFFFFF  # protobuf writes a negative int64 as 10 bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
