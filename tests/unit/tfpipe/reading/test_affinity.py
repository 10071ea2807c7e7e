"""Host-affine order: a host keeps its part, and every record still comes once."""

import dataclasses
import itertools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import tfpipe
from tests.unit.tfpipe.reading.test_order import (
    SHARD_SIZES,
    leftover,
    make_order,
    passed_on,
    real,
)
from tests.unit.tfpipe.reading.test_state import make_source, read_on_ranks
from tfpipe.reading.order import EpochPosition, Order, Phase

thorough = hypothesis.settings(max_examples=40, deadline=None)


@st.composite
def affine_orders(draw: st.DrawFn, **fixed: object) -> Order:
    """Any order with affinity: hosts with other numbers of ranks, in any order."""
    shard_sizes = draw(SHARD_SIZES)
    hosts = draw(st.lists(st.integers(0, 3), min_size=1, max_size=7))
    hosts = hosts[: sum(shard_sizes)]
    most = sum(shard_sizes) // len(hosts)
    options = {
        "seed": draw(st.integers(0, 2**64 - 1)),
        "shuffle": draw(st.sampled_from(["window", "full"])),
        "remainder": draw(st.sampled_from(["drop", "pad"])),
        "block_length": draw(st.integers(1, 40)),
        "window_size": draw(st.integers(1, 100)),
        "batch_size": draw(st.integers(1, min(most, 12))),
        "affinity": draw(st.integers(1, 5)),
        **fixed,
    }
    return make_order(shard_sizes, num_ranks=len(hosts), hosts=tuple(hosts), **options)


def parts(of: Order, epoch: int) -> dict[int, set[int]]:
    """The records that each host reads in an epoch."""
    read: dict[int, set[int]] = {host: set() for host in of.hosts}
    for rank, host in enumerate(of.hosts):
        read[host] |= set(real(passed_on(of, rank, EpochPosition(epoch))))
    return read


@thorough
@hypothesis.given(affine_orders(), st.integers(0, 2**40))
def test_every_rank_makes_the_same_steps_and_no_record_comes_twice(of, epoch):
    shares = [passed_on(of, rank, EpochPosition(epoch)) for rank in range(of.num_ranks)]

    assert {len(share) for share in shares} == {of.num_steps() * of.batch_size}
    records = list(itertools.chain.from_iterable(map(real, shares)))
    assert len(set(records)) == len(records)
    missing = set(range(of.num_records)) - set(records)
    if of.remainder == "pad":
        assert not missing
    else:
        assert len(missing) < of.num_ranks * of.batch_size


@thorough
@hypothesis.given(affine_orders(remainder="pad"), st.integers(0, 100))
def test_a_host_keeps_its_part_until_the_affinity_ends(of, count):
    """Under "pad" each record is read, so that the parts are whole."""
    first = count * of.affinity
    kept = parts(of, first)

    for epoch in range(first, first + of.affinity):
        assert parts(of, epoch) == kept


@thorough
@hypothesis.given(affine_orders(), st.integers(0, 100))
def test_hosts_read_about_one_part_each_under_drop(of, count):
    """A record that an epoch leaves out may come in the next epoch, on its own host."""
    first = count * of.affinity
    read: dict[int, set[int]] = {host: set() for host in of.hosts}
    for epoch in range(first, first + of.affinity):
        for host, records in parts(of, epoch).items():
            read[host] |= records

    for one, other in itertools.combinations(read.values(), 2):
        assert not one & other


def test_the_part_of_a_host_is_few_shards_in_a_row_and_changes_with_the_affinity():
    of = make_order(
        [100] * 16, num_ranks=4, hosts=(0, 0, 1, 1), affinity=3, block_length=10
    )
    shards = [
        {record // 100 for record in parts(of, epoch)[0]} for epoch in range(0, 12, 3)
    ]

    assert [len(each) for each in shards] == [8] * 4
    assert len(set(map(frozenset, shards))) == 4
    assert set.union(*shards) > shards[0]


def test_the_order_of_a_host_changes_in_every_epoch():
    of = make_order([97] * 4, num_ranks=2, hosts=(0, 1), affinity=10)
    orders = {
        tuple(passed_on(of, rank, EpochPosition(epoch)))
        for rank in range(2)
        for epoch in range(10)
    }

    assert len(orders) == 20


def test_ranks_of_a_host_share_its_part_whatever_their_numbers():
    """Horovod numbers ranks by host, other launchers in turn."""
    together = make_order([64] * 4, num_ranks=4, hosts=(0, 0, 1, 1), affinity=2)
    in_turn = dataclasses.replace(together, hosts=(7, 3, 7, 3))

    assert parts(in_turn, 5) == {3: parts(together, 5)[0], 7: parts(together, 5)[1]}


@thorough
@hypothesis.given(affine_orders(), st.data())
def test_resuming_within_an_epoch_gives_the_rest_of_it(of, data):
    step = data.draw(st.integers(0, of.num_steps() - 1))
    start = step * of.batch_size

    for rank in range(of.num_ranks):
        whole = passed_on(of, rank, EpochPosition(4))
        assert passed_on(of, rank, EpochPosition(4, (), start)) == whole[start:]


@thorough
@hypothesis.given(affine_orders(), st.data())
def test_other_hosts_read_what_is_left_exactly_once(of, data):
    """Hosts come and go in the middle of an epoch, and batches change."""
    epoch, phases, seen = 3, (), []
    for _ in range(data.draw(st.integers(2, 4))):
        begin = EpochPosition(epoch, phases)
        count = data.draw(st.integers(0, of.num_steps(begin))) * of.batch_size
        for rank in range(of.num_ranks):
            seen += real(passed_on(of, rank, begin)[:count])
        phases = (*phases, Phase(of.num_ranks, count, of.ranks_per_host))
        left = leftover(of, epoch, phases).tolist()
        assert sorted(seen + left) == list(range(of.num_records))
        hosts = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=7))
        hosts = tuple(hosts[: of.num_records])
        batch_size = data.draw(st.integers(1, of.num_records // len(hosts)))
        of = dataclasses.replace(
            of, hosts=hosts, num_ranks=len(hosts), batch_size=batch_size
        )


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_a_state_holds_the_hosts_and_other_hosts_go_on(data_dir, remainder):
    """Two ranks on two hosts; then the same two on a single host; then one rank."""
    options = {"affinity": 3, "remainder": remainder}
    state, seen = tfpipe.State(epoch=4), []
    for hosts in ((0, 1), (0, 0), (0,)):
        ranks = len(hosts)
        steps = 2 if ranks == 2 else None
        seen += read_on_ranks(
            data_dir, ranks, state=state, count=steps, hosts=hosts, **options
        )
        source = make_source(data_dir, num_ranks=ranks, hosts=hosts, **options)
        state = source.advance(state, steps or source.num_steps(state, 1))
        assert tfpipe.State.from_json(state.to_json()) == state

    assert sorted(seen) == list(range(24))
    assert (state.epoch, state.phases, state.ranks_per_host) == (5, (), (1,))


def test_a_state_of_other_hosts_is_a_phase(data_dir):
    apart = make_source(data_dir, num_ranks=2, hosts=(0, 1), affinity=2)
    together = make_source(data_dir, num_ranks=2, hosts=(0, 0), affinity=2)

    later = together.advance(apart.advance(tfpipe.State(), 2))

    assert later.phases == (Phase(2, 4, (1, 1)),)
    assert (later.step, later.ranks_per_host) == (1, (2,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"affinity": 0}, "affinity must be a whole number >= 1 or None, got 0"),
        ({"affinity": 2, "num_ranks": 2}, "hosts must hold the number of each rank's"),
        ({"affinity": 2, "hosts": (0, 1)}, "host of each of 1 ranks, got 2 numbers"),
        ({"affinity": 2, "hosts": (-1,)}, "hosts must be a whole number >= 0, got -1"),
        ({"affinity": 2, "shuffle": "none"}, 'affinity needs shuffle="window" or "fu'),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_order([4, 6], **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_ranks": 3, "ranks_per_host": (1, 1)}, r"add up to num_ranks, got \[1, "),
        ({"num_ranks": 1, "ranks_per_host": (0, 1)}, "whole number >= 1, got 0"),
        ({"phases": [(2, 5, (1, 2))]}, r"add up to num_ranks, got \[1, 2\] for 2"),
    ],
)
def test_wrong_hosts_of_a_state_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tfpipe.State(**arguments)


def test_a_state_without_the_hosts_of_other_ranks_is_refused(data_dir):
    source = make_source(data_dir, affinity=2)

    with pytest.raises(ValueError, match="hold ranks_per_host for a source with aff"):
        source.advance(tfpipe.State(step=1, num_ranks=2, batch_size=2))


def test_a_mixture_refuses_affinity(data_dir):
    affine = tfpipe.Pipeline(make_source(data_dir, affinity=2, batch_size=1), [])

    with pytest.raises(ValueError, match="must have no affinity"):
        tfpipe.Mixture([affine], [1])


def test_affinity_of_a_single_host_needs_no_hosts():
    of = make_order([10, 20], affinity=3, batch_size=4)

    assert of.ranks_per_host == (1,)
    assert len(real(passed_on(of, 0, EpochPosition()))) == 28


def test_a_thousand_ranks_are_shared_evenly():
    hosts = tuple(int(host) for host in np.repeat(np.arange(128), 8))
    of = make_order(
        [1252] * 1024, num_ranks=1024, hosts=hosts, affinity=4, batch_size=16
    )

    sizes = [len(set(passed_on(of, rank, EpochPosition(9)))) for rank in (0, 511, 1023)]

    assert sizes == [of.num_steps() * 16] * 3


@thorough
@hypothesis.given(affine_orders(), st.integers(0, 40))
def test_the_part_of_a_host_is_what_its_ranks_read(of: Order, epoch: int) -> None:
    read, all_parts = parts(of, epoch), list[int]()
    for rank, host in enumerate(of.hosts):
        part = of.records_of_host(rank, epoch).records().tolist()
        assert part == sorted(set(part))
        assert read[host] <= set(part)
        if rank == of.hosts.index(host):
            all_parts += part
        if of.remainder == "pad":
            assert read[host] == set(part)

    assert sorted(all_parts) == list(range(of.num_records))


def test_without_affinity_a_host_may_read_all_records() -> None:
    order = make_order([5, 0, 4], num_ranks=2)

    assert order.records_of_host(1).records().tolist() == list(range(9))
    subset = dataclasses.replace(
        order, shard_sizes=np.array([3]), chosen=np.array([1, 4, 8])
    )
    assert subset.records_of_host(1).records().tolist() == [1, 4, 8]
