"""The best hit rate that any cache can have, for a given order of reading.

In: the pieces of each window, and their bytes. Out: the share of uses that Belady's
rule serves: of the pieces that are there, the one whose next use is farthest goes (L.
A. Belady, IBM Systems Journal 5(2), 1966). This is written apart from the shard cache,
which it judges.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tfpipe


def windows(source: Any, num_epochs: int) -> Iterator[list[int]]:
    """Yields the pieces of each window that a source reads, epoch after epoch.

    Args:
        source: A `TFRecordSource` that reads through a shard cache.
        num_epochs: Number of epochs.
    """
    pieces, order = source.split_index.open_cache.pieces, source.order
    for epoch in range(num_epochs):
        place = source.place(tfpipe.State(epoch=epoch))
        for number in order.windows(source.rank, place):
            window = order.window(source.rank, place, number)
            yield pieces.of(window.ranges).tolist()


def piece_bytes(source: Any) -> list[int]:
    """Returns the bytes of each piece."""
    pieces = source.split_index.open_cache.pieces
    sizes: list[int] = (pieces.stop - pieces.start).tolist()
    return sizes


def hit_rate(
    read: Iterable[Sequence[int]], num_bytes: Sequence[int], max_bytes: int
) -> float:
    """Returns the share of uses, 0 to 1, that an optimal cache has the piece for.

    A piece that was just used may be dropped at once, which only helps the rule.

    Args:
        read: The pieces of each window; each piece of a window is one use.
        num_bytes: Bytes of each piece.
        max_bytes: Bytes that fit in the cache.
    """
    uses = [piece for window in read for piece in window]
    following = [math.inf] * len(uses)
    last: dict[int, int] = {}
    for place in reversed(range(len(uses))):
        following[place] = last.get(uses[place], math.inf)
        last[uses[place]] = place
    there: dict[int, float] = {}  # piece -> place of its next use
    farthest: list[tuple[float, int]] = []  # a heap of (-next use, piece), some stale
    hits, left = 0, max_bytes
    for place, piece in enumerate(uses):
        if piece in there:
            hits += 1
        else:
            left -= num_bytes[piece]
        there[piece] = following[place]
        heapq.heappush(farthest, (-following[place], piece))
        while left < 0:
            use, victim = heapq.heappop(farthest)
            if there.get(victim) == -use:
                del there[victim]
                left += num_bytes[victim]
    return hits / max(len(uses), 1)
