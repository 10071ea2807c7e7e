"""python -m converters.verify: the command as a user runs it, and repair."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest

from converters import verify
from tests.support.data import make_tree
from tfpipe import errors
from tfpipe.shards import index

SHARD = "train-00001-of-00003"


def _command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "converters.verify", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def _summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def copy(data_dir: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the data set that a test may damage."""
    return pathlib.Path(shutil.copytree(data_dir, tmp_path / "copy"))


def _flip(path: pathlib.Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_last_line_is_the_summary_of_a_clean_data_set(
    data_dir: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    done = _command(data_dir, "--level=source", f"--input_dir={raw_dir}")

    assert (done.returncode, done.stderr) == (0, "")
    summary = _summary(done)
    expected = {
        "command": "converters.verify",
        "schema_version": 1,
        "level": "source",
        "num_records": 31,
        "num_shards": 5,
        "num_bytes": sum(path.stat().st_size for path in data_dir.glob("*-of-*")),
        "num_not_comparable": 0,
        "faults": [],
        "num_faults": 0,
    }
    assert {key: summary[key] for key in expected} == expected
    assert summary["seconds"] > 0


def test_faults_are_printed_and_the_exit_code_is_1(copy: pathlib.Path) -> None:
    _flip(copy / SHARD, 40)
    (copy / "validation-00000-of-00002").unlink()

    done = _command(copy, "--num_workers=2")

    assert (done.returncode, done.stderr) == (1, "")
    summary = _summary(done)
    assert (summary["level"], summary["num_faults"]) == ("crc", 2)
    missing, damaged = summary["faults"]
    assert missing["shard"] == "validation-00000-of-00002"
    assert damaged.keys() == {"shard", "record", "byte_offset", "file", "fault"}
    assert (damaged["shard"], damaged["record"], damaged["byte_offset"]) == (
        SHARD,
        0,
        0,
    )
    assert f"Fault: {SHARD} record 0 at byte 0 ({damaged['file']}): " in done.stdout


def test_number_of_workers_does_not_change_what_is_found(copy: pathlib.Path) -> None:
    for number in range(3):
        _flip(copy / f"train-{number:05d}-of-00003", 1000 * (number + 1))

    found = [
        verify.verify(verify.Config(data_dir=str(copy), num_workers=num_workers)).faults
        for num_workers in (1, 3)
    ]

    assert len(found[0]) == 3
    assert found[0] == found[1]


def test_names_that_standard_output_cannot_hold_are_printed(
    copy: pathlib.Path,
) -> None:
    (copy / os.fsdecode(b"train-caf\xe9")).write_bytes(b"")

    done = _command(copy, "--level=quick")

    assert (done.returncode, done.stderr) == (1, "")
    assert r"Fault: train-caf\udce9: the index does not list it" in done.stdout
    (fault,) = _summary(done)["faults"]
    assert fault["shard"] == os.fsdecode(b"train-caf\xe9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Expected one folder, DIR, got 0"),
        (["{data}", "--level=all"], "level"),
        (["{data}", "--repair"], "Error: --repair needs --input_dir"),
        (["{tmp}/nowhere"], "Error: DIR must be a folder"),
        ([""], "Error: DIR must be a path, got nothing"),
        (["~nouser"], "Error: DIR must be a path, got ~nouser, whose user has no home"),
        (["{tmp}"], "Error: {tmp}/index.json is not a tfpipe index: 'classes' must be"),
    ],
)
def test_wrong_use_is_one_clear_error_and_exit_code_1(
    data_dir: pathlib.Path, tmp_path: pathlib.Path, arguments: list[str], message: str
) -> None:
    filled = [text.format(data=data_dir, tmp=tmp_path) for text in arguments]
    (tmp_path / index.INDEX_NAME).write_text('{"format_version": 1, "classes": 3}')

    done = _command(*filled)

    assert done.returncode == 1
    assert message.format(tmp=tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "all"}, "must be one of quick, crc, schema, decode, source, got"),
        ({"level": "source"}, "--level=source needs --input_dir"),
        ({"write_index": True, "level": "quick"}, "must be crc, schema or decode"),
        ({"write_index": True}, "is for shards without an index"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    data_dir: pathlib.Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        verify.verify(verify.Config(data_dir=str(data_dir), **options))


def test_a_folder_without_shards_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"must hold index\.json or shards named"):
        verify.verify(verify.Config(data_dir=str(tmp_path)))


def test_a_broken_index_is_an_error(copy: pathlib.Path) -> None:
    (copy / index.INDEX_NAME).write_text("{")

    with pytest.raises(errors.BadIndexError, match=r"index\.json cannot be read"):
        verify.verify(verify.Config(data_dir=str(copy)))


def test_without_the_catalog_the_records_are_still_checked(copy: pathlib.Path) -> None:
    (copy / index.CATALOG_NAME).unlink()
    _flip(copy / SHARD, 40)

    result = verify.verify(verify.Config(data_dir=str(copy), num_workers=1))

    assert [fault.shard for fault in result.faults] == [index.CATALOG_NAME, SHARD]
    assert (result.faults[1].record, result.faults[1].file) == (0, None)


def _repair(data_dir: pathlib.Path, raw_dir: pathlib.Path) -> verify.Result:
    config = verify.Config(
        data_dir=str(data_dir), input_dir=str(raw_dir), repair=True, num_workers=1
    )
    return verify.verify(config)


def test_repair_restores_the_identical_files(
    copy: pathlib.Path, data_dir: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    whole = "validation-00001-of-00002"
    untouched = (copy / whole).stat()
    _flip(copy / SHARD, 2000)
    (copy / "train-00002-of-00003").write_bytes(b"")
    (copy / "validation-00000-of-00002").unlink()

    result = _repair(copy, raw_dir)

    assert result.faults == []
    assert result.details["repaired"] == [
        SHARD,
        "train-00002-of-00003",
        "validation-00000-of-00002",
    ]
    assert result.details["num_faults_before_repair"] == 4
    for path in data_dir.glob("*-of-*"):
        assert (copy / path.name).read_bytes() == path.read_bytes()
    assert (copy / whole).stat().st_mtime_ns == untouched.st_mtime_ns
    assert not [path for path in copy.iterdir() if path.name.startswith(".")]


def test_repair_refuses_a_source_that_has_changed(
    copy: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The bad shard stays as it was."""
    raw_dir = make_tree(tmp_path / "raw", num_images=24, num_validation_images=7)
    for path in raw_dir.glob("train/*/*"):
        path.write_bytes(path.read_bytes() + b"more")
    _flip(copy / SHARD, 2000)
    before = (copy / SHARD).read_bytes()

    with pytest.raises(ValueError, match=SHARD):
        _repair(copy, raw_dir)

    assert (copy / SHARD).read_bytes() == before


def test_repair_of_a_sound_data_set_changes_nothing(
    copy: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in copy.iterdir()}

    result = _repair(copy, raw_dir)

    assert result.faults == []
    assert "repaired" not in result.details
    assert {path.name: path.stat().st_mtime_ns for path in copy.iterdir()} == before


def test_repair_leaves_what_it_does_not_know(
    copy: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    (copy / "train-00003-of-00004").write_bytes(b"")

    result = _repair(copy, raw_dir)

    assert [fault.shard for fault in result.faults] == ["train-00003-of-00004"]
    assert (copy / "train-00003-of-00004").exists()
