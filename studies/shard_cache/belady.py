"""The best hit rate of any cache, for a given order of reading.

In: the pieces of all windows, and their bytes. Out: the share of uses served by
Belady's rule: the cache drops the piece with the farthest next use (L. A. Belady, IBM
Systems Journal 5(2), 1966). The shard cache, judged by the rule, shares no code with
it.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tfpipe


def windows(source: Any, num_epochs: int) -> Iterator[list[int]]:
    """Yields the pieces of every window of a source, epoch after epoch.

    Args:
        source: A `TFRecordSource` with a shard cache.
        num_epochs: Number of epochs.
    """
    pieces, order = source.split_index.open_cache.pieces, source.order
    for epoch in range(num_epochs):
        position = source.position(tfpipe.State(epoch=epoch))
        for index in order.windows(source.rank, position):
            window = order.window(source.rank, position, index)
            yield pieces.of(window.ranges).tolist()


def piece_bytes(source: Any) -> list[int]:
    """Returns the bytes of all pieces."""
    pieces = source.split_index.open_cache.pieces
    sizes: list[int] = (pieces.stop - pieces.start).tolist()
    return sizes


def hit_rate(
    read: Iterable[Sequence[int]], num_bytes: Sequence[int], max_bytes: int
) -> float:
    """Returns the share of hits, 0 to 1, of an optimal cache.

    A piece may be dropped right after its use: a help for the rule.

    Args:
        read: The pieces of all windows; a piece of a window is a use.
        num_bytes: Bytes of a piece.
        max_bytes: Bytes in the cache at most.
    """
    uses = [piece for window in read for piece in window]
    following = [math.inf] * len(uses)
    last: dict[int, int] = {}
    for step in reversed(range(len(uses))):
        following[step] = last.get(uses[step], math.inf)
        last[uses[step]] = step
    there: dict[int, float] = {}  # piece -> step of its next use
    farthest: list[tuple[float, int]] = []  # a heap of (-next use, piece), some stale
    hits, left = 0, max_bytes
    for step, piece in enumerate(uses):
        if piece in there:
            hits += 1
        else:
            left -= num_bytes[piece]
        there[piece] = following[step]
        heapq.heappush(farthest, (-following[step], piece))
        while left < 0:
            use, victim = heapq.heappop(farthest)
            if there.get(victim) == -use:
                del there[victim]
                left += num_bytes[victim]
    return hits / max(len(uses), 1)
