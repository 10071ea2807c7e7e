"""The record format: encode an example, frame it, walk the frames of a shard.

In: the fields of one image. Out: the bytes of one TFRecord, as a list of buffers so
that the JPEG is never copied; and, the other way, the offset and length of every
record of a shard. Imports no TensorFlow; parsing into tensors is `ops.Parse`.

A TFRecord is: length (uint64, little endian), masked CRC-32C of the length, data,
masked CRC-32C of the data. The data is a `tf.train.Example`, serialized as protobuf
serializes deterministically: keys sorted by their bytes. Keys are those of the
Inception ImageNet scripts, which tf_cnn_benchmarks, TF Model Garden, slim and DALI
read.
"""

import dataclasses
import os
import struct
from collections.abc import Iterator, Mapping, Sequence

import google_crc32c

from tfpipe import errors

HEADER_BYTES = 12
FOOTER_BYTES = 4

ENCODED = "image/encoded"
HEIGHT = "image/height"
WIDTH = "image/width"
LABEL = "image/class/label"

_MASK_DELTA = 0xA282EAD8

Buffers = list[bytes]


@dataclasses.dataclass(frozen=True)
class ImageRecord:
    """One image with its label, as it is stored.

    Attributes:
        encoded: JPEG bytes.
        height: Height in pixels.
        width: Width in pixels.
        label: Class label, counted from the label base of the data set.
        synset: Class folder, for ImageNet the WordNet id.
        text: Name of the class for people.
        filename: Base name of the source file.
        boxes: (xmin, ymin, xmax, ymax) of each object, relative, 0 to 1.
    """

    encoded: bytes
    height: int
    width: int
    label: int
    synset: str
    text: str
    filename: str
    boxes: Sequence[tuple[float, float, float, float]] = ()


def encode_image(record: ImageRecord) -> Buffers:
    """The serialized `tf.train.Example` of an image, in pieces to be joined.

    Box labels are written under both keys that readers look for.
    """
    box_labels = int64_feature([record.label] * len(record.boxes))
    sides = list(zip(*record.boxes, strict=True)) or [(), (), (), ()]
    xmin, ymin, xmax, ymax = (float_feature(side) for side in sides)
    return encode_example(
        {
            HEIGHT: int64_feature([record.height]),
            WIDTH: int64_feature([record.width]),
            "image/colorspace": bytes_feature(b"RGB"),
            "image/channels": int64_feature([3]),
            LABEL: int64_feature([record.label]),
            "image/class/synset": bytes_feature(record.synset.encode()),
            "image/class/text": bytes_feature(record.text.encode()),
            "image/object/bbox/xmin": xmin,
            "image/object/bbox/ymin": ymin,
            "image/object/bbox/xmax": xmax,
            "image/object/bbox/ymax": ymax,
            "image/object/bbox/label": box_labels,
            "image/object/class/label": box_labels,
            "image/format": bytes_feature(b"JPEG"),
            "image/filename": bytes_feature(os.fsencode(record.filename)),
            ENCODED: bytes_feature(record.encoded),
        }
    )


def encode_example(features: Mapping[str, Buffers]) -> Buffers:
    """A `tf.train.Example` from already encoded features, keys sorted."""
    entries: Buffers = []
    for key in sorted(features, key=str.encode):
        entry = _field(1, [key.encode()]) + _field(2, features[key])
        entries += _field(1, entry)
    return _field(1, entries)


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


def scan(path: str | os.PathLike[str]) -> Iterator[tuple[int, int]]:
    """Yields (byte offset, bytes with header and footer) of each record of a shard.

    Reads headers only and checks their CRC; the data is skipped, not checked.

    Raises:
        BadRecordError: If a header is damaged or the shard ends inside a record.
    """
    size = os.path.getsize(path)
    offset = 0
    with open(path, "rb", buffering=0) as file:
        for number in range(size):
            if offset == size:
                return
            num_bytes = _record_bytes(os.pread(file.fileno(), HEADER_BYTES, offset))
            if num_bytes is None or offset + num_bytes > size:
                fault = "header is damaged" if num_bytes is None else "is cut short"
                raise errors.BadRecordError(
                    f"{os.fspath(path)}: record {number} at byte {offset} {fault} "
                    f"(the shard has {size} bytes). Convert the shard again."
                )
            yield offset, num_bytes
            offset += num_bytes


def _record_bytes(header: bytes) -> int | None:
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
    return [bytes([number << 3 | 2]) + _varint(sum(map(len, pieces))), *pieces]


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF  # protobuf writes a negative int64 as 10 bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
