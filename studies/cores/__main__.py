"""How many more images do all cores feed than one, and what do eight ranks cost?

  python -m studies.cores --data_dir=DIR --num_rounds=5

Questions: does a second core double the rate? Does an image cost more CPU time when
several ranks share the host, as the processes of horovodrun do? The preset
`imagenet_train` runs on one core, on all cores, and in --num_ranks processes at a time,
each with its share of the cores and of the records. The variants run in turns, and
each process has a warm-up that is not timed. DIR should be in the page cache: the
first round, which is not counted, reads all of it.

Read `rate_ratio`, the images/s of all cores over those of one, and `cpu_ratio`, the
CPU-seconds of an image over those with all cores and one rank: both are taken within a
round, and are the median of the rounds. Exit code 2 if `rate_ratio` is below 0.925
times the number of cores, or `cpu_ratio` of the ranks is above 1.05. The last line on
stdout is one JSON object.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import statistics
import sys
from typing import Any

from absl import flags

from benchmarks.options import command, train_flags
from benchmarks.reporting import output
from studies import interleaved

for _name in ("data_dir", "image_size", "batch_size"):
    flags.declare_key_flag(_name)
flags.adopt_module_key_flags(interleaved)
_NUM_RANKS = flags.DEFINE_integer(
    "num_ranks", 8, "Processes that read at the same time.", lower_bound=1
)
_RESULT = flags.DEFINE_string(
    "cores_result", None, "File to write the JSON object to as well."
)

_LEAST_RATE_OF_A_CORE, _MOST_CPU_RATIO = 0.925, 1.05

_MODULE = "studies.cores.variants"

Runs = dict[str, list[interleaved.Run]]


def run_all(job: Any, num_ranks: int, num_rounds: int) -> Runs:
    """Runs the variants in turns, after a round that is not counted.

    Raises:
        OSError: If a run fails; the message holds what it printed.
    """
    from studies.cores.variants import VARIANTS

    runs: Runs = {name: [] for name in VARIANTS}
    for number in range(num_rounds + 1):
        for name in VARIANTS:
            found = _run(name, job, num_ranks if name == "ranks" else 1)
            runs[name] += [found] if number else []
    return runs


def _run(name: str, job: Any, num_ranks: int) -> interleaved.Run:
    from studies.cores.variants import of_rank

    def run(rank: int) -> interleaved.Run:
        mine = of_rank(job, rank, num_ranks)
        # The ranks share the cores, so each takes as long as all their images.
        limit = interleaved.time_limit(job) * num_ranks
        return interleaved.run(_MODULE, name, mine, time_limit=limit)

    with concurrent.futures.ThreadPoolExecutor(num_ranks) as pool:
        return together(list(pool.map(run, range(num_ranks))))


def together(ranks: list[interleaved.Run]) -> interleaved.Run:
    """Returns the figures of ranks that ran at the same time as those of one run.

    CPU-seconds and images are sums; the seconds are those of the slowest rank.
    """
    return {
        "cpu_seconds": sum(run["cpu_seconds"] for run in ranks),
        "num_images": sum(run["num_images"] for run in ranks),
        "seconds": max(run["seconds"] for run in ranks),
    }


def rate_ratio(runs: Runs) -> float:
    """Returns images/s of all cores over those of one, the median of the rounds."""
    pairs = zip(runs["all cores"], runs["one core"], strict=True)
    return statistics.median(_rate(every) / _rate(one) for every, one in pairs)


def _rate(run: interleaved.Run) -> float:
    return run["num_images"] / run["seconds"]


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    command.refuse_arguments(argv)
    from benchmarks.reporting import environment
    from studies.cores.variants import Job

    config = train_flags.config_from_flags()
    job = Job(**interleaved.job_options(config, batch_size=32))
    num_ranks, num_rounds = _NUM_RANKS.value, interleaved.num_rounds()
    try:
        runs = run_all(job, num_ranks, num_rounds)
    except (OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    figures = {
        name: interleaved.figures(mine, runs["all cores"])
        for name, mine in runs.items()
    }
    num_cores, ratio = len(os.sched_getaffinity(0)), rate_ratio(runs)
    report = {
        "command": "studies.cores",
        "schema_version": 1,
        "config": dataclasses.asdict(job)
        | {"data_dir": pathlib.Path(job.data_dir).resolve().name}
        | {"num_ranks": num_ranks, "num_rounds": num_rounds},
        "num_cores": num_cores,
        "rate_ratio": ratio,
        "variants": figures,
        "environment": environment.describe(),
    }
    text = interleaved.table(figures, f"{num_cores} cores, {num_ranks} ranks")
    text += f"\n{num_cores} cores feed {ratio:.2f} times the images of one."
    output.finish(report, text, path=_RESULT.value)
    is_fast = ratio >= _LEAST_RATE_OF_A_CORE * num_cores
    return 0 if is_fast and figures["ranks"]["cpu_ratio"] <= _MOST_CPU_RATIO else 2


if __name__ == "__main__":
    command.run(main, {})
