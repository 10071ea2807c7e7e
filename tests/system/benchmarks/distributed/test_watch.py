"""benchmarks.distributed.watch on ranks that end by themselves.

In tests/torture they are killed and stopped.
"""

import pathlib
import socket

from benchmarks.distributed.ranks import Ranks
from benchmarks.distributed.watch import watched
from tests.support.processes.rank_pool import RankPool
from tests.support.processes.warm_python import WarmPython
from tests.support.processes.watched_ranks import WatchedRanks, take_steps


def test_rank_without_data_is_named_while_a_collective_waits(
    warm_python: WarmPython, tmp_path: pathlib.Path
) -> None:
    launched = WatchedRanks(warm_python, tmp_path, 2, "starve")

    try:
        errors = launched.errors()
    finally:
        launched.close()

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
