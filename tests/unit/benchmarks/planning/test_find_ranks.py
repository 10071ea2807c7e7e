"""find_ranks: searches over made-up gates, with and without noise."""

import random

import pytest

from benchmarks.planning.sweep_run import MAX_REPEATS, Answer, search


def _search(
    limit: int, max_ranks: int, wrong: set[tuple[int, int]]
) -> tuple[Answer, list[tuple[int, int]]]:
    """Searches where up to `limit` ranks meet the gates, but for the wrong runs."""
    asked = []

    def meets(num_ranks: int, repeat: int) -> bool:
        asked.append((num_ranks, repeat))
        return (num_ranks <= limit) != ((num_ranks, repeat) in wrong)

    return search(meets, max_ranks), asked


@pytest.mark.parametrize("max_ranks", [1, 2, 3, 8, 13])
def test_every_limit_is_found_with_few_runs(max_ranks: int) -> None:
    for limit in range(max_ranks + 2):
        answer, asked = _search(limit, max_ranks, set())

        meets = min(limit, max_ranks)
        assert answer == Answer(meets, meets + 1 if meets < max_ranks else None)
        assert len(asked) <= 2 * max_ranks.bit_length() + 2
        assert len(set(asked)) == len(asked)
        assert all(1 <= number <= max_ranks for number, _ in asked)


def test_ranks_double_then_the_gap_halves_and_both_ends_are_repeated() -> None:
    _, asked = _search(5, 16, set())

    doubled, halved = [(1, 1), (2, 1), (4, 1), (8, 1)], [(6, 1), (5, 1)]
    assert asked == [*doubled, *halved, (5, 2), (6, 2)]


@pytest.mark.parametrize(
    "wrong",
    [
        {(6, 1)},  # a run next to the answer that met the gates by luck
        {(5, 1)},  # one that did not meet them by bad luck
        {(5, 2)},
        {(6, 2)},
        {(6, 3), (5, 1)},
        {(4, 2), (8, 2), (5, 3)},
    ],
)
def test_one_wrong_run_of_a_number_does_not_change_the_answer(
    wrong: set[tuple[int, int]],
) -> None:
    answer, asked = _search(5, 16, wrong)

    assert answer == Answer(5, 6)
    assert max(repeat for _, repeat in asked) <= MAX_REPEATS


def test_any_noise_ends_and_the_ends_are_neighbors() -> None:
    noise = random.Random(0)
    for _ in range(300):
        asked = []

        def meets(num_ranks: int, repeat: int, asked: list[int] = asked) -> bool:
            asked.append(num_ranks)
            return noise.random() < 0.5

        answer = search(meets, 9)

        assert answer.fails in (answer.meets + 1, None)
        assert (answer.fails is None) == (answer.meets == 9)
        for end in {answer.meets, answer.fails} - {0, None}:
            assert asked.count(end) >= 2
        assert max(map(asked.count, asked)) <= MAX_REPEATS
