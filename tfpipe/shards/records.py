"""Records of shards: framed as TFRecords, located, and read back with CRCs checked.

In: the serialized example of an image; or the path of a shard. Out: the record's bytes,
as a list of buffers; or the records of the shard. Imports no TensorFlow.

A TFRecord is: length (uint64, little endian), masked CRC-32C of the length, data,
masked CRC-32C of the data. The data is a `tf.train.Example` (see `example`).
"""

import functools
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import google_crc32c

from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.location.system_reads import pread
from tfpipe.shards.example import Buffers

# Commands that convert start without NumPy, which takes 0.1 s.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
else:
    Ints = Any

HEADER_BYTES = 12
FOOTER_BYTES = 4
# Largest record that `read` reads: one system call reads no more, and protobuf parses
# no message of 2 GiB.
MAX_READ_BYTES = (1 << 31) - 4096

_MASK_DELTA = 0xA282EAD8


def frame(data: Buffers) -> Buffers:
    """Puts the TFRecord header and footer around the pieces of one record's data."""
    length = struct.pack("<Q", sum(map(len, data)))
    header = length + _masked(google_crc32c.value(length))
    crc = 0
    for piece in data:
        crc = google_crc32c.extend(crc, piece)
    return [header, *data, _masked(crc)]


class RecordSpan(NamedTuple):
    """The bytes of a record in its shard.

    Attributes:
        byte_offset: Byte offset of the record's header in the shard.
        num_bytes: Size of the record with header and footer.
        data_crc: Masked CRC-32C of the data, from the footer.
    """

    byte_offset: int
    num_bytes: int
    data_crc: int


def scan(path: str | os.PathLike[str]) -> Iterator[RecordSpan]:
    """Yields the span of every record of a shard.

    Only headers and footers are read, and only the CRC of each header is checked. The
    data is skipped.

    Raises:
        BadRecordError: If a header is damaged or the shard ends inside a record.
    """
    size = os.path.getsize(path)
    offset = record = 0
    with open(path, "rb", buffering=0) as file, atomic.naming(path):
        header = pread(file.fileno(), HEADER_BYTES, 0)
        while offset < size:
            num_bytes = record_bytes(header)
            if num_bytes is None or offset + num_bytes > size:
                fault = "header is damaged" if num_bytes is None else "is cut short"
                raise errors.BadRecordError(
                    f"{os.fspath(path)}: record {record} at byte {offset} {fault} "
                    f"(the shard has {size} bytes). Convert the shard again."
                )
            footer_offset = offset + num_bytes - FOOTER_BYTES
            # One call reads the footer and the next header.
            tail = pread(file.fileno(), FOOTER_BYTES + HEADER_BYTES, footer_offset)
            data_crc = int.from_bytes(tail[:FOOTER_BYTES], "little")
            yield RecordSpan(offset, num_bytes, data_crc)
            header = tail[FOOTER_BYTES:]
            offset += num_bytes
            record += 1


class Record(NamedTuple):
    """A record with its damage, if any.

    Attributes:
        byte_offset: Byte offset of the record's header in the shard.
        num_bytes: Size of the record with header and footer. If the header is damaged,
            number of bytes up to the record at which reading continues.
        data: The serialized example; empty if the header is damaged.
        fault: Description of the damage, for people; empty if both CRCs are right.
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

    Damaged data costs one record. A damaged header hides the start of the next record:
    reading continues at the next of `byte_offsets`. Without it, the rest of the shard
    belongs to the damaged record.

    Args:
        path: The shard.
        byte_offsets: Byte offset of every record, as far as known.
        on_bytes: Receives the bytes of whole records in order, for a digest.

    Raises:
        OSError: If the shard cannot be read.
    """
    with open(path, "rb", buffering=0) as file, atomic.naming(path):
        read_at = functools.partial(pread, file.fileno())
        yield from read_from(
            read_at, os.path.getsize(path), byte_offsets=byte_offsets, on_bytes=on_bytes
        )


def read_from(
    pread: Callable[[int, int], bytes],
    size: int,
    *,
    byte_offsets: Sequence[int] = (),
    on_bytes: Callable[[bytes], object] = len,
) -> Iterator[Record]:
    """Yields every record of a shard through a function that reads it, see `read`.

    Args:
        pread: Takes a number of bytes and a byte offset, and returns these bytes of the
            shard; fewer bytes only at its end. Its exceptions are passed on.
        size: Bytes of the shard.
        byte_offsets: As for `read`.
        on_bytes: As for `read`.
    """
    offset = index = 0
    header = pread(HEADER_BYTES, 0)
    on_bytes(header)
    while offset < size:
        num_bytes = record_bytes(header)
        if num_bytes is None or offset + num_bytes > size:
            record = _damaged(num_bytes, offset, size, byte_offsets[index + 1 :])
            header = pread(HEADER_BYTES, offset + record.num_bytes)
        elif num_bytes > MAX_READ_BYTES:
            fault = (
                f"the record has {num_bytes} bytes, of which at most "
                f"{MAX_READ_BYTES} are read"
            )
            record = Record(offset, num_bytes, b"", fault)
            header = pread(HEADER_BYTES, offset + num_bytes)
        else:
            footer_offset = offset + num_bytes - FOOTER_BYTES
            start = offset + HEADER_BYTES
            data = pread(footer_offset - start, start)
            # One call reads the footer and the next header.
            tail = pread(FOOTER_BYTES + HEADER_BYTES, footer_offset)
            on_bytes(data)
            on_bytes(tail)
            record = Record(offset, num_bytes, data, data_fault(data, tail))
            header = tail[FOOTER_BYTES:]
        yield record
        offset += record.num_bytes
        index += 1


def _damaged(
    num_bytes: int | None, offset: int, size: int, next_offsets: Sequence[int]
) -> Record:
    """Returns the damaged record at `offset`.

    Args:
        num_bytes: Size from its header; None if the header is damaged.
        offset: Byte offset of the record.
        size: Bytes of the shard, fewer than the record needs.
        next_offsets: Byte offsets of the later records, as far as known.
    """
    next_offset = int(next_offsets[0]) if len(next_offsets) else 0
    end = next_offset if offset < next_offset <= size else size
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


def data_fault(data: "bytes | npt.NDArray[np.uint8]", tail: bytes) -> str:
    """Describes the damage of a record's data, for people; empty if the CRC is right.

    Args:
        data: The data of the record, as bytes or uint8 [num_bytes].
        tail: The bytes after the data on disk; the first FOOTER_BYTES are compared.
    """
    expected, got = tail[:FOOTER_BYTES], _masked(google_crc32c.value(data))
    if got == expected:
        return ""
    return (
        "the CRC of the data is wrong: the record says "
        f"{expected[::-1].hex()}, its bytes give {got[::-1].hex()}"
    )


def record_bytes(header: bytes) -> int | None:
    """Returns the record's size on disk, from its header; None for damaged headers."""
    length = header[:8]
    if len(header) < HEADER_BYTES or header[8:] != _masked(google_crc32c.value(length)):
        return None
    return int(struct.unpack("<Q", length)[0]) + HEADER_BYTES + FOOTER_BYTES


def _masked(crc: int) -> bytes:
    rotated = ((crc >> 15) | (crc << 17)) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + _MASK_DELTA) & 0xFFFFFFFF)


_LENGTH_BYTES = 8  # the header's first part, before its CRC
# For smaller requests the kernel reads in smaller pieces: half as fast with 128 kB.
_AHEAD_BYTES = 1 << 23


def lengths_are_right(path: str, byte_offsets: Ints, num_bytes: Ints) -> bool:
    """Returns whether the headers of an extent state the lengths of its records.

    TensorFlow's reader allocates as much memory as a header states before it checks the
    header: a damaged header of 2**62 bytes would end the process. The headers of shards
    that are newer than their index are therefore checked before reading, once in a
    process. On a fast disk the check costs a fifth or more of the time for reading data
    that is not in memory.

    The result is True for a shard on a file system by URL, and for a shard that cannot
    be read: its reader reports the error.

    Args:
        path: The shard.
        byte_offsets: int64 [n], byte offset of each record, in order.
        num_bytes: int64 [n], size of each record with header and footer.
    """
    if "://" in path:
        return True
    import numpy as np

    start, end = int(byte_offsets[0]), int(byte_offsets[-1] + num_bytes[-1])
    try:
        with open(path, "rb", buffering=0) as file:
            descriptor = file.fileno()
            for begin in range(start, end, _AHEAD_BYTES):
                length = min(_AHEAD_BYTES, end - begin)
                os.posix_fadvise(descriptor, begin, length, os.POSIX_FADV_WILLNEED)
            lengths = b"".join(
                pread(descriptor, _LENGTH_BYTES, offset)
                for offset in byte_offsets.tolist()
            )
    except OSError:
        return True
    if len(lengths) < _LENGTH_BYTES * len(byte_offsets):  # cut short
        return False
    expected = (num_bytes - HEADER_BYTES - FOOTER_BYTES).astype("<u8")
    return bool(np.array_equal(np.frombuffer(lengths, "<u8"), expected))
