"""Next use: the plan against a search through all windows, and Belady's rule."""

import numpy as np
from hypothesis import given, settings, strategies as st

from tests.support.data import belady
from tfpipe.shard_cache import next_use
from tfpipe.shard_cache.next_use import NEVER, NO_USE, PINNED, ReaderRow

NUM_PIECES = 12
WINDOWS = st.lists(
    st.lists(st.integers(0, NUM_PIECES - 1), max_size=5, unique=True).map(sorted),
    max_size=20,
)


@settings(deadline=None)
@given(WINDOWS, st.lists(st.booleans(), max_size=40))
def test_a_plan_knows_the_next_use_of_each_piece(windows, steps):
    use = np.zeros(NUM_PIECES, np.int32)
    plan = next_use.UsePlan(use)
    kept: list[tuple[int, int, list[int]]] = []
    number, time, left = 1, 0, list(windows)

    for is_release in steps:
        if is_release and kept:
            kept.pop(0)
            plan.release()
        elif left:
            pieces = left.pop(0)
            kept.append((number, time, pieces))
            plan.add(np.array(pieces, np.int64), 7)
            number, time = number + 1, time + 7
        expected = [
            next((at for at, _, held in kept if piece in held), NO_USE)
            for piece in range(NUM_PIECES)
        ]
        assert use.tolist() == expected
        windows_now = [(planned.window, planned.time) for planned in plan.windows]
        assert windows_now == [(at, before) for at, before, _ in kept]
    assert plan.time == time


def test_a_long_plan_keeps_its_ring():
    use = np.zeros(3000, np.int32)
    plan = next_use.UsePlan(use)
    everything = np.arange(3000)
    for _ in range(4):
        plan.add(everything, 10)
    plan.release()
    plan.add(everything[:5], 10)
    for expected in (3, 4):
        plan.release()
        assert (use == expected).all()
    plan.release()
    assert use[:5].tolist() == [5] * 5
    assert (use[5:] == NO_USE).all()


def row(now, pinned_until, num_records, use):
    header = np.array([1, now, pinned_until, num_records], np.int64)
    return ReaderRow(header, np.array(use, np.int32))


def test_the_reader_that_is_first_counts_and_what_is_needed_is_pinned():
    readers = [
        row(100, 110, 8, [100, 110, 111, 150, NO_USE, NO_USE]),
        row(1, 5, 16, [NO_USE, NO_USE, 60, 21, NO_USE, NO_USE]),
    ]

    found = next_use.distances(readers, [np.array([5])], np.arange(6))

    assert found.tolist() == [PINNED, PINNED, 88, 320, NEVER, PINNED]
    some = next_use.distances(readers, [], np.array([3, 0]))
    assert some.tolist() == [320, PINNED]
    assert next_use.distances([], [], np.arange(2)).tolist() == [NEVER, NEVER]


def most_hits(uses, capacity, there=frozenset()):
    """The most hits of any choice of victims, found by trying all."""
    if not uses:
        return 0
    piece, later = uses[0], uses[1:]
    if piece in there:
        return 1 + most_hits(later, capacity, there)
    if len(there) < capacity:
        return most_hits(later, capacity, there | {piece})
    every = there | {piece}
    return max(most_hits(later, capacity, every - {victim}) for victim in every)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 4), max_size=9), st.integers(1, 3))
def test_optimal_hits_are_the_most_that_are_possible(uses, capacity):
    windows = [np.array([piece]) for piece in uses]

    found = belady.optimal_hits(windows, np.full(5, 10), 10 * capacity)

    assert round(found * len(uses)) == most_hits(uses, capacity)
