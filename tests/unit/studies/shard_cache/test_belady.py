"""studies.shard_cache.belady: no cache does better, and the rule can."""

import functools

import hypothesis
import pytest
from hypothesis import strategies

from studies.shard_cache import belady


@pytest.mark.parametrize(
    ("uses", "room", "expected"),
    [
        ([0, 0, 0], 1, 2 / 3),
        ([0, 1, 0, 1], 1, 0.25),  # one of the two is kept
        ([0, 1, 2, 0, 1, 2], 2, 2 / 6),
        ([0, 1, 2, 0, 1, 2], 3, 3 / 6),
        ([], 3, 0.0),
        ([0, 0], 0, 0.0),
    ],
)
def test_known_orders(uses: list[int], room: int, expected: float) -> None:
    assert belady.hit_rate([uses], [1, 1, 1], room) == pytest.approx(expected)


def _best(uses: list[int], room: int) -> int:
    """The most hits of all choices of what to keep, tried one by one."""

    @functools.cache
    def best(place: int, there: frozenset[int]) -> int:
        if place == len(uses):
            return 0
        piece = uses[place]
        all_there = there | {piece}
        choices = [all_there] if len(all_there) <= room else []
        choices += [all_there - {one} for one in all_there]
        hit = int(piece in there)
        return hit + max(best(place + 1, kept) for kept in choices)

    return best(0, frozenset())


@hypothesis.given(
    strategies.lists(strategies.integers(0, 4), max_size=9), strategies.integers(1, 4)
)
@hypothesis.settings(max_examples=50, deadline=None)
def test_no_choice_is_better(uses: list[int], room: int) -> None:
    found = belady.hit_rate([uses], [1] * 5, room)

    assert found * max(len(uses), 1) == pytest.approx(_best(uses, room))


def test_large_pieces_make_room() -> None:
    # Piece 2 takes the place of both others, which come again before it.
    assert belady.hit_rate([[0, 1], [2], [0, 1], [2]], [1, 1, 2], 2) == 2 / 6
