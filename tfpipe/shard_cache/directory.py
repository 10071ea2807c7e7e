"""The directory of a shard cache: a common budget of bytes for all its splits.

In: the pieces that a process needs. Out: the pieces that the process fetches now, after
room was made for them. All decisions are made under the lock of the directory, from the
marks and users on the disk: after a killed process all counts are right. Imports no
TensorFlow.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import pathlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from tfpipe.location import atomic
from tfpipe.shard_cache import disk, lines, metadata, store as stores, upgrade
from tfpipe.shard_cache.store import PieceStore, SplitContent
from tfpipe.shard_cache.users import User
from tfpipe.shard_cache.victims import Victims, last_opened
from tfpipe.shards import index

VERSION = "tfpipe shard cache 2"
# Seconds without growth after a write failed for lack of room.
_FULL_SECONDS = 10.0
# Seconds between two looks for the pieces of killed processes.
_ABANDONED_SECONDS = 1.0
# Share of the disk's free bytes for a cache by default.
_SHARE = 0.8

# Tries under the lock while others remove files of the directory, and their errors: a
# removed folder, and a folder that another process made again.
_TRIES = 20
_REMOVED = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY)
_Result = TypeVar("_Result")

_FINGERPRINT = re.compile(r"[0-9a-f]{32}")


class _Opened(NamedTuple):
    """A split, opened by the process."""

    content: SplitContent
    store: PieceStore
    user: User


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
        self._full_until = self._looked_at = -np.inf
        self._opened: list[_Opened] = []
        self._stores_by_name: dict[str, PieceStore] = {}
        self.lines = lines.Lines()
        with disk.used_as_cache(path):
            _prepare(path)
            with self.locked():
                _check_version(path)
                _clean(path, self._stores())
                used = sum(store.num_bytes() for store in self._stores())
        if max_bytes is None:
            status = os.statvfs(path)
            max_bytes = int(_SHARE * (status.f_bavail * status.f_frsize + used))
        self.max_bytes = max_bytes

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock of the directory, and makes removed folders again.

        Raises:
            OSError: If the directory was removed, and cannot be made again.
        """
        with contextlib.ExitStack() as held:
            for attempt in itertools.count(1):
                try:
                    if self._is_locked_anew(held):
                        break
                except OSError as error:
                    if error.errno not in _REMOVED or attempt == _TRIES:
                        raise
                held.close()
            yield

    def _is_locked_anew(self, held: contextlib.ExitStack) -> bool:
        """Locks the directory; False if others removed the directory meanwhile."""
        path = self.path / "lock"
        self.path.mkdir(parents=True, exist_ok=True)
        file = held.enter_context(atomic.locked(path))
        if not _is_at(path, file.fileno()):
            return False
        for opened in self._opened:
            self._restore(opened)
        return True

    def _under_lock(self, work: Callable[[], _Result]) -> _Result:
        """Returns the result of a function; does it again if others remove files.

        Raises:
            OSError: If the disk fails, or others remove the files each time.
        """
        for _ in range(_TRIES - 1):
            with contextlib.suppress(FileNotFoundError), self.locked():
                return work()
        with self.locked():
            return work()

    def _restore(self, opened: _Opened) -> None:
        """Makes an opened store again, empty, after its folder was removed."""
        store, user = opened.store, opened.user
        if store.is_closed or (store.is_same() and user.is_there()):
            return
        if not store.is_same():
            _check_version(self.path)
            if not stores.is_whole(store.folder):
                self._say_mended(f"{store.folder} was removed while it was in use.")
                shutil.rmtree(store.folder, ignore_errors=True)
                stores.create(store.folder, opened.content)
            store.open()
            store.settle()
        user.renew()

    def open(self, content: SplitContent) -> tuple[PieceStore, User]:
        """Opens the store of a content, or creates it.

        Raises:
            ValueError: If the disk has no room, or another host uses the store.
        """
        folder = self.path / content.fingerprint
        with disk.used_as_cache(self.path), self.locked():
            self._name(content, folder)
            before = self._last_of(content)
            kept = [s for s in self._stores() if s.folder == folder]
            if not any(store.has_layout(content.pieces) for store in kept):
                _create(folder, content)
            store = next(s for s in self._stores() if s.folder == folder)
            if is_alone := not store.users.are_there():
                # The data set may have been repaired.
                for piece in np.flatnonzero(store.marks == stores.WRONG).tolist():
                    store.drop(piece)
            store.settle()
            if before is not None and before.was_replaced(store):
                lines.say(
                    f"{before.location.shown} was replaced since {before.folder} was "
                    f"filled: {index.INDEX_NAME} lists other shards for "
                    f"{before.split}. They are fetched, and the old ones make room."
                )
            if store.settle_tags(content, is_alone=is_alone):
                metadata.say_copied(content.location.shown, "the cache was filled")
            os.utime(folder / "manifest.json")
            user = User(folder / "users", len(store.marks))
            self._opened.append(_Opened(content, store, user))
            self._trim()
            return store, user

    def _last_of(self, content: SplitContent) -> PieceStore | None:
        """Returns the store of a split at its location, the last opened."""
        key = content.location, content.split
        own = (s for s in self._stores() if (s.location, s.split) == key)
        return max(own, key=last_opened, default=None)

    def _name(self, content: SplitContent, folder: pathlib.Path) -> None:
        """Names a store of version 1, where another digest was the name."""
        for store in () if folder.exists() else self._stores():
            if store.holds(content):
                self._stores_by_name.pop(store.folder.name).close()
                store.folder.rename(folder)
                return

    def _trim(self) -> None:
        """Evicts pieces if an earlier process had a larger max_bytes."""
        all_stores = self._stores()
        too_many = sum(store.num_bytes() for store in all_stores) - self.max_bytes
        while too_many > 0:
            freed = Victims(all_stores, self._say_unread).free(too_many, 0)
            if not freed:
                return
            too_many -= freed

    def close(self) -> None:
        """Ends all claims of this object."""
        for store in self._stores_by_name.values():
            store.close()

    def load(self) -> tuple[int, int]:
        """Returns the number of live readers, and the bytes of all splits they read.

        A split counts once, even if many processes read the split. On a read-only or
        full disk, where nothing new is kept, a reader counts as alone.
        """
        return self._if_writable(self._load, (1, 0))

    def _load(self) -> tuple[int, int]:
        used = [store for store in self._stores() if store.users.are_there()]
        for store in used:
            store.users.look()
        num_readers = sum(len(store.users.readers()) for store in used)
        return max(num_readers, 1), sum(store.total_cost for store in used)

    def siblings(self, store: PieceStore) -> list[PieceStore]:
        """Returns the stores of the same split as it was before or is now."""
        key = store.location, store.split
        all_stores = list(self._stores_by_name.values())
        return [s for s in all_stores if s != store and (s.location, s.split) == key]

    def note_unwritable(self, error: OSError) -> None:
        """Keeps the cache from growing for a while, and says why once.

        Raises:
            OSError: The error, unless it means a disk that cannot be written.
        """
        if error.errno not in disk.NOT_WRITABLE:
            raise error
        self._full_until = self._clock() + _FULL_SECONDS
        state = "is full" if disk.is_full(error) else f"fails: {error.strerror}"
        self.lines.say_once(
            f"the disk of {self.path} {state}. Reading goes on with the pieces there "
            f"are, and through memory. {disk.remedy(error.errno)}"
        )

    def _if_writable(self, work: Callable[[], _Result], otherwise: _Result) -> _Result:
        """Returns `_under_lock`, or a value if the disk cannot be written now."""
        try:
            return self._under_lock(work)
        except OSError as error:
            self.note_unwritable(error)
        return otherwise

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

        def work() -> Granted:
            granted = Granted([], [], [])
            try:
                self._grant(granted, store, pieces, ahead=ahead)
            except BaseException:
                for piece in granted.pieces:  # now as those of a killed process
                    store.unclaim(piece)
                raise
            return granted

        return self._if_writable(work, Granted([], [*pieces], []))

    def _grant(
        self, granted: Granted, store: PieceStore, pieces: Iterable[int], *, ahead: bool
    ) -> None:
        all_stores = self._stores()
        used = sum(store.num_bytes() for store in all_stores)
        is_full = self._clock() < self._full_until
        room = 0 if is_full else self.max_bytes - used
        victims = None
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
                if victims is None:
                    room += self._free_abandoned(all_stores)
                    victims = Victims(all_stores, self._say_unread)
                least = victims.distance(store, piece) if ahead else 0
                room += victims.free(cost - room, least)
            if cost > room:
                granted.no_room.append(piece)
                if ahead:
                    break
                continue
            if store.claim(piece):
                granted.pieces.append(piece)
                store.begin(piece)
                room -= cost

    def give_up(self, store: PieceStore, piece: int) -> None:
        """Ends the claim of a piece after its fetch or write failed."""

        def work() -> None:
            if store.has_claim(piece):  # a store made again has no claims
                store.drop(piece)
                store.unclaim(piece)

        try:
            self._under_lock(work)
        except OSError:
            store.unclaim(piece)  # as if the process was killed

    def mend(self, store: PieceStore, pieces: Iterable[int]) -> None:
        """Drops pieces whose local bytes are missing, cut, wrong or unreadable.

        A missing, cut or unreadable file is made anew, without pieces. On a read-only
        or full disk nothing changes: readers find wrong records by their CRCs.
        """
        self._if_writable(lambda: self._mend(store, pieces), None)

    def _mend(self, store: PieceStore, pieces: Iterable[int]) -> None:
        for piece in pieces:
            if store.marks[piece] < stores.PRESENT:
                continue
            shard = int(store.shard[piece])
            self._say_mended(
                f"{store.path(shard)} was removed or damaged on the local disk "
                "while it was in use."
            )
            if _is_readable(store, piece):
                store.drop(piece)
            else:
                store.remake(shard)

    def _say_mended(self, text: str) -> None:
        """Prints the first damage of the cache in the process, and its cost."""
        self.lines.say_once(
            f"{text} Only what is missing is fetched again, and no record is lost. "
            f"Further damage in {self.path} is mended in silence.",
            kind="mended",
        )

    def _say_unread(self, store: PieceStore) -> None:
        self.lines.say_once(
            f"{store.location.shown} {store.split} is read by nobody now: its pieces "
            f"in {store.folder} make room."
        )

    def _free_abandoned(self, all_stores: list[PieceStore]) -> int:
        """Frees the pieces of processes killed while they fetched."""
        if self._clock() < self._looked_at + _ABANDONED_SECONDS:
            return 0
        self._looked_at = self._clock()
        return sum(map(_free_abandoned, all_stores))

    def _stores(self) -> list[PieceStore]:
        """Returns all stores of the directory, under its lock."""
        stores_now = []
        for entry in list(os.scandir(self.path)):
            if not _FINGERPRINT.fullmatch(entry.name):
                continue
            store = self._stores_by_name.get(entry.name)
            try:
                if store is None or not store.is_same():
                    store = PieceStore(self.path / entry.name)
            except stores.NOT_WHOLE:
                continue  # the process that opens it says so
            self._stores_by_name[entry.name] = store
            stores_now.append(store)
        return stores_now


def _is_readable(store: PieceStore, piece: int) -> bool:
    """Returns whether the file of a piece can be read on.

    Raises:
        OSError: If the host cannot open or read any file now.
    """
    try:
        return store.is_whole(int(store.shard[piece])) and bool(store.read(piece))
    except OSError as error:
        if error.errno in disk.SHORTAGE:
            raise
        return False


def _is_at(path: pathlib.Path, descriptor: int) -> bool:
    """Returns whether an open file still has its path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


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
    """Frees the pieces of processes killed while they fetched."""
    freed = 0
    for piece in np.flatnonzero(store.marks == stores.FETCHING).tolist():
        if _claim_abandoned(store, piece):
            store.drop(piece)
            store.unclaim(piece)
            freed += int(store.costs[piece])
    return freed


def _create(folder: pathlib.Path, content: SplitContent) -> None:
    if folder.exists():
        lines.say(f"{folder} is not whole: it is filled again.")
        shutil.rmtree(folder)
    stores.create(folder, content)


def _clean(path: pathlib.Path, all_stores: list[PieceStore]) -> None:
    """Removes leftovers of killed processes, and stores without a piece and a user."""
    for leftover in path.glob(".*.tmp"):
        shutil.rmtree(leftover)
    for store in all_stores:
        if not store.users.are_there() and not store.num_bytes():
            shutil.rmtree(store.folder)


def _prepare(path: pathlib.Path) -> None:
    """Makes the folder, and tries the needed features of its file system."""
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        disk.lock_byte(file.fileno(), 1, fcntl.F_WRLCK)
        file.write(bytes(2 * disk.BLOCK_BYTES))
        file.flush()
        disk.punch(file.fileno(), 0, disk.BLOCK_BYTES)


def _check_version(path: pathlib.Path) -> None:
    version = path / "version"
    if not version.exists():
        atomic.write(version, f"{VERSION}\n".encode(), fsync=False)
    text = version.read_text(encoding="utf-8").strip()
    if text == upgrade.VERSION:
        folders = [e for e in path.iterdir() if _FINGERPRINT.fullmatch(e.name)]
        if upgrade.upgrade(folders):
            lines.say(
                f"{path} is of an earlier version of tfpipe: its pieces are kept."
            )
            atomic.write(version, f"{VERSION}\n".encode(), fsync=False)
            return
    if text != VERSION:
        raise ValueError(
            f"ShardCache.directory must hold a {VERSION!r}, got {text!r} in {path}. "
            "Another version of tfpipe made it: give another folder, or delete it."
        )
