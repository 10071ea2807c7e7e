"""tests.support.processes.rank_pool: scenarios on ranks that outlive them."""

import os
import signal
import time

import pytest
import tensorflow as tf

from benchmarks.distributed.ranks import Ranks
from tests.support.processes.rank_pool import RankPool, RanksFailedError


def _sum(ranks: Ranks, *, factor: int) -> tuple[int, float, int]:
    (mean,) = ranks.average([tf.constant(float(ranks.rank * factor))])
    return ranks.rank, float(mean) * ranks.num_ranks, os.getpid()


def _fail_on_rank_1(ranks: Ranks) -> str:
    if ranks.rank == 1:
        raise ValueError("disk on fire")
    return "fine"


def _die_on_rank_0(ranks: Ranks) -> None:
    if ranks.is_first:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def test_the_same_ranks_run_scenario_after_scenario(rank_pool: RankPool) -> None:
    first, second = (rank_pool.run(_sum, factor=factor) for factor in (1, 3))

    assert [answer[:2] for answer in first] == [(0, 1.0), (1, 1.0)]
    assert [answer[:2] for answer in second] == [(0, 3.0), (1, 3.0)]
    assert [answer[2] for answer in first] == [answer[2] for answer in second]


def test_error_of_a_rank_is_told_and_the_ranks_stay(rank_pool: RankPool) -> None:
    before = rank_pool.run(_sum, factor=1)

    with pytest.raises(RanksFailedError, match="ValueError: disk on fire") as caught:
        rank_pool.run(_fail_on_rank_1)

    assert caught.value.errors[0] is None
    assert "Rank 0 returned a value." in str(caught.value)
    assert rank_pool.run(_sum, factor=1) == before


def test_dead_rank_fails_its_scenario_and_the_next_has_new_ranks(
    rank_pool: RankPool,
) -> None:
    before = rank_pool.run(_sum, factor=1)

    with pytest.raises(RanksFailedError, match="Rank 0 gave no answer: it died"):
        rank_pool.run(_die_on_rank_0)

    after = rank_pool.run(_sum, factor=1)
    assert [answer[:2] for answer in after] == [answer[:2] for answer in before]
    assert not {answer[2] for answer in after} & {answer[2] for answer in before}
