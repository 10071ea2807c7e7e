"""benchmarks.distributed.ranks on one rank; tests/system has several."""

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
