"""Order as arithmetic: which records a rank reads in an epoch, and in which order.

In: the number of records in each shard of a split, and the numbers (seed, epoch, rank,
num_ranks, batch size, steps already made). Out: windows, each some runs of records to
read, how to permute them, and which of them to pass on. Pure numpy, so that every
property can be tested without TensorFlow.

Records are numbered 0 to N - 1 through the shards in order. An epoch is cut into blocks
of consecutive records and the blocks are permuted over the whole split. The ranks share
the resulting sequence by record, so three shards feed eight ranks evenly; each rank
cuts its share into windows and permutes the records inside each.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tfpipe import errors
from tfpipe.reading import philox
from tfpipe.shards.records import Ints

Remainder = Literal["drop", "pad"]
Shuffle = Literal["none", "window", "full"]


@dataclasses.dataclass(frozen=True, eq=False)
class RecordRanges:
    """Records in some order, as runs of consecutive ones; int64 [num_runs] each.

    Attributes:
        first: Number of the first record of each run.
        length: Records in each run, all > 0.
    """

    first: Ints
    length: Ints

    @functools.cached_property
    def ends(self) -> Ints:
        """Position after each run."""
        return np.cumsum(self.length)

    @property
    def num_records(self) -> int:
        """Records in all runs."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def cut(self, start: int, stop: int) -> "RecordRanges":
        """Those at positions start to stop - 1, in the same order."""
        if start >= stop:
            return RecordRanges(np.empty(0, np.int64), np.empty(0, np.int64))
        low = int(np.searchsorted(self.ends, start, side="right"))
        high = int(np.searchsorted(self.ends, stop, side="left")) + 1
        first, length = self.first[low:high].copy(), self.length[low:high].copy()
        length[-1] -= self.ends[high - 1] - stop
        skipped = start - (int(self.ends[low]) - int(self.length[low]))
        first[0] += skipped
        length[0] -= skipped
        return RecordRanges(first, length)

    def records(self) -> Ints:
        """int64 [num_records], the number of each record, in order."""
        starts = self.first - (self.ends - self.length)
        records: Ints = np.repeat(starts, self.length) + np.arange(self.num_records)
        return records


class Phase(NamedTuple):
    """A part of an epoch that was read by some number of ranks.

    Attributes:
        num_ranks: How many.
        num_records: Records that each rank read.
    """

    num_ranks: int
    num_records: int


class Place(NamedTuple):
    """Where an epoch is gone on with: what `state.place` makes of a saved one.

    Attributes:
        epoch: Number of the epoch.
        phases: What other numbers of ranks read of it before.
        start: Records that each rank has read of it since.
    """

    epoch: int = 0
    phases: tuple[Phase, ...] = ()
    start: int = 0


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Window:
    """Records to read together.

    Attributes:
        runs: What to read; in the order on disk if the window is shuffled.
        seed: Of `philox.shuffled`, which says in which order to pass the records on;
            None leaves them.
        skip: Records to leave out at the start, after shuffling.
        take: Records to pass on after these.
        real: False if the records only fill up the last batch.
    """

    runs: RecordRanges
    seed: tuple[int, int] | None
    skip: int
    take: int
    real: bool

    def records(self) -> Ints:
        """int64 [take], the number of each record that is passed on, in order."""
        records = self.runs.records()
        if self.seed is not None:
            records = records[philox.shuffled(len(records), self.seed)]
        return records[self.skip : self.skip + self.take]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Order:
    """The order of a split for some number of ranks.

    Args:
        shard_sizes: int64 [num_shards], records in each shard.
        seed: Run seed, 0 to 2**64 - 1; the same on every rank.
        shuffle: "window" permutes blocks over the split and records in each window;
            "full" permutes all records, so reads them one by one; "none" is the order
            on disk.
        block_length: Records of a block: the longest run read in one go.
        window_size: Records of a window; two of them are in memory.
        num_ranks: All processes.
        batch_size: Examples in a batch of one rank; every rank makes the same steps.
        remainder: "drop" leaves out what does not fill a step on every rank, other
            records each epoch; "pad" leaves none out and fills up with records that
            are not real.

    Raises:
        ValueError: If an argument is out of range, or under "drop" there is not one
            step in an epoch.
    """

    shard_sizes: Ints
    seed: int = 0
    shuffle: Shuffle = "window"
    block_length: int = 32
    window_size: int = 1024
    num_ranks: int = 1
    batch_size: int = 1
    remainder: Remainder = "drop"

    def __post_init__(self) -> None:
        for name, choices in {
            "shuffle": ("none", "window", "full"),
            "remainder": ("drop", "pad"),
        }.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(choices)}, got {value!r}."
                )
        sizes = ("block_length", "window_size", "num_ranks", "batch_size")
        errors.settle_ints(self, sizes, least=1)
        errors.settle_ints(self, ["seed"], least=0, most=errors.MOST_SEED)
        if self.num_records == 0 or self.num_steps() == 0:
            raise ValueError(
                f"An epoch must have at least one step: {self.num_records} records "
                f"cannot give {self.num_ranks} ranks a batch of {self.batch_size} "
                "each. Use fewer ranks, smaller batches or more data."
            )

    @property
    def num_records(self) -> int:
        """Records in the split."""
        return int(self.shard_sizes.sum())

    def num_steps(self, place: Place | None = None) -> int:
        """Steps that every rank makes in an epoch, or from a place to its end."""
        place = place or Place()
        num_left = self.num_records
        for phase in place.phases:
            num_left -= sum(
                min(phase.num_records, stop - start)
                for start, stop in _shares(num_left, phase.num_ranks, self.remainder)
            )
        if self.remainder == "pad":
            num_each = -(-num_left // self.num_ranks)
            return -(-max(num_each - place.start, 0) // self.batch_size)
        num_each = num_left // self.num_ranks
        return max(num_each - place.start, 0) // self.batch_size

    def windows(self, rank: int, place: Place) -> range:
        """The numbers of the windows that a rank reads from a place on."""
        num_real = self._num_real(rank, place)
        num_read = place.start + self.num_steps(place) * self.batch_size
        first = min(place.start, num_real) // self.window_size
        last = -(-min(num_read, num_real) // self.window_size)
        return range(first, last + (num_read > num_real))

    def window(self, rank: int, place: Place, number: int) -> Window:
        """One of them. The one after the last real record holds what fills up."""
        num_real = self._num_real(rank, place)
        num_read = place.start + self.num_steps(place) * self.batch_size
        begin = number * self.window_size
        if begin >= num_real:
            missing = num_read - max(num_real, place.start)
            fillers = np.full(missing, rank % self.num_records)
            return Window(
                runs=RecordRanges(fillers, np.ones_like(fillers)),
                seed=None,
                skip=0,
                take=missing,
                real=False,
            )
        end = min(begin + self.window_size, num_real)
        skip = max(place.start - begin, 0)
        base = self._base(place.epoch, place.phases)
        start, _ = _shares(base.num_records, self.num_ranks, self.remainder)[rank]
        runs = base.cut(start + begin, start + end)
        runs, seed = _shuffled(self, place, runs, start + begin)
        take = min(end, num_read) - begin - skip
        return Window(runs=runs, seed=seed, skip=skip, take=take, real=True)

    def leftover(self, epoch: int, phases: tuple[Phase, ...]) -> Ints:
        """int64, sorted: the records of an epoch that no rank read in these phases."""
        return np.sort(self._base(epoch, phases).records())

    def _num_real(self, rank: int, place: Place) -> int:
        num_left = self._base(place.epoch, place.phases).num_records
        start, stop = _shares(num_left, self.num_ranks, self.remainder)[rank]
        return stop - start

    @functools.cached_property
    def _base(self) -> Callable[[int, tuple[Phase, ...]], RecordRanges]:
        """(epoch, phases) -> what is left of the epoch; remembers the last few."""
        return functools.lru_cache(maxsize=4)(self._compute_base)

    def _compute_base(self, epoch: int, phases: tuple[Phase, ...]) -> RecordRanges:
        if not phases:
            return _blocks(self, epoch)
        return _unread(self, Place(epoch, phases[:-1]), phases[-1])


def _unread(order: Order, place: Place, phase: Phase) -> RecordRanges:
    """What a phase that began at a place left of the epoch."""
    base = order._base(place.epoch, place.phases)
    shares = _shares(base.num_records, phase.num_ranks, order.remainder)
    parts = []
    for start, stop in shares:
        read = min(start + phase.num_records, stop)
        # The rest of the window that the rank was in, then what comes after it.
        begin = start + (read - start) // order.window_size * order.window_size
        end = min(begin + order.window_size, stop)
        runs, seed = _shuffled(order, place, base.cut(begin, end), begin)
        window = Window(
            runs=runs, seed=seed, skip=read - begin, take=end - read, real=True
        )
        rest = window.records()
        parts.append(_join(rest if seed is None else np.sort(rest)))
        parts.append(base.cut(end, stop))
    parts.append(base.cut(shares[-1][1], base.num_records))
    return RecordRanges(
        np.concatenate([part.first for part in parts]),
        np.concatenate([part.length for part in parts]),
    )


def _shuffled(
    order: Order, place: Place, runs: RecordRanges, begin: int
) -> tuple[RecordRanges, tuple[int, int] | None]:
    """What to read of the window that begins there, and the seed to permute it."""
    if order.shuffle == "none":
        return runs, None
    # Another counter block than those of `permutation` and `epoch_seed`.
    counter = np.array([0, begin, len(place.phases), 2], np.uint64)
    key = _key(order.seed, place.epoch)
    raw = np.random.Philox(key=key, counter=counter).random_raw(2)
    low, high = raw.astype(np.int64).tolist()
    # Two zeros would mean a seed of TensorFlow's own choice.
    return _join(np.sort(runs.records())), (low, high | 1)


def permutation(size: int, *, seed: int, epoch: int) -> Ints:
    """A permutation of 0 .. size - 1 that is the same on every machine and version.

    Sorts raw Philox output, whose stream numpy guarantees, unlike that of
    `Generator.permutation`.
    """
    keys = np.random.Philox(key=_key(seed, epoch)).random_raw(size)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def epoch_seed(*, seed: int, epoch: int) -> int:
    """What random ops of an epoch are seeded with, beside the record's number."""
    # Another counter block than the one `permutation` draws from.
    raw = np.random.Philox(key=_key(seed, epoch), counter=[0, 0, 0, 1]).random_raw()
    return int(np.uint64(raw).astype(np.int64))


def _key(seed: int, epoch: int) -> npt.NDArray[np.uint64]:
    # Not a list: numpy would make seeds of 2**63 and more float64, so equal to others.
    return np.array([seed, epoch], np.uint64)


def _shares(
    num_records: int, num_ranks: int, remainder: Remainder
) -> list[tuple[int, int]]:
    """The (start, stop) positions of each rank: as many, or under "pad" all."""
    if remainder == "drop":
        size = num_records // num_ranks
        return [(rank * size, (rank + 1) * size) for rank in range(num_ranks)]
    bounds = [num_records * rank // num_ranks for rank in range(num_ranks + 1)]
    return list(itertools.pairwise(bounds))


def _blocks(order: Order, epoch: int) -> RecordRanges:
    """A whole epoch: the blocks, no block spanning two shards, in their order."""
    sizes = order.shard_sizes
    block_length = 1 if order.shuffle == "full" else order.block_length
    num_blocks = -(-sizes // block_length)
    shard = np.repeat(np.arange(len(sizes)), num_blocks)
    first_block = np.repeat(np.cumsum(num_blocks) - num_blocks, num_blocks)
    within = (np.arange(len(shard)) - first_block) * block_length
    length = np.minimum(block_length, sizes[shard] - within)
    first = (np.cumsum(sizes) - sizes)[shard] + within
    if order.shuffle != "none":
        permuted = permutation(len(first), seed=order.seed, epoch=epoch)
        first, length = first[permuted], length[permuted]
    return RecordRanges(first, length)


def _join(records: Ints) -> RecordRanges:
    """Records as runs, neighbors joined."""
    if not len(records):
        return RecordRanges(records, records)
    starts = np.flatnonzero(np.diff(records, prepend=records[0] - 2) != 1)
    length = np.diff(starts, append=len(records))
    return RecordRanges(records[starts], length)


def by_shard(runs: RecordRanges, shard_sizes: Ints) -> tuple[Ints, RecordRanges]:
    """Cuts runs at the ends of shards; int64 [num_runs] the shard of each, and they."""
    ends = np.cumsum(shard_sizes)
    last = np.searchsorted(ends, runs.first + runs.length - 1, side="right")
    shard = np.searchsorted(ends, runs.first, side="right")
    count = last - shard + 1
    of_run = np.repeat(np.arange(len(count)), count)
    shard = np.repeat(shard, count)
    shard += np.arange(len(shard)) - np.repeat(np.cumsum(count) - count, count)
    begin = np.maximum(runs.first[of_run], (ends - shard_sizes)[shard])
    end = np.minimum((runs.first + runs.length)[of_run], ends[shard])
    kept = end > begin  # not of shards without records
    return shard[kept], RecordRanges(begin[kept], (end - begin)[kept])
