"""Writes faulty shards of a data set again from its input, for `verify --repair`.

In: a data set, the folder that it was converted from, and names of shards. Out: these
shards, byte for byte as the index describes them. A shard of other bytes is never put
in place.
"""

import contextlib
import functools
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from converters.engines import processes
from converters.images.policy import policy_of
from converters.inputs.classes import classes_of
from converters.jobs import work_dir, write_shard
from converters.jobs.job import Job, no_boxes
from converters.jobs.plan import ShardPlan
from tfpipe.location import atomic
from tfpipe.shards import index

if TYPE_CHECKING:
    from converters.inputs.again import Again

_REPAIR_DIR_NAME = ".repairing"


def rebuild(
    data_dir: pathlib.Path,
    again: "Again",
    names: Sequence[str],
    num_workers: int,
) -> None:
    """Writes shards of a data set again from its input, byte for byte as they were.

    The catalog says which images a shard holds, so that the plan is not needed.

    Args:
        data_dir: Folder of the data set.
        again: The images of the input.
        names: Names of the shards.
        num_workers: Most worker processes to use.

    Raises:
        ValueError: If the input no longer gives a shard that the index describes.
        OSError: If a file cannot be read or written.
    """
    known = index.load(data_dir)
    # While the folder is claimed, no conversion replaces the data set.
    with work_dir.claimed(data_dir) as claimed, _repair_dir(data_dir) as repair_dir:
        work_dir.end_cut_off(claimed, give_up=False, fsync=True)
        if index.load(data_dir) != known:
            raise OSError(f"{data_dir} was replaced just now. Check it again.")

        shards = _plans_from_catalog(data_dir, again, known, names)
        job = Job(
            command=known.made_by["command"],
            name=known.name,
            input_dir=again.folder,
            output_dir=data_dir,
            plans=[plan for plan, _ in shards],
            classes=classes_of(known),
            policy=policy_of(known.made_by["options"]["policy"]),
            boxes_of=again.boxes.of if again.boxes else no_boxes,
            num_workers=num_workers,
        )
        processes.run(
            functools.partial(_rebuild_shard, job, repair_dir),
            [(write_shard.task_of(job, plan), shard) for plan, shard in shards],
            num_workers=num_workers,
            num_images=sum(len(plan.images) for plan in job.plans),
        )


def clean(data_dir: pathlib.Path) -> None:
    """Removes what a killed repair left in a folder."""
    names = (_REPAIR_DIR_NAME, work_dir.WORK_DIR_NAME)
    if any((data_dir / name).exists() for name in names):
        with work_dir.claimed(data_dir), _repair_dir(data_dir):
            pass


@contextlib.contextmanager
def _repair_dir(data_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes an empty folder for the shards of a repair, and removes it at the end."""
    folder = data_dir / _REPAIR_DIR_NAME
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ValueError(
            f"{folder} must be a folder of its own, got a link or a file. It was not "
            "changed. Move it away."
        )
    if folder.exists():  # a repair was killed
        shutil.rmtree(folder)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _rebuild_shard(
    job: Job, repair_dir: pathlib.Path, work: tuple[write_shard.Task, index.Shard]
) -> None:
    """Writes one shard, and puts it in place if it is the one in the index."""
    task, expected = work
    written = write_shard.write_shard(job, repair_dir, task).shard
    if written != expected:
        raise ValueError(
            f"{job.input_dir.shown} no longer gives shard {expected.name}: it "
            f"must have digest {expected.digest}, got {written.digest}. The input has "
            "changed since the conversion; convert it again."
        )
    os.replace(repair_dir / written.name, job.output_dir / written.name)
    atomic.sync(job.output_dir)


def _plans_from_catalog(
    data_dir: pathlib.Path,
    again: "Again",
    known: index.Index,
    names: Sequence[str],
) -> list[tuple[ShardPlan, index.Shard]]:
    """Returns the plan of each named shard, beside the shard as the index has it."""
    columns = ["shard", "label", "filename"]
    shards = []
    for split, entries in known.splits.items():
        rows = index.load_catalog(data_dir, split, columns)
        for number, entry in enumerate(entries):
            if entry.name in names:
                mine = rows["shard"] == number
                labels = (rows["label"][mine] - known.label_base).tolist()
                files = [*map(str, rows["filename"][mine])]
                image_of = again.find_all(files)
                if lost := [file for file in files if file not in image_of]:
                    raise again.missing(lost[0])
                images = [
                    image_of[file]._replace(class_index=label)
                    for file, label in zip(files, labels, strict=True)
                ]
                shards.append((ShardPlan(split, number, entry.name, images), entry))
    return shards
