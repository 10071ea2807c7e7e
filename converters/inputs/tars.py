"""Members of a tar, from its headers.

In: a tar file on a disk or by URL, a tar inside a tar file (stored uncompressed there,
so that its members have offsets in the outer file too), or a tar.gz.
Out: name, offset and size of the members; a hard link has the offset of its file.
Headers may be ustar, GNU or PAX. A compressed, damaged or incomplete tar is an error
with the name of the tar and the byte, and so is a tar that goes on after its end mark.
The standard library's `tarfile` takes a damaged header for the end of the tar, and
needs four times the CPU time for the same index.
"""

import contextlib
import gzip
import os
import posixpath
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tfpipe.location import parts
from tfpipe.location.browse import Folder
from tfpipe.shards import missing_index

_BLOCK = 512
_END = bytes(_BLOCK)
# A tar ends with two blocks of zeros, and more zeros up to the end of a record.
_RECORD_BYTES = 20 * _BLOCK
_MAX_RECORD_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
_SPACES = b" " * 8
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
# Types of members. All other types are symbolic links, devices and pipes.
_FILES = b"0\x007"
_HARD_LINK, _FOLDER, _SPARSE = b"15S"
# No data follows links, devices, folders and pipes, whatever size the header gives.
_WITHOUT_DATA = b"123456"
_GNU_KEYS = {b"L"[0]: "path", b"K"[0]: "linkpath"}
_PAX_NEXT, _PAX_ALL = b"xg"
_EXTENSIONS = b"LKxg"
# An extension holds a name or a list of attributes; a larger one is damaged.
_MAX_EXTENSION_BYTES = 1 << 20
# The PAX attributes about kind and place of a member. Others are ignored.
_ATTRIBUTES = re.compile(rb"size|path|linkpath|GNU\.sparse.*", re.DOTALL)
_DIGITS = {8: re.compile(rb"[0-7]{1,12}"), 10: re.compile(rb"[0-9]{1,20}")}
_MAX_DIGITS = 20


class Member(NamedTuple):
    """A member of a tar.

    Attributes:
        name: Name in the tar, with its folders.
        is_file: Whether the member is a file or a hard link to a file. Others are
            symbolic links, devices or the like. Folders are not listed.
        offset: Start of its data in the outermost file, in bytes.
        num_bytes: Size of its data.
        link: Name of the target of a hard link; empty for others.
    """

    name: str
    is_file: bool
    offset: int
    num_bytes: int
    link: str = ""


class Tar(NamedTuple):
    """A tar during its reading."""

    read: Callable[[int, int], bytes]  # from an offset, a number of bytes at most
    where: str  # its name in errors
    start: int  # offset of its first byte
    end: int  # offset after its last byte; sys.maxsize if that is unknown

    def take(self, offset: int, num_bytes: int) -> bytes:
        """Reads exactly this many bytes; a ValueError if the tar ends before."""
        self.require(offset, num_bytes)
        data = self.read(offset, num_bytes)
        if len(data) < num_bytes:
            raise self.cut_short(offset + len(data))
        return data

    def require(self, offset: int, num_bytes: int) -> None:
        """Checks that the tar does not end before offset + num_bytes."""
        if offset + num_bytes > self.end:
            raise self.cut_short(self.end)

    def cut_short(self, offset: int) -> ValueError:
        return ValueError(
            f"{self.where} is cut short: it ends at byte {offset - self.start:,} of "
            "the tar, before its end mark. Download or copy it again."
        )

    @property
    def other_converter(self) -> str:
        """The command for the file by its name, if it is not that of a tar."""
        return missing_index.other_converter(self.where, "converters.webdataset")

    def something_else(self) -> ValueError:
        return ValueError(
            f"{self.where} must be a tar, got something else.{self.other_converter}"
        )

    def damaged(self, offset: int, size: bytes | None = None) -> ValueError:
        byte = f"{offset - self.start:,}"
        fault = f"no tar header at byte {byte}"
        if size is not None:
            fault = f"the header at byte {byte} gives the size {size!r}"
        return ValueError(
            f"{self.where} is damaged: {fault}. Download or copy it again."
        )


def members(tar: Tar) -> Iterator[Member]:
    """Yields the members of a tar in order, and its hard links after all others.

    The file of a link comes before the link in a tar. A link without a file is yielded
    with `is_file` False.
    """
    head = tar.read(tar.start, 8)
    for magic, method in _COMPRESSED.items():
        if head.startswith(magic):
            raise ValueError(
                f"{tar.where} is compressed ({method}), so its members cannot be read "
                "in place. Decompress it to a plain .tar first."
            )
    if tar.end - tar.start < _BLOCK and tar.other_converter:  # such as a small table
        raise tar.something_else()
    files: dict[str, Member] = {}
    links = []
    for member in _walk(tar):
        if member.link:
            links.append(member)
        else:
            files[member.name] = member
            yield member
    files = {posixpath.normpath(name): files[name] for name in files} if links else {}
    for link in links:
        target = files.get(posixpath.normpath(link.link))
        if target is not None and target.is_file:
            link = target._replace(name=link.name)
        files[posixpath.normpath(link.name)] = link
        yield link


def _walk(tar: Tar) -> Iterator[Member]:
    """Yields the members of a tar except folders, by reading a header after another."""
    position = tar.start
    # `common` holds the PAX attributes for all members that follow, `fields` those and
    # the long name and attributes for the next member.
    common: dict[str, str] = {}
    fields: dict[str, str] = {}
    while (block := tar.take(position, _BLOCK)) != _END:
        _check_header(tar, block, position)
        kind, data, digits = block[156], position + _BLOCK, block[124:136]
        if digits[0] == 0x80:  # base 256
            size = int.from_bytes(digits[1:], "big")
        else:
            size = _number(tar, digits.strip(b" \0") or b"0", 8, position)
        if kind in _EXTENSIONS:
            more = _read_extension(tar, kind, data, size)
            if kind == _PAX_ALL:
                common |= more
            fields = common | fields | more
        else:
            if "size" in fields:
                size = _number(tar, os.fsencode(fields["size"]), 10, position)
            size = 0 if kind in _WITHOUT_DATA else size
            name = fields.get("path") or _name(block)
            tar.require(data, size)
            if kind == _SPARSE or any(key.startswith("GNU.sparse") for key in fields):
                raise ValueError(
                    f"{tar.where}: {name} is stored sparse, without its zeros. "
                    "Make the tar again without --sparse."
                )
            # A folder may have the type of a file and a name that ends with "/".
            if kind != _FOLDER and (size or not name.endswith("/")):
                link = ""
                if kind == _HARD_LINK:
                    link = fields.get("linkpath") or os.fsdecode(_text(block[157:257]))
                yield Member(name, kind in _FILES, data, size, link)
            fields = dict(common) if common else {}
        position = data + -(-size // _BLOCK) * _BLOCK
    _require_end(tar, position)


def _require_end(tar: Tar, mark: int) -> None:
    """Checks that a tar ends at its end mark: only the zeros of a record follow."""
    end = mark + _BLOCK
    where = f"{tar.where} has its end mark at byte {mark - tar.start:,}"
    while piece := tar.read(end, min(_PIECE_BYTES, tar.end - end)):
        if rest := piece.lstrip(b"\0"):
            raise ValueError(
                f"{where} but goes on with data at byte "
                f"{end + len(piece) - len(rest) - tar.start:,}: zeros have replaced a "
                "part of it, or several tars were joined with cat. Download or copy it "
                "again; join tars with tar --concatenate, or give each alone."
            )
        end += len(piece)
    num_zeros = end - mark - 2 * _BLOCK
    if num_zeros < _RECORD_BYTES:
        return
    record = 1 << (num_zeros - 1).bit_length()
    if record > _MAX_RECORD_BYTES or (end - tar.start) % record:
        raise ValueError(
            f"{where} but goes on with {num_zeros:,} bytes of zeros, more than fill a "
            "record: probably a download that was never completed. Download or copy it "
            "again; if it is complete, make it again with tar --blocking-factor=20."
        )


def _check_header(tar: Tar, block: bytes, position: int) -> None:
    # The checksum is the sum of all bytes, with its own eight counted as spaces. The
    # lower half of Adler-32 is this sum plus one, modulo 65521, and takes a tenth of
    # the time of sum().
    total = zlib.adler32(block[:148] + _SPACES + block[156:]) & 0xFFFF
    try:
        if total == (int(block[148:156].strip(b" \0"), 8) + 1) % 65521:
            return
    except ValueError:
        pass  # the checksum is no number: the error is raised below
    if position > tar.start:
        raise tar.damaged(position)
    raise tar.something_else()


def _number(tar: Tar, digits: bytes, base: int, header: int) -> int:
    """Returns a size from its digits in a header; the base is 8 or 10."""
    if not _DIGITS[base].fullmatch(digits):
        raise tar.damaged(header, digits[:_MAX_DIGITS])
    return int(digits, base)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _name(block: bytes) -> str:
    name = _text(block[:100])
    # POSIX (b"ustar\0") has the first part of a long name here; GNU has other fields.
    if block[257:263] == b"ustar\0" and block[345]:
        name = _text(block[345:500]) + b"/" + name
    return os.fsdecode(name)


def _read_extension(tar: Tar, kind: int, offset: int, size: int) -> dict[str, str]:
    """Reads the attributes of the next member, or of all further members."""
    if size > _MAX_EXTENSION_BYTES:
        raise tar.damaged(offset - _BLOCK)
    value = tar.take(offset, size)
    if kind in _GNU_KEYS:
        return {_GNU_KEYS[kind]: os.fsdecode(value.rstrip(b"\0"))}
    fields, start = {}, 0
    while start < len(value):
        # A PAX attribute is b"<length> <key>=<value>\n"; the length counts all of it.
        length = value[start : start + _MAX_DIGITS].partition(b" ")[0]
        end = start + int(length) if length.isdigit() else 0
        if not start + len(length) < end <= len(value):
            raise tar.damaged(offset - _BLOCK)
        key, _, text = value[start + len(length) + 1 : end - 1].partition(b"=")
        if _ATTRIBUTES.fullmatch(key):
            fields[os.fsdecode(key)] = os.fsdecode(text)
        start = end
    return fields


_GZIP_MAGIC = b"\x1f\x8b"
# A tar.gz of annotations unpacks to 50 times its size, a tar.gz of zeros to 1000 times.
# A larger ratio than this after the first bytes is an attack on memory and time.
_MAX_RATIO = 200
_FREE_UNPACKED_BYTES = 64 << 20


def read_members(
    folder: Folder, name: str, *, part: Member | None = None
) -> Iterator[Member]:
    """Yields the members of a tar in order, and its hard links after all others.

    A block of 512 bytes is read for a member. A part is a tar in the tar, whose members
    are yielded instead.
    """
    end = folder.size(name) or 0
    with parts.opened(folder.location, name, end) as read:
        tar = Tar(read, folder.shown(name), 0, end)
        if part is not None:
            where = f"{part.name} in {tar.where}"
            tar = Tar(read, where, part.offset, part.offset + part.num_bytes)
        yield from members(tar)


def stream_files(
    folder: Folder,
    name: str,
    *,
    wanted: Callable[[str], bool] = lambda name: True,
    max_bytes: int = parts.MAX_LIST_BYTES,
) -> Iterator[tuple[str, bytes | None]]:
    """Yields name and bytes of each member of a tar or tar.gz, reading all.

    The bytes are None for an unwanted member and for members that are no files. Hard
    links come last; the tar is read again only if there are any.
    A wanted file may have at most `max_bytes`.
    """
    where = folder.shown(name)
    with _unpacked(folder, name) as read:
        tar = Tar(read, where, 0, sys.maxsize)
        for member in members(tar):
            if not (member.is_file and wanted(member.name)):
                yield member.name, None
            elif member.num_bytes <= max_bytes:
                yield member.name, tar.take(member.offset, member.num_bytes)
            else:
                raise ValueError(
                    f"{where}: {member.name} must have at most {max_bytes:,} bytes, "
                    f"got {member.num_bytes:,}."
                )


@contextlib.contextmanager
def _unpacked(folder: Folder, name: str) -> Iterator[Callable[[int, int], bytes]]:
    """Yields a function to read a tar or tar.gz; a step back begins from the start."""
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(folder.near(name))
        raw = stack.enter_context(open(parts.open_file(path), "rb"))
        where, free = folder.shown(name), _FREE_UNPACKED_BYTES
        is_packed = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        file = stack.enter_context(gzip.open(raw)) if is_packed else raw

        def read(offset: int, num_bytes: int) -> bytes:
            # By steps, so that no step unpacks much before the ratio is checked.
            for position in (*range(file.tell(), offset, _PIECE_BYTES), offset):
                file.seek(position)
                if is_packed and position > free + _MAX_RATIO * raw.tell():
                    raise ValueError(
                        f"{where} must unpack to at most {_MAX_RATIO} times its size, "
                        f"got {position:,} bytes from the first {raw.tell():,}: it is "
                        "no archive of ImageNet. Download it again, or unpack it "
                        "yourself."
                    )
            return file.read(num_bytes)

        try:
            yield read
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{where} is damaged or cut short after byte {file.tell():,} of its "
                f"unpacked content: {error}. Download it again."
            ) from error
