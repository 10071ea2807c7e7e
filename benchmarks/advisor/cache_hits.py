"""Hits of a cache that is smaller than the data set.

In: the share of the data that fits. Out: the share of reads that the cache gives, from
the second epoch on. Each epoch reads every piece once, in a new random order.
"""

import math


def least_recently_used(share: float) -> float:
    """Returns the hits of a cache that evicts what was not used for longest.

    The page cache of a kernel is about such a cache. A piece was read at time u of an
    epoch and is read again at time v of the next one. Between them the cache read a
    share 1 - u (1 - v) of the pieces, and a hit needs a share below that of the cache.

    Args:
        share: Bytes of the cache over bytes of the data, >= 0.

    Raises:
        ValueError: If the share is below 0.
    """
    _check(share)
    return 1.0 if share >= 1 else share + (1 - share) * math.log1p(-share)


def optimal(share: float) -> float:
    """Returns the hits of a cache that evicts what is used again last (Belady's rule).

    The shard cache of tfpipe knows the order of all reads, and follows this rule. No
    cache can do better than to keep the same pieces all the time.

    Args:
        share: Bytes of the cache over bytes of the data, >= 0.

    Raises:
        ValueError: If the share is below 0.
    """
    _check(share)
    return min(share, 1.0)


def _check(share: float) -> None:
    if not share >= 0:
        raise ValueError(f"share must be >= 0, got {share}.")
