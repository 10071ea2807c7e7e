"""benchmarks.distributed.ranks: on two ranks, and without Horovod."""

import contextlib
import io
import json

import numpy as np
import tensorflow as tf

from benchmarks.distributed import ranks
from benchmarks.distributed.ranks import Ranks
from tests.support.processes.rank_pool import RankPool
from tests.support.processes.warm_python import WarmPython


def _prove(_: Ranks) -> tuple[int, str]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = ranks.main()
    return code, out.getvalue()


def test_ranks_prove_themselves(rank_pool: RankPool) -> None:
    """The command that `make venv` runs under horovodrun."""
    (code, text), other = rank_pool.run(_prove)

    result = json.loads(text)
    assert (code, result["num_ranks"], result["sum"]) == (0, 2, 1)
    assert other == (0, "")


def _communicate(world: Ranks) -> tuple[object, ...]:
    variable = tf.Variable(float(world.rank + 5))
    world.broadcast([variable])
    average = tf.function(lambda tensor: world.average([tensor, 2 * tensor]))
    means = average(tf.constant([world.rank, 10.0]))
    gathered = world.gather({"rank": world.rank})
    local = (world.local_rank, world.num_local_ranks, world.now() == world)
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
