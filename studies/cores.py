"""How many more images do all cores feed than one, and what do eight ranks cost?

  python -m studies.cores --data_dir=DIR --num_rounds=5

Questions: does a second core double the rate? Does an image cost more CPU time when
several ranks share the host, as the processes of horovodrun do? The preset
`imagenet_train` runs on one core, on all cores, and in --num_ranks processes at a time,
with a share of the cores and of the records for a process. The variants run in turns,
and a process has a warm-up without timing. DIR should be in the page cache: a first
round, without timing, reads all of DIR.

Read `rate_ratio`, images/s of all cores over images/s of one core, and `cpu_ratio`, the
CPU-seconds of an image over the CPU-seconds with all cores and one rank: both are taken
within a round, and are the median of the rounds. Exit code 2 if `rate_ratio` is below
0.925 times the number of cores, or `cpu_ratio` of the ranks is above 1.05. The last
line on stdout is one JSON object.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import statistics
import time
from collections.abc import Mapping, Sequence

import tfpipe
from studies import figures, harness
from tfpipe import cli

_LEAST_RATE_OF_A_CORE, _MOST_CPU_RATIO = 0.925, 1.05

VARIANTS = ("one core", "all cores", "ranks")


@cli.options
class Options(harness.ReadingOptions):
    """Options of the study."""

    batch_size: int = 32
    num_ranks: int = cli.flag(8, "Processes that read at the same time.", least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(harness.Job):
    """Work of every variant, and the ranks to share the work.

    Attributes:
        num_ranks: Number of ranks of the variant "ranks"; 1 in the other variants.
        rank: The rank of the process, from 0.
    """

    num_ranks: int = 1
    rank: int = 0


def of_rank(job: Job, rank: int, num_ranks: int) -> Job:
    """Returns the work of a rank: the ranks share the images of a job."""
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


def measure(name: str, job: Job) -> dict[str, float]:
    """Measures a variant, or a rank of the variant "ranks", in the current process."""
    if name == "one core":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    batches = iter(pipeline_of(job).build(num_epochs=None))
    return harness.time_batches(batches, job, time.process_time)


def run(name: str, job: Job, num_ranks: int) -> figures.Run:
    """Runs a variant in `num_ranks` processes at the same time."""

    def run_rank(rank: int) -> figures.Run:
        # The ranks share the cores, so a rank takes as long as all their images.
        limit = job.time_limit * num_ranks
        rank_job = of_rank(job, rank, num_ranks)
        return harness.run("studies.cores", name, rank_job, time_limit=limit)

    with concurrent.futures.ThreadPoolExecutor(num_ranks) as pool:
        return together(list(pool.map(run_rank, range(num_ranks))))


def together(ranks: Sequence[figures.Run]) -> figures.Run:
    """Returns the sum of ranks with a common start, as a single run.

    CPU-seconds and images are sums; the seconds come from the slowest rank.
    """
    return {
        "cpu_seconds": sum(run["cpu_seconds"] for run in ranks),
        "num_images": sum(run["num_images"] for run in ranks),
        "seconds": max(run["seconds"] for run in ranks),
    }


def rate_ratio(runs: Mapping[str, Sequence[figures.Run]]) -> float:
    """Returns images/s of all cores over those of a core: the median."""
    return statistics.median(
        figures.ratios(runs["all cores"], runs["one core"], figures.rate)
    )


def _study(options: Options) -> harness.Outcome:
    job = Job(**options.job_fields())
    num_ranks, rounds = options.num_ranks, options.num_rounds
    runs = harness.turns(
        VARIANTS,
        lambda name, _: run(name, job, num_ranks if name == "ranks" else 1),
        rounds,
        num_warm_ups=1,
    )
    base = runs["all cores"]
    rows = {name: figures.costs_and_rates(own, base) for name, own in runs.items()}
    num_cores, ratio = len(os.sched_getaffinity(0)), rate_ratio(runs)
    misses = []
    if ratio < _LEAST_RATE_OF_A_CORE * num_cores:
        misses.append(f"rate_ratio is {ratio:.3f} with {num_cores} cores")
    if rows["ranks"]["cpu_ratio"] > _MOST_CPU_RATIO:
        misses.append(f"cpu_ratio of the ranks is above {_MOST_CPU_RATIO}")
    text = figures.table(rows, f"{num_cores} cores, {num_ranks} ranks")
    return harness.Outcome(
        figures={
            "config": harness.config_of(job, num_ranks=num_ranks, num_rounds=rounds),
            "num_cores": num_cores,
            "rate_ratio": ratio,
            "variants": rows,
        },
        table=f"{text}\n{num_cores} cores feed {ratio:.2f} times the images of one.",
        misses=misses,
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.cores", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
