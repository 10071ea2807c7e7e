"""converters.jobs.run: a job whose data set is at a URL.

A local folder stands for the place; the system tests use a real S3 server.
"""

import os
import pathlib
import shutil
from collections.abc import Mapping

import pytest

from converters.images import policy
from converters.inputs import classes
from converters.jobs import at_url, plan, publish, run, work_dir
from converters.jobs.job import Job
from tests.support.data.conversions import read_ilsvrc
from tests.support.data.trees import digests, make_tree
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location

CLASSES = classes.imagenet_classes()
SHARDS = [f"train-{number:05d}-of-00003" for number in range(3)]


@pytest.fixture
def small_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    return make_tree(tmp_path / "raw", num_images=9)


@pytest.fixture
def url_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "url"
    folder.mkdir()
    return folder


class _Store(Files):
    """Files that count uploads, and are gone when one of some shards is uploaded."""

    def upload(self, name: str, path: pathlib.Path) -> None:
        if name in gone_at:
            raise errors.RemoteError("gone")
        uploaded.append(name)
        super().upload(name, path)


gone_at: set[str] = set()
uploaded: list[str] = []


@pytest.fixture(autouse=True)
def sound_store() -> None:
    gone_at.clear()
    uploaded.clear()


def _job(raw_dir: pathlib.Path, url_dir: pathlib.Path, **fields: object) -> Job:
    tree = read_ilsvrc(raw_dir)
    values = {
        "command": "test",
        "name": "imagenet",
        "input_dir": Location(str(raw_dir)),
        "output_dir": url_dir.parent / "work",
        "files": _Store(str(url_dir)),
        "plans": plan.make_plan(tree.splits, {"train": 3}, seed=0),
        "classes": CLASSES,
        "num_workers": 1,
        "fsync": False,
    }
    return Job(**values | fields)  # type: ignore[arg-type]


def _local(raw_dir: pathlib.Path, tmp_path: pathlib.Path) -> Mapping[str, str]:
    """Digests of the same data set, converted to a folder."""
    folder = tmp_path / "local"
    run.run(_job(raw_dir, tmp_path / "x", files=None, output_dir=folder))
    return digests(folder)


def test_a_url_gets_the_files_of_a_folder_and_nothing_stays_here(
    small_dir: pathlib.Path, url_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    result = run.run(_job(small_dir, url_dir))

    assert result is not None
    assert digests(url_dir) == _local(small_dir, tmp_path)
    assert uploaded[:3] == SHARDS
    assert uploaded[-1] == "index.json"
    assert not (tmp_path / "work").exists()


def test_shards_go_one_by_one_and_a_lost_store_costs_none(
    small_dir: pathlib.Path, url_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    gone_at.add(SHARDS[1])
    with pytest.raises(errors.RemoteError, match="gone"):
        run.run(_job(small_dir, url_dir))
    (work,) = (tmp_path / "work" / work_dir.WORK_DIR_NAME).glob("job-*")
    there, here = set(digests(url_dir)), {path.name for path in work.iterdir()}

    gone_at.clear()
    run.run(_job(small_dir, url_dir))

    assert there == {SHARDS[0], at_url.CLAIM_NAME}
    assert here & set(SHARDS) == {SHARDS[1]}
    assert [uploaded.count(name) for name in SHARDS] == [1, 1, 1]
    assert digests(url_dir) == _local(small_dir, tmp_path)
    assert not (tmp_path / "work").exists()


def test_a_shard_that_was_cut_or_removed_at_the_place_is_written_again(
    small_dir: pathlib.Path, url_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    gone_at.add(SHARDS[2])
    with pytest.raises(errors.RemoteError):
        run.run(_job(small_dir, url_dir))
    os.truncate(url_dir / SHARDS[0], 10)
    (url_dir / SHARDS[1]).unlink()

    gone_at.clear()
    run.run(_job(small_dir, url_dir))

    assert digests(url_dir) == _local(small_dir, tmp_path)


def test_without_its_work_folder_a_job_starts_over(
    small_dir: pathlib.Path, url_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The folder for temporary files may be empty after a reboot."""
    gone_at.add(SHARDS[2])
    with pytest.raises(errors.RemoteError):
        run.run(_job(small_dir, url_dir))
    shutil.rmtree(tmp_path / "work")

    gone_at.clear()
    run.run(_job(small_dir, url_dir))

    assert digests(url_dir) == _local(small_dir, tmp_path)
    assert uploaded.count(SHARDS[0]) == 2


def test_an_old_data_set_stays_until_every_shard_is_made(
    small_dir: pathlib.Path, url_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run.run(_job(small_dir, url_dir))
    before = digests(url_dir)
    (small_dir / "train" / "n01440764" / "n01440764_0.JPEG").write_bytes(b"bad")
    fail = policy.Policy(not_an_image="fail")

    with pytest.raises(ValueError, match="already holds a data set"):
        run.run(_job(small_dir, url_dir))
    with pytest.raises(ValueError, match="n01440764_0"):
        run.run(_job(small_dir, url_dir, overwrite=True, policy=fail))
    unchanged = digests(url_dir)
    run.run(_job(small_dir, url_dir, overwrite=True))

    assert unchanged == before
    assert digests(url_dir) == _local(small_dir, tmp_path)
    assert digests(url_dir) != before


def test_a_failed_job_leaves_nothing_at_the_place(
    small_dir: pathlib.Path, url_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    job = _job(small_dir, url_dir, policy=policy.Policy(not_an_image="fail"))
    last = next(iter(job.plans[2].images))
    (small_dir / last.file).write_bytes(b"x" * last.num_bytes)

    with pytest.raises(ValueError, match="must begin as JPEG"):
        run.run(job)

    assert uploaded == SHARDS[:2]
    assert digests(url_dir) == {}
    assert not (tmp_path / "work").exists()


def test_another_conversion_is_not_mixed_with_this_one(
    small_dir: pathlib.Path, url_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """From another host: it has a work folder of its own."""
    gone_at.add(SHARDS[1])
    with pytest.raises(errors.RemoteError):
        run.run(_job(small_dir, url_dir))
    gone_at.clear()
    tree = read_ilsvrc(small_dir)
    other = {
        "output_dir": tmp_path / "other",
        "plans": plan.make_plan(tree.splits, {"train": 2}, seed=1),
    }

    with pytest.raises(FileExistsError, match="unfinished conversion that differs"):
        run.run(_job(small_dir, url_dir, **other))
    result = run.run(_job(small_dir, url_dir, **other, overwrite=True))

    assert result is not None
    names = {shard.name for shard in result.splits["train"]}
    assert {name for name in digests(url_dir) if name.startswith("train")} == names
    with pytest.raises(FileExistsError, match="already holds a data set"):
        run.run(_job(small_dir, url_dir))


def test_a_place_that_another_conversion_took_over_gets_no_index(
    small_dir: pathlib.Path, url_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store has no locks: the claim is looked at again before the index."""
    other = at_url.Claim(job="other", names=SHARDS).to_json()

    def take_over(store: Files, name: str, path: pathlib.Path) -> None:
        Files.upload(store, name, path)
        store.write(at_url.CLAIM_NAME, other)

    monkeypatch.setattr(_Store, "upload", take_over)
    for options, said in (
        ({}, "unfinished conversion that differs"),
        ({"overwrite": True}, "Another conversion has begun to write to"),
    ):
        with pytest.raises(OSError, match=said):
            run.run(_job(small_dir, url_dir, **options))
    assert (url_dir / at_url.CLAIM_NAME).read_bytes() == other
    assert not (url_dir / "index.json").exists()


def test_a_task_finds_the_data_set_that_another_one_has_published(
    small_dir: pathlib.Path, url_dir: pathlib.Path
) -> None:
    job = _job(small_dir, url_dir)
    with pytest.raises(OSError, match="was removed by another process"):
        publish.published_by_another_task(job, None)
    result = run.run(job)

    assert publish.published_by_another_task(job, None) == result
    other = _job(small_dir, url_dir, name="other", command="other")
    with pytest.raises(OSError, match="was removed by another process"):
        publish.published_by_another_task(other, None)


def test_tasks_that_see_one_work_folder_share_a_job(
    small_dir: pathlib.Path, url_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    first = run.run(_job(small_dir, url_dir, num_tasks=2, task_index=0))
    last = run.run(_job(small_dir, url_dir, num_tasks=2, task_index=1))

    assert first is None
    assert last is not None
    assert digests(url_dir) == _local(small_dir, tmp_path)


def test_the_disk_needs_room_for_one_shard_a_worker(
    small_dir: pathlib.Path, url_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _job(small_dir, url_dir)
    free = max(
        1024 * len(p.images) + sum(image.num_bytes for image in p.images)
        for p in job.plans
    )
    usage = shutil.disk_usage(small_dir)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))

    with pytest.raises(OSError, match="Make room"):
        run.run(_job(small_dir, url_dir, files=None))
    free -= 1
    with pytest.raises(OSError, match="Make room"):
        run.run(job)
    free += 1
    assert run.run(job) is not None

    # The shards that replace a data set wait until all of them are made.
    with pytest.raises(OSError, match="Make room"):
        run.run(_job(small_dir, url_dir, overwrite=True))
