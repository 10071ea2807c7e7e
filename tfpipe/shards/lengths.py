"""Checks whether record headers state the lengths that the index states.

In: byte offsets and sizes of records. Out: whether their headers agree. TensorFlow's
reader allocates as much memory as a header states before it checks the header, so that
a damaged header that states 2**62 bytes ends the process. The headers of shards that
are newer than their index are therefore checked before reading, once a process. On a
fast disk the check costs a fifth or more of reading data that is not in memory.
"""

import os

import numpy as np

from tfpipe.shards import records
from tfpipe.shards.records import Ints

_FRAME_BYTES = records.HEADER_BYTES + records.FOOTER_BYTES
_LENGTH_BYTES = 8  # the header's first part, before its CRC
# For smaller requests the kernel reads in smaller pieces: half as fast with 128 kB.
_AHEAD_BYTES = 1 << 23


def is_right(path: str, byte_offsets: Ints, num_bytes: Ints) -> bool:
    """Returns whether the headers of an extent state the lengths of its records.

    The result is True for a shard that cannot be read, since its reader reports the
    error, and for a shard on a file system by URL.

    Args:
        path: The shard.
        byte_offsets: int64 [n], byte offset of each record, in order.
        num_bytes: int64 [n], size of each record with header and footer.
    """
    if "://" in path:
        return True
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return True
    try:
        end = int(byte_offsets[-1] + num_bytes[-1])
        for start in range(int(byte_offsets[0]), end, _AHEAD_BYTES):
            length = min(_AHEAD_BYTES, end - start)
            os.posix_fadvise(file, start, length, os.POSIX_FADV_WILLNEED)
        headers = [
            os.pread(file, _LENGTH_BYTES, offset) for offset in byte_offsets.tolist()
        ]
    except OSError:
        return True
    finally:
        os.close(file)
    stated = b"".join(headers)
    if len(stated) < _LENGTH_BYTES * len(headers):  # cut short
        return False
    expected = (num_bytes - _FRAME_BYTES).astype("<u8")
    return bool(np.array_equal(np.frombuffer(stated, "<u8"), expected))
