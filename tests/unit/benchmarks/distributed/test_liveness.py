"""benchmarks.distributed.watch: which rank is named, in tables of reports."""

import json

import pytest

from benchmarks.distributed.watch import Liveness, Peer, Position
from benchmarks.service import SilentWorkers

FED = True


def at(step: int = 0, is_fed: bool = False, loop: int = 1) -> Position:
    return Position(loop, step, is_fed)


TIMEOUT = 10.0
NOW = 100.0


def _liveness(*ranks: tuple[Position, float, float, bool]) -> Liveness:
    """Takes for each rank: position, seconds since it moved and was heard, is_done."""
    peers = {
        rank: Peer(
            rank=rank,
            host=f"node{rank}",
            position=position,
            moved=NOW - moved,
            heard=NOW - heard,
            is_done=is_done,
        )
        for rank, (position, moved, heard, is_done) in enumerate(ranks)
    }
    return Liveness(peers=peers, num_ranks=len(ranks), timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        # All ranks make steps.
        ([(at(5), 1, 0.1, False), (at(5, FED), 1, 0.1, False)], None),
        # Slow, but within the time-out.
        ([(at(5), 9.9, 0.1, False), (at(5, FED), 9.9, 0.1, False)], None),
        # Rank 1 has no batch; rank 0 waits for it within the step.
        (
            [(at(5, FED), 11, 0.1, False), (at(5), 10.5, 0.1, False)],
            "Rank 1 (node1) of 2 got no batch for 10 s (--rank_timeout), after step 5",
        ),
        # Rank 0 itself has no batch.
        (
            [(at(0), 11, 0.1, False), (at(0, FED), 11, 0.1, False)],
            "Rank 0 (node0) of 2 got no batch for 10 s (--rank_timeout), before the fi",
        ),
        # All are in the same step: no rank can be told from the others.
        (
            [(at(5, FED), 11, 0.1, False), (at(5, FED), 11, 0.1, False)],
            "Rank 0 (node0), 1 (node1) of 2 made no step for 10 s (--rank_timeout), af",
        ),
        # The same, but rank 1 sends no reports.
        (
            [(at(5, FED), 11, 0.1, False), (at(5, FED), 12, 10.2, False)],
            "Rank 1 (node1) of 2 sent no report for 10.2 s; the last one was ",
        ),
        # Rank 0 is far ahead and waits for a slow rank, which is not late.
        ([(at(90, FED), 50, 0.1, False), (at(5), 3, 0.1, False)], None),
        # A rank that is done is neither late nor silent.
        ([(at(9), 50, 50, True), (at(5), 3, 0.1, False)], None),
        ([(at(9), 50, 50, True), (at(9), 50, 50, True)], None),
        # A rank that is not in a loop yet, or between two loops, is never late, nor is
        # one that waits for it.
        (
            [(at(loop=0), 50, 0.1, False), (at(loop=0), 50, 0.1, False)],
            None,
        ),
        (
            [(at(9, loop=2), 50, 0.1, False), (at(loop=3), 50, 0.1, False)],
            None,
        ),
        # The second loop counts its steps from 0.
        (
            [
                (at(9, loop=1), 11, 0.1, False),
                (at(1, loop=3), 11, 0.1, False),
            ],
            "Rank 0 (node0) of 2 got no batch for 10 s (--rank_timeout), after step 9.",
        ),
        (
            [(at(9), 50, 50, True), (at(8), 11, 0.1, False)],
            "Rank 1 (node1) of 2 got no batch for 10 s (--rank_timeout), after step 8",
        ),
    ],
)
def test_lost_or_late_rank_is_named(
    ranks: list[tuple[Position, float, float, bool]], expected: str | None
) -> None:
    found = _liveness(*ranks).judge(NOW, silence_limit=100)

    assert found == expected or str(found).startswith(str(expected))


@pytest.mark.parametrize(
    ("rank", "is_done", "expected"),
    [
        (1, False, "Rank 1 (node1) of 2 ended without an error message; its last r"),
        (1, True, None),
        # Rank 0 must report that all ranks are done before it closes.
        (0, True, "Rank 0 (node0) of 2 ended without an error message; its last r"),
    ],
)
def test_broken_connection_is_a_loss_unless_the_rank_was_done(
    rank: int, is_done: bool, expected: str | None
) -> None:
    found = _liveness(*[(at(5), 1, 1, is_done)] * 2).lose(rank)

    assert found == expected or str(found).startswith(str(expected))


@pytest.mark.parametrize(
    ("heard", "is_done", "expected"),
    [
        ((0.1, 9.9), False, None),
        (
            (0.1, 10.1),
            False,
            "Rank 1 (node1) of 2 sent no report for 10.1 s; the",
        ),
        (
            (30, 0.1),
            False,
            "Rank 0 (node0) of 2 sent no report for 30.0 s; the",
        ),
        ((0.1, 30), True, None),
    ],
)
def test_silent_rank_is_named_unless_it_was_done(
    heard: tuple[float, float], is_done: bool, expected: str | None
) -> None:
    liveness = _liveness(*[(at(5), 1, seconds, is_done) for seconds in heard])

    found = liveness.judge(NOW, silence_limit=TIMEOUT)

    assert found == expected or str(found).startswith(str(expected))


def test_time_in_which_this_process_was_stopped_does_not_count() -> None:
    liveness = _liveness(*[(at(5), 60, 60, False)] * 2)
    assert liveness.judge(NOW, silence_limit=TIMEOUT) is not None

    liveness.forgive(55)

    assert liveness.judge(NOW, silence_limit=TIMEOUT) is None
    assert liveness.judge(NOW + 6, silence_limit=TIMEOUT) is not None


def test_rank_that_knows_only_some_judges_silence_alone() -> None:
    """Only rank 0 has the reports of all ranks."""
    liveness = _liveness(*[(at(5), 60, 0.1, False)] * 2)
    assert liveness.judge(NOW, silence_limit=TIMEOUT) is not None

    liveness.num_ranks = 3

    assert liveness.judge(NOW, silence_limit=TIMEOUT) is None


def test_place_is_the_same_in_json() -> None:
    assert Position(*json.loads(json.dumps(at(3, FED)))) == at(3, FED)


def test_a_silent_worker_is_named_once_and_again_when_it_is_back() -> None:
    alive, now = {"a:1", "b:2"}, [0.0]
    silent = SilentWorkers(10, alive.__contains__, lambda: now[0])

    def look(seconds: float) -> list[str]:
        now[0] += seconds
        return silent.look(["a:1", "b:2"])

    assert [look(5), look(60)] == [[], []]
    alive.remove("b:2")
    assert look(9) == []
    (sentence,) = look(1)
    assert sentence.startswith("The worker at b:2 has not answered for 10 seconds.")
    assert "--address=b:2" in sentence
    assert look(100) == []
    alive.add("b:2")
    assert look(1) == ["The worker at b:2 answers again."]
    assert look(9) == []


def test_a_worker_that_never_answered_is_named_after_the_limit() -> None:
    now = [0.0]
    silent = SilentWorkers(10, lambda _: False, lambda: now[0])

    assert silent.look(["host:5051"]) == []
    now[0] = 10.0
    assert len(silent.look(["host:5051"])) == 1
