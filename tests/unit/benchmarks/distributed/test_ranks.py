"""benchmarks.distributed.ranks on one rank; several are tested in test_end_to_end."""

import subprocess
import sys

import tensorflow as tf

from benchmarks.distributed.ranks import Ranks


def test_one_rank_talks_to_nobody() -> None:
    ranks = Ranks()
    variable = tf.Variable(3.0)

    ranks.broadcast([variable])

    assert [float(value) for value in ranks.average([tf.constant(2.0)])] == [2.0]
    assert ranks.gather("x") == ["x"]
    assert float(variable) == 3.0
    assert ranks.is_first


def test_without_horovod_a_single_process_runs_and_horovodrun_is_an_error() -> None:
    """Horovod is hidden from the process, as on a machine that has none."""
    code = (
        "import sys, os; sys.modules['horovod'] = None; "
        "from benchmarks import ranks; "
        "assert ranks.connect() == ranks.Ranks(); assert ranks.version() is None; "
        "os.environ['HOROVOD_RANK'] = '0'; ranks.connect()"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert "this Python has no Horovod. Install it as BUILD.md says" in done.stderr
    assert "AssertionError" not in done.stderr
