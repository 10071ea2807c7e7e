"""Reads a file at a URL in order, and the next piece while the last one is used.

In: the files at a URL and a name. Out: any bytes of the file. A few pieces are in
memory at once, however large the file is.
"""

import concurrent.futures
from types import TracebackType

import xxhash

from tfpipe.remote.files import Files
from tfpipe.shards import index

_PIECE_BYTES = 8 << 20
_NUM_AHEAD = 2


class Ahead:
    """A file at a URL that is read once, from its start to its end.

    Args:
        files: The files at the URL.
        name: Name of the file.
        size: Bytes of the file.
        piece_bytes: Bytes of one request, >= 1.
    """

    def __init__(
        self, files: Files, name: str, size: int, *, piece_bytes: int = _PIECE_BYTES
    ) -> None:
        self._files, self._name, self._size = files, name, size
        self._piece_bytes = piece_bytes
        self._pool = concurrent.futures.ThreadPoolExecutor(_NUM_AHEAD)
        self._pieces: dict[int, concurrent.futures.Future[bytes]] = {}

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def pread(self, num_bytes: int, offset: int) -> bytes:
        """Returns bytes from an offset on; fewer only at the end of the file.

        Pieces before the offset are forgotten, so that a read further back fetches its
        piece again.

        Raises:
            RemoteError: If the bytes cannot be read.
        """
        stop = min(offset + num_bytes, self._size)
        if offset >= stop:
            return b""
        first, last = offset // self._piece_bytes, (stop - 1) // self._piece_bytes
        self._fetch(first, last)
        pieces = [self._pieces[n].result() for n in range(first, last + 1)]
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        start = first * self._piece_bytes
        return whole[offset - start : stop - start]

    def _fetch(self, first: int, last: int) -> None:
        """Begins to fetch the pieces that are needed now and those that come next."""
        for number in [number for number in self._pieces if number < first]:
            del self._pieces[number]
        num_pieces = -(-self._size // self._piece_bytes)
        for number in range(first, min(last + 1 + _NUM_AHEAD, num_pieces)):
            if number not in self._pieces:
                start = number * self._piece_bytes
                stop = min(start + self._piece_bytes, self._size)
                self._pieces[number] = self._pool.submit(
                    self._files.read_range, self._name, start, stop
                )


def describe(files: Files, name: str, size: int) -> index.File:
    """Returns the entry of the index for a file at a URL, which is read in pieces.

    Args:
        files: The files at the URL.
        name: Name of the file.
        size: Bytes of the file.

    Raises:
        RemoteError: If the file cannot be read.
    """
    digest = xxhash.xxh3_128()
    with Ahead(files, name, size) as ahead:
        for offset in range(0, size, _PIECE_BYTES):
            digest.update(ahead.pread(_PIECE_BYTES, offset))
    return index.File(num_bytes=size, digest=digest.hexdigest())
