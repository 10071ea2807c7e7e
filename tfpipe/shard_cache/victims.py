"""Victims: the pieces that make room, those whose next use is farthest away.

In: the stores of a directory, under its lock. Out: freed bytes. The rule is Belady's
rule on a random sample of the pieces: the victims are the farthest of about 2,000
pieces, so the cost of a victim does not grow with the cache.
"""

import collections
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tfpipe.shard_cache import next_use, store as stores
from tfpipe.shard_cache.store import PieceStore
from tfpipe.shards.records import Ints

# Pieces to look at in each store. All pieces of a small store are looked at.
_SAMPLE, _SMALL = 2048, 8192
_CHUNK = 1 << 16
# Marks of pieces with bytes on the disk.
_THERE = stores.WRONG

_random = np.random.default_rng()


class Victims:
    """Evicts pieces under the directory's lock, the pieces used farthest away first.

    Args:
        all_stores: The stores of the directory.
        on_unread: Is called with a store that nobody reads, before its pieces go.
    """

    def __init__(
        self, all_stores: Sequence[PieceStore], on_unread: Callable[[PieceStore], None]
    ) -> None:
        self._on_unread = on_unread
        for store in all_stores:
            store.users.look()
        self._unread = [s for s in all_stores if not s.users.has_found()]
        self._read = [s for s in all_stores if s.users.has_found()]
        self._unread_pieces = self._of_unread()
        self._sampled = collections.deque[tuple[int, PieceStore, int]]()

    def distance(self, store: PieceStore, piece: int) -> int:
        """Returns the records until the next use of a piece, at least 0."""
        return max(int(store.users.distances(np.array([piece]))[0]), 0)

    def free(self, num_bytes: int, least: int) -> int:
        """Evicts pieces whose next use is farther away than `least` records.

        Returns:
            The freed bytes; fewer than `num_bytes` if no piece may go.
        """
        freed = 0
        for store, piece in self._unread_pieces:
            freed += _evict(store, piece)
            if freed >= num_bytes:
                return freed
        while freed < num_bytes:
            if not self._sampled:
                self._sampled = self._sample(_sample)
            if not self._sampled and not least:
                # Nearly all pieces are in use: all are looked at.
                self._sampled = self._sample(_all)
            if not self._sampled or self._sampled[0][0] <= least:
                break
            _, store, piece = self._sampled.popleft()
            freed += _evict(store, piece)
        return freed

    def _of_unread(self) -> Iterator[tuple[PieceStore, int]]:
        """Yields the pieces that nobody reads, of the oldest data first."""
        for store in sorted(self._unread, key=last_opened):
            if store.num_bytes():
                self._on_unread(store)
            for begin in range(0, len(store.marks), _CHUNK):
                if not store.num_bytes():
                    break
                part = np.flatnonzero(store.marks[begin : begin + _CHUNK] >= _THERE)
                for piece in (begin + part).tolist():
                    yield store, piece

    def _sample(
        self, choose: Callable[[PieceStore], Ints]
    ) -> collections.deque[tuple[int, PieceStore, int]]:
        """Returns (distance, store, piece) of possible victims, the farthest first."""
        found: list[tuple[int, PieceStore, int]] = []
        for store in self._read:
            pieces = choose(store)
            distances = store.users.distances(pieces)
            may_go = distances > next_use.PINNED
            rows = np.stack([distances, pieces], axis=1)[may_go].tolist()
            found += [(distance, store, piece) for distance, piece in rows]
        found.sort(key=lambda victim: -victim[0])
        return collections.deque(found)


def _all(store: PieceStore) -> Ints:
    return np.flatnonzero(store.marks >= _THERE)


def _sample(store: PieceStore) -> Ints:
    """Returns pieces that are there: all of a small store, or some at random."""
    share = store.num_bytes() / max(store.total_cost, 1)
    num_tries = _SAMPLE / max(share, 1e-9)
    if num_tries * 2 > len(store.marks) or len(store.marks) <= _SMALL:
        return _all(store)
    tried = _random.integers(0, len(store.marks), int(num_tries))
    pieces: Ints = np.unique(tried[store.marks[tried] >= _THERE])
    return pieces


def _evict(store: PieceStore, piece: int) -> int:
    """Evicts a piece, unless a reader has come to need it; returns the freed bytes."""
    mark = store.marks[piece]
    # A reader first publishes its needs and then looks at the marks.
    store.marks[piece] = stores.FETCHING
    if store.users.are_using(piece):
        store.marks[piece] = mark
        return 0
    store.drop(piece)
    return int(store.costs[piece])


def last_opened(store: PieceStore) -> float:
    """Returns the time of the last opening of a store."""
    return (store.folder / "manifest.json").stat().st_mtime
