"""Figures of runs: costs, rates, ratios within a round, and spreads over the rounds.

In: the runs of every variant by round. Out: entries of the result, and a table.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

# Key -> figure. A run over images has cpu_seconds, seconds and num_images.
Run = Mapping[str, float]


def cost(run: Run) -> float:
    """Returns the CPU-seconds of a run for 1000 images."""
    return run["cpu_seconds"] / run["num_images"] * 1000


def rate(run: Run) -> float:
    """Returns the images/s of a run."""
    return run["num_images"] / run["seconds"]


def ratios(
    runs: Sequence[Run], base: Sequence[Run], figure: Callable[[Run], float]
) -> list[float]:
    """Returns a figure of every run over the same figure of the base in its round.

    A slow spell of the host affects both runs of a round.
    """
    return [figure(run) / figure(b) for run, b in zip(runs, base, strict=True)]


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Returns the median as `name`, the least as `name_min`, the most as `name_max`."""
    return {
        name: statistics.median(values),
        f"{name}_min": min(values),
        f"{name}_max": max(values),
    }


def summary(values: Iterable[float]) -> dict[str, float]:
    """Returns median, min and max, rounded."""
    return {
        key.removeprefix("_") or "median": round(value, 4)
        for key, value in spread("", list(values)).items()
    }


def costs_and_rates(runs: Sequence[Run], base: Sequence[Run]) -> dict[str, float]:
    """Returns cost and rate of a variant, and the ratio of its cost to the base's cost.

    Args:
        runs: The runs of the variant by round.
        base: The runs of the base variant by round.

    Returns:
        Spreads over the rounds: cpu_seconds_per_1000_images, cpu_ratio and
        images_per_second.

    Raises:
        ValueError: If the variants have different numbers of runs, or the CPU time of
            a run of the base is 0.
    """
    if not all(map(cost, base)):
        raise ValueError(
            "The CPU time of each run must be above 0 s, got 0 s for "
            f"{base[0]['num_images']:.0f} images. Raise --num_timed_images."
        )
    return {
        **spread("cpu_seconds_per_1000_images", list(map(cost, runs))),
        **spread("cpu_ratio", ratios(runs, base, cost)),
        **spread("images_per_second", list(map(rate, runs))),
    }


def table(rows: Mapping[str, Mapping[str, float]], title: str) -> str:
    """Returns `costs_and_rates` of variants as a table, the cheapest first."""
    titles = f"{'CPU-s / 1000 (min-max)':>26}{'ratio (min-max)':>24}{'images/s':>10}"
    lines = [f"{title:28}{titles}"]
    key = "cpu_seconds_per_1000_images"
    for name, row in sorted(rows.items(), key=lambda item: item[1][key]):
        cells = f"{_range(row, key):>26}{_range(row, 'cpu_ratio'):>24}"
        lines.append(f"{name:28}{cells}{row['images_per_second']:10.0f}")
    return "\n".join(lines)


def _range(row: Mapping[str, float], key: str) -> str:
    return f"{row[key]:.3f} ({row[key + '_min']:.3f}-{row[key + '_max']:.3f})"
