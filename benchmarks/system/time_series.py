"""A run over time: rates and shares in equal intervals of the timed window.

In: the ends of the steps of all ranks, and the samples of their counters. Out: a list
for each figure of all ranks together. The ranks start their timed steps together, so
second t of a rank is second t of all ranks. A step, and the growth of a counter between
two samples, are spread evenly over their time: the borders of intervals do not matter.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.system.telemetry import Sample, columns

MAX_POINTS = 600
MIN_SECONDS = 1.0  # shortest interval: the counters are sampled once a second
_DIGITS = 5

Array = npt.NDArray[np.float64]
Series = Mapping[str, Array]


def make_edges(seconds: float, num_steps: int) -> Array:
    """Returns the borders of the intervals, float64 [n + 1], from 0 to `seconds`.

    An interval lasts a second, or a step if steps last longer, or as long as 600
    intervals need.
    """
    interval = max(MIN_SECONDS, seconds / num_steps)
    # The tolerance keeps n steps of equal length n intervals.
    count = int(seconds / interval * (1 + 1e-9))
    return np.linspace(0.0, seconds, 1 + min(MAX_POINTS, max(1, count)))


def of_steps(
    edges: Array,
    *,
    end_seconds: Sequence[float],
    wait_seconds: Sequence[float],
    num_examples: int,
) -> Series:
    """Returns examples a second and the share of waiting of a rank.

    Args:
        wait_seconds: Waits for input, at the starts of the steps.
        num_examples: Examples of all steps together; all steps count alike.

    Returns:
        examples_per_second and wait_fraction, both float64 [n].
    """
    ends = np.concatenate([[0.0], end_seconds])
    waits = np.concatenate([[0.0], np.cumsum(wait_seconds)])
    done = np.linspace(0.0, num_examples, len(ends))
    fed = ends[:-1] + wait_seconds  # the times at which the steps got their batches
    times = np.concatenate([[0.0], np.stack([fed, ends[1:]], axis=1).ravel()])
    waited = np.concatenate([[0.0], np.repeat(waits[1:], 2)])
    return {
        "examples_per_second": _rate(edges, ends, done),
        "wait_fraction": np.clip(_rate(edges, times, waited), 0.0, 1.0),
    }


def of_samples(edges: Array, samples: Sequence[Sample]) -> Series:
    """Returns the figures from the samples of a rank.

    Returns:
        storage_megabytes_per_second, host_cpu_fraction, gpu_utilization (mean over
        GPUs) and resident_fraction (at the end of an interval), float64 [n]. Figures
        that a sample lacks are missing.
    """
    times = np.array([sample.seconds for sample in samples])
    values = columns([{**s.reading.counters, **s.reading.gauges} for s in samples])
    series: dict[str, Array] = {}
    if "process_storage_bytes" in values:
        rate = _rate(edges, times, values["process_storage_bytes"])
        series["storage_megabytes_per_second"] = rate / 1e6
    if "host_busy" in values:
        total = _rate(edges, times, values["host_capacity_seconds"])
        busy = _rate(edges, times, values["host_busy"])
        if total.all():  # a sandbox may show a host whose times do not grow
            series["host_cpu_fraction"] = np.clip(busy / total, 0.0, 1.0)
    if "gpu_utilization" in values:
        gpus = values["gpu_utilization"].mean(axis=1)
        area = np.cumsum(np.diff(times) * (gpus[1:] + gpus[:-1]) / 2)
        area = np.concatenate([[0.0], area])
        series["gpu_utilization"] = _rate(edges, times, area)
    if "resident_fraction" in values:
        series["resident_fraction"] = np.interp(
            edges[1:], times, values["resident_fraction"]
        )
    return series


def join(
    edges: Array,
    steps: Sequence[Series],
    samples: Sequence[Series],
    local_ranks: Sequence[int],
) -> dict[str, Any]:
    """Joins the series of all ranks.

    Examples and bytes from storage are sums over ranks. wait_fraction is the largest of
    all ranks in the interval. The other figures are means over hosts.

    Args:
        local_ranks: Local ranks, from 0; local rank 0 stands for its host.

    Returns:
        interval_seconds, seconds (ends of the intervals), and a list for each figure;
        None if a rank lacks the figure.
    """
    pairs = zip(samples, local_ranks, strict=True)
    hosts = [series for series, local_rank in pairs if local_rank == 0]
    joined = {
        "seconds": edges[1:],
        "examples_per_second": _join(steps, "examples_per_second", np.sum),
        "wait_fraction": _join(steps, "wait_fraction", np.max),
        "storage_megabytes_per_second": _join(
            samples, "storage_megabytes_per_second", np.sum
        ),
        **{
            name: _join(hosts, name, np.mean)
            for name in ("host_cpu_fraction", "gpu_utilization", "resident_fraction")
        },
    }
    return {
        "interval_seconds": float(edges[1] - edges[0]),
        **{name: _as_list(values) for name, values in joined.items()},
    }


def _rate(edges: Array, times: Array, total: Array) -> Array:
    """Returns the growth a second of a total in each interval."""
    rates: Array = np.diff(np.interp(edges, times, total)) / np.diff(edges)
    return rates


def _join(ranks: Sequence[Series], name: str, function: Any) -> Array | None:
    if any(name not in series for series in ranks):
        return None
    joined: Array = function([series[name] for series in ranks], axis=0)
    return joined


def _as_list(values: Array | None) -> list[float] | None:
    if values is None:
        return None
    return [float(f"{value:.{_DIGITS}g}") for value in values]
