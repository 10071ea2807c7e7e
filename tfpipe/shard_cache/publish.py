"""Publishing: a whole shard is compared with the digest in the index, and synced.

In: the numbers of shards whose pieces may all be there. Out: published shards, kept
after a reboot; or pieces that are marked as wrong. Imports no TensorFlow.
"""

import os
import pathlib
import queue
import threading

import xxhash

from tfpipe.shard_cache import store as stores
from tfpipe.shard_cache.fetch import Fetcher

_READ_BYTES = 1 << 20


class Publisher:
    """Publishes the shards of a split in a thread of its own.

    Args:
        fetcher: Fetches pieces.
    """

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._directory, self._store = fetcher.directory, fetcher.store
        self._shards: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._num_left = 0
        self._lock = threading.Lock()
        self.thread = threading.Thread(
            target=self._run, name="shard cache: publisher", daemon=True
        )

    def start(self) -> None:
        """Starts the thread; publishes the shards that a killed process left whole."""
        for shard in range(len(self._store.shards)):
            self.add(shard)
        self.thread.start()

    def add(self, shard: int) -> None:
        """Publishes a shard soon if it is whole."""
        if self._is_whole(shard):
            with self._lock:
                self._num_left += 1
            self._shards.put(shard)

    @property
    def is_busy(self) -> bool:
        """Whether a shard is yet to be published."""
        return self._num_left > 0

    def end(self) -> None:
        """Ends the thread after the current shard."""
        self._shards.put(None)

    def _run(self) -> None:
        while (shard := self._shards.get()) is not None:
            try:
                if not self._fetcher.ended.is_set():
                    self._publish(shard)
            except Exception as error:
                name = self._store.shards[shard].name
                self._fetcher.say_once(f"{name} is not published: {error}")
            finally:
                with self._lock:
                    self._num_left -= 1

    def _is_whole(self, shard: int) -> bool:
        """Returns whether a shard is whole and not damaged, but not published."""
        marks = self._store.marks[self._store.pieces_of(shard)]
        is_whole = bool(len(marks) and (marks == stores.PRESENT).all())
        return is_whole and not self._store.published(shard).exists()

    def _publish(self, shard: int) -> None:
        """Publishes a whole shard if it has the index's digest.

        A shard with another digest is fetched again. If the digest stays wrong, its
        pieces are marked as wrong.
        """
        claim = len(self._store.marks) + shard
        if not self._is_whole(shard) or not self._store.claim(claim):
            return
        try:
            if self._publish_if_right(shard):
                return
            name = self._store.shards[shard].name
            shown = (self._store.location / name).shown
            self._fetcher.say(
                f"{shown} has another digest than index.json says, though each record "
                "has right CRCs. It is fetched again."
            )
            there = self._store.pieces_of(shard)
            for piece in range(there.start, there.stop):
                self._store.write(piece, self._fetcher.download(piece)[0])
            if not self._publish_if_right(shard, or_wrong=True):
                self._fetcher.say(f"{shown} has another digest again, and is not used.")
        finally:
            self._store.unclaim(claim)

    def _publish_if_right(self, shard: int, *, or_wrong: bool = False) -> bool:
        """Returns False if the shard is whole, but its digest is wrong."""
        is_right = _digest(self._store.path(shard)) == self._store.shards[shard].digest
        with self._directory.locked():
            if not self._is_whole(shard):
                return True  # a piece was evicted meanwhile
            if is_right:
                self._store.published(shard).touch()
            elif or_wrong:
                self._store.marks[self._store.pieces_of(shard)] = stores.WRONG
        return is_right


def _digest(path: pathlib.Path) -> str:
    """Returns the digest of a file, and brings the file to the disk."""
    digest, buffer = xxhash.xxh3_128(), bytearray(_READ_BYTES)
    with open(path, "rb+", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
        os.fsync(file.fileno())
    return digest.hexdigest()
