"""converters.jobs.rebuild: faulty shards are written again from their input."""

import os
import pathlib

import pytest

from converters.jobs import rebuild
from converters.jobs.again import Again
from tests.support.data.trees import convert, make_tree
from tfpipe.location.location import Location

NAME = "train-00001-of-00003"


def test_a_shard_is_restored(raw_dir: pathlib.Path, copy_dir: pathlib.Path) -> None:
    before = (copy_dir / NAME).read_bytes()
    (copy_dir / NAME).write_bytes(before[:-9])

    rebuild.rebuild(copy_dir, Again(Location(str(raw_dir))), [NAME], 1)

    assert (copy_dir / NAME).read_bytes() == before
    assert not (copy_dir / ".repairing").exists()
    assert not (copy_dir / ".converting").exists()


def test_what_a_killed_repair_left_is_removed(
    raw_dir: pathlib.Path, copy_dir: pathlib.Path
) -> None:
    (copy_dir / ".repairing").mkdir()
    (copy_dir / ".repairing" / NAME).write_bytes(b"half")

    rebuild.rebuild(copy_dir, Again(Location(str(raw_dir))), [NAME], 1)

    assert not (copy_dir / ".repairing").exists()


def test_a_changed_input_is_refused(tmp_path: pathlib.Path) -> None:
    raw_dir, out = make_tree(tmp_path / "raw", num_images=4), tmp_path / "out"
    convert(raw_dir, out, num_train_shards=2)
    for path in raw_dir.glob("train/*/*"):
        path.write_bytes(path.read_bytes() + b"\0")
    before = {path.name: path.read_bytes() for path in out.glob("*-of-*")}

    with pytest.raises(ValueError, match="no longer gives shard train-0000"):
        rebuild.rebuild(out, Again(Location(str(raw_dir))), sorted(before), 1)

    assert {path.name: path.read_bytes() for path in out.glob("*-of-*")} == before


def test_nothing_is_written_behind_a_link(
    raw_dir: pathlib.Path, copy_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    (copy_dir / ".repairing").symlink_to(tmp_path / "precious")

    with pytest.raises(ValueError, match="must be a folder of its own, got a link"):
        rebuild.rebuild(copy_dir, Again(Location(str(raw_dir))), [NAME], 1)

    assert os.listdir(tmp_path / "precious") == ["file"]
