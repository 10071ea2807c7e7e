"""converters.jobs.run on a cluster, which is a function of this process here."""

import pathlib
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from converters.engines import processes, ray_cluster
from converters.images import lossless
from converters.inputs import classes
from converters.jobs import plan, replace, run
from converters.jobs.job import Job
from tests.support.data.conversions import read_ilsvrc
from tests.support.data.trees import digests
from tfpipe.location.files import Files
from tfpipe.location.location import Location

CLASSES = classes.imagenet_classes()


def _job(raw_dir: pathlib.Path, output_dir: pathlib.Path, **fields: Any) -> Job:
    splits = read_ilsvrc(raw_dir).splits
    return Job(
        command="test",
        name="imagenet",
        input_dir=Location(str(raw_dir)),
        output_dir=output_dir,
        plans=plan.make_plan(splits, {"train": 3, "validation": 1}, seed=0),
        classes=CLASSES,
        fsync=False,
        **fields,
    )


def _run(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    *,
    num_workers: int | None,
    **options: Any,
) -> list[Any]:
    """Does each task twice, as a cluster does that takes a node for lost."""
    assert num_workers == 7

    def twice(task: Any) -> Any:
        return [pickle.loads(pickle.dumps(function))(task) for _ in range(2)][-1]

    return processes.run(twice, tasks, num_workers=1, **options)


@pytest.fixture(autouse=True)
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "run", _run)
    monkeypatch.setattr(ray_cluster, "node_name", lambda: "10.0.0.7")


@pytest.mark.parametrize("by_url", [False, True])
def test_shards_that_are_written_twice_are_those_of_one_process(
    by_url: bool,
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run.run(_job(raw_dir, tmp_path / "one"))
    place = tmp_path / "place"
    place.mkdir()
    output = {"files": Files(str(place))} if by_url else {}
    cluster = ray_cluster.Cluster(num_workers=7)

    made = tmp_path / "work" if by_url else place
    run.run(_job(raw_dir, made, cluster=cluster, **output))

    assert digests(place) == digests(tmp_path / "one")
    assert {path.name for path in tmp_path.iterdir()} == {"one", "place"}


def _lacks(policy: object) -> None:
    raise ValueError("it is not built.")


def test_a_node_that_lacks_something_is_told_what(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, job_dir = _job(raw_dir, tmp_path), tmp_path / ".converting" / "job-1"
    job_dir.mkdir(parents=True)
    (job_dir / replace.JOB_NAME).touch()
    here, elsewhere = run._versions(), _job(raw_dir, tmp_path)
    gone = Location(str(tmp_path / "not mounted"))
    object.__setattr__(elsewhere, "input_dir", gone)

    assert run._problem(job, job_dir, here) == ""
    assert run._problem(job, None, here) == ""
    assert run._problem(job, job_dir, "tfpipe 0").startswith("must have tfpipe 0, got")
    assert run._problem(elsewhere, job_dir, here).startswith("does not see the input")
    (job_dir / replace.JOB_NAME).unlink()
    assert f"does not see the output {tmp_path} as" in run._problem(job, job_dir, here)
    monkeypatch.setattr(lossless, "require", _lacks)
    assert run._problem(job, None, here) == "lacks a library: it is not built."
