"""converters.jobs.run: a job becomes a data set, or is left to be continued."""

import fcntl
import json
import os
import pathlib
from collections.abc import Callable

import pytest

import tfpipe
from converters.images import policy
from converters.inputs import classes
from converters.inputs.image import Image
from converters.jobs import at_url, plan, publish, replace, run, work_dir
from converters.jobs.job import Job
from tests.support.data.conversions import read_ilsvrc
from tests.support.data.trees import make_jpeg, make_tree
from tfpipe.location.location import Location
from tfpipe.shards import index

CLASSES = classes.imagenet_classes()
FAIL = policy.Policy(not_an_image="fail")


def _job(raw_dir: pathlib.Path, output_dir: pathlib.Path, **fields: object) -> Job:
    tree = read_ilsvrc(raw_dir)
    values = {
        "command": "test",
        "name": "imagenet",
        "input_dir": Location(str(raw_dir)),
        "output_dir": output_dir,
        "plans": plan.make_plan(tree.splits, {"train": 2, "validation": 1}, seed=0),
        "classes": CLASSES,
        "num_workers": 1,
        "fsync": False,
    }
    return Job(**values | fields)


def _spoil(raw_dir: pathlib.Path) -> str:
    name = "train/n01443537/n01443537_5.JPEG"
    (raw_dir / name).write_bytes(b"no picture")
    return name


def test_data_set_is_complete_and_leaves_no_work(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "a" / "b"

    result = run.run(_job(raw_dir, folder))

    assert sorted(os.listdir(folder)) == [
        "catalog.parquet",
        "classes.tsv",
        "dali_idx",
        "dataset_info.json",
        "features.json",
        "image.class.label.labels.txt",
        "index.json",
        "labels.txt",
        "train-00000-of-00002",
        "train-00001-of-00002",
        "validation-00000-of-00001",
    ]
    assert index.load(folder) == result
    assert result.made_by["decisions"] == {"kept": 31}
    assert result.made_by["git_revision"] == tfpipe.host.git_revision()
    for split in ("train", "validation"):
        index.check(result, folder, split)


@pytest.mark.parametrize("fields", [{}, {"policy": FAIL}])
def test_two_starts_of_one_job_both_end_well(
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, object],
) -> None:
    """The first start publishes just before the second one takes the folder."""
    folder, look = tmp_path / "set", publish.look
    first, second = _job(raw_dir, folder), _job(raw_dir, folder, **fields)

    def late(job: Job) -> at_url.TargetState:
        monkeypatch.setattr(publish, "look", look)
        run.run(first)
        return look(job)

    monkeypatch.setattr(publish, "look", late)
    if not fields:
        assert run.run(second) == index.load(folder)
    else:
        with pytest.raises(ValueError, match="already holds a data set that differs"):
            run.run(second)
    assert not (folder / work_dir.WORK_DIR_NAME).exists()


def test_bad_image_leaves_nothing_behind_where_the_policy_is_to_fail(
    tmp_path: pathlib.Path,
) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=8)
    name = _spoil(raw_dir)

    with pytest.raises(ValueError, match=name):
        run.run(_job(raw_dir, tmp_path / "out", policy=FAIL))

    assert not (tmp_path / "out").exists()


def test_bad_image_is_left_out_and_reported(tmp_path: pathlib.Path) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=8)
    name = _spoil(raw_dir)

    result = run.run(_job(raw_dir, tmp_path / "out"))

    lines = (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    (reject,) = map(json.loads, lines)
    assert (reject["name"], reject["reason"]) == (name, "not_an_image")
    assert result.num_records("train") == 7
    assert result.made_by["decisions"] == {"kept": 7, "skipped_not_an_image": 1}


@pytest.mark.parametrize("max_bad", [0, 0.1])
def test_too_many_bad_images_end_the_run(
    tmp_path: pathlib.Path, max_bad: float
) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=8)
    name = _spoil(raw_dir)

    with pytest.raises(ValueError, match=rf"--max_bad allows .*got 1 so far.*{name}"):
        run.run(_job(raw_dir, tmp_path / "out", max_bad=max_bad))

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("max_bad", [1, 0.5])
def test_as_many_bad_images_as_allowed_do_not(
    tmp_path: pathlib.Path, max_bad: float
) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=8)
    _spoil(raw_dir)

    assert run.run(_job(raw_dir, tmp_path / "out", max_bad=max_bad)) is not None


def test_split_without_a_record_is_an_error(tmp_path: pathlib.Path) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=2)
    for path in raw_dir.glob("train/*/*"):
        path.write_bytes(b"no picture")

    with pytest.raises(ValueError, match=r"Not one image of split train.*not_an_image"):
        run.run(_job(raw_dir, tmp_path / "out"))


def test_file_that_vanishes_is_named_and_can_be_gone_on_from(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    copy = make_tree(tmp_path / "raw", num_images=8)
    path = copy / "train" / "n01443537" / "n01443537_5.JPEG"
    job = _job(copy, tmp_path / "out")
    data = path.read_bytes()
    path.unlink()

    with pytest.raises(OSError, match=r"n01443537_5\.JPEG"):
        run.run(job)
    assert os.listdir(tmp_path / "out") == [work_dir.WORK_DIR_NAME]

    path.write_bytes(data)
    assert run.run(job).num_records("train") == 8


def test_image_edited_between_runs_costs_its_shard_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image keeps its name and size, so that only its time shows the change."""
    raw_dir = make_tree(tmp_path / "raw", num_images=8)
    for path in raw_dir.glob("train/*/*"):
        os.utime(path, ns=(1, 1))
    job = _job(raw_dir, tmp_path / "out")
    # Each run is cut off when all its shards are complete.
    monkeypatch.setattr(publish, "publish", lambda job, job_dir: None)
    run.run(job)
    job_dir = work_dir.job_dir(tmp_path / "out", job.identity)
    before = {path.name: path.stat().st_ino for path in job_dir.glob("*-of-00002")}
    edited = job.plans[1].images[0]
    path = raw_dir / edited.name
    path.write_bytes(path.read_bytes()[:-3] + b"\x01\xff\xd9")
    os.utime(path, ns=(1 << 62, 1 << 62))

    run.run(job)

    after = {path.name: path.stat().st_ino for path in job_dir.glob("*-of-00002")}
    assert [name for name in before if before[name] != after[name]] == [
        job.plans[1].name
    ]
    monkeypatch.undo()
    result = run.run(job)
    assert result.splits == run.run(_job(raw_dir, tmp_path / "fresh")).splits


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
    assert len(os.listdir(tmp_path / "out" / "dali_idx")) == 2


def test_failed_overwrite_keeps_the_old_data_set(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run.run(_job(raw_dir, tmp_path / "out"))
    before = sorted(os.listdir(tmp_path / "out"))
    bad = make_tree(tmp_path / "raw", num_images=8)
    _spoil(bad)

    with pytest.raises(ValueError, match="n01443537_5"):
        run.run(_job(bad, tmp_path / "out", overwrite=True, policy=FAIL))

    assert sorted(os.listdir(tmp_path / "out")) == before
    index.check(index.load(tmp_path / "out"), tmp_path / "out", "train")


def test_folder_with_other_files_is_refused(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "thesis.tex").write_text("")

    with pytest.raises(ValueError, match=r"be empty or hold a data set.* thesis\.tex"):
        run.run(_job(raw_dir, tmp_path))


def test_second_run_on_one_folder_is_refused(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "out" / work_dir.WORK_DIR_NAME
    folder.mkdir(parents=True)
    lock = os.open(folder / "task-00000.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)

    with pytest.raises(ValueError, match="Another conversion is writing to"):
        run.run(_job(raw_dir, tmp_path / "out"))

    assert folder.exists()
    os.close(lock)


def test_disk_that_is_too_small_is_an_error_before_the_start(
    tmp_path: pathlib.Path,
) -> None:
    image = Image("x", 0, "x", 0, 10**18)
    plans = [plan.ShardPlan("train", 0, "train-00000-of-00001", [image])]

    with pytest.raises(
        OSError, match=r"needs 1000000000\.00 GB .* GB free\. Make room"
    ):
        run.require_space(tmp_path, plans, 0)
    run.require_space(tmp_path, plans, 10**18)
    run.require_space(tmp_path, plans, 0, shrinks=True)
    bitmap = plan.ShardPlan("train", 0, "a", [image._replace(name="train/x.BMP")])
    run.require_space(tmp_path, [bitmap], 0)  # a JPEG of it is small


def test_copies_are_found_within_and_across_splits(tmp_path: pathlib.Path) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=8, num_validation_images=2)
    train = raw_dir / "train"
    same = make_jpeg(99)
    (train / "n01440764" / "copy_a.JPEG").write_bytes(same)
    (train / "n01440764" / "copy_b.JPEG").write_bytes(same)
    (train / "n01443537" / "copy_c.JPEG").write_bytes(same)
    leak = (raw_dir / "val" / "ILSVRC2012_val_00000001.JPEG").read_bytes()
    (train / "n01440764" / "leak.JPEG").write_bytes(leak)

    result = run.run(_job(raw_dir, tmp_path / "out"))

    assert result.made_by["duplicates"] == {
        "num_groups": 2,
        "num_copies": 3,
        "num_groups_across_splits": 1,
        "num_groups_with_several_classes": 1,
    }
    lines = (tmp_path / "out" / "duplicates.jsonl").read_text().splitlines()
    groups = [json.loads(line) for line in lines]
    conflicting = next(group for group in groups if len(group["synsets"]) > 1)
    assert sorted(conflicting["names"]) == [
        "train/n01440764/copy_a.JPEG",
        "train/n01440764/copy_b.JPEG",
        "train/n01443537/copy_c.JPEG",
    ]


def test_crash_while_files_are_moved_is_gone_on_from(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first, second and last move: the run is cut off, and then run again."""
    raw_dir = make_tree(tmp_path / "raw", num_images=4)
    expected = run.run(_job(raw_dir, tmp_path / "expected"))
    files = [path for path in (tmp_path / "expected").rglob("*") if path.is_file()]
    for number in (0, 1, len(files) - 1):
        folder = tmp_path / str(number)
        monkeypatch.setattr(replace, "_move", _cut_off_at(number))
        with pytest.raises(_CutOffError):
            run.run(_job(raw_dir, folder))
        monkeypatch.setattr(replace, "_move", MOVE)

        assert run.run(_job(raw_dir, folder)) == expected
        names = {path.name for path in folder.iterdir()}
        assert names == {path.name for path in (tmp_path / "expected").iterdir()}


MOVE = replace._move


class _CutOffError(OSError):
    pass


def _cut_off_at(number: int) -> Callable[..., None]:
    moved: list[str] = []

    def move(name: str, *folders: pathlib.Path) -> None:
        if len(moved) == number:
            raise _CutOffError
        moved.append(name)
        MOVE(name, *folders)

    return move
