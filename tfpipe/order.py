"""Order as arithmetic: which records a rank reads in an epoch, and in which order.

In: the layout of a split (records per shard, byte offset of each record) and the
numbers (seed, epoch, rank, num_ranks). Out: extents, runs of consecutive records of
one shard. Pure numpy, so that every property can be tested without TensorFlow.

Records are numbered 0 to N - 1 through the shards in order. An epoch is cut into blocks
of consecutive records, the blocks are permuted, and the ranks share the resulting
sequence by record: three shards feed eight ranks evenly.
"""

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Remainder = Literal["drop", "keep"]


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """Where the records of a split are.

    Attributes:
        shard_sizes: int64 [num_shards], records in each shard.
        byte_offsets: int64 [num_records], where each record starts in its shard.
    """

    shard_sizes: Ints
    byte_offsets: Ints

    def __post_init__(self) -> None:
        if self.shard_sizes.sum() != len(self.byte_offsets):
            raise ValueError(
                f"shard_sizes must add up to the {len(self.byte_offsets)} records of "
                f"byte_offsets, got {self.shard_sizes.sum()}."
            )

    @property
    def num_records(self) -> int:
        """Records in the split."""
        return len(self.byte_offsets)


@dataclasses.dataclass(frozen=True, eq=False)
class Extents:
    """Runs of consecutive records, in reading order; all arrays int64 [num_extents].

    Attributes:
        shard: Number of the shard.
        byte_offset: Where the first record starts in the shard.
        num_records: Records in the run.
        first_record: Number of the first record in the split.
    """

    shard: Ints
    byte_offset: Ints
    num_records: Ints
    first_record: Ints


def share(
    num_records: int, *, rank: int, num_ranks: int, remainder: Remainder
) -> tuple[int, int]:
    """The (start, stop) positions of an epoch's sequence that belong to a rank.

    "drop" gives every rank floor(N / R) records; the up to R - 1 left over are the
    last of the epoch's permutation, so other ones each epoch. "keep" leaves nothing
    out; ranks then differ by at most one record.

    Raises:
        ValueError: If rank is not in 0 .. num_ranks - 1, there are fewer records than
            ranks, or remainder is neither "drop" nor "keep".
    """
    if remainder not in ("drop", "keep"):
        raise ValueError(f"remainder must be 'drop' or 'keep', got {remainder!r}.")
    if num_ranks < 1:
        raise ValueError(f"num_ranks must be >= 1, got {num_ranks}.")
    if not 0 <= rank < num_ranks:
        raise ValueError(
            f"rank must be 0 to num_ranks - 1 = {num_ranks - 1}, got {rank}."
        )
    if num_records < num_ranks:
        raise ValueError(
            f"{num_records} records cannot be shared by {num_ranks} ranks: every rank "
            "needs at least one. Use fewer ranks or more data."
        )
    if remainder == "drop":
        size = num_records // num_ranks
        return rank * size, (rank + 1) * size
    return num_records * rank // num_ranks, num_records * (rank + 1) // num_ranks


def steps_per_epoch(
    num_records: int, *, num_ranks: int, batch_size: int, remainder: Remainder
) -> int:
    """Steps that every rank makes in an epoch: whole batches, or with "keep" all.

    Raises:
        ValueError: If the batch size is below 1 or, under "drop", larger than a rank's
            records; and as `share` does.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {batch_size}.")
    start, stop = share(num_records, rank=0, num_ranks=num_ranks, remainder="drop")
    if remainder == "keep":
        largest_share = -(-num_records // num_ranks)
        return -(-largest_share // batch_size)
    if batch_size > stop - start:
        raise ValueError(
            f"batch_size must be at most the {stop - start} records of a rank "
            f"({num_records} records, {num_ranks} ranks), got {batch_size}."
        )
    return (stop - start) // batch_size


def epoch_extents(
    layout: Layout,
    *,
    seed: int,
    epoch: int,
    rank: int = 0,
    num_ranks: int = 1,
    shuffle: bool = True,
    remainder: Remainder = "drop",
    block_length: int = 32,
) -> Extents:
    """The extents that a rank reads in an epoch, in order.

    Args:
        layout: Where the records are.
        seed: Run seed, 0 to 2**64 - 1; the same on every rank.
        epoch: Number of the epoch; each has a permutation of its own.
        rank: This process.
        num_ranks: All processes.
        shuffle: Whether to permute the blocks; False is the order on disk.
        remainder: See `share`.
        block_length: Records of a block: the longest run read in one go.
    """
    first, length, shard = _blocks(layout.shard_sizes, block_length)
    if shuffle:
        order = permutation(len(first), seed=seed, epoch=epoch)
        first, length, shard = first[order], length[order], shard[order]
    start, stop = share(
        layout.num_records, rank=rank, num_ranks=num_ranks, remainder=remainder
    )
    # Cut the sequence to the rank's share; a block across the border is split.
    ends = np.cumsum(length)
    begins = ends - length
    skipped = np.clip(start - begins, 0, length)
    length = np.clip(stop - begins, 0, length) - skipped
    kept = length > 0
    first = (first + skipped)[kept]
    return Extents(shard[kept], layout.byte_offsets[first], length[kept], first)


def permutation(size: int, *, seed: int, epoch: int) -> Ints:
    """A permutation of 0 .. size - 1 that is the same on every machine and version.

    Sorts raw Philox output, whose stream numpy guarantees, unlike that of
    `Generator.permutation`.
    """
    keys = np.random.Philox(key=_key(seed, epoch)).random_raw(size)
    return np.argsort(keys, kind="stable").astype(np.int64)


def epoch_seed(*, seed: int, epoch: int) -> int:
    """What random ops of an epoch are seeded with, beside the record's number."""
    # Another counter block than the one `permutation` draws from.
    raw = np.random.Philox(key=_key(seed, epoch), counter=[0, 0, 0, 1]).random_raw()
    return int(np.uint64(raw).astype(np.int64))


def _key(seed: int, epoch: int) -> npt.NDArray[np.uint64]:
    # Not a list: numpy would make seeds of 2**63 and more float64, so equal to others.
    return np.array([seed, epoch], np.uint64)


def _blocks(shard_sizes: Ints, block_length: int) -> tuple[Ints, Ints, Ints]:
    """First record, length and shard of each block; no block spans two shards."""
    num_blocks = -(-shard_sizes // block_length)
    shard = np.repeat(np.arange(len(shard_sizes)), num_blocks)
    first_block = np.repeat(np.cumsum(num_blocks) - num_blocks, num_blocks)
    within = (np.arange(len(shard)) - first_block) * block_length
    length = np.minimum(block_length, shard_sizes[shard] - within)
    shard_start = np.cumsum(shard_sizes) - shard_sizes
    return shard_start[shard] + within, length, shard
