"""SIGTERM ends a training on all ranks after a step, and the same command goes on."""

import json
import os
import pathlib
import signal
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import train
from benchmarks.distributed import watch
from benchmarks.distributed.ranks import Ranks
from benchmarks.distributed.watch import Beat
from tests.support.processes import commands
from tests.support.processes.rank_pool import RankPool

# Six steps an epoch on two ranks.
FLAGS = {"model": "tiny", "image_size": 32, "batch_size": 2, "num_warmup_steps": 0}
NUM_EPOCHS = 2


class _Sender:
    """Sends SIGTERM to its own process after a step, as a scheduler may."""

    def __init__(self, step: int) -> None:
        self._step, self._count = step, Beat.__call__

    def __call__(self, beat: Beat, step: int) -> None:
        self._count(beat, step)
        if step == self._step:
            os.kill(os.getpid(), signal.SIGTERM)


def _train(
    ranks: Ranks,
    data_dir: pathlib.Path,
    folder: pathlib.Path,
    victim: int | None,
    step: int,
) -> tuple[int, str, str]:
    """Returns exit code, stdout and stderr; SIGTERM comes after a step of `victim`."""
    flags = FLAGS | {"data_dir": str(data_dir), "checkpoint_dir": str(folder)}
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        # The ranks of the pool stay as they are bound to cores.
        patch.setattr("benchmarks.distributed.ranks.take_seat", lambda _: None)
        if ranks.rank == victim:
            sender = _Sender(step)
            patch.setattr(Beat, "__call__", lambda beat, step: sender(beat, step))
        tf.config.run_functions_eagerly(True)
        try:
            done = commands.answer(train.COMMANDS, **flags, num_epochs=NUM_EPOCHS)
        finally:
            tf.config.run_functions_eagerly(False)
    assert signal.getsignal(signal.SIGTERM) == before
    return done.returncode, done.stdout, done.stderr


def _weights(folder: pathlib.Path) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(str(folder))
    names = [name for name in reader.get_variable_to_shape_map() if "model" in name]
    tensors = {name: reader.get_tensor(name) for name in names}
    return {n: v for n, v in tensors.items() if getattr(v, "dtype", None) == np.float32}


@pytest.fixture(scope="module")
def expected(
    rank_pool: RankPool, data_dir: pathlib.Path, tmp_path_factory: Any
) -> dict[str, Any]:
    """The weights of a training of both epochs at once."""
    folder = tmp_path_factory.mktemp("whole")
    rank_pool.run(_train, data_dir, folder, None, 0)
    return _weights(folder)


# Step 6 ends an epoch, and saves as each epoch does.
@pytest.mark.parametrize(("victim", "step", "num_done"), [(1, 4, 5), (0, 5, 6)])
def test_all_ranks_save_at_one_step_and_go_on(
    rank_pool: RankPool,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    expected: dict[str, Any],
    victim: int,
    step: int,
    num_done: int,
) -> None:
    (code, printed, errors), (other, _, _) = rank_pool.run(
        _train, data_dir, tmp_path, victim, step
    )

    assert (code, other) == (watch.EXIT_CODE, 0)
    epoch, within = divmod(num_done, 6)
    assert f"SIGTERM ended epoch {epoch} after step {within}. The checkpoint" in errors
    assert '"command"' not in printed
    assert len(list(tmp_path.glob("*.index"))) == 1

    (code, printed, _), _ = rank_pool.run(_train, data_dir, tmp_path, None, 0)

    assert code == 0
    result = json.loads(printed.splitlines()[-1])
    assert result["resumed"]
    assert result["records"]["num_used"] == (NUM_EPOCHS * 6 - num_done) * 4
    weights = _weights(tmp_path)
    assert len(expected) > 0
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-3, atol=1e-5)


def test_sigterm_before_the_last_step_leaves_the_run_as_it_is(
    rank_pool: RankPool, data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (code, printed, _), _ = rank_pool.run(_train, data_dir, tmp_path, 1, 11)

    assert code == 0
    assert json.loads(printed.splitlines()[-1])["records"]["num_used"] == 48
