"""benchmarks.distributed.ranks: on three ranks, on two, and without Horovod."""

import numpy as np
import tensorflow as tf

from benchmarks.distributed.ranks import Ranks
from tests.support import horovodrun
from tests.support.rank_pool import RankPool
from tests.support.warm_python import WarmPython


def test_ranks_prove_themselves() -> None:
    done = horovodrun.run(3, "-m", "benchmarks.distributed.ranks")

    result = horovodrun.result(done)
    assert (result["num_ranks"], result["sum"]) == (3, 3)


def _communicate(ranks: Ranks) -> tuple[object, ...]:
    variable = tf.Variable(float(ranks.rank + 5))
    ranks.broadcast([variable])
    average = tf.function(lambda tensor: ranks.average([tensor, 2 * tensor]))
    means = average(tf.constant([ranks.rank, 10.0]))
    gathered = ranks.gather({"rank": ranks.rank})
    local = (ranks.local_rank, ranks.num_local_ranks, ranks.now() == ranks)
    return local, float(variable), np.array(means).tolist(), gathered


def test_ranks_average_broadcast_and_gather(rank_pool: RankPool) -> None:
    answers = rank_pool.run(_communicate)

    for rank, (local, variable, means, gathered) in enumerate(answers):
        assert local == (rank, 2, True)
        assert variable == 5.0
        assert means == [[0.5, 10.0], [1.0, 20.0]]
        assert gathered == [{"rank": 0}, {"rank": 1}]


def test_without_horovod_a_single_process_runs_and_horovodrun_is_an_error(
    warm_python: WarmPython,
) -> None:
    """Horovod is hidden from the process, as on a machine that has none."""
    code = (
        "import sys, os; sys.modules['horovod'] = None; "
        "from benchmarks.distributed import ranks; "
        "assert ranks.connect() == ranks.Ranks(); assert ranks.version() is None; "
        "os.environ['HOROVOD_RANK'] = '0'; ranks.connect()"
    )

    done = warm_python.run("-c", code)

    assert "this Python has no Horovod. Install it as BUILD.md says" in done.stderr
    assert "AssertionError" not in done.stderr
