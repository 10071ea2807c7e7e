"""Where the members of a tar are: its headers read, its data left alone.

In: a tar file, or the part of a file that is a tar (tars lie in tars uncompressed, so
positions add up); or a tar.gz, read from start to end. Out: name, place and size of
each member; a hard link has the place of the file that it links to. Understands ustar,
GNU and PAX headers. A tar that is compressed, damaged or cut short is an error that
names the tar and the byte; none is read as if it ended early.
"""

import contextlib
import gzip
import os
import pathlib
import posixpath
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from converters.inputs import files

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
# Types of members; a symbolic link, a device or a pipe is any other.
_FILES = b"0\x007"
_HARD_LINK, _FOLDER, _SPARSE = b"15S"
# Links, devices, folders and pipes: no data follows, whatever size the header gives.
_WITHOUT_DATA = b"123456"
_GNU_NAME, _GNU_LINK, _PAX_NEXT, _PAX_ALL = b"LKxg"
_EXTENSIONS = b"LKxg"
# A name or a list of attributes; more is damage.
_MAX_EXTENSION_BYTES = 1 << 20
# The attributes that decide what a member is; others are not kept.
_ATTRIBUTES = re.compile(rb"size|path|linkpath|GNU\.sparse.*", re.DOTALL)
_OCTAL = re.compile(rb"[0-7]{1,12}")
_MAX_DIGITS = 20
# A packed list of annotations unpacks to 50 times its size, zeros to 1000 times.
_MAX_RATIO = 200
_FREE_UNPACKED_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20


class Member(NamedTuple):
    """One member of a tar.

    Attributes:
        name: As it is in the tar, with the folders.
        is_file: Whether it is a file or a hard link to one; if not, it is a symbolic
            link, a device or the like. Folders are not listed at all.
        offset: Where its bytes start in the file that holds the tar.
        num_bytes: How many they are.
        link: Name of the member that a hard link is to; empty for others.
    """

    name: str
    is_file: bool
    offset: int
    num_bytes: int
    link: str = ""


def read_members(path: pathlib.Path, *, part: Member | None = None) -> Iterator[Member]:
    """The members of a tar, reading one block of each: in order, then its hard links.

    Args:
        path: The tar.
        part: A member of it that is itself a tar, to list that one.

    Raises:
        ValueError: If it is not an uncompressed, complete tar.
        OSError: If it cannot be read.
    """
    descriptor = files.open_file(path)
    try:
        # Headers are far apart: reading ahead would read the images.
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
                raise files.naming(error, path) from error

        _require_plain(where, read(span[0], 8))
        tar = _Tar(read, where, *span)
        links = []
        for member in _walk(tar):
            if member.link:
                links.append(member)
            else:
                yield member
        if links:
            yield from _resolve(links, _walk(tar))
    finally:
        os.close(descriptor)


def _resolve(links: Sequence[Member], members: Iterable[Member]) -> Iterator[Member]:
    """Hard links with the place of their files, which come before them in the tar.

    A link to nothing stays as it is: no file.
    """
    places: dict[str, Member] = {}
    wanted = {_plain(link.link) for link in links}
    for member in members:
        name = _plain(member.name)
        if member.link:
            target = places.get(_plain(member.link))
            if target is not None and target.is_file:
                member = target._replace(name=member.name)
            yield member
        if name in wanted:
            places[name] = member


def _plain(name: str) -> str:
    return posixpath.normpath(name)


def stream_files(
    path: pathlib.Path,
    *,
    wanted: Callable[[str], bool] = lambda name: True,
    max_bytes: int = files.MAX_LIST_BYTES,
) -> Iterator[tuple[str, bytes | None]]:
    """Name and bytes of each file of a tar or tar.gz, which is read from start to end.

    Bytes are None for what is not wanted, and for what is no file. Hard links come
    last, and only for them the tar is read again.

    Args:
        path: The tar or tar.gz.
        wanted: Says of a name whether its bytes are.
        max_bytes: Most bytes of a file that is wanted.

    Raises:
        ValueError: If it is not a complete tar or tar.gz, or a file is too large.
        OSError: If it cannot be read.
    """
    links = []
    with _open_stream(path, max_bytes) as tar:
        for member in _walk(tar):
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
        for link in _resolve(links, _walk(tar)):
            if link.is_file and wanted(link.name):
                names.setdefault(link.offset, []).append(link.name)
            else:
                yield link.name, None
    with _open_stream(path, max_bytes) as tar:
        for member in _walk(tar):
            if member.offset in names and not member.link:
                data = tar.take_file(member)
                yield from ((name, data) for name in names.pop(member.offset))


@contextlib.contextmanager
def _open_stream(path: pathlib.Path, max_file_bytes: int) -> Iterator["_Tar"]:
    """A tar or tar.gz that is read from start to end, and to the end."""
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
            yield _Tar(read, str(path), 0, sys.maxsize, max_file_bytes)
            # The checksum of all comes after the last byte.
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


class _Tar(NamedTuple):
    """A tar: how to read it, what to call it, where it starts and ends."""

    read: Callable[[int, int], bytes]
    where: str
    start: int
    end: int
    max_file_bytes: int = sys.maxsize

    def take_file(self, member: Member) -> bytes:
        """The bytes of a file, unless they are too many."""
        if member.num_bytes > self.max_file_bytes:
            raise ValueError(
                f"{self.where}: {member.name} must have at most "
                f"{self.max_file_bytes:,} bytes, got {member.num_bytes:,}."
            )
        return self.take(member.offset, member.num_bytes)

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

    def no_size(self, offset: int, got: bytes) -> ValueError:
        return ValueError(
            f"{self.where} is damaged: the header at byte {offset - self.start:,} "
            f"gives the size {got!r}. Download or copy it again."
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
        kind, size = block[156], _number(tar, block[124:136], position)
        data = position + _BLOCK
        if kind in _EXTENSIONS:
            more = _read_extension(tar, kind, data, size)
            if kind == _PAX_ALL:
                common |= more
            fields = common | fields | more
        else:
            size = _pax_number(tar, fields["size"], data) if "size" in fields else size
            size = 0 if kind in _WITHOUT_DATA else size
            name = fields.get("path") or _name(block)
            tar.require(data, size)
            if kind == _SPARSE or any(key.startswith("GNU.sparse") for key in fields):
                raise ValueError(
                    f"{tar.where}: {name} is stored sparse, without its zeros. "
                    "Make the tar again without --sparse."
                )
            if kind != _FOLDER and not name.endswith("/"):
                link = _link(block, fields) if kind == _HARD_LINK else ""
                yield Member(name, kind in _FILES, data, size, link)
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


def _number(tar: _Tar, field: bytes, position: int) -> int:
    """A size: octal digits, or base 256 when the first bit is set."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0") or b"0"
    if not _OCTAL.fullmatch(digits):
        raise tar.no_size(position, field)
    return int(digits, 8)


def _pax_number(tar: _Tar, text: str, offset: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise tar.no_size(offset - _BLOCK, text[:_MAX_DIGITS].encode())
    return int(text)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _link(block: bytes, fields: Mapping[str, str]) -> str:
    return fields.get("linkpath") or os.fsdecode(_text(block[157:257]))


def _name(block: bytes) -> str:
    name = _text(block[:100])
    # GNU tar keeps other things where POSIX has the first part of the name.
    if block[257:263] == b"ustar\0" and block[345]:
        name = _text(block[345:500]) + b"/" + name
    return os.fsdecode(name)


def _read_extension(tar: _Tar, kind: int, offset: int, size: int) -> dict[str, str]:
    """What a header says that is not a member but describes the next ones."""
    if size > _MAX_EXTENSION_BYTES:
        raise tar.damaged(offset - _BLOCK)
    value = tar.take(offset, size)
    if kind == _GNU_LINK:
        return {"linkpath": os.fsdecode(value.rstrip(b"\0"))}
    if kind == _GNU_NAME:
        return {"path": os.fsdecode(value.rstrip(b"\0"))}
    fields, start = {}, 0
    while start < len(value):
        # Each is b"<bytes of all this> <key>=<value>\n".
        length = value[start : start + _MAX_DIGITS].partition(b" ")[0]
        end = start + int(length) if length.isdigit() else 0
        if not start + len(length) < end <= len(value):
            raise tar.damaged(offset - _BLOCK)
        key, _, text = value[start + len(length) + 1 : end - 1].partition(b"=")
        if _ATTRIBUTES.fullmatch(key):
            fields[os.fsdecode(key)] = os.fsdecode(text)
        start = end
    return fields
