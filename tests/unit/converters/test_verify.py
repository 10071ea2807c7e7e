"""converters.verify: what is refused, what is found, and repair."""

import errno
import os
import pathlib
from typing import Any

import pytest

from converters import verify
from tests.support.data.trees import make_tree
from tests.support.faults.damage import flip
from tfpipe import errors
from tfpipe.shards import index

SHARD = "train-00001-of-00003"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "all"}, "must be one of quick, crc, schema, decode, source, got"),
        ({"level": "source"}, "--level=source needs the input"),
        ({"write_index": True, "level": "quick"}, "must be crc, schema or decode"),
        ({"write_index": True}, "is for shards without an index"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    data_dir: pathlib.Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        verify.verify(verify.VerifyOptions(data_dir=str(data_dir), **options))


def test_a_folder_without_shards_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.BadIndexError, match=r"index\.json is missing"):
        verify.verify(verify.VerifyOptions(data_dir=str(tmp_path)))


def test_a_broken_index_is_an_error(copy_dir: pathlib.Path) -> None:
    (copy_dir / index.INDEX_NAME).write_text("{")

    with pytest.raises(errors.BadIndexError, match=r"index\.json cannot be read"):
        verify.verify(verify.VerifyOptions(data_dir=str(copy_dir)))


def test_without_the_catalog_the_records_are_still_checked(
    copy_dir: pathlib.Path,
) -> None:
    (copy_dir / index.CATALOG_NAME).unlink()
    flip(copy_dir / SHARD, 40, mask=1)

    result = verify.verify(verify.VerifyOptions(data_dir=str(copy_dir), num_workers=1))

    assert [fault.shard for fault in result.faults] == [index.CATALOG_NAME, SHARD]
    assert (result.faults[1].record, result.faults[1].file) == (0, None)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ENOMEM])
def test_a_catalog_that_the_host_cannot_read_is_an_error_and_no_fault(
    copy_dir: pathlib.Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB opens the catalog anew after its digest was found to be right."""

    def fail() -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(index, "catalog_connection", fail)

    with pytest.raises(errors.BadIndexError, match=os.strerror(code)):
        verify.verify(verify.VerifyOptions(data_dir=str(copy_dir), num_workers=1))


def _repair(data_dir: pathlib.Path, raw_dir: pathlib.Path) -> verify.Result:
    config = verify.VerifyOptions(
        data_dir=str(data_dir), input_dir=str(raw_dir), repair=True, num_workers=1
    )
    return verify.verify(config)


def test_repair_restores_the_identical_files(
    copy_dir: pathlib.Path, data_dir: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    whole = "validation-00001-of-00002"
    untouched = (copy_dir / whole).stat()
    flip(copy_dir / SHARD, 2000, mask=1)
    (copy_dir / "train-00002-of-00003").write_bytes(b"")
    (copy_dir / "validation-00000-of-00002").unlink()

    result = _repair(copy_dir, raw_dir)

    assert result.faults == []
    assert result.details["repaired"] == [
        SHARD,
        "train-00002-of-00003",
        "validation-00000-of-00002",
    ]
    assert result.details["num_faults_before_repair"] == 4
    for path in data_dir.glob("*-of-*"):
        assert (copy_dir / path.name).read_bytes() == path.read_bytes()
    assert (copy_dir / whole).stat().st_mtime_ns == untouched.st_mtime_ns
    assert not [path for path in copy_dir.iterdir() if path.name.startswith(".")]


def test_repair_refuses_a_source_that_has_changed(
    copy_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The bad shard stays as it was."""
    raw_dir = make_tree(tmp_path / "raw", num_images=24, num_validation_images=7)
    for path in raw_dir.glob("train/*/*"):
        path.write_bytes(path.read_bytes() + b"more")
    flip(copy_dir / SHARD, 2000, mask=1)
    before = (copy_dir / SHARD).read_bytes()

    with pytest.raises(ValueError, match=SHARD):
        _repair(copy_dir, raw_dir)

    assert (copy_dir / SHARD).read_bytes() == before


def test_repair_of_a_sound_data_set_changes_nothing(
    copy_dir: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in copy_dir.iterdir()}

    result = _repair(copy_dir, raw_dir)

    assert result.faults == []
    assert "repaired" not in result.details
    assert {path.name: path.stat().st_mtime_ns for path in copy_dir.iterdir()} == before


def test_repair_leaves_what_it_does_not_know(
    copy_dir: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    (copy_dir / "train-00003-of-00004").write_bytes(b"")

    result = _repair(copy_dir, raw_dir)

    assert [fault.shard for fault in result.faults] == ["train-00003-of-00004"]
    assert (copy_dir / "train-00003-of-00004").exists()
