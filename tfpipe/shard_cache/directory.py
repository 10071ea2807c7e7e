"""The directory of a shard cache: a common budget of bytes for all its splits.

In: the pieces that a process needs. Out: the pieces that the process fetches now, after
room was made for them. All decisions are made under the lock of the directory, from the
marks and users on the disk: after a killed process all counts are right. Imports no
TensorFlow.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tfpipe.location import atomic
from tfpipe.shard_cache import next_use, store as stores
from tfpipe.shard_cache.pieces import BLOCK_BYTES
from tfpipe.shard_cache.store import PieceStore, SplitContent
from tfpipe.shard_cache.users import User

VERSION = "tfpipe shard cache 1"
# Seconds without growth after a write failed for lack of room.
_FULL_SECONDS = 10.0
# Share of the disk's free bytes for a cache by default.
_SHARE = 0.8

_FINGERPRINT = re.compile(r"[0-9a-f]{32}")


class Granted(NamedTuple):
    """The answer to a request for pieces.

    Attributes:
        pieces: Pieces that are claimed for the process; the process must fetch them.
        no_room: Pieces for which the cache has no room.
        wrong: Pieces of shards whose digest differs from the index's.
    """

    pieces: list[int]
    no_room: list[int]
    wrong: list[int]


class Directory:
    """The folder of a shard cache, as a process sees it.

    Args:
        path: The folder; a missing folder is made.
        max_bytes: Bytes of all pieces that are there or on their way; None is 80 % of
            the bytes that are free on the disk or taken by the cache now.
        clock: Function that returns seconds.

    Raises:
        ValueError: If the folder cannot be used; the text says why.
    """

    def __init__(
        self,
        path: pathlib.Path,
        max_bytes: int | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._clock = clock
        self._full_until = -1.0
        self._open_stores: dict[str, PieceStore] = {}
        self._said: set[str] = set()
        try:
            _prepare(path)
            with self.locked():
                _check_version(path)
                _clean(path, self._stores())
                used = sum(store.num_bytes() for store in self._stores())
        except OSError as error:
            raise _unusable(path, error) from None
        if max_bytes is None:
            disk = os.statvfs(path)
            max_bytes = int(_SHARE * (disk.f_bavail * disk.f_frsize + used))
        self.max_bytes = max_bytes

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Holds the lock of the directory."""
        return atomic.locked(self.path / "lock")

    def open(self, content: SplitContent) -> tuple[PieceStore, User]:
        """Opens the store of a content, or creates it.

        Raises:
            ValueError: If the disk has no room, or another host uses the store.
        """
        folder = self.path / content.fingerprint
        try:
            with self.locked():
                if folder not in [store.folder for store in self._stores()]:
                    _create(folder, content)
                store = next(s for s in self._stores() if s.folder == folder)
                if not store.users.are_there():
                    _forget_wrong(store)
                store.settle()
                os.utime(folder / "manifest.json")
                user = User(folder / "users", len(store.marks))
                self._trim()
                return store, user
        except OSError as error:
            raise _unusable(self.path, error) from None

    def _trim(self) -> None:
        """Evicts pieces if an earlier process had a larger max_bytes."""
        all_stores = self._stores()
        too_many = sum(store.num_bytes() for store in all_stores) - self.max_bytes
        if too_many > 0:
            _MakingRoom(all_stores, self._said).free(too_many, 0)

    def close(self) -> None:
        """Ends all claims of this object."""
        for store in self._open_stores.values():
            store.close()

    def load(self) -> tuple[int, int]:
        """Returns the number of live readers, and the bytes of all splits they read.

        A split counts once, even if many processes read the split.
        """
        with self.locked():
            used = [store for store in self._stores() if store.users.are_there()]
            num_readers = sum(store.users.num_readers() for store in used)
            return max(num_readers, 1), sum(int(s.costs.sum()) for s in used)

    def note_full_disk(self) -> None:
        """Keeps the cache from growing for a while."""
        self._full_until = self._clock() + _FULL_SECONDS

    def reserve(
        self, store: PieceStore, pieces: Iterable[int], *, ahead: bool
    ) -> Granted:
        """Claims absent pieces for this process, and evicts others to make room.

        Args:
            store: The store of the pieces, which `open` returned.
            pieces: Numbers of the pieces, in the order of use.
            ahead: Whether the pieces are not needed yet. A piece then evicts only
                pieces with a later next use, and the request ends at the first piece
                without room.
        """
        granted = Granted([], [], [])
        with self.locked():
            all_stores = self._stores()
            used = sum(store.num_bytes() for store in all_stores)
            is_full = self._clock() < self._full_until
            room = 0 if is_full else self.max_bytes - used
            making_room = _MakingRoom(all_stores, self._said)
            readers = store.users.readers() if ahead else []
            for piece in pieces:
                mark = store.marks[piece]
                if mark == stores.WRONG:
                    granted.wrong.append(piece)
                elif _claim_abandoned(store, piece):
                    granted.pieces.append(piece)
                if mark != stores.ABSENT:
                    continue
                cost = int(store.costs[piece])
                if cost > room:
                    least = next_use.distance(readers, piece) if ahead else 0
                    room += making_room.free(cost - room, least)
                if cost > room:
                    granted.no_room.append(piece)
                    if ahead:
                        break
                    continue
                if store.claim(piece):
                    store.marks[piece] = stores.FETCHING
                    granted.pieces.append(piece)
                    room -= cost
        return granted

    def give_up(self, store: PieceStore, piece: int) -> None:
        """Ends the claim of a piece that could not be fetched or written."""
        with self.locked():
            store.drop(piece)
            store.unclaim(piece)

    def _stores(self) -> list[PieceStore]:
        """Returns all stores of the directory, under its lock."""
        stores_now = []
        for entry in list(os.scandir(self.path)):
            if not _FINGERPRINT.fullmatch(entry.name):
                continue
            store = self._open_stores.get(entry.name)
            try:
                if store is None or not store.is_same():
                    store = PieceStore(self.path / entry.name)
            except stores.NOT_WHOLE:
                continue  # the process that opens it says so
            self._open_stores[entry.name] = store
            stores_now.append(store)
        return stores_now


class _MakingRoom:
    """Evicts pieces under the directory's lock, the pieces used farthest away first.

    The victims are sorted when the first piece is evicted.
    """

    def __init__(self, all_stores: list[PieceStore], said: set[str]) -> None:
        self._stores, self._said = all_stores, said
        self._victims: Iterator[tuple[int, PieceStore, int]] | None = None
        self._next: tuple[int, PieceStore, int] | None = None

    def free(self, num_bytes: int, least: int) -> int:
        """Evicts pieces whose next use is farther away than `least`.

        Returns:
            The freed bytes; fewer than `num_bytes` if no piece may go.
        """
        freed = 0
        if self._victims is None:
            freed = sum(map(_free_abandoned, self._stores))
            self._victims = self._sorted()
            self._next = next(self._victims, None)
        while freed < num_bytes and self._next is not None:
            distance, store, piece = self._next
            if distance <= least:
                break
            self._next = next(self._victims, None)
            if distance > next_use.NEVER:
                self._say_once(store)
            if _evict(store, piece):
                freed += int(store.costs[piece])
        return freed

    def _say_once(self, store: PieceStore) -> None:
        if store.folder.name not in self._said:
            self._said.add(store.folder.name)
            _say(
                f"{store.location.shown} {store.split} is read by nobody now: its "
                f"pieces in {store.folder} make room."
            )

    def _sorted(self) -> Iterator[tuple[int, PieceStore, int]]:
        """Yields (distance, store, piece) of possible victims, the best first."""
        unused = [store for store in self._stores if not store.users.are_there()]
        unused.sort(key=lambda store: -_last_opened(store))
        candidates = []
        for store in self._stores:
            distances = next_use.distances(store.users.readers(), len(store.marks))
            if store in unused:
                # Farther away than any piece of a data set in use.
                distances += unused.index(store) + 1
            is_there = store.marks >= stores.WRONG
            candidates.append(next_use.candidates(distances, is_there))
        sizes = [len(pieces) for pieces, _ in candidates]
        owner = np.repeat(np.arange(len(candidates)), sizes)
        pieces, distance = map(np.concatenate, zip(*candidates, strict=True))
        for index in np.argsort(-distance, kind="stable"):
            store = self._stores[owner[index]]
            yield int(distance[index]), store, int(pieces[index])


def _claim_abandoned(store: PieceStore, piece: int) -> bool:
    """Claims a piece of a process that was killed while it fetched the piece.

    After fetching, a process first sets the mark and then ends its claim. The mark is
    therefore looked at again: the mark may have changed between a look and the claim.
    """
    if store.marks[piece] != stores.FETCHING or not store.claim(piece):
        return False
    if store.marks[piece] == stores.FETCHING:
        return True
    store.unclaim(piece)
    return False


def _free_abandoned(store: PieceStore) -> int:
    """Frees the pieces of processes that were killed while they fetched."""
    freed = 0
    for piece in np.flatnonzero(store.marks == stores.FETCHING).tolist():
        if _claim_abandoned(store, piece):
            store.drop(piece)
            store.unclaim(piece)
            freed += int(store.costs[piece])
    return freed


def _evict(store: PieceStore, piece: int) -> bool:
    """Evicts a piece, unless a reader has come to need the piece."""
    mark = store.marks[piece]
    # A reader first publishes its needs and then looks at the marks.
    store.marks[piece] = stores.FETCHING
    if store.users.do_need(piece):
        store.marks[piece] = mark
        return False
    store.drop(piece)
    return True


def _create(folder: pathlib.Path, content: SplitContent) -> None:
    if folder.exists():
        _say(f"{folder} is not whole: it is filled again.")
        shutil.rmtree(folder)
    stores.create(folder, content)


def _clean(path: pathlib.Path, all_stores: list[PieceStore]) -> None:
    """Removes leftovers of killed processes, and stores without a piece and a user."""
    for leftover in path.glob(".*.tmp"):
        shutil.rmtree(leftover)
    for store in all_stores:
        if not store.users.are_there() and not store.num_bytes():
            shutil.rmtree(store.folder)


def _last_opened(store: PieceStore) -> float:
    return (store.folder / "manifest.json").stat().st_mtime


def _forget_wrong(store: PieceStore) -> None:
    """Drops pieces with a wrong digest: the data set may have been repaired."""
    for piece in np.flatnonzero(store.marks == stores.WRONG).tolist():
        store.drop(piece)


def _prepare(path: pathlib.Path) -> None:
    """Makes the folder, and tries the needed features of its file system."""
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        stores.lock_byte(file.fileno(), 1, fcntl.F_WRLCK)
        file.write(bytes(2 * BLOCK_BYTES))
        file.flush()
        stores.punch(file.fileno(), 0, BLOCK_BYTES)


def _check_version(path: pathlib.Path) -> None:
    version = path / "version"
    if not version.exists():
        atomic.write(version, f"{VERSION}\n".encode(), fsync=False)
    text = version.read_text(encoding="utf-8").strip()
    if text != VERSION:
        raise ValueError(
            f"ShardCache.directory must hold a {VERSION!r}, got {text!r} in {path}. "
            "Another version of tfpipe made it: give another folder, or delete it."
        )


def _unusable(path: pathlib.Path, error: OSError) -> ValueError:
    remedy = "Give a folder that this user can write to."
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        remedy = "Give a folder, not a file."
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "Free some room there, or give a folder on another disk."
    elif error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO):
        remedy = "Run again when the folder can be used."
    elif error.errno in (errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL):
        remedy = (
            "Its file system cannot lock files or free a part of a file. Give a folder "
            "on a local disk (ext4, xfs, btrfs or tmpfs)."
        )
    return ValueError(
        f"ShardCache.directory must be usable as a cache, got {path}: "
        f"{error.strerror or error}. {remedy}"
    )


def _say(text: str) -> None:
    print(f"shard cache: {text}", file=sys.stderr)
