"""Run a plan: worker processes, progress, and the index last.

In: a `Job`. Out: a complete data set in the output folder, or an exception and nothing.
Shards are written into one dot-folder inside the output folder, which no reader's glob
matches, and get their names only when all of them are complete.
"""

import collections
import contextlib
import dataclasses
import fcntl
import functools
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from converters import compat, shards, workers
from converters.classes import Class
from converters.plan import ShardPlan
from tfpipe import index

WORK_DIR_NAME = ".converting"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One conversion.

    Attributes:
        input_dir: Folder that the images' paths are relative to.
        output_dir: Where the data set goes; made if it is not there.
        name: Name of the data set.
        plans: The shards to write, in order.
        classes: All classes in label order.
        made_by: How it was made, for the index; decisions are added.
        num_workers: Processes that write shards.
        overwrite: Whether to replace a data set that is there.
    """

    input_dir: pathlib.Path
    output_dir: pathlib.Path
    name: str
    plans: Sequence[ShardPlan]
    classes: Sequence[Class]
    made_by: Mapping[str, Any]
    num_workers: int
    overwrite: bool

    def __post_init__(self) -> None:
        if self.num_workers < 1:
            raise ValueError(f"num_workers must be >= 1, got {self.num_workers}.")


def run(job: Job) -> index.Index:
    """Converts, and returns the index of what was written.

    Raises:
        ValueError: If the output folder holds something else, or an image is bad.
        OSError: If a file cannot be read or written.
    """
    require_free(job.output_dir, overwrite=job.overwrite)
    with workers.terminate_as_interrupt(), _work_dir(job.output_dir) as work_dir:
        written = _write_shards(job, work_dir)
        return _publish(job, work_dir, written)


def require_free(output_dir: pathlib.Path, *, overwrite: bool) -> None:
    """Refuses an output folder whose content a conversion would mix with or lose.

    Raises:
        ValueError: If there is a data set and `overwrite` is not set, or there are
            files that no converter wrote.
    """
    if not output_dir.exists():
        return
    if not output_dir.is_dir():
        raise ValueError(f"--output_dir must be a folder, got the file {output_dir}.")
    if (output_dir / index.INDEX_NAME).exists():
        if overwrite:
            return
        raise ValueError(
            f"--output_dir {output_dir} already holds a data set. "
            "Choose another folder, or replace it with --overwrite."
        )
    others = sorted({entry.name for entry in output_dir.iterdir()} - {WORK_DIR_NAME})
    if others:
        raise ValueError(
            f"--output_dir {output_dir} must be empty or hold a data set, "
            f"got other files, the first is {others[0]}. Choose another folder."
        )


@contextlib.contextmanager
def _work_dir(output_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    """The working folder, locked; removed at the end with what is left in it."""
    work_dir = output_dir / WORK_DIR_NAME
    made_output_dir = not output_dir.exists()
    work_dir.mkdir(parents=True, exist_ok=True)
    lock = os.open(work_dir, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"Another conversion is writing to {output_dir}. Wait for it, "
                "or choose another folder."
            ) from None
        for left_over in work_dir.iterdir():
            left_over.unlink()
        try:
            yield work_dir
        finally:
            shutil.rmtree(work_dir)
            if made_output_dir and not any(output_dir.iterdir()):
                output_dir.rmdir()
    finally:
        os.close(lock)


def _write_shards(job: Job, work_dir: pathlib.Path) -> list[shards.Written]:
    """Writes all shards in worker processes; results in the order of the plans."""
    write = functools.partial(
        shards.write_shard,
        input_dir=job.input_dir,
        work_dir=work_dir,
        classes=job.classes,
    )
    return workers.run(
        write,
        job.plans,
        num_workers=job.num_workers,
        num_images=sum(len(plan.images) for plan in job.plans),
    )


def _publish(
    job: Job, work_dir: pathlib.Path, written: Sequence[shards.Written]
) -> index.Index:
    """Gives the files their names, the index last; an old data set goes first."""
    paths = [work_dir / item.shard.name for item in written]
    catalog = work_dir / index.CATALOG_NAME
    index.write_catalog([shards.fragment_path(path) for path in paths], catalog)
    labels = work_dir / compat.LABELS_NAME
    index.replace_file(labels, compat.labels_text(job.classes).encode())
    if (job.output_dir / index.INDEX_NAME).exists():
        _remove_data_set(job.output_dir)
    result = _make_index(job, written)
    finished = (*paths, catalog, labels)
    try:
        for path in finished:
            os.replace(path, job.output_dir / path.name)
        index.sync_folder(job.output_dir)
        index.write(result, job.output_dir)
    except BaseException:
        for path in finished:
            (job.output_dir / path.name).unlink(missing_ok=True)
        raise
    return result


def _make_index(job: Job, written: Sequence[shards.Written]) -> index.Index:
    splits: dict[str, list[index.Shard]] = {}
    decisions: collections.Counter[str] = collections.Counter()
    for item in written:
        splits.setdefault(item.split, []).append(item.shard)
        decisions.update(item.decisions)
    return index.Index(
        name=job.name,
        label_base=job.classes[0].label,
        classes=tuple((c.synset, c.text) for c in job.classes),
        splits={split: tuple(entries) for split, entries in splits.items()},
        made_by={**job.made_by, "decisions": dict(sorted(decisions.items()))},
    )


def _remove_data_set(data_dir: pathlib.Path) -> None:
    """Removes the files of the data set that the index lists, the index first."""
    old = index.load(data_dir)
    (data_dir / index.INDEX_NAME).unlink()
    names = [shard.name for entries in old.splits.values() for shard in entries]
    for name in (*names, index.CATALOG_NAME, compat.LABELS_NAME):
        (data_dir / name).unlink(missing_ok=True)
