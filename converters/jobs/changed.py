"""Which complete shards are older than their input, told by what the images hold.

In: the plans of a job that goes on, and what its complete shards noted of their images
when they were written. Out: the names of those whose images are others now. Reads every
image of a complete shard once; `work.outdated` looks at times and reads none.
"""

import functools
import pathlib
from collections.abc import Mapping, Sequence

import xxhash

from converters.engines import processes
from converters.images import policy as policy_images, prepare
from converters.inputs.ilsvrc import read_image
from converters.jobs import write_shard
from converters.jobs.plan import ShardPlan


def find(
    input_dir: pathlib.Path,
    plans: Sequence[ShardPlan],
    done: Mapping[str, write_shard.Written],
    policy: policy_images.Policy,
    num_workers: int,
) -> list[str]:
    """Names of the complete shards that were written from other images.

    Args:
        input_dir: Folder that the images' files are relative to.
        plans: The shards that are to be there.
        done: The complete ones, by name.
        policy: The job's, which says what files are not read.
        num_workers: Processes that read.

    Raises:
        OSError: If an image cannot be read.
    """
    tasks = [(plan, done[plan.name]) for plan in plans if plan.name in done]
    if not tasks:
        return []
    answers = processes.run(
        functools.partial(_is_changed, input_dir, policy),
        tasks,
        num_workers=num_workers,
        num_images=sum(len(plan.images) for plan, _ in tasks),
    )
    found = zip(tasks, answers, strict=True)
    return [plan.name for (plan, _), is_changed in found if is_changed]


def _is_changed(
    input_dir: pathlib.Path,
    policy: policy_images.Policy,
    task: tuple[ShardPlan, write_shard.Written],
) -> bool:
    """Whether a shard was written from other bytes. RecordRanges in worker processes."""
    plan, written = task
    digest = xxhash.xxh3_128()
    for image in plan.images:
        if prepare.check_bytes(image.num_bytes, policy) is None:
            source = read_image(input_dir, image)
            digest.update(xxhash.xxh3_128_digest(source))
        processes.image_done()
    return digest.hexdigest() != written.source_digest
