"""The store: the folder of a split in a shard cache, shared by a host's processes.

In: the checked bytes of pieces. Out: the same bytes at the same offsets of local files,
a sparse file for every shard, and marks of the pieces. `directory.Directory` decides
about fetching and evicting. Imports no TensorFlow.

    manifest.json       the split, its shards, and the boot in which the marks were made
    layout.npy          int64 [3, num_pieces]: shard, first byte, last byte + 1
    marks               int64: bytes of the pieces that are not ABSENT;
                        uint8 [num_pieces]: see ABSENT and the following names
    claims              locked at byte p while a process fetches piece p
    shards/NAME         the bytes of a shard; holes where pieces are absent
    published/NAME      exists if the whole shard has the index's digest and is on disk
    tags.json           the data set, and the ETags of its shards at the last opening
    users/ID            locked by a process; the next uses of its readers

Processes map `marks` and `users/ID` into memory, so the kernel ends a process with
SIGBUS if another program cuts one of these two files meanwhile. To remove them is safe.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
import stat
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tfpipe import errors, host
from tfpipe.location import atomic
from tfpipe.location.location import Location
from tfpipe.location.system_reads import pread
from tfpipe.shard_cache.disk import BLOCK_BYTES, allocate, lock_byte, punch, write
from tfpipe.shard_cache.pieces import Pieces
from tfpipe.shard_cache.users import Users
from tfpipe.shards import arrays, index
from tfpipe.shards.index import Shard
from tfpipe.shards.records import Ints

# Values of a mark. FETCHING without a claim is a piece whose process was killed. WRONG:
# the whole shard has another digest than the index says. DAMAGED: the store itself
# holds a damaged record. Pieces from PRESENT on may be read.
ABSENT, FETCHING, WRONG, PRESENT, DAMAGED = range(5)

# Errors of `PieceStore` for a folder that is not whole, as after a power failure.
NOT_WHOLE = (OSError, EOFError, ValueError, KeyError, TypeError)

COUNTER_BYTES = 8
_FOLDERS = ("shards", "published", "users")
_FILES = ("manifest.json", "layout.npy", "marks", "claims")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitContent:
    """The content of a store.

    Attributes:
        location: The data set, for messages.
        split: Name of the split.
        shards: The shards of the split.
        pieces: The pieces of its records.
        tags: The ETag of every shard, or "" where it is not known; empty is "" for all.
    """

    location: Location
    split: str
    shards: Sequence[Shard]
    pieces: Pieces
    tags: Sequence[str] = ()

    @property
    def fingerprint(self) -> str:
        """A digest of the split and its shards, 32 hexadecimal digits."""
        shards = index.rows_of(self.shards)
        first = xxhash.xxh3_128_hexdigest(self.pieces.first.tobytes())
        return index.digest(repr((self.split, shards, first)))


def create(folder: pathlib.Path, content: SplitContent) -> None:
    """Creates an empty store; a kill leaves a folder with another name.

    Raises:
        OSError: If the disk has not enough room for its marks.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    for name in _FOLDERS:
        (temporary / name).mkdir(parents=True)
    pieces = content.pieces
    np.save(
        temporary / "layout.npy", np.stack([pieces.shard, pieces.start, pieces.stop])
    )
    with open(temporary / "marks", "xb") as file:
        allocate(file.fileno(), 0, COUNTER_BYTES + len(pieces))
    (temporary / "claims").touch()
    manifest = {
        "place": content.location.text,
        "split": content.split,
        "shards": [vars(shard) for shard in content.shards],
        "boot_id": host.boot_id(),
    }
    _write_manifest(temporary, manifest)
    temporary.rename(folder)


def _file_name(shard: Shard) -> str:
    """Returns the file of a shard, which in a growing data set has a folder."""
    return shard.name.replace("/", "+")


def is_whole(folder: pathlib.Path) -> bool:
    """Returns whether no file or folder of a store was removed."""
    return all(os.path.exists(folder / name) for name in (*_FOLDERS, *_FILES))


def _write_manifest(folder: pathlib.Path, manifest: dict[str, Any]) -> None:
    text = json.dumps(manifest) + "\n"  # to indent takes ten times as long
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
        if not is_whole(folder):
            raise ValueError(f"{folder} must have {', '.join((*_FOLDERS, *_FILES))}.")
        self._read_manifest()
        self.shards = [Shard(**shard) for shard in self._manifest["shards"]]
        self._by_shard = {shard: n for n, shard in enumerate(self.shards)}
        self.location = Location(self._manifest["place"])
        self.split: str = self._manifest["split"]
        layout = arrays.read((folder / "layout.npy").read_bytes())[""]
        if layout.dtype != np.int64 or layout.ndim != 2 or len(layout) != 3:
            raise ValueError(f"{folder} must have the layout of the pieces.")
        self.shard, self.start, self.stop = layout
        # The most bytes of a piece on the disk: whole blocks.
        self.costs: Ints = self.stop + -self.stop % BLOCK_BYTES
        self.costs -= self.start - self.start % BLOCK_BYTES
        self.total_cost = int(self.costs.sum())
        self.open()

    def _read_manifest(self) -> None:
        text = (self.folder / "manifest.json").read_text("utf-8")
        self._manifest: dict[str, Any] = errors.from_json(text)

    def open(self) -> None:
        """Opens the files that the processes of the host share, the first time or anew.

        Raises:
            NOT_WHOLE: If a file is missing or damaged.
        """
        self._read_manifest()
        shape = (COUNTER_BYTES + len(self.shard),)
        path = self.folder / "marks"
        if path.stat().st_size != shape[0]:
            raise ValueError(f"{path} must have {shape[0]} bytes.")
        # Plain arrays: indexing a memmap makes a new memmap.
        shared = np.asarray(np.memmap(path, np.uint8, "r+", shape=shape))
        claims = os.open(self.folder / "claims", os.O_RDWR | os.O_CLOEXEC)
        # The claims of this process: its own locks do not stop it. A thread that has a
        # claim may use the old marks, which nobody reads, and never the new ones.
        self._claimed = set[int]()
        self._used: Ints = shared[:COUNTER_BYTES].view(np.int64)
        self.marks: npt.NDArray[np.uint8] = shared[COUNTER_BYTES:]
        if self._claims >= 0:
            os.close(self._claims)
        self._claims = claims
        self.users = Users(self.folder / "users", len(self.shard))

    def close(self) -> None:
        """Ends all claims."""
        self.is_closed = True
        if self._claims >= 0:
            os.close(self._claims)
        self._claims = -1

    def __del__(self) -> None:
        self.close()

    def has_layout(self, pieces: Pieces) -> bool:
        """Whether the layout is that of some pieces, and was not damaged."""
        wanted = (pieces.shard, pieces.start, pieces.stop)
        return all(map(np.array_equal, (self.shard, self.start, self.stop), wanted))

    def holds(self, content: SplitContent) -> bool:
        """Whether the store is that of a content, whatever the name of its folder."""
        is_split = (self.split, self.shards) == (content.split, [*content.shards])
        return is_split and self.has_layout(content.pieces)

    def was_replaced(self, later: "PieceStore") -> bool:
        """Whether another store of the split is no generation of the same data set.

        A generation has all shards of an earlier one, or some shards of a later one.
        """
        own, others = self._by_shard.keys(), later._by_shard.keys()
        return not (own <= others or others <= own)

    def is_same(self) -> bool:
        """Whether the folder is still the opened store, and was not removed."""
        if self.is_closed:
            return True
        try:
            there = os.stat(self.folder / "claims")
        except OSError:
            return False
        is_opened = os.path.samestat(there, os.fstat(self._claims))
        return is_opened and is_whole(self.folder)

    def path(self, shard: int) -> pathlib.Path:
        """Returns the local file of a shard."""
        return pathlib.Path(self.file(shard))

    def file(self, shard: int) -> str:
        """Returns the same as text: a path takes longer to make than to open."""
        return f"{self.folder}/shards/{_file_name(self.shards[shard])}"

    def published(self, shard: int) -> pathlib.Path:
        """Returns the file that marks a published shard."""
        return self.folder / "published" / _file_name(self.shards[shard])

    def mark_published(self, shard: int) -> None:
        """Makes the file that marks a published shard, unless the folder is gone."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(self.published(shard), flags, 0o666))

    def num_bytes(self) -> int:
        """Returns the bytes on disk of all pieces, present or on their way."""
        return int(self._used[0])

    def recount(self) -> None:
        """Counts the bytes anew: killed processes leave too large a count."""
        self._used[0] = int(self.costs[self.marks != ABSENT].sum())

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
                f"{self.folder} now. Give each host a folder on a disk of its own, and "
                "this one to all hosts as shared_directory."
            )
        sizes = {e.name: e.stat().st_size for e in os.scandir(self.folder / "shards")}
        published = set(os.listdir(self.folder / "published"))
        # A file may be made just now for a piece that is on its way.
        for number in np.unique(self.shard[self.marks >= WRONG]).tolist():
            shard = self.shards[number]
            is_whole = sizes.get(_file_name(shard)) == shard.num_bytes
            is_published = _file_name(shard) in published
            if not is_whole or (is_new_boot and not is_published):
                self.remake(number)
            elif is_new_boot:
                self.marks[self.pieces_of(number)] = PRESENT
        self.recount()
        if is_new_boot:
            self._manifest["boot_id"] = boot_id
            _write_manifest(self.folder, self._manifest)

    def settle_tags(self, content: SplitContent, *, is_alone: bool) -> bool:
        """Returns whether any shard was replaced since the last opening.

        What came from the old shard is dropped, unless others use the store. A
        published shard has the digest of the index, whatever its ETag is now. Another
        place with the same shards has other ETags, so nothing is known then.
        """
        path, now = self.folder / "tags.json", [content.location.text, *content.tags]
        before, replaced = [], list[int]()
        with contextlib.suppress(*NOT_WHOLE):
            before = errors.from_json(path.read_text("utf-8"))
        if before == now or not any(content.tags):
            return False
        if len(before) == len(now) and before[0] == now[0]:
            pairs = enumerate(zip(before[1:], content.tags, strict=True))
            replaced = [n for n, (old, new) in pairs if old and new and old != new]
        if is_alone:
            for shard in replaced:
                if not self.published(shard).exists():
                    self.remake(shard)
            atomic.write(path, json.dumps(now).encode(), fsync=False)
        return bool(replaced)

    def claim(self, key: int) -> bool:
        """Locks a piece for the process; False if a process holds the lock."""
        if key in self._claimed or not lock_byte(self._claims, key, fcntl.F_WRLCK):
            return False
        self._claimed.add(key)
        return True

    def has_claim(self, key: int) -> bool:
        """Returns whether this process holds the lock of a piece."""
        return key in self._claimed

    def unclaim(self, key: int) -> None:
        """Ends a claim."""
        if key in self._claimed and not self.is_closed:
            lock_byte(self._claims, key, fcntl.F_UNLCK)
        self._claimed.discard(key)

    def begin(self, piece: int) -> None:
        """Marks a claimed piece as on its way, under the directory's lock.

        Where a piece is a whole shard, `write` makes the file: with many small shards,
        others would wait for the disk under the lock.
        """
        shard = int(self.shard[piece])
        if not self.is_whole(shard) and not self._is_new(shard):
            self.remake(shard)
        # A kill between the lines leaves too large a count, and never too small a one.
        self._used[0] += self.costs[piece]
        self.marks[piece] = FETCHING

    def is_whole(self, shard: int) -> bool:
        """Returns whether the file of a shard is there with its size."""
        try:
            status = os.stat(self.file(shard))
        except OSError:
            return False
        is_file = stat.S_ISREG(status.st_mode)
        return is_file and status.st_size == self.shards[shard].num_bytes

    def _is_new(self, shard: int) -> bool:
        """Returns whether a shard is a single piece, and no file has its name."""
        there = self.pieces_of(shard)
        is_single = there.stop - there.start == 1
        return is_single and not os.path.lexists(self.file(shard))

    def remake(self, shard: int) -> None:
        """Makes the file of a shard anew, without pieces, under the directory's lock.

        Pieces on their way stay so.

        Raises:
            OSError: If the file cannot be made.
        """
        there = self.pieces_of(shard)
        for piece in range(there.start, there.stop):
            if self.marks[piece] >= WRONG:
                self._forget(piece)
        for path in (self.published(shard), self.path(shard)):
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
        with open(self.path(shard), "xb") as file:
            file.truncate(self.shards[shard].num_bytes)

    def _forget(self, piece: int) -> None:
        self.marks[piece] = ABSENT
        self._used[0] -= self.costs[piece]

    def write(
        self, piece: int, content: memoryview, *, is_direct: bool = False
    ) -> None:
        """Writes the bytes of a claimed piece, see `disk.write`.

        Raises:
            OSError: If the file was removed, or the disk is full or damaged.
        """
        shard = int(self.shard[piece])
        is_whole = len(content) == self.shards[shard].num_bytes
        flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_CREAT if is_whole else 0)
        descriptor = os.open(self.file(shard), flags, 0o666)
        try:
            write(descriptor, content, int(self.start[piece]), is_direct=is_direct)
        finally:
            os.close(descriptor)

    def read(self, piece: int) -> memoryview:
        """Returns the bytes of a present piece; fewer if its file was cut.

        Raises:
            OSError: If the file cannot be read.
        """
        start, stop = int(self.start[piece]), int(self.stop[piece])
        return self._read(int(self.shard[piece]), start, stop)

    def _read(self, shard: int, start: int, stop: int) -> memoryview:
        with open(self.file(shard), "rb", buffering=0) as file:
            return memoryview(pread(file.fileno(), stop - start, start))

    def copy_of(self, shard: Shard, start: int, stop: int) -> memoryview | None:
        """Returns bytes of a shard of any store, if this store has them all."""
        with contextlib.suppress(KeyError, OSError):  # another shard, or a lost file
            there = self.pieces_of(own := self._by_shard[shard])
            starts = self.start[there]
            low, high = there.start + np.searchsorted(starts, [start + 1, stop])
            if (self.marks[max(low - 1, there.start) : high] == PRESENT).all():
                return self._read(own, start, stop)
        return None

    def drop(self, piece: int) -> None:
        """Frees the bytes of a piece, under the directory's lock."""
        shard = int(self.shard[piece])
        self.published(shard).unlink(missing_ok=True)
        with (
            contextlib.suppress(FileNotFoundError),  # removed by others: it is free
            open(self.path(shard), "r+b", buffering=0) as file,
        ):
            punch(file.fileno(), *self._freed(piece))
        if self.marks[piece] != ABSENT:
            self._forget(piece)

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
        write(self._descriptors[shard], content, offset)

    def path(self, shard: int) -> str:
        """Returns a path at which this process can open the file of a shard."""
        return f"/proc/self/fd/{self._descriptors[shard]}"

    def close(self) -> None:
        """Frees the memory once no reader has a file open."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}
