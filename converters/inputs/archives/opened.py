"""Opens a file that holds images, to read small parts of it in order.

In: a path or a URL. Out: a function that reads bytes at an offset. By URL, a request
gets a piece that is larger than what was asked for, as the next part is often near. The
piece grows while the file is read through, and shrinks when parts are far apart.
"""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator

from converters.inputs import files
from converters.inputs.folders import reading

Read = Callable[[int, int], bytes]

_LEAST_BYTES, _MOST_BYTES = 16 << 10, 4 << 20


@contextlib.contextmanager
def opened(folder: pathlib.Path, file: str, num_bytes: int) -> Iterator[Read]:
    """Yields a function of an offset and a number of bytes.

    It returns fewer bytes only at the end of the file.

    Args:
        folder: Folder or URL that the file is relative to.
        file: Path or URL of the file.
        num_bytes: Size of the file.

    Raises:
        ValueError: If it is not a regular file.
        OSError: If it cannot be opened.
    """
    if reading.is_remote(folder, file):
        yield Pieces(
            lambda start, count: reading.read(folder, file, start, count), num_bytes
        ).read
        return
    descriptor = files.open_file(folder / file)
    try:
        # Headers are far apart: the kernel's reading ahead would read the images too.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

        def read(offset: int, count: int) -> bytes:
            try:
                return os.pread(descriptor, count, offset)
            except OSError as error:
                raise files.with_path(error, folder / file) from error

        yield read
    finally:
        os.close(descriptor)


class Pieces:
    """Reads small parts of a file by requests for larger pieces.

    Args:
        fetch: Returns exactly this many bytes from an offset on.
        size: Bytes of the file.
    """

    def __init__(self, fetch: Read, size: int) -> None:
        self._fetch, self._size = fetch, size
        self._start, self._piece = 0, b""
        self._next_bytes = _LEAST_BYTES

    def read(self, offset: int, count: int) -> bytes:
        """Returns bytes from an offset on; fewer only at the end of the file."""
        count = max(min(count, self._size - offset), 0)
        if not count:
            return b""
        end = self._start + len(self._piece)
        if not (self._start <= offset and offset + count <= end):
            near = self._start <= offset <= end + len(self._piece)
            factor = 2 if near else 0.5
            wanted = int(self._next_bytes * factor)
            self._next_bytes = min(max(wanted, _LEAST_BYTES), _MOST_BYTES)
            num_bytes = min(max(count, self._next_bytes), self._size - offset)
            self._start, self._piece = offset, self._fetch(offset, num_bytes)
        first = offset - self._start
        return self._piece[first : first + count]
