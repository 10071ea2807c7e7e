"""Finds the members of a tar from its headers, without reading their data.

In: a tar file, or a tar inside of a tar file (it is stored there uncompressed, so that
its members have a place in the outer file too), or a tar.gz. Out: name, place and size
of each member; a hard link has the place of the file that it links to. The headers may
be ustar, GNU or PAX. A tar that is compressed, damaged or cut short is an error that
names the tar and the byte. The standard library's `tarfile` takes a damaged header for
the end of the tar, and needs four times the CPU time for the same index.
"""

import contextlib
import gzip
import os
import pathlib
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from converters.inputs import files
from converters.inputs.tar_format.headers import Member, Tar, members, resolve, walk

_GZIP_MAGIC = b"\x1f\x8b"
# A tar.gz of annotations unpacks to 50 times its size, a tar.gz of zeros to 1000 times.
# A larger ratio than this after the first bytes is an attack on memory and time.
_MAX_RATIO = 200
_FREE_UNPACKED_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20


def read_members(path: pathlib.Path, *, part: Member | None = None) -> Iterator[Member]:
    """Yields the members of a tar in order, and its hard links after all others.

    One block of 512 bytes is read for each member.

    Args:
        path: The tar.
        part: A member of the tar that is a tar itself; its members are listed instead.

    Raises:
        ValueError: If it is not an uncompressed, complete tar.
        OSError: If it cannot be read.
    """
    descriptor = files.open_file(path)
    try:
        # Headers are far apart: the kernel's reading ahead would read the images too.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        if part is None:
            span = (0, os.fstat(descriptor).st_size)
        else:
            span = (part.offset, part.offset + part.num_bytes)
        where = str(path) if part is None else f"{part.name} in {path}"

        def read(offset: int, num_bytes: int) -> bytes:
            try:
                return os.pread(descriptor, num_bytes, offset)
            except OSError as error:
                raise files.with_path(error, path) from error

        yield from members(Tar(read, where, *span))
    finally:
        os.close(descriptor)


def stream_files(
    path: pathlib.Path,
    *,
    wanted: Callable[[str], bool] = lambda name: True,
    max_bytes: int = files.MAX_LIST_BYTES,
) -> Iterator[tuple[str, bytes | None]]:
    """Yields name and bytes of each member of a tar or tar.gz, reading all of it.

    The bytes are None for a member that is not wanted or is not a file. Hard links
    come last; the tar is read again only if there are any.

    Args:
        path: The tar or tar.gz.
        wanted: Whether the bytes of the member with this name are wanted.
        max_bytes: Most bytes that a wanted file may have.

    Raises:
        ValueError: If it is not a complete tar or tar.gz, or a file is too large.
        OSError: If it cannot be read.
    """
    links = []
    with _open_stream(path, max_bytes) as tar:
        for member in walk(tar):
            if member.link:
                links.append(member)
            elif member.is_file and wanted(member.name):
                yield member.name, tar.take_file(member)
            else:
                yield member.name, None
    if not links:
        return
    names: dict[int, list[str]] = {}
    with _open_stream(path, max_bytes) as tar:
        for link in resolve(links, walk(tar)):
            if link.is_file and wanted(link.name):
                names.setdefault(link.offset, []).append(link.name)
            else:
                yield link.name, None
    with _open_stream(path, max_bytes) as tar:
        for member in walk(tar):
            if member.offset in names and not member.link:
                data = tar.take_file(member)
                yield from ((name, data) for name in names.pop(member.offset))


@contextlib.contextmanager
def _open_stream(path: pathlib.Path, max_file_bytes: int) -> Iterator["Tar"]:
    """Opens a tar or tar.gz to be read once from start to end."""
    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(open(files.open_file(path), "rb"))
        file: IO[bytes] | gzip.GzipFile = raw
        packed = raw.peek(2).startswith(_GZIP_MAGIC)
        if packed:
            file = stack.enter_context(gzip.open(raw))
        position = 0

        def take(num_bytes: int) -> bytes:
            nonlocal position
            data = file.read(min(num_bytes, _PIECE_BYTES))
            position += len(data)
            if packed and position > _FREE_UNPACKED_BYTES:
                _require_ratio(path, position, raw.tell())
            return data

        def read(offset: int, num_bytes: int) -> bytes:
            while position < offset and take(offset - position):
                pass
            pieces, end = [], offset + num_bytes
            while position < end and (data := take(end - position)):
                pieces.append(data)
            return b"".join(pieces)

        try:
            yield Tar(read, str(path), 0, sys.maxsize, max_file_bytes)
            # The checksum of a gzip file comes after its last byte.
            while packed and take(_PIECE_BYTES):
                pass
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path} is damaged or cut short after byte {position:,} of its "
                f"unpacked content: {error}. Download it again."
            ) from error


def _require_ratio(path: pathlib.Path, num_bytes: int, num_packed: int) -> None:
    if num_bytes > _FREE_UNPACKED_BYTES + _MAX_RATIO * num_packed:
        raise ValueError(
            f"{path} must unpack to at most {_MAX_RATIO} times its size, got "
            f"{num_bytes:,} bytes from the first {num_packed:,}: it is no archive of "
            "ImageNet. Download it again, or unpack it yourself."
        )
