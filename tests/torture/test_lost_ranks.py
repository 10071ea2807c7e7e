"""benchmarks.distributed.watch: every signal to either rank, with both time-outs."""

import itertools
import pathlib
import signal
import socket

import pytest

from tests.support.torture import rounds
from tests.support.watched_ranks import WatchedRanks

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)


# tests/system has a test of each signal: two more here, in any case.
CASES = list(itertools.product((0, 1), SIGNALS, (3, 300)))[:: rounds(few=7, many=1)]


@pytest.mark.parametrize(("rank", "number", "timeout"), CASES)
def test_lost_rank_is_named_by_the_other(
    tmp_path: pathlib.Path, rank: int, number: signal.Signals, timeout: float
) -> None:
    launched = WatchedRanks(tmp_path, timeout, HOROVOD_GLOO_TIMEOUT_SECONDS="10")

    try:
        launched.send(rank, number)
        errors = launched.errors()
    finally:
        launched.close()

    assert launched.process.returncode != 0
    (error,) = errors
    assert error.startswith(f"Error: Rank {rank} ({socket.gethostname()}) of 2 ")
    assert "after step" in error
