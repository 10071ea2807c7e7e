"""converters.jobs.job: what identifies a job, and what a worker process gets of it."""

import dataclasses
import pathlib
import pickle

import pytest

from converters.images.policy import Policy
from converters.inputs import classes
from converters.inputs.image import Image
from converters.jobs import plan
from converters.jobs.job import Job
from tfpipe.location.location import Location

IMAGES = [Image(f"train/a/{n}.JPEG", 0, f"train/a/{n}.JPEG", 0, 9) for n in range(9)]
JOB = Job(
    command="test",
    name="imagenet",
    input_dir=Location("in"),
    output_dir=pathlib.Path("out"),
    plans=plan.make_plan({"train": IMAGES}, {"train": 3}, seed=0),
    classes=classes.imagenet_classes(),
    options={"seed": 0},
    boxes_of=lambda name: (),  # cannot be pickled
    left_out=({"name": "x", "reason": "other_name"},),
)


@pytest.mark.parametrize(
    "other",
    [
        {"plans": JOB.plans[:2]},
        {"classes": JOB.classes[:2]},
        {"options": {"seed": 1}},
        {"policy": Policy(cmyk="skip")},
        {"command": "other"},
    ],
)
def test_whatever_decides_the_bytes_makes_another_job(other: dict[str, object]) -> None:
    assert dataclasses.replace(JOB, **other).identity != JOB.identity  # type: ignore[arg-type]


def test_how_a_job_is_run_does_not_make_another_job() -> None:
    other = dataclasses.replace(
        JOB, num_workers=7, fsync=False, overwrite=True, num_tasks=2, task_index=1
    )

    assert other.identity == JOB.identity


def test_a_worker_gets_the_identity_but_not_the_plans() -> None:
    sent = pickle.loads(pickle.dumps(JOB))

    assert (sent.identity, sent.policy, sent.classes) == (
        JOB.identity,
        JOB.policy,
        JOB.classes,
    )
    assert (sent.plans, sent.left_out) == ((), ())
    assert len(JOB.plans) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_workers": 0}, "num_workers must be >= 1, got 0"),
        ({"task_index": 2, "num_tasks": 2}, "--task_index must be 0 to --num_tasks"),
        ({"task_index": 3, "num_tasks": 2}, "--num_tasks - 1 = 1, got 3"),
        ({"task_index": -1, "num_tasks": 2}, "--num_tasks - 1 = 1, got -1"),
        ({"max_bad": float("nan")}, "--max_bad must be >= 0, got nan"),
        ({"max_bad": -1}, "--max_bad must be >= 0, got -1"),
    ],
)
def test_numbers_out_of_range_are_refused(
    fields: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(JOB, **fields)  # type: ignore[arg-type]
