r"""Runs benchmarks.train with every combination of settings, and says how it scales.

  python -m benchmarks.sweep --sweep_dir=OUT --data_dirs=DIR --models=resnet50,vgg16 \
      --ranks=1,2,4,8 --batch_sizes=64,128 --repeats=3 -- --num_steps=100
  python -m benchmarks.sweep --sweep_dir=OUT --sweep_file=sweep.json --dry_run

Question: how many images a second do N ranks reach, compared with N times one rank?
Flags after -- go to each run. A run on one rank is started with python, a run on more
ranks with horovodrun. Each run leaves one JSON file in --sweep_dir, which is named
after its settings and which python -m benchmarks.report reads. A sweep that is started
again runs only the runs that have no result, whatever ended the sweep before. A run
that failed leaves its error in --sweep_dir/failed, and the next sweep tries it again.
--dry_run lists the runs and starts none. A duration is shown only where a run with the
same settings has finished.

On stdout: a table for each series of runs that differ only in the number of ranks,
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
from benchmarks.sweeps import scaling
from benchmarks.sweeps.plan import Result, Run, Series, Sweep, estimate_seconds
from benchmarks.sweeps.run import FAILED_DIR, keep_result, read_result

flags.adopt_module_key_flags(sweep_flags)

Results = dict[Run, Result]


def run_missing(sweep: Sweep, folder: pathlib.Path) -> tuple[Results, dict[Run, str]]:
    """Runs every run that has no result yet, one after the other.

    Returns:
        The results of all runs that have one, and the errors of the runs that failed.

    Raises:
        ValueError: If a file in the folder is not the result of the run in its name.
        OSError: If a run cannot be started, or its file cannot be written.
    """
    results, errors = read_results(sweep, folder), {}
    runs = sweep.runs()
    missing = [run for run in runs if run not in results]
    with tqdm.tqdm(
        total=len(runs), initial=len(results), unit="run", file=sys.stderr, disable=None
    ) as bar:
        for run in missing:
            bar.set_postfix_str(run.name)
            result, error = keep_result(folder, run, sweep.run_timeout)
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
    """Returns the results of the runs that are done.

    Raises:
        ValueError: If a file in the folder is not the result of the run in its name.
    """
    found = {run: read_result(folder, run) for run in sweep.runs()}
    return {run: result for run, result in found.items() if result is not None}


def time_text(seconds: float) -> str:
    """Returns a duration as people say it: 75 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plan_lines(sweep: Sweep, results: Results) -> list[str]:
    """Returns a line for each run, done or not, and a last line about what is left."""
    runs = sweep.runs()
    missing = [run for run in runs if run not in results]
    last = f"{len(missing)} of {len(runs)} runs are left."
    if missing and (seconds := seconds_left(missing, results)) is not None:
        last += f" They take about {time_text(seconds)}, as their finished repeats did."
    return [*(f"{_state(run, results):>8}  {run.name}" for run in runs), last]


def _state(run: Run, results: Results) -> str:
    if run in results:
        return "done"
    seconds = estimate_seconds(run, results)
    return "to run" if seconds is None else time_text(seconds)


def seconds_left(missing: Sequence[Run], results: Results) -> float | None:
    """Returns the duration of the missing runs; None if that of any is unknown."""
    seconds = [estimate_seconds(run, results) for run in missing]
    known = [value for value in seconds if value is not None]
    return sum(known) if len(known) == len(seconds) else None


def series_points(
    sweep: Sweep, results: Mapping[Run, Result]
) -> list[tuple[Series, list[scaling.Point], dict[int, float]]]:
    """Returns each series that has results, with its points and mean stalls.

    A mean stall is that of the repeats on one number of ranks, 0 to 1.
    """
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
    """Returns the lines of the printed table of a series."""
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
    """Returns the JSON object of a sweep."""
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
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Locks the folder against a second sweep; the kernel unlocks it if this one dies.

    Raises:
        ValueError: If another sweep has locked the folder.
    """
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
    """Checks that each folder holds a data set, before hours of runs begin.

    Raises:
        ValueError: If a folder has no index.json.
    """
    for folder in sweep.data_dirs:
        if not (pathlib.Path(folder) / "index.json").exists():
            raise ValueError(
                f"--data_dirs must be of converted data sets; {folder} has no "
                "index.json."
            )


def _sweep(sweep: Sweep, folder: pathlib.Path) -> int:
    """Runs the sweep or lists its runs, prints the report; returns the exit code."""
    errors: dict[Run, str] = {}
    if sweep_flags.is_dry_run():
        results = read_results(sweep, folder)
        print("\n".join(plan_lines(sweep, results)))
    else:
        with _locked(folder):
            results, errors = run_missing(sweep, folder)
    for series, points, stalls in series_points(sweep, results):
        print("\n".join(table(series, points, stalls)))
    result = document(sweep, results, errors)
    if sweep_flags.is_dry_run():
        missing = [run for run in sweep.runs() if run not in results]
        result["estimated_seconds_left"] = seconds_left(missing, results)
    output.print_line(result)
    if errors:
        print(
            f"Error: {len(errors)} of {result['num_runs']} runs failed; see "
            f"{folder / FAILED_DIR}. Start again to run only these.",
            file=sys.stderr,
        )
    return 1 if errors else 0


def main(argv: Sequence[str]) -> int:
    """Runs the sweep that the flags describe."""
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
