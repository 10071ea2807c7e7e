"""Blocks: consecutive records of a shard, and random words to permute them.

In: the shards or parts of shards, as ranges of records, and the random words of an
epoch. Out: their blocks in random order. The random words are raw output of Philox:
numpy guarantees its stream, and does not guarantee that of `Generator.permutation`.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tfpipe.shards.ranges import RecordRanges
from tfpipe.shards.records import Ints


def random(seed: int, epoch: int, *counter: int) -> np.random.Philox:
    """Returns the random words of a seed and an epoch for one use.

    Args:
        seed: Run seed, 0 to 2**64 - 1.
        epoch: Number of the epoch.
        counter: The other words of Philox' counter after the first; other numbers are
            for another use, and give other random words.
    """
    # numpy converts a list with a seed of 2**63 or more to float64. Different seeds are
    # equal as float64, so the key is an array.
    key = np.array([seed, epoch], np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, *counter], np.uint64))


def permuted(
    ranges: RecordRanges, block_length: int | None, random: np.random.Philox
) -> RecordRanges:
    """Returns the blocks of ranges in random order.

    Args:
        ranges: Ranges of records; no block spans two ranges.
        block_length: Records of a block; None permutes single records.
        random: The random words, from their beginning.
    """
    if block_length is not None:
        blocks = cut(ranges, block_length)
        return taken(blocks, permutation(len(blocks.first), random))
    size = int(ranges.length.sum())
    turn = _sorted(random.random_raw(size))
    if (ranges.first != ranges.ends - ranges.length).any():
        turn = ranges.records()[turn]
    return RecordRanges(turn, np.broadcast_to(np.int64(1), size))


def cut(ranges: RecordRanges, block_length: int) -> RecordRanges:
    """Returns the ranges, cut into blocks of a length, or less at the end of each."""
    num_blocks = -(-ranges.length // block_length)
    length = np.full(int(num_blocks.sum()), block_length, np.int64)
    is_filled = ranges.length > 0
    last = np.cumsum(num_blocks)[is_filled] - 1
    length[last] -= (num_blocks * block_length - ranges.length)[is_filled]
    moved = np.repeat(ranges.first - (ranges.ends - ranges.length), num_blocks)
    return RecordRanges(moved + np.cumsum(length) - length, length)


def taken(ranges: RecordRanges, turn: Ints) -> RecordRanges:
    """Returns the ranges with some numbers, in the order of the numbers."""
    return RecordRanges(ranges.first[turn], ranges.length[turn])


def joined(parts: Iterable[RecordRanges]) -> RecordRanges:
    """Returns the records of all parts, one part after the other."""
    filled = [part for part in parts if len(part.first)]
    if len(filled) == 1:
        return filled[0]
    empty = np.empty(0, np.int64)
    return RecordRanges(
        np.concatenate([empty, *(part.first for part in filled)]),
        np.concatenate([empty, *(part.length for part in filled)]),
    )


def permutation(size: int, random: np.random.Philox) -> Ints:
    """Returns a permutation of 0 .. size - 1, equal on every machine and version."""
    turn: Ints = _sorted(random.random_raw(size)).astype(np.int64)
    return turn


def _sorted(keys: npt.NDArray[np.uint64]) -> Any:
    """Returns the stable order of keys, in half the time of a single sort.

    numpy sorts 16 bits in linear time. By their upper 32 bits almost all keys are in
    order, which the last sort makes use of. Sorting needs the most memory of an order:
    each array ends early, and the order of up to 2**32 keys takes 4 bytes a key.
    """
    kind = np.uint32 if len(keys) < 1 << 32 else np.int64
    quarters = np.ascontiguousarray(keys, "<u8").view("<u2").reshape(-1, 4)
    order = np.argsort(quarters[:, 2], kind="stable").astype(kind)
    order = order[np.argsort(quarters[order, 3], kind="stable")]
    del quarters
    keys = keys[order]
    return order[np.argsort(keys, kind="stable")]
