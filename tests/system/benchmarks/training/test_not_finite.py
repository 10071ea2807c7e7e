"""A loss that becomes NaN on one of two real ranks ends both, and names itself."""

import json
import pathlib
from typing import Any

import pytest
import tensorflow as tf

from benchmarks import train
from benchmarks.distributed.ranks import Ranks
from benchmarks.training import steps
from tests.support.processes import commands
from tests.support.processes.rank_pool import RankPool

FLAGS = {"model": "tiny", "image_size": 32, "batch_size": 2, "num_steps": 6}
NUM_WARMUP_STEPS = 2


def _train(
    ranks: Ranks,
    data_dir: pathlib.Path,
    step: int,
    *,
    eagerly: bool = False,
    **values: Any,
) -> tuple[int, str, str]:
    """Returns exit code, stdout and stderr; rank 1 has no finite loss in one step.

    The gradients of that step are finite: no other loss becomes NaN by them. Steps that
    run eagerly have no graph that takes seconds to trace.
    """
    number = tf.Variable(0)
    sums_of = steps._sums

    def sums(*arguments: Any) -> Any:
        loss, *others = sums_of(*arguments)
        is_wrong = (number.assign_add(1) == step) & (ranks.rank == 1)
        return (tf.where(is_wrong, tf.constant(float("nan")), loss), *others)

    values |= {"num_warmup_steps": NUM_WARMUP_STEPS, "data_dir": str(data_dir)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_sums", sums)
        # The ranks of the pool stay as they are bound to cores.
        patch.setattr("benchmarks.distributed.ranks.take_seat", lambda _: None)
        tf.config.run_functions_eagerly(eagerly)
        try:
            done = commands.answer(train.COMMANDS, **FLAGS | values)
        finally:
            tf.config.run_functions_eagerly(False)
    return done.returncode, done.stdout, done.stderr


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _result(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed.splitlines()[-1], parse_constant=_refuse)
    return found


def test_both_ranks_end_at_the_step_and_keep_the_figures(
    rank_pool: RankPool, data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder, checkpoints = tmp_path / "results", tmp_path / "checkpoints"
    values = {"report_dir": str(folder), "checkpoint_dir": str(checkpoints)}

    (code, printed, errors), (_, nothing, _) = rank_pool.run(
        _train, data_dir, 5, require=["stall<=100%"], **values
    )

    words = "The loss must stay finite, got nan at step 5 on rank 1 of 2."
    assert code == 1
    assert f"Error: {words}" in errors
    assert nothing == ""
    result = _result(printed)
    assert result["not_finite_loss"]["step"] == 5
    assert result["not_finite_loss"]["ranks"] == [1]
    assert result["num_timed_steps"] == 3
    assert {"loss_last", "epochs.loss"} <= set(result["not_finite"])
    (gate,) = result["gates"]
    assert not gate["passed"]
    # No page shows the result, and no training goes on from the model.
    assert not list(folder.glob("*.json"))
    (path,) = folder.glob("failed/*.json")
    kept = json.loads(path.read_text(), parse_constant=_refuse)
    assert kept["not_finite_loss"] == result["not_finite_loss"]
    assert not list(checkpoints.rglob("*.index"))


def test_nothing_is_left_of_a_warm_up_that_fails(
    rank_pool: RankPool, data_dir: pathlib.Path
) -> None:
    answers = rank_pool.run(_train, data_dir, NUM_WARMUP_STEPS, eagerly=True)

    for code, _, errors in answers:
        assert code == 1
        assert "Error: The loss must stay finite, got nan at step 2 on rank 1" in errors


def test_the_run_goes_on_if_it_may(rank_pool: RankPool, data_dir: pathlib.Path) -> None:
    (code, printed, _), _ = rank_pool.run(
        _train, data_dir, 5, eagerly=True, allow_nan=True
    )

    result = _result(printed)
    assert code == 0
    assert result["num_timed_steps"] == 6
    assert result["not_finite_loss"]["step"] == 5
    assert "Not sound: The loss must stay finite" in printed
