"""The store: the folder of a split in a shard cache, shared by a host's processes.

In: the checked bytes of pieces. Out: the same bytes at the same offsets of local files,
a sparse file for every shard, and marks of the pieces. `directory.Directory` decides
about fetching and evicting. Imports no TensorFlow.

    manifest.json       the split, its shards, and the boot in which the marks were made
    layout.npy          int64 [3, num_pieces]: shard, first byte, last byte + 1
    marks               uint8 [num_pieces], see ABSENT and the following names
    claims              locked at byte p while a process fetches piece p
    shards/NAME         the bytes of a shard; holes where pieces are absent
    published/NAME      exists if the whole shard has the index's digest and is on disk
    users/ID            locked by a process; the next uses of its readers
"""

import ctypes
import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfpipe import host
from tfpipe.location import atomic
from tfpipe.location.location import Location
from tfpipe.shard_cache.pieces import BLOCK_BYTES, Pieces
from tfpipe.shard_cache.users import Users, allocate
from tfpipe.shards import index
from tfpipe.shards.index import Shard
from tfpipe.shards.records import Ints

# Values of a mark. FETCHING without a claim is a piece whose process was killed. WRONG:
# the whole shard has another digest than the index says. DAMAGED: the store itself
# holds a damaged record. Pieces from PRESENT on may be read.
ABSENT, FETCHING, WRONG, PRESENT, DAMAGED = range(5)

# Errors of `PieceStore` for a folder that is not whole, as after a power failure.
NOT_WHOLE = (OSError, EOFError, ValueError, KeyError, TypeError)

_PUNCH_HOLE_KEEP_SIZE = 1 | 2
_libc = ctypes.CDLL(None, use_errno=True)


def punch(descriptor: int, start: int, stop: int) -> None:
    """Frees the whole blocks of a part of a file; the part then reads as zeros.

    Raises:
        OSError: If the file system cannot free a part of a file.
    """
    offset, length = ctypes.c_long(start), ctypes.c_long(stop - start)
    if _libc.fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, offset, length):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def lock_byte(descriptor: int, offset: int, kind: int) -> bool:
    """Locks or unlocks a byte of a file; the kernel ends locks of killed processes.

    Args:
        descriptor: The file, opened for writing.
        offset: Offset of the byte.
        kind: fcntl.F_WRLCK or F_UNLCK.

    Returns:
        False if another process holds the lock.
    """
    lock = struct.pack("hhqqi4x", kind, os.SEEK_SET, offset, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError):
        return False
    return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitContent:
    """The content of a store.

    Attributes:
        location: The data set, for messages.
        split: Name of the split.
        shards: The shards of the split.
        pieces: The pieces of its records.
    """

    location: Location
    split: str
    shards: Sequence[Shard]
    pieces: Pieces

    @property
    def fingerprint(self) -> str:
        """A digest of the split and its shards, 32 hexadecimal digits."""
        shards = [dataclasses.astuple(shard) for shard in self.shards]
        return index.digest(repr((self.split, shards, self.pieces.first.tolist())))


def create(folder: pathlib.Path, content: SplitContent) -> None:
    """Creates an empty store; a kill leaves a folder with another name.

    Raises:
        OSError: If the disk has not enough room for its marks.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    for name in ("shards", "published", "users"):
        (temporary / name).mkdir(parents=True)
    pieces = content.pieces
    np.save(
        temporary / "layout.npy", np.stack([pieces.shard, pieces.start, pieces.stop])
    )
    with open(temporary / "marks", "xb") as file:
        allocate(file.fileno(), max(len(pieces), 1))
    (temporary / "claims").touch()
    manifest = {
        "place": content.location.text,
        "split": content.split,
        "shards": [dataclasses.asdict(shard) for shard in content.shards],
        "boot_id": "",
    }
    _write_manifest(temporary, manifest)
    temporary.rename(folder)


def _write_manifest(folder: pathlib.Path, manifest: dict[str, Any]) -> None:
    text = json.dumps(manifest, indent=1) + "\n"
    atomic.write(folder / "manifest.json", text.encode(), fsync=False)


class PieceStore:
    """The pieces of a split in a folder.

    Every change of a mark to or from ABSENT is made under the directory's lock.

    Args:
        folder: A folder of `create`.

    Raises:
        NOT_WHOLE: If a file is missing or damaged.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._claims, self.is_closed = -1, False
        self._manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        self.shards = [Shard(**shard) for shard in self._manifest["shards"]]
        self.location = Location(self._manifest["place"])
        self.split: str = self._manifest["split"]
        self.shard, self.start, self.stop = np.load(folder / "layout.npy")
        num_pieces = len(self.shard)
        shape = max(num_pieces, 1)
        marks = np.memmap(folder / "marks", np.uint8, "r+", shape=(shape,))
        # A plain array: indexing a memmap makes a new memmap.
        self.marks: npt.NDArray[np.uint8] = np.asarray(marks)[:num_pieces]
        # The most bytes of a piece on the disk: whole blocks.
        self.costs: Ints = self.stop + -self.stop % BLOCK_BYTES
        self.costs -= self.start - self.start % BLOCK_BYTES
        # The claims of this process: its own locks do not stop it.
        self._claimed: set[int] = set()
        self._claims = os.open(folder / "claims", os.O_RDWR | os.O_CLOEXEC)
        self.users = Users(folder / "users", num_pieces)

    def close(self) -> None:
        """Ends all claims."""
        self.is_closed = True
        if self._claims >= 0:
            os.close(self._claims)
        self._claims = -1

    def __del__(self) -> None:
        self.close()

    def is_same(self) -> bool:
        """Whether the folder is still the opened store, and was not made anew.

        Raises:
            OSError: If the folder is gone.
        """
        there, opened = os.stat(self.folder / "claims"), os.fstat(self._claims)
        return os.path.samestat(there, opened)

    def path(self, shard: int) -> pathlib.Path:
        """Returns the local file of a shard."""
        return self.folder / "shards" / self.shards[shard].name

    def published(self, shard: int) -> pathlib.Path:
        """Returns the file that marks a published shard."""
        return self.folder / "published" / self.shards[shard].name

    def num_bytes(self) -> int:
        """Returns the bytes on disk of all pieces, present or on their way."""
        return int(self.costs[self.marks != ABSENT].sum())

    def pieces_of(self, shard: int) -> slice:
        """Returns the pieces of a shard."""
        low, high = np.searchsorted(self.shard, [shard, shard + 1]).tolist()
        return slice(low, high)

    def settle(self) -> None:
        """Makes marks and files agree, after a reboot or if files were changed.

        After a reboot only published shards are sure to be on the disk.

        Raises:
            ValueError: If another host uses the store.
        """
        boot_id = host.boot_id()
        is_new_boot = self._manifest["boot_id"] != boot_id
        if is_new_boot and self.users.are_there():
            raise ValueError(
                f"ShardCache.directory must be used by one host, but another host uses "
                f"{self.folder} now. Give each host a folder on a disk of its own."
            )
        for shard_index, shard in enumerate(self.shards):
            path, published = self.path(shard_index), self.published(shard_index)
            is_whole = path.exists() and path.stat().st_size == shard.num_bytes
            if not is_whole or (is_new_boot and not published.exists()):
                published.unlink(missing_ok=True)
                with open(path, "wb") as file:
                    file.truncate(shard.num_bytes)
                self.marks[self.pieces_of(shard_index)] = ABSENT
            elif is_new_boot:
                self.marks[self.pieces_of(shard_index)] = PRESENT
        if is_new_boot:
            self._manifest["boot_id"] = boot_id
            _write_manifest(self.folder, self._manifest)

    def claim(self, key: int) -> bool:
        """Locks a piece for the process; False if a process holds the lock."""
        if key in self._claimed or not lock_byte(self._claims, key, fcntl.F_WRLCK):
            return False
        self._claimed.add(key)
        return True

    def unclaim(self, key: int) -> None:
        """Ends a claim."""
        lock_byte(self._claims, key, fcntl.F_UNLCK)
        self._claimed.discard(key)

    def write(self, piece: int, content: memoryview) -> None:
        """Writes the bytes of a claimed piece.

        Raises:
            OSError: If the disk is full or damaged.
        """
        with open(self.path(int(self.shard[piece])), "r+b", buffering=0) as file:
            _write(file.fileno(), content, int(self.start[piece]))

    def read(self, piece: int) -> memoryview:
        """Returns the bytes of a present piece."""
        start, stop = int(self.start[piece]), int(self.stop[piece])
        with open(self.path(int(self.shard[piece])), "rb", buffering=0) as file:
            return memoryview(os.pread(file.fileno(), stop - start, start))

    def drop(self, piece: int) -> None:
        """Frees the bytes of a piece, under the directory's lock."""
        shard = int(self.shard[piece])
        self.published(shard).unlink(missing_ok=True)
        with open(self.path(shard), "r+b", buffering=0) as file:
            punch(file.fileno(), *self._freed(piece))
        self.marks[piece] = ABSENT

    def _freed(self, piece: int) -> tuple[int, int]:
        """Returns the part of the file to free: whole blocks without other pieces.

        The piece's first and last block may hold bytes of its neighbors.
        """
        start, stop = int(self.start[piece]), int(self.stop[piece])
        low, high = start - start % BLOCK_BYTES, stop + -stop % BLOCK_BYTES
        there = self.pieces_of(int(self.shard[piece]))
        shares = self.marks[there] != ABSENT
        shares[piece - there.start] = False
        starts, stops = self.start[there][shares], self.stop[there][shares]
        if np.any((starts < start) & (stops > low)):
            low = start
        if np.any((starts >= stop) & (starts < high)):
            high = stop
        return low, high


def _write(descriptor: int, content: memoryview, offset: int) -> None:
    while content:
        count = os.pwrite(descriptor, content, offset)
        content, offset = content[count:], offset + count


class MemoryFiles:
    """Files in memory, a file for a shard, with some pieces at their byte offsets.

    They stand in for the files of a store where the disk has no room. Holes take no
    memory.
    """

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}

    def add(self, shard: int, offset: int, content: memoryview) -> None:
        """Puts bytes at a byte offset of a shard."""
        if shard not in self._descriptors:
            self._descriptors[shard] = os.memfd_create(f"shard {shard}")
        _write(self._descriptors[shard], content, offset)

    def path(self, shard: int) -> str:
        """Returns a path at which this process can open the file of a shard."""
        return f"/proc/self/fd/{self._descriptors[shard]}"

    def close(self) -> None:
        """Frees the memory once no reader has a file open."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}
