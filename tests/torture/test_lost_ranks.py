"""benchmarks.distributed.watch: every signal to either rank, with both time-outs."""

import itertools
import pathlib
import signal
import socket

import pytest

from tests.support.faults.torture import IS_LONG
from tests.support.processes.warm_python import WarmPython
from tests.support.processes.watched_ranks import WatchedRanks

ENDED = "ended without an error message; its last report was after step "
SILENT = "sent no report for "

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)

CASES = list(itertools.product((0, 1), SIGNALS, (3, 300)))
# Each signal. With a stopped rank a collective operation fails before the longer
# time-out.
FEW_CASES = [
    (0, signal.SIGKILL, 300),
    (1, signal.SIGTERM, 300),
    (0, signal.SIGSTOP, 3),
    (1, signal.SIGSTOP, 300),
]


@pytest.mark.parametrize(("rank", "number", "timeout"), CASES if IS_LONG else FEW_CASES)
def test_lost_rank_is_named_by_the_other(
    warm_python: WarmPython,
    tmp_path: pathlib.Path,
    rank: int,
    number: signal.Signals,
    timeout: float,
) -> None:
    launched = WatchedRanks(
        warm_python, tmp_path, timeout, HOROVOD_GLOO_TIMEOUT_SECONDS="10"
    )

    try:
        launched.send(rank, number)
        errors = launched.errors()
    finally:
        launched.close()

    assert launched.process.returncode != 0
    (error,) = errors
    words = SILENT if number == signal.SIGSTOP else ENDED
    assert error.startswith(f"Error: Rank {rank} ({socket.gethostname()}) of 2 {words}")
    assert "after step" in error
