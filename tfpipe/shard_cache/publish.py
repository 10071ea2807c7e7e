"""Publishing: a whole shard is compared with the digest in the index, and synced.

In: the numbers of shards whose pieces may all be there. Out: published shards, kept
after a reboot; or pieces that are marked as wrong. Shards that are whole at the same
time are checked and synced together, so that the disk waits once for many shards.
Imports no TensorFlow.
"""

import concurrent.futures
import contextlib
import itertools
import queue
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import xxhash

from tfpipe.shard_cache import disk, lines, pieces as cuts, store as stores
from tfpipe.shard_cache.fetch import Fetcher
from tfpipe.shard_cache.pieces import Pieces
from tfpipe.shards import index

# Bytes of pieces that wait for earlier pieces of their shards.
_WAITING_BYTES = 64 << 20
# Shards that are checked and synced at once, and the threads for it.
_MOST_SHARDS, _NUM_THREADS = 256, 4
# After the first whole shard others are gathered for so long.
_GATHERING_SECONDS = 0.1


# A whole shard, and whether its bytes are known to have the index's digest.
_Whole = tuple[int, bool]


class Digests:
    """The digests of shards, from their pieces in memory: no file is read again.

    The pieces of a shard must come in about the order of the shard, as in a fill.

    Args:
        pieces: Pieces of the split.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, self._lock = pieces, threading.Lock()
        # By shard: the digest so far, and the next piece.
        self._begun: dict[int, tuple[xxhash.xxh3_128, int]] = {}
        # In the order in which the pieces came.
        self._waiting: dict[int, memoryview] = {}

    def add(self, piece: int, content: memoryview) -> None:
        """Adds the bytes of a piece; they wait if an earlier piece has not come."""
        shard = int(self._pieces.shard[piece])
        with self._lock:
            if not self._pieces.start[piece]:
                self._begun[shard] = xxhash.xxh3_128(), piece
            elif piece < self._begun.get(shard, (None, -1))[1]:
                # The piece came again, perhaps with other bytes.
                self._begun.pop(shard)
            self._waiting[piece] = content
            self._go_on(shard)
            self._forget_oldest()

    def _go_on(self, shard: int) -> None:
        digest, piece = self._begun.get(shard, (xxhash.xxh3_128(), -1))
        while piece in self._waiting and self._pieces.shard[piece] == shard:
            digest.update(self._waiting.pop(piece))
            piece += 1
            self._begun[shard] = digest, piece

    def _forget_oldest(self) -> None:
        """Keeps few bytes: the shards of forgotten pieces are read again."""
        num_bytes = sum(map(len, self._waiting.values()))
        while num_bytes > _WAITING_BYTES:
            num_bytes -= len(self._waiting.pop(next(iter(self._waiting))))

    def take(self, shard: int) -> str | None:
        """Returns the digest of a shard and forgets it; None if a piece was missing."""
        low, high = np.searchsorted(self._pieces.shard, [shard, shard + 1]).tolist()
        with self._lock:
            digest, piece = self._begun.pop(shard, (None, -1))
            for waiting in range(low, high):
                self._waiting.pop(waiting, None)
        return digest.hexdigest() if digest is not None and piece == high else None


class Publisher:
    """Publishes the shards of a split in an own thread.

    Args:
        fetcher: Fetches pieces.
    """

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher, self._pieces = fetcher, fetcher.pieces
        self._directory, self._store = fetcher.directory, fetcher.store
        self._shards: queue.SimpleQueue[_Whole | None] = queue.SimpleQueue()
        self._num_left, self._hurries = 0, threading.Event()
        self._digests = Digests(fetcher.pieces)
        self._lock = threading.Lock()
        self._is_done = threading.Condition(self._lock)
        self.thread = threading.Thread(
            target=self._run, name="shard cache: publisher", daemon=True
        )

    def start(self) -> None:
        """Starts the thread; publishes the shards that a killed process left whole."""
        there = self._store.shard[self._store.marks == stores.PRESENT]
        for shard in sorted(set(there.tolist())):
            self.add(shard)
        self.thread.start()

    def look(self, piece: int, content: memoryview, *, is_in_order: bool) -> None:
        """Takes the bytes of a piece before the piece is marked as present.

        Args:
            piece: Number of the piece.
            content: Its bytes.
            is_in_order: Whether pieces come in about the order of the shard.
        """
        whole = self._store.shards[self._store.shard[piece]]
        if is_in_order or len(content) == whole.num_bytes:
            self._digests.add(piece, content)

    def add(self, shard: int) -> None:
        """Publishes a shard soon if it is whole."""
        if self._has_all(shard):
            is_right = self._digests.take(shard) == self._store.shards[shard].digest
            with self._lock:
                self._num_left += 1
            self._shards.put((shard, is_right))

    def are_left(self, seconds: float) -> bool:
        """Returns whether shards are yet to be published; waits, and gathers no more.

        Args:
            seconds: The longest wait.
        """
        self._hurries.set()
        with self._lock:
            self._is_done.wait_for(lambda: not self._num_left, seconds)
            are_left = self._num_left > 0
        if not are_left:
            self._hurries.clear()
        return are_left and self.thread.is_alive()

    def end(self) -> None:
        """Ends the thread after the current shards."""
        self._shards.put(None)
        self._hurries.set()

    def _run(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(_NUM_THREADS) as threads:
            while shards := self._next_shards():
                try:
                    if not self._fetcher.ended.is_set():
                        self._publish(shards, threads)
                except Exception as error:
                    name = self._store.shards[shards[0][0]].name
                    code = error.errno if isinstance(error, OSError) else None
                    why = f"{error}. {disk.remedy(code)}" if code else str(error)
                    self._fetcher.directory.lines.say_once(
                        f"{name} is not published: {why}"
                    )
                finally:
                    with self._lock:
                        self._num_left -= len(shards)
                        self._is_done.notify_all()

    def _next_shards(self) -> list[_Whole]:
        """Waits for a shard; returns the shards that are whole now, none at the end."""
        shards: list[_Whole] = []
        next_shard = self._shards.get()
        self._hurries.wait(_GATHERING_SECONDS)
        while next_shard is not None:
            shards.append(next_shard)
            if len(shards) == _MOST_SHARDS:
                return shards
            try:
                next_shard = self._shards.get_nowait()
            except queue.Empty:
                return shards
        if shards:
            self._shards.put(None)
        return shards

    def _is_whole(self, shard: int) -> bool:
        """Returns whether a shard is whole and not damaged, but not published."""
        return self._has_all(shard) and not self._store.published(shard).exists()

    def _has_all(self, shard: int) -> bool:
        marks = self._store.marks[self._store.pieces_of(shard)]
        return bool(len(marks) and (marks == stores.PRESENT).all())

    def _publish(
        self,
        shards: Sequence[_Whole],
        threads: concurrent.futures.ThreadPoolExecutor,
    ) -> None:
        """Publishes whole shards with the digest of the index.

        A shard with another digest is fetched again. If the digest stays wrong, its
        pieces are marked as wrong.
        """
        right = list({shard for shard, is_right in shards if is_right})
        unknown = [shard for shard, _ in shards if shard not in right]
        with self._claimed(unknown) as claimed:
            are_right = [*threads.map(self._is_right, claimed)]
            right += itertools.compress(claimed, are_right)
            if right:
                disk.bring_to_disk([self._store.path(shard) for shard in right])
                # Made without the lock: a busy disk makes each of the files wait.
                list(threads.map(self._store.mark_published, right))
                with self._directory.locked():
                    for shard in right:
                        if not self._has_all(shard):  # a piece was evicted meanwhile
                            self._store.published(shard).unlink(missing_ok=True)
            for shard in set(claimed) - set(right):
                self._publish_again(shard)

    @contextlib.contextmanager
    def _claimed(self, shards: Sequence[int]) -> Iterator[list[int]]:
        """Yields the whole shards, without the shards of other processes."""
        num_pieces = len(self._store.marks)
        claimed: list[int] = []
        try:
            for shard in dict.fromkeys(shards):
                if self._is_whole(shard) and self._store.claim(num_pieces + shard):
                    claimed.append(shard)
            yield claimed
        finally:
            for shard in claimed:
                self._store.unclaim(num_pieces + shard)

    def _is_right(self, shard: int) -> bool:
        """Returns whether a shard has its digest."""
        with contextlib.suppress(OSError):  # its pieces are looked at then
            whole = index.describe_file(self._store.path(shard))
            return whole.digest == self._store.shards[shard].digest
        return False

    def _publish_again(self, shard: int) -> None:
        """Mends and publishes a shard with another digest than the index's."""
        there = self._store.pieces_of(shard)
        numbers = range(there.start, there.stop)
        if damaged := [piece for piece in numbers if self._is_damaged_here(piece)]:
            self._directory.mend(self._store, damaged)
            return
        name = self._store.shards[shard].name
        shown = (self._store.location / name).shown
        lines.say(
            f"{shown} has another digest than index.json says, though each record "
            "has right CRCs. It is fetched again."
        )
        fetched = xxhash.xxh3_128()
        for piece in numbers:
            content = self._fetcher.download(piece, is_anew=True)[0]
            fetched.update(content)
            self._store.write(piece, content)
        if is_right := self._is_right(shard):
            disk.bring_to_disk([self._store.path(shard)])
        with self._directory.locked():
            if not self._is_whole(shard):
                return  # a piece was evicted meanwhile
            if is_right:
                self._store.published(shard).touch()
                return
            if fetched.hexdigest() == self._store.shards[shard].digest:
                return  # others harmed the file since: its readers look at each piece
            self._store.marks[there] = stores.WRONG
        lines.say(f"{shown} has another digest again, and is not used.")

    def _is_damaged_here(self, piece: int) -> bool:
        """Returns whether the local disk has other bytes than the store gave."""
        try:
            content = self._store.read(piece)
        except OSError:
            return True
        return cuts.fault(content, self._pieces.record_sizes(piece)) is not None
