"""benchmarks.training.loop and checkpoint: training, evaluation, resumed runs."""

import functools
import json
import pathlib
from typing import Any

import pytest

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.models import architectures
from benchmarks.options.config import Config
from benchmarks.training import loop, run, steps, timed_steps
from benchmarks.training.recorder import StepResult
from benchmarks.training.setting import make_setting
from tests.support.data.tiny_training import tiny_setting
from tests.support.faults.damage import flip


def _train(data_dir: pathlib.Path, **fields: object) -> dict[str, object]:
    values = {"model": "tiny", "image_size": 32, "batch_size": 4, **fields}
    config = Config(data_dir=str(data_dir), **values)
    return loop.train(make_setting(config, Ranks()), Ranks())


@functools.cache
def _evaluate(
    checkpoint_dir: pathlib.Path, data_dir: pathlib.Path, batch_size: int
) -> dict[str, Any]:
    """Evaluates the saved model on validation; its loss tells its weights."""
    config = Config(
        data_dir=str(data_dir),
        model="tiny",
        image_size=32,
        batch_size=batch_size,
        mode="eval",
        checkpoint_dir=str(checkpoint_dir),
    )
    return loop.evaluate(make_setting(config, Ranks()), Ranks())


def test_training_uses_each_record_once_an_epoch_and_learns_them(
    data_dir: pathlib.Path,
) -> None:
    result = _train(data_dir, num_epochs=30, learning_rate=2.0)

    records = result["records"]
    assert (records["num_used"], records["num_distinct"]) == (30 * 24, 24)
    assert (records["times_used_min"], records["times_used_max"]) == (30, 30)
    assert [epoch["num_examples"] for epoch in result["epochs"]] == [24] * 30
    # Timing begins when the two windows of 24 records that were read ahead are used.
    assert (result["num_warmup_steps"], result["num_timed_steps"]) == (12, 168)
    assert result["steady_state"]["reached"]
    assert result["loss_last"] < result["loss_first"] / 2
    assert result["epochs"][-1]["accuracy"] > 0.5


FIXED = {"num_warmup_steps": 0, "learning_rate": 0.5}


@pytest.fixture(scope="module")
def checkpoint_dir(
    data_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """The checkpoint of a model trained for 10 steps at once, to be read only."""
    folder = tmp_path_factory.mktemp("checkpoint")
    _train(data_dir, checkpoint_dir=str(folder), num_steps=10, **FIXED)
    return folder


def test_resumed_training_equals_uninterrupted(
    data_dir: pathlib.Path, checkpoint_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The first part ends after 4 steps of 6, in the middle of an epoch."""
    _train(data_dir, checkpoint_dir=str(tmp_path), num_steps=4, **FIXED)
    resumed = _train(data_dir, checkpoint_dir=str(tmp_path), num_steps=6, **FIXED)

    saved = sorted(path.name for path in tmp_path.glob("*.index"))
    assert saved == ["ckpt-2.index", "ckpt-3.index"]  # the last two of three
    assert [epoch["epoch"] for epoch in resumed["epochs"]] == [0, 1]
    assert [epoch["num_examples"] for epoch in resumed["epochs"]] == [8, 16]
    whole = _evaluate(checkpoint_dir, data_dir, 7)["loss"]
    assert whole == pytest.approx(_evaluate(tmp_path, data_dir, 7)["loss"], rel=1e-4)


def test_evaluation_counts_each_record_once(
    data_dir: pathlib.Path, checkpoint_dir: pathlib.Path
) -> None:
    results = [_evaluate(checkpoint_dir, data_dir, size) for size in (2, 7)]

    assert [result["num_evaluated"] for result in results] == [7, 7]
    assert results[0]["loss"] == pytest.approx(results[1]["loss"], rel=1e-5)
    assert results[0]["records"]["num_used"] == 7


def test_evaluation_without_checkpoint_is_an_error(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(
        ValueError, match="must hold a checkpoint to evaluate, got none"
    ):
        _evaluate(tmp_path, data_dir, 7)


def test_synthetic_run_writes_its_report(tmp_path: pathlib.Path) -> None:
    config = Config(
        synthetic=True,
        model="tiny",
        image_size=32,
        batch_size=4,
        num_steps=5,
        report_dir=str(tmp_path),
    )

    result = run.run(config, Ranks())

    assert (result["num_timed_steps"], result["records"]) == (5, None)
    (path,) = tmp_path.glob("*.json")
    stored = json.loads(path.read_text())
    assert stored.pop("digest")  # of a file, which nobody may alter
    assert stored == json.loads(json.dumps(result))
    assert path.with_suffix(".png").exists()
    for key in (
        "command",
        "schema_version",
        "config",
        "environment",
        "num_ranks",
        "examples_per_second",
        "examples_per_second_per_rank",
        "stall_fraction",
        "accelerator_utilization",
        "cpu_seconds_per_example",
        "storage_bytes_read",
    ):
        assert key in result


def _infer(data_dir: pathlib.Path, **fields: object) -> dict[str, object]:
    values = {"model": "tiny", "image_size": 32, "batch_size": 3, **fields}
    config = Config(data_dir=str(data_dir), mode="infer", **values)
    return loop.infer(make_setting(config, Ranks()), Ranks())


def test_inference_goes_through_the_split_again_and_again(
    data_dir: pathlib.Path,
) -> None:
    """7 records are 3 steps of 3 examples, the last of which is padded."""
    result = _infer(data_dir, num_steps=6, num_warmup_steps=1)

    assert (result["num_warmup_steps"], result["num_timed_steps"]) == (1, 6)
    assert result["records"]["num_in_split"] == 7
    assert result["records"]["num_used"] == 7 + 7 + 3
    rate = result["examples_per_second"] * result["timed_seconds"]
    assert rate == pytest.approx(7 + 7)  # padding does not count
    assert result["time_to_first_batch_seconds"] > 0
    assert result["num_parameters"] == architectures.tiny(32, 1000).count_params()
    assert not {"loss_first", "accuracy", "epochs"} & set(result)


def test_inference_takes_the_weights_of_a_checkpoint(
    data_dir: pathlib.Path, tmp_path: pathlib.Path, checkpoint_dir: pathlib.Path
) -> None:
    with pytest.raises(ValueError, match="must hold a checkpoint"):
        _infer(data_dir, num_steps=1, checkpoint_dir=str(tmp_path))

    result = _infer(data_dir, num_steps=1, checkpoint_dir=str(checkpoint_dir))

    assert result["num_timed_steps"] == 1


def test_damaged_record_is_skipped_and_named(
    copy_dir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = copy_dir / "train-00001-of-00003"
    flip(shard, 500, mask=1)  # in the first record's data

    result = _train(copy_dir, num_epochs=2, on_error="skip")

    (fault,) = result["faults"]
    assert (fault["shard"], fault["byte_offset"]) == (str(shard), 0)
    assert fault["reason"] == "crc"
    assert "Skipped 1 record." in capsys.readouterr().err
    assert [epoch["num_examples"] for epoch in result["epochs"]] == [23, 23]


def test_first_rank_traces_the_chosen_steps(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    result = _train(data_dir, num_epochs=1, report_dir=str(tmp_path), trace_steps="2:4")

    assert result["num_timed_steps"] + result["num_warmup_steps"] == 6
    (file,) = tmp_path.glob("trace/plugins/profile/*/*.xplane.pb")
    assert file.stat().st_size > 0
    with pytest.raises(ValueError, match="--trace_steps=5:7 must end within the 6"):
        _train(data_dir, num_epochs=1, report_dir="unused", trace_steps="5:7")


def test_trace_ends_with_a_run_that_ends_early(tmp_path: pathlib.Path) -> None:
    config = Config(synthetic=True, report_dir=str(tmp_path), trace_steps="1:9")

    def step(_: object) -> StepResult:
        return StepResult(num_examples=1)

    with timed_steps.traced(step, config, Ranks(), 9) as traced:
        for _ in range(3):
            traced({})
    with timed_steps.traced(step, config, Ranks(rank=1, num_ranks=2), 9) as other:
        assert other is step, "the first rank alone is traced"

    assert len([*tmp_path.glob("trace/plugins/profile/*/*.xplane.pb")]) == 1


def test_trace_ends_with_a_run_that_fails_between_steps(tmp_path: pathlib.Path) -> None:
    setting = tiny_setting(num_steps=9, report_dir=str(tmp_path), trace_steps="1:9")

    def fail(*_: object) -> None:
        if not (left := next(countdown)):
            raise OSError(f"{left} steps are left")

    countdown = iter([2, 1, 0])
    function = steps.make_emulated_step(setting, Ranks(), 0.0)
    # The error holds the frames of the run, as long as it is looked at.
    with pytest.raises(OSError, match="0 steps are left") as error:
        timed_steps.run_steps(
            setting, Ranks(), function, (0, 9), tfpipe.State(), after_step=fail
        )

    assert len([*tmp_path.glob("trace/plugins/profile/*/*.xplane.pb")]) == 1, error
