"""Order as arithmetic: the records that a rank reads in an epoch, and their order.

In: the number of records in each shard of a split, and the seed, epoch, rank, number of
ranks, batch size and steps already made. Out: windows. A window has the ranges of
records to read, the seed of their permutation, and the records to pass on. The module
is pure numpy: tests check every property without TensorFlow.

    1  The records of an epoch are numbered 0 to N - 1, through the shards in order.
    2  The numbers are cut into blocks of consecutive numbers; no block spans two
       shards. The blocks are permuted over the whole epoch.
    3  The ranks share the resulting sequence by record: three shards feed eight ranks
       evenly.
    4  A rank cuts its share into windows, and permutes the numbers in every window.
    5  Records replace their numbers, as the table says.

    epoch             number n means                      shards of step 2
    all records       record n of the split               the shards
    of a subset       chosen record n                     the chosen records by shard
    with sampling     draw n; `sampling` draws records    the passes of the draws

With affinity, step 2 permutes the blocks of each host alone, and step 3 shares them
among the ranks of the host. The shards are permuted every `affinity` epochs. A host has
consecutive records of the permuted shards, as many as its ranks read.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from tfpipe import errors
from tfpipe.reading import blocks
from tfpipe.reading.sampling import Draws, ExpectedCopies
from tfpipe.shards.ranges import RecordRanges, join
from tfpipe.shards.records import Ints
from tfpipe.stages import philox

Remainder = Literal["drop", "pad"]
Shuffle = Literal["none", "window", "full"]


class Phase(NamedTuple):
    """A part of an epoch in which the number of ranks stayed the same.

    Attributes:
        num_ranks: Number of ranks that read the part.
        num_records: Records that every rank read.
        ranks_per_host: Ranks on each host, with affinity; otherwise empty.
    """

    num_ranks: int
    num_records: int
    ranks_per_host: tuple[int, ...] = ()


class EpochPosition(NamedTuple):
    """The position at which an epoch is resumed; `state.position` computes it.

    Attributes:
        epoch: Number of the epoch.
        phases: Parts of the epoch that other numbers of ranks read before.
        start: Records of the epoch that every rank has read since these phases.
    """

    epoch: int = 0
    phases: tuple[Phase, ...] = ()
    start: int = 0


_START = EpochPosition()

# The most records of an epoch with shuffle="full", and the bytes for each at the peak.
MOST_SHUFFLED, _ORDER_BYTES = 2**25, 37

# The last words of the counters of Philox, one for each use of random words.
_BLOCKS, _EPOCH_SEEDS, _WINDOWS, _DRAWS, _SHARDS_OF_HOSTS, _BLOCKS_OF_HOST = range(6)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Window:
    """Records to read together.

    Attributes:
        ranges: The records to read; in the order on disk if the window is shuffled.
        seed: Seed of `philox.shuffled`, for the order in which the records are passed
            on; None keeps the order of `ranges`.
        skip: Records to leave out at the start, after shuffling.
        take: Records to pass on after the skipped records.
        real: False if the records only fill up the last batch.
        copies: With sampling int64 [num_records], the number of every record's copy in
            the epoch, from 0 on; None if all are first copies.
    """

    ranges: RecordRanges
    seed: tuple[int, int] | None
    skip: int
    take: int
    real: bool
    copies: Ints | None = None

    def records(self) -> Ints:
        """Returns int64 [take]: the numbers of the records passed on, in order."""
        return self._passed_on(self.ranges.records())

    def copies_passed_on(self) -> Ints:
        """Returns int64 [take]: the numbers of the copies of `records()`."""
        if self.copies is None:
            return np.zeros(self.take, np.int64)
        return self._passed_on(self.copies)

    def _passed_on(self, values: Ints) -> Ints:
        if self.seed is not None:
            values = values[philox.shuffled(len(values), self.seed)]
        return values[self.skip : self.skip + self.take]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Order:
    """The order in which a number of ranks read the records of a split.

    Args:
        shard_sizes: int64 [num_shards], records in each shard, or with `chosen` the
            chosen records in each shard.
        seed, block_length, window_size, num_ranks, batch_size, remainder: See
            `source.TFRecordSource`.
        shuffle: "window" permutes blocks over the split and records in each window;
            "full" permutes all records, at most 2**25, and so reads single records;
            "none" keeps the order on disk.
        expected_copies: How often an epoch draws every record; needs a shuffle. None
            reads every record once.
        chosen: int64 [sum of shard_sizes], rising: the records of a subset, by their
            numbers in the split; None is all records.
        affinity: Number of epochs for which a host reads the same part of the records;
            needs a shuffle, and no sampling. None shares the records anew in every
            epoch, whatever the hosts.
        hosts: With affinity the number of each rank's host, such as (0, 0, 1, 1); None
            is a single host.

    Raises:
        ValueError: If an argument is out of range, or if an epoch has no step because
            "drop" leaves out all records.
    """

    shard_sizes: Ints
    seed: int = 0
    shuffle: Shuffle = "window"
    block_length: int = 32
    window_size: int = 1024
    num_ranks: int = 1
    batch_size: int = 1
    remainder: Remainder = "drop"
    expected_copies: ExpectedCopies | None = None
    chosen: Ints | None = None
    affinity: int | None = None
    hosts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        errors.require_choice("", "shuffle", self.shuffle, ("none", "window", "full"))
        errors.require_choice("", "remainder", self.remainder, ("drop", "pad"))
        sizes = ("block_length", "window_size", "num_ranks", "batch_size")
        errors.settle_ints(self, sizes, least=1)
        errors.settle_ints(self, ["seed"], least=0, most=errors.MOST_SEED)
        if self.shuffle == "full" and self.num_draws > MOST_SHUFFLED:
            raise ValueError(
                f'An epoch with shuffle="full" must have at most {MOST_SHUFFLED:,} '
                f"records, got {self.num_draws:,}: each rank would need "
                f"{self.num_draws * _ORDER_BYTES / 1e9:.1f} GB of memory. Use "
                'shuffle="window", and a larger window_size for more randomness.'
            )
        if self.expected_copies is not None and self.shuffle == "none":
            raise ValueError(
                'shuffle must be "window" or "full" with sampling, got "none": the '
                "order on disk has no places for copies."
            )
        _check_affinity(self)
        if self.num_draws == 0 or self.num_steps() == 0:
            most = self.num_draws // self.num_ranks
            remedy = "Use fewer ranks or more data."
            ranks = errors.count_of(self.num_ranks, "rank")
            raise ValueError(
                f"An epoch must have at least one step: {self.num_draws} records "
                f"cannot give {ranks} a batch of {self.batch_size} each. "
                f"{f'The largest batch_size is {most}.' if most else remedy}"
            )

    @property
    def num_records(self) -> int:
        """Number of records in the split, or in the subset."""
        return int(self.shard_sizes.sum())

    @property
    def num_draws(self) -> int:
        """Number of records in an epoch, with their copies."""
        if self.expected_copies is None:
            return self.num_records
        return self.expected_copies.num_draws

    @functools.cached_property
    def ranks_per_host(self) -> tuple[int, ...]:
        """Ranks on each host, by the number of the host; empty without affinity."""
        if self.affinity is None:
            return ()
        counts = collections.Counter(self.hosts or (0,) * self.num_ranks)
        return tuple(counts[host] for host in sorted(counts))

    def num_steps(self, begin: EpochPosition = _START) -> int:
        """Returns the steps of every rank from a position to the end of its epoch."""
        num_left = self.num_draws
        for phase in begin.phases:
            bounds = _bounds(num_left, phase.num_ranks, self.remainder)
            num_left -= int(np.minimum(phase.num_records, np.diff(bounds)).sum())
        if self.remainder == "pad":
            num_each = -(-num_left // self.num_ranks)
            return -(-max(num_each - begin.start, 0) // self.batch_size)
        num_each = num_left // self.num_ranks
        return max(num_each - begin.start, 0) // self.batch_size

    def windows(self, rank: int, begin: EpochPosition) -> range:
        """Returns the indices of the windows that a rank reads from a position on."""
        _, start, stop = self._share(rank, begin)
        num_real = stop - start
        num_read = begin.start + self.num_steps(begin) * self.batch_size
        first = min(begin.start, num_real) // self.window_size
        last = -(-min(num_read, num_real) // self.window_size)
        return range(first, last + (num_read > num_real))

    def window(self, rank: int, position: EpochPosition, index: int) -> Window:
        """Returns window `index` of a rank's share of an epoch.

        The window after the last real record holds the records that fill up the last
        batch under "pad".
        """
        base, start, stop = self._share(rank, position)
        num_real = stop - start
        num_read = position.start + self.num_steps(position) * self.batch_size
        begin = index * self.window_size
        if begin >= num_real:
            missing = num_read - max(num_real, position.start)
            fillers = np.full(missing, rank % self.num_draws)
            ranges = RecordRanges(fillers, np.ones_like(fillers))
            window = Window(ranges=ranges, seed=None, skip=0, take=missing, real=False)
            return _of_records(self, position.epoch, window)
        end = min(begin + self.window_size, num_real)
        skip = max(position.start - begin, 0)
        ranges = base.cut(start + begin, start + end)
        ranges, seed = _shuffled(self, position, ranges, start + begin)
        take = min(end, num_read) - begin - skip
        window = Window(ranges=ranges, seed=seed, skip=skip, take=take, real=True)
        return _of_records(self, position.epoch, window)

    def window_starts(self, rank: int, position: EpochPosition) -> Iterator[int]:
        """Yields the records of a rank before every window from a position on."""
        start = 0
        while True:
            for index in self.windows(rank, position):
                yield start
                start += self.window(rank, position, index).take
            position = EpochPosition(position.epoch + 1)

    def records_of_host(self, rank: int, epoch: int = 0) -> RecordRanges:
        """Returns the records of the host of a rank in an epoch, in disk order.

        With affinity a host has its part; "drop" may leave out the last records.
        Without affinity any host may read all records.
        """
        part = _shards_of(self, epoch)
        if self.affinity is not None:
            hosts = self.hosts or (0,) * self.num_ranks
            host = sorted({*hosts}).index(hosts[rank])
            part = _dealt(self, part, epoch, self.ranks_per_host)[host]
        if self.chosen is not None or self.expected_copies is not None:
            return join(np.unique(_records(self, epoch, part.records())))
        on_disk = np.argsort(part.first)
        on_disk = on_disk[part.length[on_disk] > 0]
        return RecordRanges(part.first[on_disk], part.length[on_disk])

    def _share(
        self, rank: int, position: EpochPosition
    ) -> "tuple[RecordRanges | _Unread, int, int]":
        """Returns the unread records, the first that a rank reads, and the stop."""
        base = self._base(position.epoch, position.phases, self.ranks_per_host)
        bounds = _bounds(base.num_records, self.num_ranks, self.remainder)
        share = rank if self.affinity is None else self._shares[rank]
        return base, *bounds[share : share + 2].tolist()

    @functools.cached_property
    def _shares(self) -> list[int]:
        """The number of each rank's share: the ranks of a host have neighbors."""
        by_host = np.argsort(self.hosts or (0,) * self.num_ranks, kind="stable")
        shares: list[int] = np.argsort(by_host).tolist()
        return shares

    @functools.cached_property
    def _base(
        self,
    ) -> "Callable[[int, tuple[Phase, ...], tuple[int, ...]], RecordRanges | _Unread]":
        """Function (epoch, phases, ranks_per_host) -> unread records of the epoch.

        Two are cached, as an epoch follows another. Of 1e7 records in a full shuffle an
        epoch takes 0.04 GB.
        """
        return functools.lru_cache(maxsize=2)(functools.partial(_compute_base, self))

    @functools.cached_property
    def _draws(self) -> Callable[[int], Draws | None]:
        """Function epoch -> its draws; two are cached, as an epoch follows another."""
        return functools.lru_cache(maxsize=2)(functools.partial(_compute_draws, self))


def _compute_draws(order: Order, epoch: int) -> Draws | None:
    if order.expected_copies is None:
        return None
    return order.expected_copies.draws(blocks.random(order.seed, epoch, 0, 0, _DRAWS))


def _check_affinity(order: Order) -> None:
    errors.settle_ints(order, ["affinity"], least=1, also=[None])
    if order.hosts is not None:
        hosts = tuple(
            errors.require_int("", "hosts", host, least=0) for host in order.hosts
        )
        errors.settle(order, "hosts", hosts)
        if len(hosts) != order.num_ranks:
            raise ValueError(
                f"hosts must hold the host of each of {order.num_ranks} ranks, got "
                f"{len(hosts)} numbers."
            )
    if order.affinity is None:
        return
    if order.hosts is None and order.num_ranks > 1:
        raise ValueError(
            "hosts must hold the number of each rank's host with affinity, such as "
            f"(0, 0, 1, 1), got None for {order.num_ranks} ranks."
        )
    if order.shuffle == "none" or order.expected_copies is not None:
        raise ValueError(
            'affinity needs shuffle="window" or "full" and no sampling: the order on '
            "disk is the same in each epoch anyway, and sampling draws other records "
            "in each epoch."
        )


def _compute_base(
    order: Order, epoch: int, phases: tuple[Phase, ...], ranks_per_host: tuple[int, ...]
) -> "RecordRanges | _Unread":
    if not phases:
        return _blocks(order, epoch, ranks_per_host)
    return _Unread(order, EpochPosition(epoch, phases[:-1]), phases[-1])


@dataclasses.dataclass(frozen=True, eq=False)
class _Unread:
    """The records that a phase left unread: those of rank 0, of rank 1, and so on.

    With affinity the ranks come in the order of their hosts. At the end come the
    records that belong to no rank. The records of a rank are computed when they are
    asked for.

    Attributes:
        order: The order.
        position: The position at which the phase began.
        phase: The phase.
    """

    order: Order
    position: EpochPosition
    phase: Phase

    @functools.cached_property
    def ends(self) -> Ints:
        """int64 [num_ranks + 1], the position after the records of each rank."""
        sizes = np.diff(self._bounds)
        left = sizes - np.minimum(self.phase.num_records, sizes)
        of_no_rank = self._base.num_records - self._bounds[-1]
        return np.cumsum(np.append(left, of_no_rank))

    @property
    def num_records(self) -> int:
        """Number of records left unread."""
        return int(self.ends[-1])

    def cut(self, start: int, stop: int) -> RecordRanges:
        """Returns the records at positions start to stop - 1, in the same order."""
        low = int(np.searchsorted(self.ends, start, side="right"))
        high = int(np.searchsorted(self.ends, stop, side="left"))
        parts = [self._of_rank(rank) for rank in range(low, high + 1)]
        skipped = int(self.ends[low - 1]) if low else 0
        return blocks.joined(parts).cut(start - skipped, stop - skipped)

    def records(self) -> Ints:
        """Returns int64 [num_records]: the number of each record, in order."""
        parts = map(self._of_rank, range(self.phase.num_ranks + 1))
        return blocks.joined(parts).records()

    @functools.cached_property
    def _base(self) -> "RecordRanges | _Unread":
        hosts = self.phase.ranks_per_host
        return self.order._base(self.position.epoch, self.position.phases, hosts)

    @functools.cached_property
    def _bounds(self) -> Ints:
        num_records, num_ranks = self._base.num_records, self.phase.num_ranks
        return _bounds(num_records, num_ranks, self.order.remainder)

    @functools.cached_property
    def _of_rank(self) -> Callable[[int], RecordRanges]:
        """Function rank -> its unread records; windows follow each other."""
        return functools.lru_cache(maxsize=4)(self._compute_of_rank)

    def _compute_of_rank(self, rank: int) -> RecordRanges:
        order, base = self.order, self._base
        if rank == self.phase.num_ranks:
            return base.cut(int(self._bounds[-1]), base.num_records)
        start, stop = self._bounds[rank : rank + 2].tolist()
        read = min(start + self.phase.num_records, stop)
        # First the rest of the window that the rank was in, then all later windows.
        begin = start + (read - start) // order.window_size * order.window_size
        end = min(begin + order.window_size, stop)
        ranges, seed = _shuffled(order, self.position, base.cut(begin, end), begin)
        window = Window(
            ranges=ranges, seed=seed, skip=read - begin, take=end - read, real=True
        )
        rest = window.records()
        first = join(rest if seed is None else np.sort(rest))
        return blocks.joined([first, base.cut(end, stop)])


def _shuffled(
    order: Order, position: EpochPosition, ranges: RecordRanges, begin: int
) -> tuple[RecordRanges, tuple[int, int] | None]:
    """Returns the ranges to read of the window from `begin` on, and its seed."""
    if order.shuffle == "none":
        return ranges, None
    counter = begin, len(position.phases), _WINDOWS
    random = blocks.random(order.seed, position.epoch, *counter)
    low, high = random.random_raw(2).astype(np.int64).tolist()
    numbers = ranges.records()
    on_disk = np.argsort(_records(order, position.epoch, numbers), kind="stable")
    # If both seeds were zero, TensorFlow would choose a random seed.
    return join(numbers[on_disk]), (low, high | 1)


def _records(order: Order, epoch: int, numbers: Ints) -> Ints:
    """Returns the records of the split that some numbers of an epoch mean."""
    draws = order._draws(epoch)
    drawn = numbers if draws is None else draws.records[numbers]
    return drawn if order.chosen is None else order.chosen[drawn]


def _of_records(order: Order, epoch: int, window: Window) -> Window:
    """Returns a window of records, for a window of their numbers in the epoch."""
    draws = order._draws(epoch)
    if draws is None and order.chosen is None:
        return window
    numbers = window.ranges.records()
    ranges = join(_records(order, epoch, numbers))
    copies = None if draws is None else draws.copies(numbers)
    return dataclasses.replace(window, ranges=ranges, copies=copies)


def epoch_seed(*, seed: int, epoch: int, copy: int | Ints = 0) -> Ints:
    """Returns the epoch's part of a random op's seed, beside the record's number.

    Args:
        seed: Run seed.
        epoch: Number of the epoch.
        copy: Number of the copy of a record in the epoch, from 0 on, or an array.

    Returns:
        int64, a seed for every copy.
    """
    random = blocks.random(seed, epoch, 0, 0, _EPOCH_SEEDS)
    seeds = random.random_raw(int(np.max(copy, initial=0)) + 1).astype(np.int64)
    chosen: Ints = seeds[copy]
    return chosen


def _bounds(num_records: int, num_ranks: int, remainder: Remainder) -> Ints:
    """Returns int64 [num_ranks + 1]: the share of rank r is bounds[r] to bounds[r + 1].

    The shares are equal, or under "pad" hold all records.
    """
    ranks = np.arange(num_ranks + 1)
    if remainder == "drop":
        return ranks * (num_records // num_ranks)
    bounds: Ints = ranks * num_records // num_ranks
    return bounds


def _blocks(order: Order, epoch: int, ranks_per_host: tuple[int, ...]) -> RecordRanges:
    """Returns the blocks of a whole epoch in their order; no block spans two shards.

    With sampling no block spans two passes: a block holds no record twice.
    """
    shards = _shards_of(order, epoch)
    if order.affinity is None:
        length = None if order.shuffle == "full" else order.block_length
        if order.shuffle == "none":
            return blocks.cut(shards, order.block_length)
        random = blocks.random(order.seed, epoch, 0, 0, _BLOCKS)
        return blocks.permuted(shards, length, random)
    return _blocks_by_host(order, shards, epoch, ranks_per_host)


def _shards_of(order: Order, epoch: int) -> RecordRanges:
    """Returns the numbers of an epoch by shard, or by pass of the draws."""
    draws = order._draws(epoch)
    ends = np.cumsum(order.shard_sizes) if draws is None else draws.pass_ends
    sizes = np.diff(ends, prepend=0)
    return RecordRanges(ends - sizes, sizes)


def _dealt(
    order: Order, shards: RecordRanges, epoch: int, ranks_per_host: tuple[int, ...]
) -> list[RecordRanges]:
    """Returns the part of each host: consecutive records of the permuted shards."""
    assert order.affinity is not None
    part = epoch // order.affinity
    random = blocks.random(order.seed, part, 0, 0, _SHARDS_OF_HOSTS)
    turn = blocks.permutation(len(shards.first), random)
    dealt = blocks.taken(shards, turn[shards.length[turn] > 0])
    shares = np.cumsum([0, *ranks_per_host])
    parts = (shares * order.num_records // int(shares[-1])).tolist()
    return [dealt.cut(start, stop) for start, stop in itertools.pairwise(parts)]


def _blocks_by_host(
    order: Order, shards: RecordRanges, epoch: int, ranks_per_host: tuple[int, ...]
) -> RecordRanges:
    """Returns the blocks of an epoch: those of host 0, of host 1, and so on.

    If a host has more records than its ranks read, the others come at the end, after
    the blocks of the last host.
    """
    parts = _dealt(order, shards, epoch, ranks_per_host)
    shares = np.cumsum([0, *ranks_per_host])
    bounds = _bounds(order.num_records, int(shares[-1]), order.remainder)
    used = np.diff(bounds[shares])
    length = None if order.shuffle == "full" else order.block_length
    read, unread = list[RecordRanges](), list[RecordRanges]()
    for host, records in enumerate(parts):
        random = blocks.random(order.seed, epoch, host, 0, _BLOCKS_OF_HOST)
        part = blocks.permuted(records, length, random)
        read.append(part.cut(0, int(used[host])))
        unread.append(part.cut(int(used[host]), records.num_records))
    return blocks.joined([*read, *unread])
