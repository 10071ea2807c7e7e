"""Fetching a piece: a ranged read, the check of its bytes, and the store.

In: the number of a piece that the process has claimed. Out: the right bytes in the
store. Lines on stderr name wrong bytes, which are fetched again. Imports no TensorFlow.
"""

import collections
import dataclasses
import errno
import itertools
import random
import sys
import threading
import time

import xxhash

from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shard_cache import pieces as cuts, store as stores
from tfpipe.shard_cache.directory import Directory
from tfpipe.shard_cache.pieces import Pieces
from tfpipe.shard_cache.store import PieceStore

# After so many equal wrong answers, the store has the wrong bytes on its own disks.
_NUM_EQUAL_ANSWERS = 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0


@dataclasses.dataclass
class Counts:
    """Figures of one process, see `shard_cache.CacheStatistics`."""

    bytes_from_server: int = 0
    num_requests: int = 0
    num_faults: int = 0


class Fetcher:
    """Fetches pieces of a split; several threads use a fetcher.

    Args:
        files: The files of the data set.
        directory: Directory of the cache.
        store: Store of the split.
        pieces: Pieces of the split.
        time_limit: Seconds that a piece may take with all retries.
    """

    def __init__(
        self,
        files: Files,
        directory: Directory,
        store: PieceStore,
        pieces: Pieces,
        *,
        time_limit: float,
    ) -> None:
        self._files, self.directory, self.store = files, directory, store
        self._pieces, self.time_limit = pieces, time_limit
        self._lock = threading.Lock()
        self.counts = Counts()
        self.ended = threading.Event()
        self._said: set[str] = set()

    def download(self, piece: int) -> tuple[memoryview, int]:
        """Returns the bytes of a piece and its mark, PRESENT or DAMAGED.

        Raises:
            RemoteError: If the store does not answer, or gives wrong bytes until the
                time limit.
        """
        end = time.monotonic() + self.time_limit
        answers: collections.Counter[bytes] = collections.Counter()
        for attempt in itertools.count():
            content, fault = self._ask(piece)
            if fault is None:
                return content, stores.PRESENT
            answer = xxhash.xxh3_128_digest(content)
            answers[answer] += 1
            if answers[answer] == _NUM_EQUAL_ANSWERS:
                self.say(
                    f"{fault} The store itself has this damage, so the piece is kept."
                )
                return content, stores.DAMAGED
            pause = _FIRST_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1.5)
            pause = min(pause, _LONGEST_PAUSE_SECONDS)
            if time.monotonic() + pause > end:
                raise errors.RemoteError(
                    f"{fault} The bytes were wrong {attempt + 1} times in "
                    f"{self.time_limit} s. Check the store and the connection to it."
                )
            self.say(f"{fault} It is fetched again.")
            self.ended.wait(pause)
        raise AssertionError("unreachable")

    def _ask(self, piece: int) -> tuple[memoryview, str | None]:
        """Requests a piece once; returns its bytes and the fault in them, if any."""
        shard = self.store.shards[self._pieces.shard[piece]]
        start, stop = int(self._pieces.start[piece]), int(self._pieces.stop[piece])
        content = self._files.read_view(shard.name, start, stop)
        fault = cuts.fault(content, self._pieces.record_sizes(piece))
        with self._lock:
            self.counts.num_requests += 1
            self.counts.bytes_from_server += len(content)
            self.counts.num_faults += fault is not None
        if fault is None:
            return content, None
        record = self._pieces.first_in_shard(piece) + fault[0]
        url = (self._files.location / shard.name).shown
        return content, (
            f"{url}: bytes {start} to {stop} came back wrong, at record {record}: "
            f"{fault[1]}."
        )

    def keep(self, piece: int, content: memoryview, mark: int) -> bool:
        """Writes a claimed piece and ends the claim; returns False on a full disk.

        Raises:
            OSError: If the disk fails otherwise; the claim holds then.
        """
        try:
            self.store.write(piece, content)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.directory.note_full_disk()
            self.directory.give_up(self.store, piece)
            self.say_once(
                f"the disk of {self.directory.path} is full, although the cache may "
                f"have {self.directory.max_bytes} bytes. Reading goes on with the "
                "room there is, and through memory."
            )
            return False
        self.store.marks[piece] = mark
        self.store.unclaim(piece)
        return True

    def say_once(self, text: str) -> None:
        """Prints a line, once in the process."""
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def say(self, text: str) -> None:
        """Prints a line on stderr."""
        print(f"shard cache: {text}", file=sys.stderr, flush=True)
