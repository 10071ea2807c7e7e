"""benchmarks.distributed.watch under horovodrun, where ranks are killed and stopped."""

import pathlib
import signal
import socket
from collections.abc import Callable, Iterator

import pytest

from benchmarks.distributed.ranks import Ranks
from benchmarks.distributed.watch import watched
from tests.support.rank_pool import RankPool
from tests.support.watched_ranks import WatchedRanks, take_steps

ENDED = "ended without an error message; its last report was after step "
SILENT = "sent no report for "


@pytest.fixture
def launch(tmp_path: pathlib.Path) -> Iterator[Callable[..., WatchedRanks]]:
    made: list[WatchedRanks] = []

    def start(timeout: float, *words: str, **environment: str) -> WatchedRanks:
        made.append(WatchedRanks(tmp_path, timeout, *words, **environment))
        return made[-1]

    yield start
    for launched in made:
        launched.close()


# tests/torture has every signal on both ranks with both time-outs.
@pytest.mark.parametrize(
    ("rank", "number", "timeout", "words"),
    [
        (1, signal.SIGKILL, 300, ENDED),
        (0, signal.SIGKILL, 300, ENDED),
        (1, signal.SIGTERM, 300, ENDED),
        (0, signal.SIGSTOP, 3, SILENT),
        # The collective operation fails before the time-out of the watch.
        (1, signal.SIGSTOP, 300, SILENT),
    ],
)
def test_lost_rank_is_named_by_the_other(
    launch: Callable[..., WatchedRanks],
    rank: int,
    number: signal.Signals,
    timeout: float,
    words: str,
) -> None:
    launched = launch(timeout, HOROVOD_GLOO_TIMEOUT_SECONDS="10")

    launched.send(rank, number)
    errors = launched.errors()

    assert launched.process.returncode != 0
    (error,) = errors
    assert error.startswith(f"Error: Rank {rank} ({socket.gethostname()}) of 2 {words}")
    assert "after step" in error


def test_rank_without_data_is_named_while_a_collective_waits(
    launch: Callable[..., WatchedRanks],
) -> None:
    launched = launch(2, "starve")

    errors = launched.errors()

    assert launched.process.returncode != 0
    assert errors
    host = socket.gethostname()
    for error in errors:
        assert error.startswith(f"Error: Rank 1 ({host}) of 2 got no batch for 2 s")
        assert "after step 20." in error


def _take_ten_steps(ranks: Ranks, folder: pathlib.Path) -> list[str]:
    errors: list[str] = []
    with watched(ranks, 5.0, end=errors.append) as beat:
        take_steps(ranks, beat, 10, folder, starve=False)
    return errors


def test_ranks_that_finish_end_the_watch_without_an_error(
    rank_pool: RankPool, tmp_path: pathlib.Path
) -> None:
    assert rank_pool.run(_take_ten_steps, tmp_path) == [[], []]
