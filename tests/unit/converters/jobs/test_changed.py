"""converters.jobs.changed, work: an image that changed while its job was cut off."""

import os
import pathlib

import pytest

from converters import imagenet
from converters.images import policy
from converters.inputs import ilsvrc
from converters.jobs import changed, output, publish, run
from converters.options import job as job_options
from tests.support.data import SYNSETS, make_tree
from tfpipe.shards import index


def _run(root: pathlib.Path, out: pathlib.Path, **options: object) -> index.Index:
    job = job_options.JobConfig(
        output_dir=str(out),
        num_train_shards=2,
        num_workers=1,
        fsync=False,
        **options,  # type: ignore[arg-type]
    )
    config = imagenet.Config(input_dir=str(root), job=job)
    return run.run(imagenet.make_job(config))  # type: ignore[return-value]


def _edit(path: pathlib.Path) -> None:
    """Another image of the same size, with the old time of its content."""
    times = path.stat()
    path.write_bytes(path.read_bytes()[:-3] + b"\x01\xff\xd9")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _leave_unfinished(
    root: pathlib.Path, out: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, int]:
    """Writes all shards as if the run were cut off then; their inodes."""
    with monkeypatch.context() as patch:
        patch.setattr(publish, "finish", lambda job, work_dir: None)
        _run(root, out)
    found = (out / output.WORK_DIR_NAME).glob("job-*/train-*-of-00002")
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
    """The images that take the place of others were there before them."""
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
    root, out = make_tree(tmp_path / "raw", num_images=8), tmp_path / "out"
    job = job_options.JobConfig(output_dir=str(out), num_train_shards=2, num_workers=1)
    planned = imagenet.make_job(imagenet.Config(input_dir=str(root), job=job)).plans
    done = {}
    for plan in planned:
        settings = run.shards.Settings(
            input_dir=root,
            work_dir=tmp_path,
            classes=imagenet.classes.imagenet_classes(),
            policy=policy.Policy(),
            fsync=False,
        )
        done[plan.name] = run.shards.write_shard(settings, run.shards.Task(plan, {}))
    text = done[planned[0].name].to_json()
    assert run.shards.Written.from_json(text) == done[planned[0].name]
    done[planned[0].name] = run.shards.Written.from_json(
        text.replace(f', "source_digest": "{done[planned[0].name].source_digest}"', "")
    )

    found = changed.find(root, planned, done, policy.Policy(), num_workers=1)

    assert found == [planned[0].name]
    assert ilsvrc.read_image(root, planned[0].images[0])
