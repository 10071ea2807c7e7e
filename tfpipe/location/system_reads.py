"""Reads at an offset of an open file that end only at the end of the file.

In: a descriptor, a number of bytes and an offset. Out: the bytes. pread(2) may return
fewer bytes than the file has: mounts of other hosts do so, and no call of the system
returns more than 2 GiB. A file that cannot be read is an OSError. Imports nothing but
Python's own modules.
"""

import os


def pread(descriptor: int, num_bytes: int, offset: int) -> bytes:
    """Returns bytes of a file; fewer only at the end of the file."""
    data = os.pread(descriptor, num_bytes, offset)
    if len(data) == num_bytes or not data:
        return data
    pieces = [data]
    while data and (left := num_bytes - sum(map(len, pieces))):
        data = os.pread(descriptor, left, offset + num_bytes - left)
        pieces.append(data)
    return b"".join(pieces)


def pread_into(descriptor: int, buffer: memoryview, offset: int) -> None:
    """Fills a buffer of bytes; at the end of the file the rest stays as it is."""
    while len(buffer) and (count := os.preadv(descriptor, [buffer], offset)):
        buffer, offset = buffer[count:], offset + count
