"""Writes faulty shards of a data set again from its input, for `verify --repair`.

In: a data set, the folder of its images, and names of shards. Out: these
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
from converters.inputs.tables import columns
from converters.jobs import more_columns, work_dir, write_shard
from converters.jobs.job import Job, no_boxes
from converters.jobs.plan import ShardPlan
from tfpipe.location import atomic
from tfpipe.shards import index

if TYPE_CHECKING:
    from converters.jobs.again import Again

_REPAIR_DIR_NAME = ".repairing"


def rebuild(
    data_dir: pathlib.Path,
    again: "Again",
    names: Sequence[str],
    num_workers: int,
) -> None:
    """Writes shards of a data set again from its input, byte for byte as they were.

    The catalog has the images of a shard, so no plan is needed.

    Args:
        data_dir: Folder of the data set.
        again: The images of the input.
        names: Names of the shards.
        num_workers: Most worker processes to use.

    Raises:
        ValueError: If the input no longer gives the shard of the index.
        OSError: If a file cannot be read or written.
    """
    current = index.load(data_dir)
    # While the folder is claimed, no conversion replaces the data set.
    with work_dir.claimed(data_dir) as claimed, _repair_dir(data_dir) as repair_dir:
        work_dir.end_cut_off(claimed, give_up=False, fsync=True)
        if index.load(data_dir) != current:
            raise OSError(f"{data_dir} was replaced just now. Check it again.")

        shards = _plans_from_catalog(data_dir, again, current, names)
        options = current.made_by["options"]
        job = Job(
            command=current.made_by["command"],
            name=current.name,
            input_dir=again.folder,
            output_dir=data_dir,
            plans=[plan for plan, _ in shards],
            classes=classes_of(current),
            policy=policy_of(options["policy"]),
            boxes_of=again.boxes.of if again.boxes else no_boxes,
            more_columns=more_columns.in_catalog(
                data_dir / index.CATALOG_NAME,
                in_records=bool(options.get(columns.IN_RECORDS_OPTION)),
            ),
            num_workers=num_workers,
        )
        processes.run(
            functools.partial(_rebuild_shard, job, repair_dir),
            [(write_shard.task_of(job, plan), shard) for plan, shard in shards],
            num_workers=num_workers,
            num_images=sum(len(plan.images) for plan in job.plans),
        )


def clean(data_dir: pathlib.Path) -> None:
    """Removes the remains of a killed repair from a folder."""
    names = (_REPAIR_DIR_NAME, work_dir.WORK_DIR_NAME)
    if any((data_dir / name).exists() for name in names):
        with work_dir.claimed(data_dir), _repair_dir(data_dir):
            pass


@contextlib.contextmanager
def _repair_dir(data_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes an empty folder for the shards of a repair, and removes the folder."""
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
    """Writes a shard, and puts a shard that equals the index in place."""
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
    current: index.Index,
    names: Sequence[str],
) -> list[tuple[ShardPlan, index.Shard]]:
    """Returns the plans of the named shards, beside the shards of the index."""
    columns = ["shard", "label", "filename"]
    shards = []
    for split, entries in current.splits.items():
        rows = index.load_catalog(data_dir, split, columns)
        for position, entry in enumerate(entries):
            if entry.name in names:
                mine = rows["shard"] == position
                labels = (rows["label"][mine] - current.label_base).tolist()
                files = [*map(str, rows["filename"][mine])]
                image_of = again.find_all(files)
                if lost := [file for file in files if file not in image_of]:
                    raise again.missing(lost[0])
                images = [
                    image_of[file]._replace(class_index=label)
                    for file, label in zip(files, labels, strict=True)
                ]
                shards.append((ShardPlan(split, position, entry.name, images), entry))
    return shards
