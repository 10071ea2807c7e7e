"""Fetching a piece: a ranged read, the check of its bytes, and the store.

In: the number of a piece that the process has claimed. Out: the right bytes in the
store. Lines on stderr name wrong bytes, which are fetched again. Imports no TensorFlow.
"""

import collections
import contextlib
import itertools
import random
import threading
import time

import xxhash

from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shard_cache import disk, lines, pieces as cuts, store as stores
from tfpipe.shard_cache.directory import Directory
from tfpipe.shard_cache.metadata import DataVersion
from tfpipe.shard_cache.pieces import Pieces
from tfpipe.shard_cache.shared import SharedPieces
from tfpipe.shard_cache.store import PieceStore

# After so many equal wrong answers, the store has the wrong bytes on its own disks.
_NUM_EQUAL_ANSWERS = 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0


class Fetcher:
    """Fetches pieces of a split; several threads use a fetcher.

    Attributes:
        replaced: Function that returns the error of a replaced data set, or None.
        counts: Figures by name, see `open_cache.CacheStatistics`.
        time_limit: Seconds that a piece may take with all retries.

    Args:
        files: The files of the data set.
        directory: Directory of the cache.
        store: Store of the split.
        pieces: Pieces of the split.
        num_connections: Most requests at once.
        shared: Pieces in a folder that several hosts share; None without a folder.
        version: The version of the data set.
    """

    def __init__(
        self,
        files: Files,
        directory: Directory,
        store: PieceStore,
        pieces: Pieces,
        *,
        num_connections: int,
        version: DataVersion,
        shared: SharedPieces | None = None,
    ) -> None:
        self._files, self.directory, self.store = files, directory, store
        self.pieces, self.shared = pieces, shared
        self.num_connections = num_connections
        self.replaced, self.time_limit = version.replaced, files.time_limit
        self._lock = threading.Lock()
        self._connections = threading.Semaphore(num_connections)
        self.counts: collections.Counter[str] = collections.Counter()
        self.ended = threading.Event()

    def download(self, piece: int, *, is_anew: bool = False) -> tuple[memoryview, int]:
        """Returns the bytes of a piece and its mark, PRESENT or DAMAGED.

        The bytes come from another generation of the data set in the cache, from the
        folder that hosts share, or from the store. In the last case the folder gets
        the right bytes.

        Args:
            piece: Number of the piece.
            is_anew: Whether the bytes must come from the store itself.

        Raises:
            RemoteError: If the store does not answer, or gives wrong bytes until the
                time limit.
        """
        end = time.monotonic() + self.time_limit
        if not is_anew and (copy := self._copy(piece)) is not None:
            return copy, stores.PRESENT
        if self.shared is None:
            return self._from_store(piece, end)
        answer = None if is_anew else self.shared.find(piece)
        if isinstance(answer, memoryview):
            with self._lock:
                self.counts["bytes_from_shared"] += len(answer)
            return answer, stores.PRESENT
        with contextlib.ExitStack() as stack:
            if answer is not None:
                stack.callback(self.shared.release, answer)
            content, mark = self._from_store(piece, end)
            if mark == stores.PRESENT and (is_anew or answer is not None):
                self.shared.publish(piece, content, answer)
            return content, mark

    def _copy(self, piece: int) -> memoryview | None:
        """Returns the right bytes of a piece from the store of another generation."""
        shard = self.store.shards[self.pieces.shard[piece]]
        part = int(self.pieces.start[piece]), int(self.pieces.stop[piece])
        for other in self.directory.siblings(self.store):
            copy = other.copy_of(shard, *part)
            if copy and not cuts.fault(copy, self.pieces.record_sizes(piece)):
                return copy
        return None

    def _from_store(self, piece: int, end: float) -> tuple[memoryview, int]:
        """Returns the bytes and the mark of a piece; the store is asked until `end`."""
        answers: collections.Counter[bytes] = collections.Counter()
        for attempt in itertools.count():
            content, fault = self._ask(piece)
            if fault is None:
                return content, stores.PRESENT
            answer = xxhash.xxh3_128_digest(content)
            answers[answer] += 1
            if answers[answer] == _NUM_EQUAL_ANSWERS:
                if replaced := self.replaced():
                    raise replaced
                lines.say(
                    f"{fault} The store itself has this damage, so the piece is kept."
                )
                return content, stores.DAMAGED
            pause = _FIRST_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1.5)
            pause = min(pause, _LONGEST_PAUSE_SECONDS)
            rest = end - time.monotonic()
            if pause > rest:
                raise errors.RemoteError(
                    f"{fault} The bytes were wrong {attempt + 1} times in "
                    f"{self.time_limit - rest:.1f} s. Check the store and the "
                    "connection to it."
                )
            lines.say(f"{fault} It is fetched again.")
            if self.ended.wait(pause):
                raise errors.RemoteError(f"{fault} The shard cache is closed.")
        raise AssertionError("unreachable")

    def _ask(self, piece: int) -> tuple[memoryview, str | None]:
        """Requests a piece once; returns its bytes and the fault in them, if any."""
        shard = self.store.shards[self.pieces.shard[piece]]
        start, stop = int(self.pieces.start[piece]), int(self.pieces.stop[piece])
        try:
            with self._connections:
                content = self._files.read_view(shard.name, start, stop)
        except errors.MissingFileError as error:
            raise self.replaced() or error from None
        fault = cuts.fault(content, self.pieces.record_sizes(piece))
        with self._lock:
            self.counts["num_requests"] += 1
            self.counts["bytes_from_server"] += len(content)
            self.counts["num_faults"] += fault is not None
        if fault is None:
            return content, None
        record = self.pieces.first_in_shard(piece) + fault[0]
        url = (self._files.location / shard.name).shown
        return content, (
            f"{url}: bytes {start} to {stop} came back wrong, at record {record}: "
            f"{fault[1]}."
        )

    def keep(
        self, piece: int, content: memoryview, mark: int, *, is_direct: bool = False
    ) -> bool:
        """Writes a claimed piece, see `disk.write`, and ends the claim.

        Returns:
            False if the disk cannot be written, or others removed the file.

        Raises:
            OSError: If this host fails otherwise; the claim holds then. The text names
                the file and a remedy.
        """
        try:
            self.store.write(piece, content, is_direct=is_direct)
        except OSError as error:
            if not isinstance(error, FileNotFoundError | IsADirectoryError):
                with disk.advised(self.store.path(int(self.store.shard[piece]))):
                    self.directory.note_unwritable(error)
            self.directory.give_up(self.store, piece)
            return False
        marks = self.store.marks
        if not self.store.has_claim(piece):
            return False  # the store was made again meanwhile
        marks[piece] = mark  # of no use if the store is made again just now
        self.store.unclaim(piece)
        return True

    def end(self) -> None:
        """Ends all waits."""
        self.ended.set()
        if self.shared is not None:
            self.shared.ended.set()

    def close(self) -> None:
        """Ends all waits and all leases."""
        self.end()
        if self.shared is not None:
            self.shared.close()
