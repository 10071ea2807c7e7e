"""benchmarks.distributed.ranks: which cores a rank keeps to."""

import os
import pathlib

import pytest

from benchmarks.distributed import ranks
from benchmarks.distributed.ranks import Ranks, Seat

TWO = [frozenset(range(4)), frozenset(range(4, 8))]
FOUR = [frozenset(range(n, n + 2)) for n in (0, 2, 4, 6)]


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0", [0]), ("0-3", [0, 1, 2, 3]), ("0-1,8,10-11", [0, 1, 8, 10, 11])],
)
def test_lists_of_the_kernel(text: str, cores: list[int]) -> None:
    assert sorted(ranks.parse_cpulist(text)) == cores


def test_nodes_come_by_number_and_those_without_cores_are_left_out(
    tmp_path: pathlib.Path,
) -> None:
    for name, cores in (("node10", "4-5"), ("node2", "0-1"), ("node3", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(cores + "\n")

    assert ranks.read_nodes(tmp_path) == [frozenset({0, 1}), frozenset({4, 5})]


@pytest.mark.parametrize(
    ("nodes", "allowed", "num_ranks", "expected"),
    [
        # Neighbors share a node, and its cores.
        (TWO, range(8), 4, [(0, 4, 2), (0, 4, 2), (1, 4, 2), (1, 4, 2)]),
        (TWO, range(8), 3, [(0, 4, 2), (0, 4, 2), (1, 4, 1)]),
        # A rank alone keeps all.
        (TWO, range(8), 1, [(8, 1)]),
        # One node, or all but one not allowed.
        (TWO[:1], range(4), 2, [(4, 2), (4, 2)]),
        (TWO, range(4), 2, [(4, 2), (4, 2)]),
        # Part of each.
        (TWO, range(2, 6), 2, [(0, 2, 1), (1, 2, 1)]),
        # More nodes than ranks: all of them are used.
        (FOUR, range(8), 2, [(0, 1, 4, 1), (2, 3, 4, 1)]),
        (FOUR, range(8), 3, [(0, 2, 1), (1, 2, 1), (2, 3, 4, 1)]),
        ([], range(2), 2, [(2, 2), (2, 2)]),
    ],
)
def test_seats(
    nodes: list[frozenset[int]],
    allowed: range,
    num_ranks: int,
    expected: list[tuple[int, ...]],
) -> None:
    free = Seat(nodes=(), cores=frozenset(allowed), num_ranks=num_ranks)

    seats = [ranks.assign(nodes, free, rank, num_ranks) for rank in range(num_ranks)]

    found = [(*seat.nodes, len(seat.cores), seat.num_ranks) for seat in seats]
    assert found == expected
    assert all(seat.cores <= frozenset(allowed) for seat in seats)


@pytest.mark.parametrize(
    ("num_cores", "num_ranks", "most_threads", "expected"),
    [(8, 2, None, 4), (2, 5, None, 1), (8, 2, 3, 3), (8, 2, 0, 1), (8, 2, 9, 4)],
)
def test_threads(
    num_cores: int, num_ranks: int, most_threads: int | None, expected: int
) -> None:
    cores = frozenset(range(num_cores))
    seat = Seat(nodes=(), cores=cores, num_ranks=num_ranks, most_threads=most_threads)

    assert seat.num_threads == expected


def test_a_rank_alone_is_not_bound() -> None:
    before = os.sched_getaffinity(0)

    seat = ranks.take_seat(Ranks())

    assert seat.cores == before == os.sched_getaffinity(0)
