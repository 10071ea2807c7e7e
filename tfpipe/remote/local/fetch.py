"""Fetching one piece: a ranged read, its check, and the store; publishing a shard.

In: the number of a piece that this process has claimed. Out: its right bytes in the
store. Wrong bytes are named on stderr and fetched again. Imports no TensorFlow.
"""

import collections
import dataclasses
import errno
import itertools
import random
import sys
import threading
import time
from typing import Protocol

import xxhash

from tfpipe import errors
from tfpipe.remote import urls
from tfpipe.remote.local import pieces as cuts, store as stores
from tfpipe.remote.local.directory import Directory
from tfpipe.remote.local.pieces import Pieces
from tfpipe.remote.local.store import Store

# A store that gives the same wrong bytes this often has them on its own disks.
_NUM_EQUAL_ANSWERS = 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0


class Ranges(Protocol):
    """The part of `files.Files` that is used here."""

    @property
    def place(self) -> str:
        """The folder or URL of the shards."""

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Returns bytes of a file; several threads call it at once."""


@dataclasses.dataclass
class Counts:
    """Figures of one process, see `shard_cache.CacheStatistics`."""

    bytes_from_server: int = 0
    num_requests: int = 0
    num_faults: int = 0


class Fetcher:
    """Fetches pieces of one split; several threads use it.

    Args:
        files: The files of the data set.
        directory: Directory of the cache.
        store: Store of the split.
        pieces: Pieces of the split.
        time_limit: Seconds that one piece may take with all retries.
    """

    def __init__(
        self,
        files: Ranges,
        directory: Directory,
        store: Store,
        pieces: Pieces,
        *,
        time_limit: float,
    ) -> None:
        self._files, self._directory, self._store = files, directory, store
        self._pieces, self._time_limit = pieces, time_limit
        self._lock = threading.Lock()
        self.counts = Counts()
        self.ended = threading.Event()
        self._said: set[str] = set()

    def download(self, piece: int) -> tuple[bytes, int]:
        """Returns the bytes of a piece and its mark, PRESENT or DAMAGED.

        Raises:
            RemoteError: If the store does not answer, or gives wrong bytes until the
                time limit.
        """
        end = time.monotonic() + self._time_limit
        answers: collections.Counter[bytes] = collections.Counter()
        for number in itertools.count():
            content, fault = self._ask(piece)
            if fault is None:
                return content, stores.PRESENT
            answer = xxhash.xxh3_128_digest(content)
            answers[answer] += 1
            if answers[answer] == _NUM_EQUAL_ANSWERS:
                self.say(f"{fault} This is so in the store itself, and so is kept.")
                return content, stores.DAMAGED
            pause = _FIRST_PAUSE_SECONDS * 2**number * random.uniform(0.5, 1.5)
            pause = min(pause, _LONGEST_PAUSE_SECONDS)
            if time.monotonic() + pause > end:
                raise errors.RemoteError(
                    f"{fault} The bytes were wrong {number + 1} times in "
                    f"{self._time_limit} s. Check the store and the connection to it."
                )
            self.say(f"{fault} It is fetched again.")
            self.ended.wait(pause)
        raise AssertionError("unreachable")

    def _ask(self, piece: int) -> tuple[bytes, str | None]:
        """Requests a piece once; returns its bytes and what is wrong with them."""
        shard = self._store.shards[self._pieces.shard[piece]]
        start, stop = int(self._pieces.start[piece]), int(self._pieces.stop[piece])
        content = self._files.read_range(shard.name, start, stop)
        found = cuts.fault(content, self._pieces.record_sizes(piece))
        with self._lock:
            self.counts.num_requests += 1
            self.counts.bytes_from_server += len(content)
            self.counts.num_faults += found is not None
        if found is None:
            return content, None
        record = self._pieces.first_in_shard(piece) + found[0]
        place = urls.shown(urls.join(self._files.place, shard.name))
        return content, (
            f"{place}: bytes {start} to {stop} came back wrong, at record {record}: "
            f"{found[1]}."
        )

    def keep(self, piece: int, content: bytes, mark: int) -> bool:
        """Writes a claimed piece and ends the claim; False if the disk is full."""
        try:
            self._store.write(piece, content)
        except OSError as error:
            self._directory.give_up(self._store, piece)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._directory.note_full_disk()
            self.say_once(
                f"the disk of {self._directory.path} is full, although the cache may "
                f"have {self._directory.max_bytes} bytes. Reading goes on with the "
                "room there is, and through memory."
            )
            return False
        self._store.marks[piece] = mark
        self._store.unclaim(piece)
        return True

    def is_whole(self, shard: int) -> bool:
        """Returns whether a shard is whole and not damaged, but not published."""
        marks = self._store.marks[self._store.pieces_of(shard)]
        is_present = bool(len(marks) and (marks == stores.PRESENT).all())
        return is_present and not self._store.published(shard).exists()

    def publish(self, shard: int) -> None:
        """Publishes a whole shard if it has the index's digest, for the next boot too.

        With another digest it is fetched once more. If that does not help, its pieces
        are marked as wrong.
        """
        claim = len(self._pieces) + shard
        if not self._store.claim(claim):
            return
        try:
            if self._publish_if_right(shard):
                return
            shown = urls.shown(
                urls.join(self._files.place, self._store.shards[shard].name)
            )
            self.say(
                f"{shown} has another digest than index.json says, though each record "
                "has right CRCs. It is fetched again."
            )
            there = self._store.pieces_of(shard)
            for piece in range(there.start, there.stop):
                self._store.write(piece, self.download(piece)[0])
            if not self._publish_if_right(shard, or_wrong=True):
                self.say(f"{shown} has another digest again, and is not used.")
        finally:
            self._store.unclaim(claim)

    def _publish_if_right(self, shard: int, *, or_wrong: bool = False) -> bool:
        """Returns False if the shard is whole, but its digest is wrong."""
        is_right = self._store.digest(shard) == self._store.shards[shard].digest
        with self._directory.locked():
            if not self.is_whole(shard):
                return True  # a piece was evicted meanwhile
            if is_right:
                self._store.published(shard).touch()
            elif or_wrong:
                self._store.marks[self._store.pieces_of(shard)] = stores.WRONG
        return is_right

    def say_once(self, text: str) -> None:
        """Prints a line, once in the process."""
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def say(self, text: str) -> None:
        """Prints a line on stderr."""
        print(f"shard cache: {text}", file=sys.stderr, flush=True)
