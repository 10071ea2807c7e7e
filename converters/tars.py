"""Where the members of a tar are: its headers read, its data left alone.

In: a tar file, or the part of a file that is a tar (tars lie in tars uncompressed, so
positions add up); or a tar.gz, read once from start to end. Out: name, place and size
of each member. Understands ustar, GNU and PAX headers. A tar that is compressed,
damaged or cut short is an error that names the tar and the byte; none is read as if
it ended early.
"""

import contextlib
import gzip
import os
import pathlib
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

_BLOCK = 512
_END = bytes(_BLOCK)
_SPACES = b" " * 8
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_GZIP_MAGIC = b"\x1f\x8b"
# Types of members; a hard or symbolic link, a device or a pipe is any other.
_FILES = b"0\x007"
_FOLDER, _SPARSE = ord("5"), ord("S")
_GNU_NAME, _GNU_LINK, _PAX_NEXT, _PAX_ALL = b"LKxg"
_EXTENSIONS = b"LKxg"
# A name or a list of attributes; more is damage.
_MAX_EXTENSION_BYTES = 1 << 20


class Member(NamedTuple):
    """One member of a tar.

    Attributes:
        name: As it is in the tar, with the folders.
        is_file: Whether it is a file; if not, it is a link or a device. Folders are not
            listed at all.
        offset: Where its bytes start in the file that holds the tar.
        num_bytes: How many they are.
    """

    name: str
    is_file: bool
    offset: int
    num_bytes: int


def read_members(path: pathlib.Path, *, part: Member | None = None) -> Iterator[Member]:
    """The members of a tar, in order, reading one block of each.

    Args:
        path: The tar.
        part: A member of it that is itself a tar, to list that one.

    Raises:
        ValueError: If it is not an uncompressed, complete tar.
        OSError: If it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Headers are far apart: reading ahead would read the images.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        if part is None:
            span = (0, os.fstat(descriptor).st_size)
        else:
            span = (part.offset, part.offset + part.num_bytes)
        where = str(path) if part is None else f"{part.name} in {path}"

        def read(offset: int, num_bytes: int) -> bytes:
            return os.pread(descriptor, num_bytes, offset)

        _require_plain(where, read(span[0], 8))
        yield from _walk(_Tar(read, where, *span))
    finally:
        os.close(descriptor)


def stream_files(path: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each file of a tar or tar.gz, which is read once, in order.

    Raises:
        ValueError: If it is not a complete tar or tar.gz.
        OSError: If it cannot be read.
    """
    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(open(path, "rb"))
        file: IO[bytes] | gzip.GzipFile = raw
        if raw.peek(2).startswith(_GZIP_MAGIC):
            file = stack.enter_context(gzip.open(raw))
        position = 0

        def read(offset: int, num_bytes: int) -> bytes:
            nonlocal position
            gap = offset - position
            data = file.read(gap + num_bytes)
            position += len(data)
            return data[gap:]

        tar = _Tar(read, str(path), 0, sys.maxsize)
        try:
            for member in _walk(tar):
                if member.is_file:
                    yield member.name, tar.take(member.offset, member.num_bytes)
            # The checksum of all comes after the last byte.
            while file.read(_BLOCK):
                pass
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path} is damaged or cut short after byte {position:,} of its "
                f"unpacked content: {error}. Download it again."
            ) from error


class _Tar(NamedTuple):
    """A tar: how to read it, what to call it, where it starts and ends."""

    read: Callable[[int, int], bytes]
    where: str
    start: int
    end: int

    def take(self, offset: int, num_bytes: int) -> bytes:
        """So many bytes, all of which must be there."""
        self.require(offset, num_bytes)
        data = self.read(offset, num_bytes)
        if len(data) < num_bytes:
            raise self.cut_short(offset + len(data))
        return data

    def require(self, offset: int, num_bytes: int) -> None:
        """Checks that the tar does not end before so many bytes."""
        if offset + num_bytes > self.end:
            raise self.cut_short(self.end)

    def cut_short(self, offset: int) -> ValueError:
        return ValueError(
            f"{self.where} is cut short: it ends at byte {offset - self.start:,} of "
            "the tar, before its end mark. Download or copy it again."
        )

    def damaged(self, offset: int) -> ValueError:
        return ValueError(
            f"{self.where} is damaged: no tar header at byte {offset - self.start:,}. "
            "Download or copy it again."
        )


def _walk(tar: _Tar) -> Iterator[Member]:
    """The members of a tar but its folders, from its headers."""
    position = tar.start
    # What PAX headers say of all that follow, and long names and PAX of the next one.
    common: dict[str, str] = {}
    fields: dict[str, str] = {}
    while (block := tar.take(position, _BLOCK)) != _END:
        _check_header(tar, block, position)
        kind, size = block[156], _number(block[124:136])
        data = position + _BLOCK
        if kind in _EXTENSIONS:
            more = _read_extension(tar, kind, data, size)
            if kind == _PAX_ALL:
                common |= more
            fields = common | fields | more
        else:
            size = int(fields.get("size", size))
            name = fields.get("path") or _name(block)
            tar.require(data, size)
            if kind == _SPARSE or any(key.startswith("GNU.sparse") for key in fields):
                raise ValueError(
                    f"{tar.where}: {name} is stored sparse, without its zeros. "
                    "Make the tar again without --sparse."
                )
            if kind != _FOLDER and not name.endswith("/"):
                yield Member(name, kind in _FILES, data, size)
            fields = dict(common) if common else {}
        position = data + -(-size // _BLOCK) * _BLOCK


def _require_plain(where: str, head: bytes) -> None:
    for magic, method in _COMPRESSED.items():
        if head.startswith(magic):
            raise ValueError(
                f"{where} is compressed ({method}), so its members cannot be read in "
                "place. Decompress it to a plain .tar first."
            )


def _check_header(tar: _Tar, block: bytes, position: int) -> None:
    # The checksum is the sum of the bytes, its own eight counted as spaces. Adler-32
    # holds it modulo 65521 in its lower half, plus one, ten times as fast as sum().
    total = zlib.adler32(block[:148] + _SPACES + block[156:]) & 0xFFFF
    try:
        if total == (int(block[148:156].strip(b" \0"), 8) + 1) % 65521:
            return
    except ValueError:
        pass  # not a number: not a header, which is said below
    if position > tar.start:
        raise tar.damaged(position)
    raise ValueError(f"{tar.where} must be a tar, got something else.")


def _number(field: bytes) -> int:
    """A size: octal digits, or base 256 when the first bit is set."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
    return int(field.strip(b" \0") or b"0", 8)


def _name(block: bytes) -> str:
    name = block[:100].partition(b"\0")[0]
    # GNU tar keeps other things where POSIX has the first part of the name.
    if block[257:263] == b"ustar\0" and block[345]:
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    return os.fsdecode(name)


def _read_extension(tar: _Tar, kind: int, offset: int, size: int) -> dict[str, str]:
    """What a header says that is not a member but describes the next ones."""
    if size > _MAX_EXTENSION_BYTES:
        raise tar.damaged(offset - _BLOCK)
    value = tar.take(offset, size)
    if kind == _GNU_LINK:
        return {}
    if kind == _GNU_NAME:
        return {"path": os.fsdecode(value.rstrip(b"\0"))}
    fields = {}
    while value:
        # Each is b"<bytes of all this> <key>=<value>\n".
        length, _, _ = value.partition(b" ")
        if not length.isdigit() or not len(length) < int(length) <= len(value):
            raise tar.damaged(offset - _BLOCK)
        record, value = value[len(length) + 1 : int(length) - 1], value[int(length) :]
        key, _, text = record.partition(b"=")
        fields[os.fsdecode(key)] = os.fsdecode(text)
    return fields
