"""order.py: every record exactly once, on any number of ranks, from any step on."""

import dataclasses
import itertools
import tracemalloc

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tfpipe.reading import blocks, order
from tfpipe.reading.order import EpochPosition, Order, Phase
from tfpipe.shards.ranges import by_shard

exhaustive = hypothesis.settings(max_examples=25, deadline=None)

# Shards of one record, prime and even counts, and counts around a block's length.
SHARD_SIZES = st.lists(
    st.one_of(st.sampled_from([0, 1, 2, 7, 31, 32, 33, 97]), st.integers(1, 70)),
    min_size=1,
    max_size=5,
).filter(any)
SEEDS = st.integers(0, 2**64 - 1)
EPOCHS = st.integers(0, 2**63 - 1)


def make_order(shard_sizes: list[int], **options: object) -> Order:
    return Order(shard_sizes=np.array(shard_sizes, np.int64), **options)


def leftover(of: Order, epoch: int, phases: tuple[Phase, ...]) -> np.ndarray:
    """int64, sorted: the records that no rank read in these phases."""
    numbers = of._base(epoch, phases, of.ranks_per_host).records()
    return np.sort(order._records(of, epoch, numbers))


@st.composite
def orders(draw: st.DrawFn, **fixed: object) -> Order:
    """Any order that has at least one step."""
    shard_sizes = draw(SHARD_SIZES)
    options = {
        "seed": draw(SEEDS),
        "shuffle": draw(st.sampled_from(["none", "window", "full"])),
        "remainder": draw(st.sampled_from(["drop", "pad"])),
        "block_length": draw(st.integers(1, 64)),
        "window_size": draw(st.integers(1, 100)),
        "num_ranks": draw(st.integers(1, 7)),
        "batch_size": draw(st.integers(1, 12)),
        **fixed,
    }
    if options["remainder"] == "drop":
        options["num_ranks"] = min(options["num_ranks"], sum(shard_sizes))
        most = sum(shard_sizes) // options["num_ranks"]
        options["batch_size"] = min(options["batch_size"], most)
    return make_order(shard_sizes, **options)


def passed_on(of: Order, rank: int, place: EpochPosition) -> list[tuple[int, bool]]:
    """(record, whether it is real), in order, from a place to the end of its epoch."""
    windows = [of.window(rank, place, number) for number in of.windows(rank, place)]
    return [
        (int(record), window.real) for window in windows for record in window.records()
    ]


def real(passed: list[tuple[int, bool]]) -> list[int]:
    return [record for record, is_real in passed if is_real]


@exhaustive
@hypothesis.given(orders(), EPOCHS)
def test_every_rank_makes_the_same_steps_and_no_record_comes_twice(of, epoch):
    shares = [passed_on(of, rank, EpochPosition(epoch)) for rank in range(of.num_ranks)]

    assert {len(share) for share in shares} == {of.num_steps() * of.batch_size}
    records = list(itertools.chain.from_iterable(map(real, shares)))
    assert len(set(records)) == len(records)
    missing = sorted(set(range(of.num_records)) - set(records))
    if of.remainder == "pad":
        assert missing == []
    else:
        assert len(missing) < of.num_ranks * of.batch_size


@exhaustive
@hypothesis.given(orders(), EPOCHS, st.data())
def test_resuming_within_an_epoch_gives_the_rest_of_it(of, epoch, data):
    step = data.draw(st.integers(0, of.num_steps() - 1))
    start = step * of.batch_size

    for rank in range(of.num_ranks):
        whole = passed_on(of, rank, EpochPosition(epoch))
        assert passed_on(of, rank, EpochPosition(epoch, (), start)) == whole[start:]


@exhaustive
@hypothesis.given(orders(), st.data())
def test_other_numbers_of_ranks_read_what_is_left_exactly_once(of, data):
    epoch, phases, seen = 3, (), []
    for _ in range(data.draw(st.integers(2, 4))):
        place = EpochPosition(epoch, phases)
        num_steps = data.draw(st.integers(0, of.num_steps(place)))
        count = num_steps * of.batch_size
        for rank in range(of.num_ranks):
            seen += real(passed_on(of, rank, place)[:count])
        phases = (*phases, Phase(of.num_ranks, count))
        left = leftover(of, epoch, phases).tolist()
        assert sorted(seen + left) == list(range(of.num_records))
        ranks = data.draw(st.integers(1, min(7, of.num_records)))
        batch_size = data.draw(st.integers(1, max(1, of.num_records // ranks)))
        of = dataclasses.replace(of, num_ranks=ranks, batch_size=batch_size)


@exhaustive
@hypothesis.given(orders())
def test_a_window_reads_ranges_within_shards_no_more_than_its_size(of):
    starts = np.cumsum(of.shard_sizes) - of.shard_sizes
    for rank in range(of.num_ranks):
        for number in of.windows(rank, EpochPosition()):
            window = of.window(rank, EpochPosition(), number)
            shard, ranges = by_shard(window.ranges, of.shard_sizes)

            assert ranges.records().tolist() == window.ranges.records().tolist()
            within = ranges.first - starts[shard]
            assert (within >= 0).all()
            assert (within + ranges.length <= of.shard_sizes[shard]).all()
            if window.real:
                assert window.ranges.num_records <= of.window_size


@exhaustive
@hypothesis.given(orders(shuffle="none", remainder="pad"))
def test_without_shuffle_the_order_is_that_on_disk(of):
    shares = [
        real(passed_on(of, rank, EpochPosition())) for rank in range(of.num_ranks)
    ]

    everything = list(itertools.chain.from_iterable(shares))
    assert everything == list(range(of.num_records))


@exhaustive
@hypothesis.given(SHARD_SIZES, st.integers(1, 64), st.data())
def test_ranges_are_cut_anywhere(shard_sizes, block_length, data):
    of = make_order(shard_sizes, block_length=block_length)
    ranges = order._blocks(of, 0, of.ranks_per_host)
    start = data.draw(st.integers(0, of.num_records))
    stop = data.draw(st.integers(0, of.num_records))

    cut = ranges.cut(start, stop)

    assert cut.records().tolist() == ranges.records()[start:stop].tolist()
    assert cut.num_records == max(0, stop - start)


def neighbors_in_a_batch(of: Order) -> float:
    """Share of records whose neighbor on disk is in the same batch of 64."""
    records = real(passed_on(of, 0, EpochPosition()))
    batch_of = {record: place // 64 for place, record in enumerate(records)}
    pairs = [(batch_of.get(n), batch_of.get(n + 1)) for n in range(of.num_records - 1)]
    return sum(a == b for a, b in pairs) / len(pairs)


def test_shuffling_separates_neighbors():
    sizes = [2048] * 5
    full, window, none = (
        neighbors_in_a_batch(make_order(sizes, shuffle=shuffle, window_size=1024))
        for shuffle in ("full", "window", "none")
    )

    assert full < 0.02  # 64 / 10240 are in the same batch by chance
    assert window < 0.08  # 64 / 1024: the chance within a window
    assert none > 0.9


@pytest.mark.parametrize("shuffle", ["window", "full"])
def test_each_window_epoch_and_rank_is_permuted_by_a_seed_of_its_own(shuffle):
    of = make_order([97] * 10, shuffle=shuffle, window_size=50, num_ranks=2)
    seeds = {
        of.window(rank, place, number).seed
        for rank in range(2)
        for place in (
            EpochPosition(),
            EpochPosition(1),
            EpochPosition(0, (Phase(3, 20),)),
        )
        for number in of.windows(rank, place)
    }

    count = sum(
        len(of.windows(rank, place))
        for rank in range(2)
        for place in (
            EpochPosition(),
            EpochPosition(1),
            EpochPosition(0, (Phase(3, 20),)),
        )
    )
    assert len(seeds) == count


def permuted_numbers(size, seed, epoch):
    return blocks.permutation(size, blocks.random(seed, epoch, 0, 0, 0))


@exhaustive
@hypothesis.given(st.integers(0, 300), SEEDS, EPOCHS)
def test_permutation_holds_each_number_once(size, seed, epoch):
    permuted = permuted_numbers(size, seed, epoch)

    assert sorted(permuted.tolist()) == list(range(size))


@exhaustive
@hypothesis.given(st.integers(0, 300), st.sampled_from([1, 2, 2**40]), SEEDS)
def test_permutation_is_a_stable_sort_of_the_keys(size, num_keys, seed):
    keys = np.random.default_rng(seed).integers(num_keys, size=size, dtype=np.uint64)
    keys *= np.uint64(2**64 - 1) // np.uint64(num_keys)

    assert blocks._sorted(keys).tolist() == np.argsort(keys, kind="stable").tolist()


# Pinned: another value here means that checkpoints resume in another order.
@pytest.mark.parametrize(
    ("seed", "epoch", "permutation", "epoch_seed"),
    [
        (0, 0, [0, 2, 9, 1, 8, 5, 4, 3, 6, 7], 6312158256571094726),
        (7, 3, [2, 5, 9, 7, 3, 0, 6, 8, 4, 1], 3845544696532098304),
        (2**64 - 1, 1, [3, 8, 7, 2, 5, 4, 9, 0, 6, 1], -7277072508455570148),
    ],
)
def test_order_is_the_same_on_every_machine_and_version(
    seed, epoch, permutation, epoch_seed
):
    assert permuted_numbers(10, seed, epoch).tolist() == permutation
    assert order.epoch_seed(seed=seed, epoch=epoch) == epoch_seed


# Pinned for the same reason: one rank reads what two ranks and then three have left.
@pytest.mark.parametrize(
    ("shuffle", "left"),
    [
        ("none", [3, 4, 5, 7, 10, 11, 13, 14, 15]),
        ("window", [4, 10, 6, 14, 8, 1, 15, 3, 12]),
        ("full", [2, 8, 4, 15, 7, 0, 14, 12, 13]),
    ],
)
def test_the_rest_of_an_epoch_has_the_same_order_in_every_version(shuffle, left):
    of = make_order([9, 7], seed=7, shuffle=shuffle, block_length=2, window_size=6)
    of = dataclasses.replace(of, remainder="pad", num_ranks=1, batch_size=1)

    place = EpochPosition(3, (Phase(2, 2), Phase(3, 1)))

    assert real(passed_on(of, 0, place)) == left


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, 2**63, 2**64 - 2])
def test_each_seed_and_epoch_has_its_own_order_and_epoch_seed(seed):
    pairs = [(seed, 0), (seed, 1), (seed, 2**40), (seed + 1, 0), (seed + 1, 1)]

    orders = {tuple(permuted_numbers(100, seed, epoch)) for seed, epoch in pairs}
    seeds = {order.epoch_seed(seed=seed, epoch=epoch) for seed, epoch in pairs}

    assert len(orders) == len(pairs)
    assert len(seeds) == len(pairs)


def test_epoch_seed_fits_an_int64():
    seeds = [order.epoch_seed(seed=0, epoch=epoch) for epoch in range(50)]

    assert min(seeds) < 0 < max(seeds)  # all 64 bits are used
    assert all(-(2**63) <= seed < 2**63 for seed in seeds)


def test_dropped_records_differ_from_epoch_to_epoch():
    of = make_order([5, 5, 3], block_length=1, num_ranks=4)  # leaves out 1 of 13

    dropped = set()
    for epoch in range(40):
        kept = {
            record
            for rank in range(4)
            for record, _ in passed_on(of, rank, EpochPosition(epoch))
        }
        dropped |= set(range(13)) - kept

    assert len(dropped) > 6


@pytest.mark.parametrize(
    ("num_records", "num_ranks", "batch_size", "drop", "pad"),
    [
        (12, 1, 4, 3, 3),
        (13, 1, 4, 3, 4),
        (24, 3, 4, 2, 2),
        (25, 3, 4, 2, 3),  # one rank has a ninth record
        (7, 2, 2, 1, 2),
        (7, 7, 1, 1, 1),
        (1_281_167, 8, 256, 625, 626),  # ImageNet
        (50_000, 8, 256, 24, 25),
    ],
)
def test_steps_of_an_epoch(num_records, num_ranks, batch_size, drop, pad):
    steps = {
        remainder: make_order(
            [num_records],
            num_ranks=num_ranks,
            batch_size=batch_size,
            remainder=remainder,
        ).num_steps()
        for remainder in ("drop", "pad")
    }

    assert steps == {"drop": drop, "pad": pad}


def test_more_ranks_than_records_are_padded():
    of = make_order([2], num_ranks=5, batch_size=3, remainder="pad", shuffle="none")

    shares = [passed_on(of, rank, EpochPosition()) for rank in range(5)]

    assert [len(share) for share in shares] == [3] * 5
    assert sorted(itertools.chain.from_iterable(map(real, shares))) == [0, 1]


def test_a_full_shuffle_takes_at_most_40_bytes_a_record():
    """The peak of memory is that of three epochs, made one after the other."""
    count = 200_000
    full = make_order([count], shuffle="full")

    tracemalloc.start()
    for epoch in range(3):
        full.window(0, EpochPosition(epoch=epoch), 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak <= 40 * count


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_ranks": 0}, "num_ranks must be a whole number >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
        ({"block_length": 0}, "block_length must be a whole number >= 1, got 0"),
        ({"window_size": -1}, "window_size must be a whole number >= 1, got -1"),
        ({"seed": -1}, r"seed must be .* from 0 to 2\*\*64 - 1, got -1"),
        ({"seed": 2**64}, r"seed must be .* from 0 to 2\*\*64 - 1"),
        ({"shuffle": "Full"}, "shuffle must be one of none, window, full, got 'Full'"),
        ({"remainder": "keep"}, "remainder must be one of drop, pad, got 'keep'"),
        ({"batch_size": 11}, "10 records cannot give 1 rank a batch of 11 each"),
        ({"num_ranks": 11}, "10 records cannot give 11 ranks a batch of 1 each"),
        ({"shard_sizes": np.zeros(2, np.int64)}, "0 records cannot give"),
        (
            {"shard_sizes": np.array([5 * 10**7] * 2), "shuffle": "full"},
            r'at most 33,554,432 records, got 100,000,000: .* 3\.7 GB .*"window"',
        ),
    ],
)
def test_wrong_orders_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Order(**{"shard_sizes": np.array([4, 6]), **options})
