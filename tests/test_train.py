"""python -m benchmarks.train: errors as a user sees them; see also test_end_to_end."""

import pathlib
import shutil

import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import train


def _main(capsys: pytest.CaptureFixture[str], **values: object) -> tuple[int, str]:
    flags.FLAGS.mark_as_parsed()  # required flags of the converters are not given
    with flagsaver.flagsaver(model="tiny", **values):
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
