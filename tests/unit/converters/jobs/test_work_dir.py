"""converters.jobs.work_dir: the working folder, its jobs and their complete shards."""

import fcntl
import pathlib

import pytest

from converters.jobs import plan, replace, work_dir, write_shard
from converters.jobs.job import identity_of
from tfpipe.shards import index

DESCRIPTION = {"command": "c", "options": {"seed": 0, "num_shards": {"train": 2}}}


def _open(output_dir: pathlib.Path, **changes: object) -> object:
    options = {"task": 0, "restart": False, **changes}
    description = options.pop("description", DESCRIPTION)
    return work_dir.open_work_dir(output_dir, description, **options)


def test_same_job_finds_what_it_left(tmp_path: pathlib.Path) -> None:
    with _open(tmp_path) as folder:
        (folder / "train-00000-of-00002").write_bytes(b"x")

    with _open(tmp_path) as folder:
        assert (folder / "train-00000-of-00002").exists()


def test_other_job_is_explained_and_never_mixed(tmp_path: pathlib.Path) -> None:
    with _open(tmp_path) as folder:
        (folder / "train-00000-of-00002").write_bytes(b"x")
    other = {"command": "c", "options": {"seed": 1, "num_shards": {"train": 3}}}

    with (
        pytest.raises(
            ValueError,
            match=r"options\.num_shards\.train was 2, is 3; options\.seed was 0, is 1",
        ),
        _open(tmp_path, description=other),
    ):
        pass

    with _open(tmp_path, description=other, restart=True) as folder:
        assert not (folder / "train-00000-of-00002").exists()


def test_task_that_runs_is_not_run_twice(tmp_path: pathlib.Path) -> None:
    with (
        _open(tmp_path),
        _open(tmp_path, task=1),
        pytest.raises(ValueError, match="Another conversion is writing to"),
        _open(tmp_path),
    ):
        pass


def _finish_shard(folder: pathlib.Path, name: str, content: bytes) -> None:
    path = folder / name
    path.write_bytes(content)
    written = write_shard.Written(
        split="train",
        shard=index.Shard(name=name, num_records=1, num_bytes=3, digest="d"),
        decisions={"kept": 1},
        changes=[],
        rejects=[],
        num_source_bytes=2,
        psnr=[],
        num_rewritten=0,
        num_bytes_saved=0,
        job=identity_of(DESCRIPTION),
    )
    write_shard.marker_path(path).write_text(written.to_json())


def test_only_shards_with_marker_and_size_are_complete(tmp_path: pathlib.Path) -> None:
    plans = [
        plan.ShardPlan("train", number, f"train-{number}", []) for number in range(6)
    ]
    names = [item.name for item in plans]
    with _open(tmp_path) as folder:
        _finish_shard(folder, names[0], b"abc")
        (folder / names[1]).write_bytes(b"abc")  # no marker yet
        _finish_shard(folder, names[2], b"ab")  # cut short
        _finish_shard(folder, names[3], b"abc")
        (folder / names[3]).rename(tmp_path / names[3])  # of a data set
        for name, text in ((names[4], ""), (names[5], '{"shard": {"name": 3}}')):
            _finish_shard(folder, name, b"abc")
            write_shard.marker_path(folder / name).write_text(
                text
            )  # after a power loss

        assert list(work_dir.completed(plans, folder)) == [names[0]]
        write_shard.marker_path(folder / names[0]).rename(folder / f"{names[1]}.done")
        assert not work_dir.completed(plans, folder)  # of another shard


def test_locks_of_tasks_that_end_together_are_removed(tmp_path: pathlib.Path) -> None:
    """A task that publishes last sees the lock of another task that is ending."""
    out = tmp_path / "out"
    with work_dir.open_work_dir(out, {}, task=0, restart=False) as folder:
        replace.remove_job(folder)
        assert (folder.parent / "task-00000.lock").exists()

    assert not (out / work_dir.WORK_DIR_NAME).exists()


def test_files_that_a_running_task_writes_are_not_removed(
    tmp_path: pathlib.Path,
) -> None:
    """A task that begins removes what a killed task left, of every task not running."""
    names = [f"train-0000{n}-of-00003.0000{n}-77.part" for n in range(3)]
    with (
        _open(tmp_path) as folder,
        open(folder.parent / "task-00001.lock", "w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)  # as another process does
        for name in (*names, "no task.part"):
            (folder / name).touch()

        with _open(tmp_path, task=2):
            assert [path.name for path in folder.glob("*.part")] == [names[1]]


def test_a_data_set_of_the_same_options_is_free_and_another_is_named(
    data_dir: pathlib.Path,
) -> None:
    options = index.load(data_dir).made_by["options"]
    same = {"command": "converters.imagenet", "seed": options["seed"]}

    work_dir.require_free(data_dir, (), overwrite=False, options=same)
    for name, other in (("seed", 99), ("command", "converters.folder")):
        options = same | {name: other}
        with pytest.raises(ValueError, match=f"{name}.*{other}"):
            work_dir.require_free(data_dir, (), overwrite=False, options=options)
