import dataclasses
import itertools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tfpipe import order

exhaustive = hypothesis.settings(max_examples=150, deadline=None)

# Shards of one record, prime and even counts, and counts around a block's length.
SHARD_SIZES = st.lists(
    st.one_of(st.sampled_from([1, 2, 7, 31, 32, 33, 97]), st.integers(1, 150)),
    min_size=1,
    max_size=12,
)
SEEDS = st.integers(0, 2**64 - 1)
EPOCHS = st.integers(0, 2**63 - 1)


@dataclasses.dataclass(frozen=True)
class Run:
    """What the ranks of one run have in common."""

    layout: order.Layout
    num_ranks: int
    options: dict

    def extents(self, rank: int) -> order.Extents:
        return order.epoch_extents(
            self.layout, rank=rank, num_ranks=self.num_ranks, **self.options
        )

    def records(self, rank: int) -> list[int]:
        extents = self.extents(rank)
        runs = zip(extents.first_record, extents.num_records, strict=True)
        return [int(first) + i for first, count in runs for i in range(count)]


def make_layout(shard_sizes: list[int]) -> order.Layout:
    """Records of 100, 101, … bytes, so that no two shards have the same offsets."""
    lengths = np.arange(sum(shard_sizes)) + 100
    shards = np.split(lengths, np.cumsum(shard_sizes)[:-1])
    offsets = [np.cumsum(shard) - shard for shard in shards]
    return order.Layout(np.array(shard_sizes), np.concatenate(offsets))


@st.composite
def runs(draw: st.DrawFn, **fixed: object) -> Run:
    shard_sizes = draw(SHARD_SIZES)
    num_ranks = draw(st.integers(1, min(16, sum(shard_sizes))))
    options = {
        "seed": draw(SEEDS),
        "epoch": draw(EPOCHS),
        "shuffle": draw(st.booleans()),
        "remainder": draw(st.sampled_from(["drop", "keep"])),
        "block_length": draw(st.integers(1, 64)),
    }
    return Run(make_layout(shard_sizes), num_ranks, options | fixed)


@exhaustive
@hypothesis.given(runs(remainder="keep"))
def test_kept_remainder_gives_each_record_to_exactly_one_rank(run):
    shares = [run.records(rank) for rank in range(run.num_ranks)]

    everything = sorted(itertools.chain.from_iterable(shares))
    assert everything == list(range(run.layout.num_records))
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= 1


@exhaustive
@hypothesis.given(runs(remainder="drop"))
def test_dropped_remainder_gives_every_rank_as_many_records(run):
    shares = [run.records(rank) for rank in range(run.num_ranks)]

    size = run.layout.num_records // run.num_ranks
    assert [len(share) for share in shares] == [size] * run.num_ranks
    assert len(set().union(*shares)) == size * run.num_ranks


@exhaustive
@hypothesis.given(runs())
def test_extents_stay_within_a_shard_and_a_block(run):
    sizes = run.layout.shard_sizes
    starts = np.cumsum(sizes) - sizes

    for rank in range(run.num_ranks):
        extents = run.extents(rank)

        assert (extents.num_records >= 1).all()
        assert (extents.num_records <= run.options["block_length"]).all()
        within = extents.first_record - starts[extents.shard]
        assert (within >= 0).all()
        assert (within + extents.num_records <= sizes[extents.shard]).all()


@exhaustive
@hypothesis.given(runs())
def test_byte_offsets_are_those_of_the_first_records(run):
    for rank in range(run.num_ranks):
        extents = run.extents(rank)

        expected = run.layout.byte_offsets[extents.first_record]
        assert extents.byte_offset.tolist() == expected.tolist()


@exhaustive
@hypothesis.given(runs(remainder="keep"))
def test_ranks_share_the_sequence_that_one_rank_would_read(run):
    alone = dataclasses.replace(run, num_ranks=1)

    shares = [run.records(rank) for rank in range(run.num_ranks)]

    assert list(itertools.chain.from_iterable(shares)) == alone.records(0)


@exhaustive
@hypothesis.given(runs(shuffle=False, remainder="keep"))
def test_without_shuffle_the_order_is_that_on_disk(run):
    shares = [run.records(rank) for rank in range(run.num_ranks)]

    expected = list(range(run.layout.num_records))
    assert list(itertools.chain.from_iterable(shares)) == expected


@exhaustive
@hypothesis.given(st.integers(0, 300), SEEDS, EPOCHS)
def test_permutation_is_one(size, seed, epoch):
    permuted = order.permutation(size, seed=seed, epoch=epoch)

    assert sorted(permuted.tolist()) == list(range(size))


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
    assert order.permutation(10, seed=seed, epoch=epoch).tolist() == permutation
    assert order.epoch_seed(seed=seed, epoch=epoch) == epoch_seed


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, 2**63, 2**64 - 2])
def test_each_seed_and_epoch_has_its_own_order_and_epoch_seed(seed):
    pairs = [(seed, 0), (seed, 1), (seed, 2**40), (seed + 1, 0), (seed + 1, 1)]

    orders = {
        tuple(order.permutation(100, seed=seed, epoch=epoch)) for seed, epoch in pairs
    }
    seeds = {order.epoch_seed(seed=seed, epoch=epoch) for seed, epoch in pairs}

    assert len(orders) == len(pairs)
    assert len(seeds) == len(pairs)


def test_epoch_seed_fits_an_int64():
    seeds = [order.epoch_seed(seed=0, epoch=epoch) for epoch in range(50)]

    assert min(seeds) < 0 < max(seeds)  # all 64 bits are used
    assert all(-(2**63) <= seed < 2**63 for seed in seeds)


def test_dropped_records_differ_from_epoch_to_epoch():
    layout = make_layout([5, 5, 3])  # 4 ranks leave out 1 of 13

    dropped = set()
    for epoch in range(40):
        options = {"seed": 0, "epoch": epoch, "block_length": 1}
        run = Run(layout, 4, options)
        kept = set().union(*(run.records(rank) for rank in range(4)))
        dropped |= set(range(13)) - kept

    assert len(dropped) > 6


@pytest.mark.parametrize(
    ("num_records", "num_ranks", "remainder", "shares"),
    [
        (10, 1, "drop", [(0, 10)]),
        (10, 3, "drop", [(0, 3), (3, 6), (6, 9)]),  # the last one is left out
        (10, 3, "keep", [(0, 3), (3, 6), (6, 10)]),
        (8, 5, "keep", [(0, 1), (1, 3), (3, 4), (4, 6), (6, 8)]),
        (3, 3, "drop", [(0, 1), (1, 2), (2, 3)]),  # one each
        (3, 3, "keep", [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_shares(num_records, num_ranks, remainder, shares):
    assert shares == [
        order.share(num_records, rank=rank, num_ranks=num_ranks, remainder=remainder)
        for rank in range(num_ranks)
    ]


@pytest.mark.parametrize(
    ("num_records", "num_ranks", "batch_size", "drop", "keep"),
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
def test_steps_per_epoch(num_records, num_ranks, batch_size, drop, keep):
    steps = {
        remainder: order.steps_per_epoch(
            num_records,
            num_ranks=num_ranks,
            batch_size=batch_size,
            remainder=remainder,
        )
        for remainder in ("drop", "keep")
    }

    assert steps == {"drop": drop, "keep": keep}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 2}, "rank must be 0 to num_ranks - 1 = 1, got 2"),
        ({"rank": -1}, "rank must be 0 to num_ranks - 1 = 1, got -1"),
        ({"num_ranks": 0}, "num_ranks must be >= 1, got 0"),
        ({"num_records": 1}, "1 records cannot be shared by 2 ranks.*fewer ranks"),
        ({"remainder": "Drop"}, "remainder must be 'drop' or 'keep', got 'Drop'"),
    ],
)
def test_wrong_shares_are_refused(arguments, message):
    valid = {"num_records": 10, "rank": 0, "num_ranks": 2, "remainder": "drop"}

    with pytest.raises(ValueError, match=message):
        order.share(**valid | arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 6}, "at most the 5 records of a rank.*10 records, 2 ranks.* 6"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"num_ranks": 11}, "10 records cannot be shared by 11 ranks"),
        (
            {"num_ranks": 11, "remainder": "keep"},
            "10 records cannot be shared by 11 ranks",
        ),
    ],
)
def test_impossible_steps_are_refused(arguments, message):
    valid = {"num_ranks": 2, "batch_size": 5, "remainder": "drop"}

    with pytest.raises(ValueError, match=message):
        order.steps_per_epoch(10, **valid | arguments)


def test_batch_larger_than_the_data_is_one_step_if_the_remainder_is_kept():
    steps = order.steps_per_epoch(10, num_ranks=2, batch_size=64, remainder="keep")

    assert steps == 1


def test_layout_must_add_up():
    with pytest.raises(ValueError, match=r"add up to the 4 records.*got 5"):
        order.Layout(np.array([2, 3]), np.arange(4))
