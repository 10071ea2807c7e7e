"""benchmarks.distributed.ranks on one rank; tests/system has several."""

import pytest
import tensorflow as tf

import tfpipe
from benchmarks.distributed import ranks as ranks_module
from benchmarks.distributed.ranks import Ranks


def test_one_rank_talks_to_nobody() -> None:
    ranks = Ranks()
    variable = tf.Variable(3.0)

    ranks.broadcast([variable])

    assert [float(value) for value in ranks.average([tf.constant(2.0)])] == [2.0]
    assert ranks.gather("x") == ["x"]
    assert float(variable) == 3.0
    assert ranks.is_first


def test_ranks_beyond_the_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks of a GPU would share its memory, and its figures."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU:0"])

    with pytest.raises(ValueError, match="got 2 ranks and 1 GPUs"):
        ranks_module._take_gpu(Ranks(num_ranks=2, num_local_ranks=2))


@pytest.mark.parametrize(
    ("cores", "local_ranks", "threads"), [(40, "8", 3), (96, "8", 10), (2, "1", 2)]
)
def test_inter_op_threads_are_the_share_of_a_rank(
    monkeypatch: pytest.MonkeyPatch, cores: int, local_ranks: str, threads: int
) -> None:
    given: list[int] = []
    monkeypatch.setattr(
        tf.config.threading, "set_inter_op_parallelism_threads", given.append
    )
    monkeypatch.setattr(tfpipe.host, "num_cores", lambda: cores)
    monkeypatch.setenv("HOROVOD_LOCAL_SIZE", local_ranks)

    assert ranks_module.set_inter_op_threads() == threads
    assert given == [threads]
