"""python -m benchmarks.train: errors as a user sees them; see also test_end_to_end."""

import json
import pathlib
import shutil
from typing import Any

import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import train


def _result(
    capsys: pytest.CaptureFixture[str], **values: object
) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON line and what was printed of a run without a model."""
    flags.FLAGS.mark_as_parsed()
    known = {"image_size": 32, "batch_size": 4, "num_steps": 20}
    known |= {"num_warmup_steps": 2}
    with flagsaver.flagsaver(model="tiny", **known | values):
        code = train.main(["train"])
    printed = capsys.readouterr().out
    return code, json.loads(printed.splitlines()[-1]), printed


def _main(capsys: pytest.CaptureFixture[str], **values: object) -> tuple[int, str]:
    flags.FLAGS.mark_as_parsed()  # required flags of the converters are not given
    with flagsaver.flagsaver(**{"model": "tiny"} | values):
        code = train.main(["train"])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "Error: One of --data_dir and --synthetic must be given"),
        (
            {"data_dir": "{tmp}"},
            "index.json is missing. Create one with python -m conv",
        ),
        ({"data_dir": "{data}", "batch_size": 999}, "24 records cannot give 1 ranks"),
        ({"data_dir": "{data}", "mode": "eval"}, "--mode=eval must have"),
        (
            {"data_dir": "{data}", "mode": "eval", "checkpoint_dir": "{tmp}/none"},
            "must hold a checkpoint to evaluate",
        ),
        ({"data_dir": "{data}", "report_dir": "{data}/index.json"}, "File exists"),
        ({"data_dir": "{data}", "require": ["speed>9"]}, "speed"),
        (
            {"data_dir": "{data}", "batch_size": 4, "num_classes": 9},
            "--num_classes must be >= 1000",
        ),
        (
            {"data_dir": "{data}", "batch_size": 4, "emulate": "h100"},
            "--emulate=h100 knows how fast resnet50, resnet50_v1.5 is with",
        ),
        (
            {"data_dir": "{data}", "model": "inception_v4", "image_size": 32},
            "image",
        ),
        (
            {"data_dir": "{data}", "batch_size": 4, "image_size": 32, "elastic": True},
            "must run under elastic Horovod",
        ),
    ],
)
def test_expected_failures_are_one_line_and_exit_code_1(
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    values: dict[str, object],
    message: str,
) -> None:
    filled = {
        name: value.format(data=data_dir, tmp=tmp_path)
        if isinstance(value, str)
        else value
        for name, value in values.items()
    }

    code, errors = _main(capsys, **filled)

    assert code == 1
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_shard_cut_short_is_named(
    data_dir: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)
    shard = tmp_path / "train-00001-of-00003"
    shard.write_bytes(shard.read_bytes()[:-1])

    code, errors = _main(capsys, data_dir=str(tmp_path))

    assert code == 1
    assert f"Shard {shard} must have" in errors


def test_damaged_record_is_one_line_that_names_it(
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = shutil.copytree(data_dir, tmp_path / "data")
    shard = folder / "train-00000-of-00003"
    content = bytearray(shard.read_bytes())
    content[500] ^= 1  # in the first record's data
    shard.write_bytes(content)

    values = {"data_dir": str(folder), "image_size": 32, "batch_size": 4}
    code, errors = _main(capsys, num_epochs=1, **values)

    assert code == 1
    (line,) = [line for line in errors.splitlines() if line.startswith("Error: ")]
    assert f"{shard}: record 0 of the split at byte 0 (image train/" in line
    assert "Traceback" not in errors


def test_gates_make_the_exit_code(
    data_dir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"data_dir": str(data_dir), "step_time_ms": 20.0}

    good = _result(
        capsys, require=["examples_per_second>1", "p50_step_ms>=20"], **values
    )
    bad = _result(capsys, require=["au>1%", "au<=1%"], **values)

    assert (good[0], bad[0]) == (0, 2)
    assert [gate["passed"] for gate in bad[1]["gates"]] == [True, False]
    assert "Gate au<=1% is not met" in bad[2]


def test_an_emulated_accelerator_takes_its_time(
    data_dir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, result, printed = _result(capsys, data_dir=str(data_dir), step_time_ms=60.0)

    compute, wait = (result[f"{part}_seconds_per_step"] for part in ("compute", "wait"))
    assert result["emulated_seconds_per_step"] == 0.06 <= compute
    assert result["accelerator_utilization"] == pytest.approx(
        compute / (compute + wait), rel=1e-6
    )
    assert "accuracy" not in result
    assert printed.startswith("Ranks: 1, of which 1 on this host; threads for each: ")
    assert result["telemetry"]["host_cpu_fraction"] > 0


def test_three_bars(data_dir: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, result, printed = _result(
        capsys, data_dir=str(data_dir), step_time_ms=40.0, bars=True
    )

    figures = result["bars"]
    assert figures["synthetic_examples_per_second"] <= 4 / 0.04
    assert figures["real_over_synthetic"] == pytest.approx(
        result["examples_per_second"] / figures["synthetic_examples_per_second"]
    )
    assert figures["sentence"] in printed


def test_the_page_cache_before_and_after_is_told(
    data_dir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, result, printed = _result(
        capsys, data_dir=str(data_dir), step_time_ms=0.0, cache="warm"
    )

    (before,), (after,) = result["cache"]["before"], result["cache"]["after"]
    assert before["resident_fraction"] == after["resident_fraction"] == 1
    assert "Page cache warm: 100.0% of the files were in memory" in printed


def test_repeated_runs_must_agree(
    data_dir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, result, printed = _result(
        capsys, data_dir=str(data_dir), step_time_ms=40.0, repeat=3
    )

    again = result["reproducibility"]
    assert again["examples_per_second_median"] == result["examples_per_second"]
    assert 0 <= again["spread"] < 1
    assert f"3 runs differ by {again['spread']:.1%}, " in printed
