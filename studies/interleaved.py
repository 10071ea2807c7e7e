"""Variants that are measured interleaved: in turns, each run in a process of its own.

In: a module that measures one variant (by `measure`) and prints a line of JSON with
`cpu_seconds`, `seconds` and `num_images`, and the flags of studies that use it. Out:
median, minimum and maximum over the rounds of each variant, ratios to a base variant,
and a table.
"""

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from absl import flags

from benchmarks.options.config import Config
from benchmarks.system import programs

_NUM_ROUNDS = flags.DEFINE_integer(
    "num_rounds", 3, "Times that each variant or peer is run.", lower_bound=1
)
_NUM_TIMED_IMAGES = flags.DEFINE_integer(
    "num_timed_images",
    4000,
    "Images of a run that are timed; a quarter as many are read before as warm-up.",
    lower_bound=1,
)

Run = dict[str, float]

# Every variant is faster on every machine: a run that takes longer has hung.
_MIN_IMAGES_PER_SECOND = 5


def num_rounds() -> int:
    """Returns --num_rounds, the number of runs of each variant."""
    return int(_NUM_ROUNDS.value)


def image_counts() -> dict[str, int]:
    """Returns the images of a run: num_warmup_images and num_timed_images."""
    return {
        "num_warmup_images": _NUM_TIMED_IMAGES.value // 4,
        "num_timed_images": _NUM_TIMED_IMAGES.value,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Work of every variant of a study: batches of the shuffled train split.

    Attributes:
        data_dir: Folder of the data set.
        image_size: Height and width of the images in pixels.
        batch_size: Images in a batch.
        num_warmup_images: Images that are read before the timed images.
        num_timed_images: Images that are timed.
    """

    data_dir: str
    image_size: int = 224
    batch_size: int = 64
    num_warmup_images: int = 1000
    num_timed_images: int = 4000


def job_options(config: Config, *, batch_size: int) -> dict[str, Any]:
    """Returns the fields of `Job` from the flags; `batch_size` is the default."""
    return {
        "data_dir": str(config.data_dir),
        "image_size": config.image_size or 224,
        "batch_size": config.batch_size or batch_size,
        **image_counts(),
    }


def time_limit(job: Job) -> float:
    """Returns the seconds after which a run over the images of a job has hung."""
    num_images = job.num_warmup_images + job.num_timed_images
    return 120 + num_images / _MIN_IMAGES_PER_SECOND


def measure(
    batches: Iterator[object], job: Job, cpu_seconds: Callable[[], float]
) -> Run:
    """Times the batches of a variant in this process, after its warm-up.

    Both counts of images are rounded up to whole batches.

    Args:
        batches: Batches of the variant, without end.
        job: The numbers of images.
        cpu_seconds: Clock that returns the CPU time of the variant, in seconds.

    Returns:
        cpu_seconds and seconds of the timed images, and num_images, their number.
    """
    warmup, timed = (
        -(-count // job.batch_size)
        for count in (job.num_warmup_images, job.num_timed_images)
    )
    for _ in range(warmup):
        next(batches)
    wall_start, cpu_start = time.perf_counter(), cpu_seconds()
    for _ in range(timed):
        next(batches)
    return {
        "cpu_seconds": cpu_seconds() - cpu_start,
        "seconds": time.perf_counter() - wall_start,
        "num_images": timed * job.batch_size,
    }


def run(module: str, name: str, job: Any, *, time_limit: float | None) -> Run:
    """Runs `python -m module NAME JOB` and returns the JSON of its last line.

    Args:
        module: Module that measures one variant.
        name: Name of the variant.
        job: A dataclass, given to the module as JSON.
        time_limit: Seconds until the process, with all that it started, is killed;
            None for no limit.

    Raises:
        OSError: If the process fails or reaches the time limit; the message holds what
            it wrote on stderr.
    """
    command = [sys.executable, "-m", module, name, json.dumps(dataclasses.asdict(job))]
    out = programs.output_of(command, name=name, time_limit=time_limit)
    result: Run = json.loads(out.splitlines()[-1])
    if "cpu_seconds" in result:
        _say(name, result)
    return result


def _say(name: str, result: Run) -> None:
    """Prints figures on stderr at once, so that an interrupted study shows them."""
    print(
        f"{name}: {_cost(result):.3f} CPU-s / 1000 images, "
        f"{result['num_images'] / result['seconds']:.0f} images/s",
        file=sys.stderr,
        flush=True,
    )


def figures(runs: list[Run], base: list[Run]) -> dict[str, float]:
    """Returns cost and rate of a variant, and the ratio of its cost to the base's cost.

    Args:
        runs: The runs of the variant, one a round.
        base: The runs of the base variant, one a round. A ratio is taken within a
            round, so that a slow spell of the machine affects both of its runs.

    Returns:
        Median, `_min` and `_max` over the rounds of cpu_seconds_per_1000_images,
        cpu_ratio and images_per_second.

    Raises:
        ValueError: If the variants have different numbers of runs, or the CPU time of
            a run of the base is 0.
    """
    if not all(map(_cost, base)):
        raise ValueError(
            "The CPU time of each run must be above 0 s, got 0 s for "
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
    """Returns a table with one line a variant, the cheapest first."""
    titles = f"{'CPU-s / 1000 (min-max)':>26}{'ratio (min-max)':>24}{'images/s':>10}"
    lines = [f"{title:28}{titles}"]
    key = "cpu_seconds_per_1000_images"
    for name, row in sorted(figures.items(), key=lambda item: item[1][key]):
        cost, ratio = (_with_range(row, column) for column in (key, "cpu_ratio"))
        lines.append(f"{name:28}{cost:>26}{ratio:>24}{row['images_per_second']:10.0f}")
    return "\n".join(lines)


def _with_range(row: dict[str, float], name: str) -> str:
    return f"{row[name]:.3f} ({row[name + '_min']:.3f}-{row[name + '_max']:.3f})"
