"""Lengths: does the header of each record say as much as the index does?

In: where records are and how long. Out: whether their headers agree. TensorFlow's
reader asks for as much memory as a header says before it looks at anything else, which
ends the process where a header says 2**62; so headers are looked at before. They are
read as the reader will read them: from front to back, and just before it does.
"""

import os
from collections.abc import Sequence

import numpy as np

from tfpipe import records
from tfpipe.order import Ints

_FRAME_BYTES = records.HEADER_BYTES + records.FOOTER_BYTES
_LENGTH_BYTES = 8  # of the header, before its CRC
_AHEAD_BYTES = 1 << 17  # what the kernel surely reads ahead when it is asked to


def are_right(
    paths: Sequence[str], byte_offsets: Sequence[Ints], num_bytes: Sequence[Ints]
) -> bool:
    """Whether the headers of records state their lengths; of a file system by URL, yes.

    A shard that cannot be read is for its reader to tell of.

    Args:
        paths: The shard of each extent.
        byte_offsets: int64 [n] each, where the records of an extent start.
        num_bytes: int64 [n] each, how long they are with header and footer.
    """
    return all(
        "://" in path or _extent_is_right(path, offsets, sizes)
        for path, offsets, sizes in zip(paths, byte_offsets, num_bytes, strict=True)
    )


def _extent_is_right(path: str, byte_offsets: Ints, num_bytes: Ints) -> bool:
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
