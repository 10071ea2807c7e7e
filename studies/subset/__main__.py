"""How fast is a view of 1 % or 10 % of the records beside the whole data set?

  python -m studies.subset --data_dir=DIR --num_rounds=5

Question: what does it cost that the records of a subset lie far apart? A view reads
each of its records by its byte offset, and nothing of the others. The records of a view
are drawn at random, which is the worst case: hardly two are neighbors.

Each variant is a process of its own, and the variants run in turns. `train` decodes
random crops, as training does; `read` delivers encoded records only. DIR should be in
the page cache: the first round, which is not counted, reads all of it.

Read `rate_ratio`, the images/s of a view over those of the whole in the same round, the
median of the rounds. Exit code 2 if it is below 0.80 for `train 10%` or below 0.50 for
`train 1%`. The last line on stdout is one JSON object.
"""

import dataclasses
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
_RESULT = flags.DEFINE_string(
    "subset_result", None, "File to write the JSON object to as well."
)

GATES = {"train 10%": 0.80, "train 1%": 0.50}

_MODULE = "studies.subset.variants"

Runs = dict[str, list[interleaved.Run]]


def run_all(job: Any, names: list[str], num_rounds: int) -> Runs:
    """Runs the variants in turns, after a round that is not counted.

    Raises:
        OSError: If a run fails; the message holds what it printed.
    """
    limit = interleaved.time_limit(job)
    runs: Runs = {name: [] for name in names}
    for number in range(num_rounds + 1):
        for name in names:
            found = interleaved.run(_MODULE, name, job, time_limit=limit)
            runs[name] += [found] if number else []
    return runs


def rate_ratios(runs: Runs) -> dict[str, float]:
    """Returns images/s of each view over those of the whole, the median of rounds.

    Args:
        runs: The runs of each variant, one a round.
    """
    ratios = {}
    for name, of_view in runs.items():
        of_whole = runs[f"{name.partition(' ')[0]} 100%"]
        ratios[name] = statistics.median(
            _rate(view) / _rate(whole)
            for view, whole in zip(of_view, of_whole, strict=True)
        )
    return ratios


def _rate(run: interleaved.Run) -> float:
    return run["num_images"] / run["seconds"]


def table(figures: dict[str, dict[str, float]]) -> str:
    """Returns a table with one line a variant."""
    lines = [f"{'view':12}{'images/s':>10}{'of the whole':>14}{'CPU-s / 1000':>14}"]
    for name, row in figures.items():
        cost = row["cpu_seconds_per_1000_images"]
        rates = f"{row['images_per_second']:10.0f}{row['rate_ratio']:14.2f}"
        lines.append(f"{name:12}{rates}{cost:14.3f}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    command.refuse_arguments(argv)
    from benchmarks.reporting import environment
    from studies.subset.variants import VARIANTS, Job

    config = train_flags.config_from_flags()
    job = Job(**interleaved.job_options(config, batch_size=32))
    num_rounds = interleaved.num_rounds()
    try:
        runs = run_all(job, [*VARIANTS], num_rounds)
    except (OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    ratios = rate_ratios(runs)
    figures = {
        name: interleaved.figures(runs[name], runs[f"{name.partition(' ')[0]} 100%"])
        | {"rate_ratio": ratios[name]}
        for name in runs
    }
    own = {
        "data_dir": pathlib.Path(job.data_dir).resolve().name,
        "num_rounds": num_rounds,
    }
    report = {
        "command": "studies.subset",
        "schema_version": 1,
        "config": dataclasses.asdict(job) | own,
        "views": figures,
        "environment": environment.describe(),
    }
    output.finish(report, table(figures), path=_RESULT.value)
    return 0 if all(ratios[view] >= least for view, least in GATES.items()) else 2


if __name__ == "__main__":
    command.run(main, {})
