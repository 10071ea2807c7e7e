"""The preset on one core, on all cores, or as one of several ranks: one run a process.

  python -m studies.cores.variants 'one core' '{"data_dir": "DIR", ...}'

In: the name of a variant and the fields of `Job`. Out: a line of JSON with its seconds
and CPU-seconds. `studies.cores` starts this module for each run.
"""

import dataclasses
import json
import os
import sys
import time

import tfpipe
from studies import interleaved

VARIANTS = ("one core", "all cores", "ranks")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(interleaved.Job):
    """Work of every variant, and the ranks that share it.

    Attributes:
        num_ranks: Number of ranks of the variant "ranks"; 1 in the other variants.
        rank: The rank of this process, from 0.
    """

    num_ranks: int = 1
    rank: int = 0


def of_rank(job: Job, rank: int, num_ranks: int) -> Job:
    """Returns the work of one of several ranks, which share the images of a job."""
    return dataclasses.replace(
        job,
        num_warmup_images=max(job.batch_size, job.num_warmup_images // num_ranks),
        num_timed_images=max(job.batch_size, job.num_timed_images // num_ranks),
        num_ranks=num_ranks,
        rank=rank,
    )


def pipeline_of(job: Job) -> tfpipe.Pipeline:
    """Returns the preset, with threads for the rank's share of the cores."""
    cores = len(os.sched_getaffinity(0))
    tuning = tfpipe.Tuning(private_threadpool_size=max(1, cores // job.num_ranks))
    return tfpipe.imagenet_train(
        job.data_dir,
        image_size=job.image_size,
        batch_size=job.batch_size,
        rank=job.rank,
        num_ranks=job.num_ranks,
        tuning=tuning,
    )


def main(argv: list[str]) -> None:
    """Measures the variant of the command line and prints its figures."""
    name, job = argv[1], Job(**json.loads(argv[2]))
    if name == "one core":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    batches = iter(pipeline_of(job).build(num_epochs=None))
    print(json.dumps(interleaved.measure(batches, job, time.process_time)))


if __name__ == "__main__":
    main(sys.argv)
