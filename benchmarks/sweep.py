r"""RecordRanges benchmarks.train with every combination of settings, and says how it scales.

  python -m benchmarks.sweep --sweep_dir=OUT --data_dirs=DIR --models=resnet50,vgg16 \
      --ranks=1,2,4,8 --batch_sizes=64,128 --repeats=3 -- --num_steps=100
  python -m benchmarks.sweep --sweep_dir=OUT --sweep_file=sweep.json --dry_run

Question: how many images a second do more ranks give, against as many times one rank?
Flags after -- go to each run. One rank is started with python, more with horovodrun.
Each run leaves one JSON in --sweep_dir, named after its settings and of the form that
python -m benchmarks.report reads; started again, for whatever reason the last time
ended, a sweep runs only what is missing. A run that failed leaves its error in
--sweep_dir/failed and is tried again the next time. --dry_run prints the runs and how
long they take: as long as the finished runs that are most like them; before there are
any, 20 s each to start and 1 s a step are assumed.

On stdout: a table for each series of runs that differ in the number of ranks alone,
with efficiency = rate_N / (N * rate_1) and its 95 % interval, and one JSON object as
the last line. Exit code: 0 done, 1 an error or a run that failed.
"""

import contextlib
import fcntl
import pathlib
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tqdm
from absl import app, flags

from benchmarks.options import sweep_flags
from benchmarks.reporting import output
from benchmarks.sweeps import run as run_sweeps, scaling
from benchmarks.sweeps.plan import Result, Run, Series, Sweep, estimate_seconds

flags.adopt_module_key_flags(sweep_flags)

Results = dict[Run, Result]


def run_missing(sweep: Sweep, folder: pathlib.Path) -> tuple[Results, dict[Run, str]]:
    """RecordRanges what has no result yet.

    Returns:
        The results of all runs that have one, and the errors of those that failed.

    Raises:
        ValueError: If a file in the folder is not what its name says.
        OSError: If a run cannot be started or kept.
    """
    results, errors = read_results(sweep, folder), {}
    runs = sweep.runs()
    missing = [run for run in runs if run not in results]
    with tqdm.tqdm(
        total=len(runs), initial=len(results), unit="run", file=sys.stderr, disable=None
    ) as bar:
        for number, run in enumerate(missing):
            left = time_text(_seconds(missing[number:], results))
            bar.set_postfix_str(f"{run.name}, {left} left")
            result, error = run_sweeps.keep_result(folder, run, sweep.run_timeout)
            if result is None:
                errors[run] = error
                bar.write(f"{run.name}: {error}", file=sys.stderr)
            else:
                results[run] = result
                bar.write(_line(run, result), file=sys.stderr)
            bar.update()
    return results, errors


def _line(run: Run, result: Result) -> str:
    return (
        f"{run.name}: {result['examples_per_second']:.1f} images/s "
        f"in {time_text(result['sweep']['seconds'])}"
    )


def read_results(sweep: Sweep, folder: pathlib.Path) -> Results:
    """The runs that are done.

    Raises:
        ValueError: If a file in the folder is not what its name says.
    """
    found = {run: run_sweeps.read_result(folder, run) for run in sweep.runs()}
    return {run: result for run, result in found.items() if result is not None}


def _seconds(runs: Sequence[Run], results: Results) -> float:
    return sum(estimate_seconds(run, results) for run in runs)


def time_text(seconds: float) -> str:
    """A time for people: 75 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plan_lines(sweep: Sweep, results: Results) -> list[str]:
    """Every run, whether it is done or how long it takes, and what is left in all."""
    runs = sweep.runs()
    missing = [run for run in runs if run not in results]
    states = {run: time_text(estimate_seconds(run, results)) for run in missing}
    basis = (
        "estimated from the finished runs that are most like them"
        if results
        else "if a run takes 20 s to start and 1 s a step; none has finished yet"
    )
    return [
        *(f"{states.get(run, 'done'):>8}  {run.name}" for run in runs),
        f"{len(missing)} of {len(runs)} runs are left, about "
        f"{time_text(_seconds(missing, results))}: {basis}.",
    ]


def series_points(
    sweep: Sweep, results: Mapping[Run, Result]
) -> list[tuple[Series, list[scaling.Point], dict[int, float]]]:
    """Each series that has results, its points, and the mean stall of each."""
    found = []
    for series in sweep.series():
        done = {
            num_ranks: [
                results[run]
                for run in sweep.runs_of(series, num_ranks)
                if run in results
            ]
            for num_ranks in sweep.ranks
        }
        rates = {
            num_ranks: [result["examples_per_second"] for result in repeats]
            for num_ranks, repeats in done.items()
        }
        stalls = {
            num_ranks: statistics.mean(result["stall_fraction"] for result in repeats)
            for num_ranks, repeats in done.items()
            if repeats
        }
        if points := scaling.points(rates):
            found.append((series, points, stalls))
    return found


def table(
    series: Series, points: Sequence[scaling.Point], stalls: Mapping[int, float]
) -> list[str]:
    """A series for people."""
    whose = "a rank" if series.scaling == "weak" else "in all"
    batch = f"batch {series.batch_size} {whose}" if series.batch_size else "own batch"
    data = f", {series.data_dir}" if series.data_dir else ""
    lines = [
        f"{series.scaling} scaling, {series.model}, {batch}{data}",
        f"{'ranks':>7}{'runs':>6}{'images/s':>12}{'+-':>9}{'speed-up':>10}"
        f"{'efficiency':>12}{'95 % interval':>18}{'stall':>8}",
    ]
    for point in points:
        low, high = point.efficiency_low, point.efficiency_high
        interval = "-"
        if point.num_ranks > 1 and low is not None and high is not None:
            interval = f"{low:.1%} to {high:.1%}"
        lines.append(
            f"{point.num_ranks:7}{point.num_repeats:6}"
            f"{point.examples_per_second:12.1f}"
            f"{_or_dash(point.examples_per_second_interval, '.1f'):>9}"
            f"{_or_dash(point.speedup, '.2f'):>10}"
            f"{_or_dash(point.efficiency, '.1%'):>12}{interval:>18}"
            f"{stalls[point.num_ranks]:8.1%}"
        )
    if points[0].efficiency is None:
        lines.append("No run on one rank has finished, so there is no efficiency.")
    return lines


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def document(
    sweep: Sweep, results: Mapping[Run, Result], errors: Mapping[Run, str]
) -> dict[str, Any]:
    """The JSON object of a sweep."""
    first = next(iter(results.values()), None)
    return {
        "command": "benchmarks.sweep",
        "schema_version": 1,
        "config": sweep.as_json(),
        "num_runs": len(sweep.runs()),
        "num_done": len(results),
        "seconds": sum(result["sweep"]["seconds"] for result in results.values()),
        "failed": [{"run": run.name, "error": errors[run]} for run in errors],
        "series": [
            {**series.as_json(), "points": _points_json(points, stalls)}
            for series, points, stalls in series_points(sweep, results)
        ],
        "environment": first["environment"] if first else None,
    }


def _points_json(
    points: Sequence[scaling.Point], stalls: Mapping[int, float]
) -> list[dict[str, Any]]:
    return [
        {**point.as_json(), "stall_fraction": stalls[point.num_ranks]}
        for point in points
    ]


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
    """Holds the folder against a second sweep; the system lets go if this one dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"--sweep_dir={folder} must not be in use by another sweep, and is."
            ) from None
        yield


def check_data(sweep: Sweep) -> None:
    """Whether there is a data set in each folder, before hours of runs.

    Raises:
        ValueError: If there is none.
    """
    for folder in sweep.data_dirs:
        if not (pathlib.Path(folder) / "index.json").exists():
            raise ValueError(
                f"--data_dirs must be of converted data sets; {folder} has no "
                "index.json."
            )


def _sweep(sweep: Sweep, folder: pathlib.Path) -> int:
    """RecordRanges and reports it; the exit code."""
    errors: dict[Run, str] = {}
    if sweep_flags.is_dry_run():
        results = read_results(sweep, folder)
        print("\n".join(plan_lines(sweep, results)))
    else:
        with _alone(folder):
            results, errors = run_missing(sweep, folder)
    for series, points, stalls in series_points(sweep, results):
        print("\n".join(table(series, points, stalls)))
    result = document(sweep, results, errors)
    if sweep_flags.is_dry_run():
        missing = [run for run in sweep.runs() if run not in results]
        result["estimated_seconds_left"] = _seconds(missing, results)
    output.print_line(result)
    if errors:
        print(
            f"Error: {len(errors)} of {result['num_runs']} runs failed; see "
            f"{folder / run_sweeps.FAILED_DIR}. Start again to run only these.",
            file=sys.stderr,
        )
    return 1 if errors else 0


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1 and not argv[1].startswith("-"):
        raise app.UsageError(f"Unexpected argument: {argv[1]}. Flags start with --.")
    folder = sweep_flags.sweep_dir()
    try:
        sweep = sweep_flags.sweep_from_flags(argv[1:])
        check_data(sweep)
        return _sweep(sweep, folder)
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(
            "Error: Interrupted. Start again to run only what is missing.",
            file=sys.stderr,
        )
    return 1


if __name__ == "__main__":
    app.run(main)
