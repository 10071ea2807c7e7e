"""converters.run: a plan from worker processes to a complete data set, or nothing."""

import fcntl
import os
import pathlib
import re

import pytest

from converters import classes, inputs, plan, run
from tests.conftest import make_tree
from tfpipe import index

CLASSES = classes.imagenet_classes()


def _job(
    raw_dir: pathlib.Path, output_dir: pathlib.Path, *, overwrite: bool = False
) -> run.Job:
    tree = inputs.read_tree(raw_dir, CLASSES)
    return run.Job(
        input_dir=raw_dir,
        output_dir=output_dir,
        name="imagenet",
        plans=plan.make_plan(tree.splits, {"train": 2, "validation": 1}, seed=0),
        classes=CLASSES,
        made_by={"command": "test"},
        num_workers=2,
        overwrite=overwrite,
    )


def test_data_set_is_complete_and_leaves_no_work(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    result = run.run(_job(raw_dir, tmp_path / "a" / "b"))

    assert sorted(os.listdir(tmp_path / "a" / "b")) == [
        "catalog.parquet",
        "index.json",
        "labels.txt",
        "train-00000-of-00002",
        "train-00001-of-00002",
        "validation-00000-of-00001",
    ]
    assert index.load(tmp_path / "a" / "b") == result
    assert result.made_by["decisions"] == {"kept": 31}
    for split in ("train", "validation"):
        index.check(result, tmp_path / "a" / "b", split)


def test_bad_image_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=8)
    bad = raw_dir / "train" / "n01443537" / "n01443537_5.JPEG"
    bad.write_bytes(b"no picture")

    with pytest.raises(ValueError, match=re.escape(str(bad))):
        run.run(_job(raw_dir, tmp_path / "out"))

    assert not (tmp_path / "out").exists()


def test_file_that_vanishes_is_named_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=8)
    job = _job(raw_dir, tmp_path / "out")
    (raw_dir / "train" / "n01443537" / "n01443537_5.JPEG").unlink()

    with pytest.raises(OSError, match=r"n01443537_5\.JPEG"):
        run.run(job)

    assert not (tmp_path / "out").exists()


def test_existing_data_set_is_kept_unless_overwritten(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    other = make_tree(tmp_path / "raw", num_images=8)
    run.run(_job(raw_dir, tmp_path / "out"))
    before = (tmp_path / "out" / "index.json").read_bytes()

    with pytest.raises(ValueError, match=r"already holds a data set.*--overwrite"):
        run.run(_job(other, tmp_path / "out"))
    assert (tmp_path / "out" / "index.json").read_bytes() == before

    run.run(_job(other, tmp_path / "out", overwrite=True))
    assert index.load(tmp_path / "out").num_records("train") == 8
    assert not (tmp_path / "out" / "validation-00000-of-00001").exists()


def test_failed_overwrite_keeps_the_old_data_set(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run.run(_job(raw_dir, tmp_path / "out"))
    before = sorted(os.listdir(tmp_path / "out"))
    bad = make_tree(tmp_path / "raw", num_images=8)
    (bad / "train" / "n01443537" / "n01443537_5.JPEG").write_bytes(b"no picture")

    with pytest.raises(ValueError, match="not an image"):
        run.run(_job(bad, tmp_path / "out", overwrite=True))

    assert sorted(os.listdir(tmp_path / "out")) == before
    index.check(index.load(tmp_path / "out"), tmp_path / "out", "train")


def test_folder_with_other_files_is_refused(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "thesis.tex").write_text("")

    with pytest.raises(
        ValueError, match=r"must be empty or hold a data set.* thesis\.tex"
    ):
        run.run(_job(raw_dir, tmp_path))


def test_second_run_on_one_folder_is_refused(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    work_dir = tmp_path / "out" / run.WORK_DIR_NAME
    work_dir.mkdir(parents=True)
    lock = os.open(work_dir, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)

    with pytest.raises(ValueError, match="Another conversion is writing to"):
        run.run(_job(raw_dir, tmp_path / "out"))

    assert work_dir.exists()
    os.close(lock)


def test_what_a_killed_run_left_is_cleared(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    work_dir = tmp_path / "out" / run.WORK_DIR_NAME
    work_dir.mkdir(parents=True)
    (work_dir / "train-00000-of-00002").write_bytes(b"half a shard")

    result = run.run(_job(raw_dir, tmp_path / "out"))

    index.check(result, tmp_path / "out", "train")
    assert not work_dir.exists()
