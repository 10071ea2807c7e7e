"""Lengths: does the header of each record say as much as the index does?

In: where records are and how long. Out: whether their headers agree. TensorFlow's
reader asks for as much memory as a header says before it looks at anything else, which
ends the process where a header says 2**62. So the headers of shards that are younger
than their index are looked at before, once in a process: on a fast disk that costs a
fifth and more of reading what is not in memory.
"""

import os

import numpy as np

from tfpipe.shards import records
from tfpipe.shards.records import Ints

_FRAME_BYTES = records.HEADER_BYTES + records.FOOTER_BYTES
_LENGTH_BYTES = 8  # of the header, before its CRC
# In smaller pieces the kernel reads in smaller ones, too: half as fast with 128 kB.
_AHEAD_BYTES = 1 << 23


def is_right(path: str, byte_offsets: Ints, num_bytes: Ints) -> bool:
    """Whether the headers of an extent state the lengths of its records.

    True for a shard that cannot be read, which is for its reader to tell of, and for
    one on a file system by URL.

    Args:
        path: The shard.
        byte_offsets: int64 [n], where the records start, in order.
        num_bytes: int64 [n], how long they are with header and footer.
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
