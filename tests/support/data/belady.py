"""Belady's rule as a measure: the most hits that a cache of some size can have."""

from collections.abc import Iterable

import numpy as np

from tfpipe.shard_cache import next_use
from tfpipe.shards.records import Ints


def optimal_hits(windows: Iterable[Ints], costs: Ints, max_bytes: int) -> float:
    """Returns the share of uses that Belady's rule serves from a cache.

    The rule knows all uses to the end, and fetches a piece at its use.

    Args:
        windows: The pieces of every window, in the order of use.
        costs: int64 [num_pieces], bytes of every piece.
        max_bytes: Bytes of the cache; the cache is empty at first.
    """
    use = np.zeros(len(costs), np.int32)
    plan = next_use.UsePlan(use)
    for pieces in windows:
        # A piece is a window of its own, as in Belady's sequence of references.
        for piece in pieces:
            plan.add(np.array([piece]), 1)
    is_there = np.zeros(len(costs), np.bool_)
    hits, left, num_uses = 0, max_bytes, plan.time
    never = np.iinfo(np.int32).max
    while plan.windows:
        piece = int(plan.windows[0].pieces[0])
        plan.release()
        if is_there[piece]:
            hits += 1
            continue
        is_there[piece] = True
        left -= int(costs[piece])
        while left < 0:
            # The piece itself may go as well, right after its use.
            later = np.where(use == next_use.NO_USE, never, use)
            victim = int(np.argmax(np.where(is_there, later, -1)))
            is_there[victim] = False
            left += int(costs[victim])
    return hits / max(num_uses, 1)
