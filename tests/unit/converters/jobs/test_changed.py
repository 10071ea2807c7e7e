"""converters.jobs.changed: images that changed while their job was cut off."""

import json
import os
import pathlib

import pytest

from converters.jobs import changed, publish, run, work_dir, write_shard
from converters.jobs.job import Job
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import SYNSETS, make_tree
from tfpipe.shards import index


def _run(root: pathlib.Path, out: pathlib.Path, **options: object) -> index.Index:
    return run.run(_job(root, out, **options))  # type: ignore[return-value]


def _job(root: pathlib.Path, out: pathlib.Path, **options: object) -> Job:
    config = conversion(
        "imagenet",
        input_dir=str(root),
        output_dir=str(out),
        num_train_shards=2,
        num_workers=1,
        fsync=False,
        **options,  # type: ignore[arg-type]
    )
    return conversions.make_job(config)


def _edit(path: pathlib.Path) -> None:
    """Changes an image, and sets the time of its content back."""
    times = path.stat()
    path.write_bytes(path.read_bytes()[:-3] + b"\x01\xff\xd9")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _leave_unfinished(
    root: pathlib.Path, out: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, int]:
    """Writes all shards without publishing them; returns their inodes by name."""
    with monkeypatch.context() as patch:
        patch.setattr(publish, "publish", lambda job, job_dir: None)
        _run(root, out)
    found = (out / work_dir.WORK_DIR_NAME).glob("job-*/train-*-of-00002")
    return {path.name: path.stat().st_ino for path in found}


def test_edit_that_keeps_size_and_time_is_seen(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = make_tree(tmp_path / "raw", num_images=8), tmp_path / "out"
    before = _leave_unfinished(root, out, monkeypatch)
    _edit(root / "train" / SYNSETS[0] / f"{SYNSETS[0]}_0.JPEG")

    result = _run(root, out)

    assert result.splits == _run(root, tmp_path / "fresh").splits
    kept = [
        name for name, inode in before.items() if (out / name).stat().st_ino == inode
    ]
    assert len(kept) == 1


def test_other_files_with_older_times_are_seen_by_their_digest(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other images are older than the shards, so that times show no change."""
    other = make_tree(tmp_path / "other", num_images=8)
    _edit(other / "train" / SYNSETS[0] / f"{SYNSETS[0]}_0.JPEG")
    (other / "train" / SYNSETS[0] / "text.JPEG").write_bytes(b"no image")
    root, out = make_tree(tmp_path / "raw", num_images=8), tmp_path / "out"
    (root / "train" / SYNSETS[0] / "text.JPEG").write_bytes(b"no image")
    before = _leave_unfinished(root, out, monkeypatch)
    root.rename(tmp_path / "aside")
    other.rename(root)

    result = _run(root, out, check_inputs="digest")

    assert result.splits == _run(root, tmp_path / "fresh").splits
    kept = [
        name for name, inode in before.items() if (out / name).stat().st_ino == inode
    ]
    assert len(kept) == 1


def test_shard_of_an_earlier_version_counts_as_changed(tmp_path: pathlib.Path) -> None:
    root = make_tree(tmp_path / "raw", num_images=8)
    job = _job(root, tmp_path / "out")
    first, second = job.plans
    done = {
        plan.name: write_shard.write_shard(
            job, tmp_path, write_shard.task_of(job, plan)
        )
        for plan in (first, second)
    }
    assert changed.by_digest(job, job.plans, done) == []
    earlier = json.loads(done[first.name].to_json())
    del earlier["source_digest"]
    done[first.name] = write_shard.Written.from_json(json.dumps(earlier))

    assert changed.by_digest(job, job.plans, done) == [first.name]
