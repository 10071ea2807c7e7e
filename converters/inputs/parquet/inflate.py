"""Unpacks the pages of a compressed column chunk of Parquet into another file.

In: the place of a page in a Parquet file, and its codec. Out: the content of the page,
as a range of the other file. Two buffers are kept from page to page: finding and
clearing new memory would take longer than to unpack images, which are hardly
compressed.
"""

import contextlib
import mmap
import os
from collections.abc import Callable
from typing import Any, Protocol

from converters.inputs.parquet.forms import UnknownFormError

UNCOMPRESSED = "UNCOMPRESSED"
CODECS = ("SNAPPY", "ZSTD", "GZIP", "BROTLI")
_MAX_PAGE_BYTES = 1 << 30
_LEAST_BUFFER_BYTES = 1 << 16


class Sink(Protocol):
    """A file that grows at its end."""

    def add(self, image: bytes | memoryview) -> int:
        """Appends bytes, and returns their offset."""

    @property
    def descriptor(self) -> int:
        """The open file, which can be read as well."""


class Inflater:
    """Unpacks pages into a file.

    Args:
        sink: The file.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._packed = _buffer(1)
        self._content = _buffer(1)

    def unpack(
        self,
        descriptor: int,
        start: int,
        stop: int,
        size: int,
        *,
        codec: str,
        head: int,
    ) -> int:
        """Unpacks a page, and returns its offset in the sink.

        Args:
            descriptor: The open Parquet file.
            start: Offset of the packed page.
            stop: End of the packed page.
            size: Bytes of the page when it is unpacked.
            codec: Name of its codec, one of `CODECS`, or UNCOMPRESSED.
            head: Bytes at the beginning of the page that are not packed.

        Raises:
            UnknownFormError: If the page is damaged or too large.
            OSError: If a file cannot be read or written.
        """
        packed_size = stop - start
        if not 0 <= head <= min(packed_size, size) or size > _MAX_PAGE_BYTES:
            raise UnknownFormError("A page is damaged or too large.")
        self._packed = _grown(self._packed, packed_size)
        self._content = _grown(self._content, size)
        packed = memoryview(self._packed)[:packed_size]
        content = memoryview(self._content)[:size]
        num_read = 0
        while num_read < packed_size:
            count = os.preadv(descriptor, [packed[num_read:]], start + num_read)
            if not count:
                raise UnknownFormError("A page ends too early.")
            num_read += count
        content[:head] = packed[:head]
        if codec == UNCOMPRESSED:
            if size != packed_size:
                raise UnknownFormError("A page has another size.")
            content[head:] = packed[head:]
        elif size > head:
            _unpack(codec, packed[head:], content[head:])
        return self.sink.add(content)


def _grown(buffer: mmap.mmap, size: int) -> mmap.mmap:
    return buffer if len(buffer) >= size else _buffer(size)


def _buffer(size: int) -> mmap.mmap:
    """Returns a buffer that is large enough for most later pages as well."""
    num_bytes = max(_LEAST_BUFFER_BYTES, 1 << (size - 1).bit_length())
    made = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # The kernel then clears 2 MB at once, in a tenth of the time of single pages.
    with contextlib.suppress(OSError):  # a kernel without such pages
        made.madvise(mmap.MADV_HUGEPAGE)
    return made


def _unpack(codec: str, packed: memoryview, content: memoryview) -> None:
    import cramjam

    functions: dict[str, Callable[[Any, Any], int]] = {
        "SNAPPY": cramjam.snappy.decompress_raw_into,
        "ZSTD": cramjam.zstd.decompress_into,
        "GZIP": cramjam.gzip.decompress_into,
        "BROTLI": cramjam.brotli.decompress_into,
    }
    try:
        size = functions[codec](packed, content)
    except (cramjam.DecompressionError, ValueError, OSError) as error:
        raise UnknownFormError(f"A page is not {codec}: {error}") from error
    if size != len(content):
        raise UnknownFormError("A page has another size than its header says.")
