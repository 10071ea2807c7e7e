"""Ways that take turns, each run in its own process: from runs to ratios and a table.

In: modules that measure themselves and print a line of JSON with `cpu_seconds`,
`seconds` and `num_images`. Out: median, least and most of each way's turns.
"""

import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
from typing import Any

Run = dict[str, float]

# Slower than any way on any machine: a run that takes longer hangs.
_MIN_IMAGES_PER_SECOND = 5


def time_limit(job: Any) -> float:
    """Seconds after which a run over the images of a job must have hung."""
    num_images = job.num_warmup_images + job.num_timed_images
    return 120 + num_images / _MIN_IMAGES_PER_SECOND


def run(module: str, name: str, job: Any, *, time_limit: float | None) -> Run:
    """RecordRanges `python -m module NAME JOB`, the job as JSON, and reads its last line.

    Raises:
        OSError: If it fails or takes longer than `time_limit` seconds; carries what it
            said. What it started is ended with it.
    """
    command = [sys.executable, "-m", module, name, json.dumps(dataclasses.asdict(job))]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, said = process.communicate(timeout=time_limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise OSError(f"{name} took longer than {time_limit:.0f} s") from None
    if process.returncode:
        raise OSError(f"{name} ended with {process.returncode}: {said.strip()}")
    result: Run = json.loads(out.splitlines()[-1])
    if "cpu_seconds" in result:
        _say(name, result)
    return result


def _say(name: str, result: Run) -> None:
    """On stderr: the figures of a long series are there even if it is cut off."""
    print(
        f"{name}: {_cost(result):.3f} CPU-s / 1000 images, "
        f"{result['num_images'] / result['seconds']:.0f} images/s",
        file=sys.stderr,
        flush=True,
    )


def figures(runs: list[Run], base: list[Run]) -> dict[str, float]:
    """Cost and rate of a way, and its cost over that of the base, round by round.

    Raises:
        ValueError: If the two were not run equally often, or the base took no time
            that the clock can tell.
    """
    if not all(map(_cost, base)):
        raise ValueError(
            "A run must take time that the clock can tell, got none for "
            f"{base[0]['num_images']:.0f} images. Raise --num_timed_images."
        )
    costs = [_cost(run) for run in runs]
    ratios = [_cost(run) / _cost(other) for run, other in zip(runs, base, strict=True)]
    speeds = [run["num_images"] / run["seconds"] for run in runs]
    return {
        **_spread("cpu_seconds_per_1000_images", costs),
        **_spread("cpu_ratio", ratios),
        **_spread("images_per_second", speeds),
    }


def _cost(run: Run) -> float:
    return run["cpu_seconds"] / run["num_images"] * 1000


def _spread(name: str, values: list[float]) -> dict[str, float]:
    return {
        name: statistics.median(values),
        f"{name}_min": min(values),
        f"{name}_max": max(values),
    }


def table(figures: dict[str, dict[str, float]], title: str) -> str:
    """One line a way, the cheapest first."""
    titles = f"{'CPU-s / 1000 (min-max)':>26}{'ratio (min-max)':>24}{'images/s':>10}"
    lines = [f"{title:28}{titles}"]
    key = "cpu_seconds_per_1000_images"
    for name, row in sorted(figures.items(), key=lambda item: item[1][key]):
        cost, ratio = (_in_words(row, column) for column in (key, "cpu_ratio"))
        lines.append(f"{name:28}{cost:>26}{ratio:>24}{row['images_per_second']:10.0f}")
    return "\n".join(lines)


def _in_words(row: dict[str, float], name: str) -> str:
    return f"{row[name]:.3f} ({row[name + '_min']:.3f}-{row[name + '_max']:.3f})"
