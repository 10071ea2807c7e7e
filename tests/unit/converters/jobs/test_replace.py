"""Data sets that are replaced: what is kept, refused, or written again."""

import json
import pathlib
import shutil
from collections.abc import Callable

import pytest

from converters.images.policy import Policy
from converters.jobs import replace, write_shard
from tests.support.data.trees import JOB_X, JOB_Y, JobDigests, convert, digests
from tfpipe import errors


@pytest.mark.parametrize("name", ["../victim", "{tmp}/victim", "folder", ".hidden"])
def test_overwrite_removes_no_file_that_is_not_of_the_data_set(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path, name: str
) -> None:
    """The index lists the name of a file that no converter wrote."""
    out = tmp_path / "out"
    convert(raw_dir, out, num_train_shards=1)
    (tmp_path / "victim").write_text("kept")
    (out / ".hidden").write_text("kept")
    (out / "folder").mkdir()
    (out / "folder" / "file").write_text("kept")
    index_path = out / "index.json"
    document = json.loads(index_path.read_text())
    document["splits"]["train"][0]["name"] = name.format(tmp=tmp_path)
    index_path.write_text(json.dumps(document))
    before = digests(tmp_path)

    with pytest.raises(
        (errors.BadIndexError, FileExistsError), match=r"must (have|be)"
    ):
        convert(raw_dir, out, overwrite=True)

    assert digests(tmp_path) == before


def _damage_index(out: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (out / "index.json").write_text('{"format_version": 1')


def _link_work_dir(out: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (out / ".converting").symlink_to(tmp_path / "precious")


def _link_dali(out: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (out / "dali_idx").rename(tmp_path / "old_dali_idx")
    (out / "dali_idx").symlink_to(tmp_path / "precious")


def _fill_work_dir(out: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (out / ".converting").mkdir()
    (out / ".converting" / "notes").write_text("kept")


def _add_shard(out: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (out / "train-00000-of-00006").write_text("of somebody else")


def _put_folder(out: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (out / "rejects.jsonl").mkdir()
    (out / "rejects.jsonl" / "file").write_text("kept")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_damage_index, r"index\.json cannot be read"),
        (_link_work_dir, r"\.converting must be a folder of its own, got a link"),
        (_link_dali, r"dali_idx must be a folder of its own"),
        (_fill_work_dir, r"holds notes, which this version of the converters did not"),
        (_add_shard, r"holds train-00000-of-00006, which a new file would replace"),
        (_put_folder, r"rejects\.jsonl must be a file, got a folder"),
    ],
)
def test_overwrite_refuses_what_is_not_a_converters_before_any_work(
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pathlib.Path, pathlib.Path], None],
    message: str,
) -> None:
    out = tmp_path / "out"
    convert(raw_dir, out, num_train_shards=1)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    change(out, tmp_path)
    before = digests(tmp_path)

    def fail(*arguments: object) -> None:
        raise AssertionError("the work was begun")

    monkeypatch.setattr(write_shard, "write_shard", fail)
    with pytest.raises((ValueError, OSError, errors.BadIndexError), match=message):
        convert(raw_dir, out, overwrite=True, **JOB_X)

    assert digests(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("pattern", ["**/job.json", "**/*-00001-of-*.done"])
def test_file_that_a_power_loss_emptied_costs_at_most_its_shard(
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    job_digests: JobDigests,
    pattern: str,
    overwrite: bool,
) -> None:
    out = tmp_path / "out"
    convert(raw_dir, out, task_index=0, num_tasks=2, **JOB_X)
    convert(raw_dir, out, task_index=1, num_tasks=3, **JOB_X)
    work_dir = out / ".converting"
    before = {path.stem: path.stat().st_ino for path in work_dir.glob("**/*.done")}
    before = {name: next(work_dir.glob(f"**/{name}")).stat().st_ino for name in before}
    (damaged,) = work_dir.glob(pattern)
    damaged.write_text("")

    convert(raw_dir, out, overwrite=overwrite, **JOB_X)

    assert digests(out) == job_digests["X"]
    assert len(before) == 5
    same = [name for name in before if (out / name).stat().st_ino == before[name]]
    assert len(same) == 5 - (damaged.suffix == ".done")


def test_description_of_another_job_that_was_emptied_is_said(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path, job_digests: JobDigests
) -> None:
    out = tmp_path / "out"
    convert(raw_dir, out, task_index=0, num_tasks=2, **JOB_Y)
    (path,) = (out / ".converting").glob("**/job.json")
    path.write_text("")

    with pytest.raises(ValueError, match=r"job\.json cannot be read"):
        convert(raw_dir, out, **JOB_X)
    convert(raw_dir, out, overwrite=True, **JOB_X)

    assert digests(out) == job_digests["X"]


def test_room_is_not_asked_for_bytes_that_shrinking_saves(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """31 images of 3 kB, for which a disk has 60 kB."""
    free = lambda path: (10**6, 10**6, 60_000)  # noqa: E731
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(*free(path)))

    with pytest.raises(OSError, match="Make room"):
        convert(raw_dir, tmp_path / "out")
    policy = Policy(max_side=8)
    assert convert(raw_dir, tmp_path / "small", policy=policy)["num_bytes"] < 60_000


def test_what_publishing_lacks_is_found_wherever_it_was_cut_off(
    tmp_path: pathlib.Path,
) -> None:
    job, out = tmp_path / "job", tmp_path / "out"
    for old, at_job, at_out, missing in (
        ([], ["index.json", "a"], [], None),
        ([], ["index.json"], ["a"], None),
        ([], ["index.json"], [], "a"),
        ([], [], ["index.json", "a"], None),
        ([], ["a"], [], "index.json"),
        (["a"], ["a"], ["index.json"], "index.json"),
        (["a"], ["index.json"], ["index.json", "a"], "a"),
    ):
        for folder, names in ((job, at_job), (out, at_out)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name in names:
                (folder / name).write_bytes(b"")
        journal = replace.Journal(remove=old, move=["a"])
        assert replace._missing(journal, job, out) == missing, (old, at_job, at_out)
    assert replace._missing(None, job, out) == replace.JOURNAL_NAME


@pytest.mark.parametrize("fsync", [True, False])
def test_the_journal_is_on_the_disk_before_the_first_step(
    fsync: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(replace.atomic, "sync", lambda path: done.append(path.name))
    monkeypatch.setattr(replace, "_replay", lambda *_, **__: done.append("moved"))
    job, out = tmp_path / "above" / "job", tmp_path / "out"
    job.mkdir(parents=True)
    out.mkdir()

    replace.put_in_place(job, out, new=["a"], fsync=fsync)

    assert done == ([".publish.json.tmp", "job", "above", "out"] if fsync else []) + [
        "moved"
    ]
