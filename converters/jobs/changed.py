"""Complete shards of an unfinished job whose images changed after they were written.

In: the plans of a job that goes on, and its folder. Out: the shards to write again.
`by_times` looks at the times of files and reads none. `by_digest` reads every image of
a complete shard once.
"""

import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

import xxhash

from converters.engines import processes
from converters.images.prepare import check_bytes
from converters.inputs.image import read_image
from converters.jobs import write_shard
from converters.jobs.job import Job
from converters.jobs.plan import ShardPlan
from converters.jobs.work_dir import WORK_DIR_NAME
from tfpipe.location import parts
from tfpipe.location.location import Location


def by_times(
    input_dir: Location, plans: Sequence[ShardPlan], job_dir: pathlib.Path
) -> list[pathlib.Path]:
    """Returns the markers of complete shards that are older than a file of their input.

    Most changes of the input show in names and sizes, which are part of the job's
    description. An image that was edited in place shows only in its times: the time of
    its content, which tools that copy files set back, and the time of its attributes,
    which such tools cannot set. Times are compared as make compares them, between runs
    of one unfinished job. They are no part of the description: otherwise a copied tree
    would be refused instead of costing work, and the plan would have to hold the times.
    A file that changes while its own shard is being written is not found, nor is a file
    that is read by URL: its store gives no such times.

    Raises:
        OSError: If a file that was listed cannot be looked at.
    """
    modified = _cached_times()
    found = []
    for plan in plans:
        marker = write_shard.marker_path(job_dir / plan.name)
        if not marker.exists():
            continue
        written, files = modified_ns(marker), _files(input_dir, plan)
        if any(modified(input_dir.path / file) > written for file in files):
            found.append(marker)
    return found


def newer(
    input_dir: Location, plans: Sequence[ShardPlan], index_path: pathlib.Path
) -> str:
    """Returns an image file that is newer than an index; empty if there is none.

    Copies of image bytes in the working folder do not count: each run makes them again.

    Raises:
        OSError: If a file that was listed cannot be looked at.
    """
    modified, written = _cached_times(), index_path.stat().st_mtime_ns
    for plan in plans:
        for file in _files(input_dir, plan):
            path = input_dir.path / file
            if modified(path) > written and not _is_copy(path, index_path.parent):
                return file
    return ""


def _is_copy(path: pathlib.Path, output_dir: pathlib.Path) -> bool:
    own = os.path.realpath(output_dir / WORK_DIR_NAME)
    return pathlib.Path(os.path.realpath(path)).is_relative_to(own)


def _cached_times() -> Callable[[pathlib.Path], int]:
    # Thousands of images share a tar; a file of a tree is looked at once in any case.
    return functools.lru_cache(maxsize=1024)(modified_ns)


def _files(input_dir: Location, plan: ShardPlan) -> set[str]:
    """Returns the files of a shard that are not read by URL."""
    found = {image.file for image in plan.images}
    return {file for file in found if not parts.is_remote(input_dir, file)}


def modified_ns(path: pathlib.Path) -> int:
    """Returns the time of the last change of a file or of its attributes."""
    status = path.stat()
    return max(status.st_mtime_ns, status.st_ctime_ns)


def by_digest(
    job: Job, plans: Sequence[ShardPlan], done: Mapping[str, write_shard.Written]
) -> list[str]:
    """Returns the names of complete shards that were written from other images.

    Args:
        job: The conversion.
        plans: Shards of the job.
        done: The complete shards, by name.

    Raises:
        OSError: If an image cannot be read.
    """
    tasks = [(plan, done[plan.name]) for plan in plans if plan.name in done]
    if not tasks:
        return []
    answers = processes.run(
        functools.partial(_is_changed, job),
        tasks,
        num_workers=job.num_workers,
        num_images=sum(len(plan.images) for plan, _ in tasks),
    )
    found = zip(tasks, answers, strict=True)
    return [plan.name for (plan, _), is_changed in found if is_changed]


def _is_changed(job: Job, task: tuple[ShardPlan, write_shard.Written]) -> bool:
    """Checks whether a shard was written from other bytes. Runs in a worker process."""
    plan, written = task
    digest = xxhash.xxh3_128()
    for image in plan.images:
        if check_bytes(image.num_bytes, job.policy) is None:
            source = read_image(job.input_dir, image)
            digest.update(xxhash.xxh3_128_digest(source))
        processes.image_done()
    return digest.hexdigest() != written.source_digest
