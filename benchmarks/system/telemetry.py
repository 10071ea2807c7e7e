"""Use of the host during a run: processor, memory, network, storage, GPUs.

In: the probes, read once a second by a thread. Out: the samples, a flat dict for one
process and its host, one dict for all ranks, and the load of the hosts by others; the
units are in the names. A figure without a reading is left out, and `absent` says why.
"""

import collections
import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.system import probes
from benchmarks.system.figures import joined, share_text
from benchmarks.system.machine import Machine
from benchmarks.system.probes import COST_LIMIT, GAUGES, UNREADABLE, Probe, Reading

# Entries of `Sampler.figures` besides figures.
_TEXTS = ("absent", "machine_id", "started_at", "ended_at")
# A host with larger shares is busy.
OTHERS_LIMIT = 0.05
STOLEN_LIMIT = 0.01
QUEUE_LIMIT = 0.05
_RATED = ("network_", "rdma_")  # counters of bytes with a rate too


class _Paced:
    """A probe with a slower rhythm the more CPU time a reading takes: 1 % of a core."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._read_at = self._cost = 0.0
        self.read(anew=True)

    def read(self, *, anew: bool) -> Reading:
        now = time.monotonic()
        if anew or now - self._read_at >= self._cost / COST_LIMIT:
            start = time.thread_time()
            self._reading = next(self._probe)
            self._cost = time.thread_time() - start
            self._read_at = now
        return self._reading


class Sampler:
    """Reads all probes at regular times, in a thread within the `with` block.

    with Sampler() as sampler:
        ...
    figures = sampler.figures()

    The `samples` are the readings so far, with the counter "seconds", without pauses.
    """

    def __init__(
        self,
        *,
        more: Mapping[str, Callable[[], Probe]] | None = None,
        interval_seconds: float = 1.0,
    ) -> None:
        self._interval_seconds = interval_seconds
        self._probes: dict[str, _Paced] = {}
        self._absent: dict[str, str] = {}
        for name, open_probe in {**probes.PROBES, **(more or {})}.items():
            try:
                self._probes[name] = _Paced(open_probe())
            except UNREADABLE as error:
                self._absent[name] = str(error)
        self.samples: list[Reading] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Sampler":
        self.start_timing()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._ended_at = _now()
        self._take(anew=True)

    def start_timing(self) -> None:
        """Forgets the samples of the warm-up, and takes a first sample."""
        with self._lock:
            self.samples.clear()
            self._started_at = _now()
            self._left_out = collections.defaultdict[str, Any](int)
        self._take(anew=True)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves the time and the counts of the block out, as for a checkpoint."""
        with self._lock:
            last = self._read(anew=True)
            self.samples.append(last)
            yield
            now = self._read(anew=True)
            for name in (now.keys() & last.keys()) - GAUGES:
                self._left_out[name] += now[name] - last[name]

    def figures(self) -> dict[str, Any]:
        """Returns the figures from first to last sample; see `summarize_samples`.

        "absent" has the reason for each figure that is missing, "machine_id" is equal
        on hosts of a machine, and "started_at" and "ended_at" are the times of both
        samples, in UTC.
        """
        return {
            **summarize_samples(self.samples),
            "absent": dict(self._absent),
            "machine_id": Machine.here().boot_id,
            "started_at": self._started_at,
            "ended_at": self._ended_at,
        }

    def _run(self) -> None:
        while not self._stop.wait(self._interval_seconds):
            self._take()

    def _take(self, *, anew: bool = False) -> None:
        with self._lock:
            self.samples.append(self._read(anew=anew))

    def _read(self, *, anew: bool) -> Reading:
        """Reads the probes, without the pauses; the lock must be held."""
        reading: Reading = {"seconds": time.monotonic()}
        for name, probe in list(self._probes.items()):
            try:
                reading |= probe.read(anew=anew)
            except UNREADABLE as error:
                # A GPU may fall off its bus; the run and the other figures go on.
                self._absent[name] = str(error)
                del self._probes[name]
        for name, value in self._left_out.items():
            if name in reading:
                reading[name] -= value
        return reading


def _now() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds")


def summarize_samples(samples: Sequence[Reading]) -> dict[str, Any]:
    """Returns the growth of each counter, and mean and maximum of each gauge.

    host_cpu_fraction, 0 to 1, is the busy part of all cores of the host;
    host_cpu_fraction_max is the largest such part between two consecutive samples. A
    name is missing from the figures if a sample lacks the name.
    """
    figures: dict[str, Any] = {"num_samples": len(samples)}
    values = columns(samples)
    busy, total = values.pop("host_busy", None), values.get("host_capacity_seconds")
    if busy is not None and total is not None and total[-1] > total[0]:
        grown = np.diff(total)
        parts = np.diff(busy)[grown > 0] / grown[grown > 0]
        mean = (busy[-1] - busy[0]) / (total[-1] - total[0])
        figures["host_cpu_fraction"] = float(mean)
        figures["host_cpu_fraction_max"] = float(parts.max())
    for name, column in values.items():
        if name in GAUGES:
            figures[f"{name}_mean"] = column.mean(axis=0).tolist()
            figures[f"{name}_max"] = column.max(axis=0).tolist()
            continue
        figures[name] = (column[-1] - column[0]).item()
        if name.startswith(_RATED) and figures["seconds"] > 0:
            rate = figures[name] / figures["seconds"] / 1e6
            figures[name.replace("_bytes", "_megabytes_per_second")] = rate
    return figures


def columns(samples: Sequence[Reading]) -> dict[str, Any]:
    """Returns name -> array of values, for the names in every sample."""
    names = [name for name in samples[0] if all(name in row for row in samples)]
    return {name: np.array([row[name] for row in samples]) for name in names}


def summarize(
    ranks: Sequence[Mapping[str, Any]], local_ranks: Sequence[int]
) -> dict[str, Any]:
    """Joins the figures of all ranks in one dict.

    Figures of a process become lists with a value a rank. Figures of a host become
    lists with a value a host, measured by its local rank 0. None stands for a missing
    value. host_cpu_fraction is the mean over hosts.
    """
    hosts = _of_hosts(ranks, local_ranks)
    result: dict[str, Any] = {"num_hosts": len(hosts)}
    for name in dict.fromkeys(name for figures in ranks for name in figures):
        if name in _TEXTS:
            continue
        of_process = name.startswith("process_") or name in ("seconds", "num_samples")
        group, suffix = (ranks, "rank") if of_process else (hosts, "host")
        result[f"{name}_per_{suffix}"] = [figures.get(name) for figures in group]
    used = result.get("host_cpu_fraction_per_host", [None])
    if None not in used:
        result["host_cpu_fraction"] = float(np.mean(used))
    absent = dict(collections.ChainMap(*(figures["absent"] for figures in hosts)))
    return {**result, "absent": absent}


def _of_hosts(ranks: Sequence[Any], local_ranks: Sequence[int]) -> list[Any]:
    """Returns the values of the first rank of each host."""
    return [own for own, local in zip(ranks, local_ranks, strict=True) if not local]


def host_load(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the load of the hosts by others, from the `Sampler.figures` of all ranks.

    The load is four shares of the worst host, see docs/reference/results.md. The CPU
    time of a run is the time of the ranks and of their child processes. The launcher
    and kernel threads are other processes; interrupts belong to nobody.
    """
    machines: dict[str, list[Any]] = {}
    for figures in ranks:
        # Hosts of one machine share its cores.
        machines.setdefault(figures["machine_id"], []).append(figures)
    loads = [_load(group) for group in machines.values()]
    per_host = {name: [load[name] for load in loads] for name in loads[0]}
    worst = {name: joined(max, values) for name, values in per_host.items()}
    lists = {f"{name}_per_host": values for name, values in per_host.items()}
    others, stolen, queued, _ = worst.values()
    return {**worst, **lists, "text": load_text(others, stolen, queued)}


def _load(ranks: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    def add(key: str, figures: Sequence[Mapping[str, Any]] = ranks) -> float | None:
        return joined(sum, [each.get(key) for each in figures])

    capacity, of_all, stolen = (
        add(f"host_{key}_seconds", ranks[:1])
        for key in ("capacity", "processes", "stolen")
    )
    own, queued = add("process_tree_cpu_seconds"), add("process_run_queue_seconds")
    others = joined(lambda times: max(0.0, times[0] - times[1]), (of_all, own))
    ready = joined(sum, (add("process_running_seconds"), queued))
    return {
        "others_cpu_fraction": _share(others, capacity),
        "stolen_fraction": _share(stolen, capacity),
        "run_queue_wait_fraction": _share(queued, ready),
        "wanted_cpu_fraction": _share(ready, capacity),
    }


def _share(part: float | None, whole: float | None) -> float | None:
    # The times do not grow in some sandboxes.
    return min(1.0, part / whole) if part is not None and whole else None


def load_text(others: float | None, stolen: float | None, queued: float | None) -> str:
    """Returns the meaning of the four shares of the worst host, in words."""
    text = (
        f"Other processes took {share_text(others)} of the cores, the hypervisor took "
        f"{share_text(stolen)}, and the run's threads waited for a core in "
        f"{share_text(queued)} of their time"
    )
    if (others or 0.0) > OTHERS_LIMIT or (stolen or 0.0) > STOLEN_LIMIT:
        return f"The host was busy: {text}. Repeat the run on a quiet host."
    if None in (others, stolen, queued):
        return f"Whether the host was quiet is unknown: {text}; see telemetry.absent."
    if queued is not None and queued > QUEUE_LIMIT:
        return (
            f"The host was quiet, but the run had too few cores: {text}. Its own "
            "threads wait for each other."
        )
    return f"The host was quiet: {text}."


_MAX_POINTS = 600
_MIN_SECONDS = 1.0  # shortest interval: the counters are sampled once a second
_DIGITS = 5

Array = npt.NDArray[np.float64]
Series = Mapping[str, Array]

# How ranks join their series; a mean is of hosts.
_JOINS: Mapping[str, Callable[..., Array]] = {
    "examples_per_second": np.sum,
    "wait_fraction": np.max,
    "storage_megabytes_per_second": np.sum,
    "host_cpu_fraction": np.mean,
    "gpu_utilization": np.mean,
    "resident_fraction": np.mean,
}


def make_edges(seconds: float, num_steps: int) -> Array:
    """Returns the borders of the intervals, float64 [n + 1], from 0 to `seconds`.

    An interval lasts a second, or a step if steps last longer, or as long as 600
    intervals need.
    """
    interval = max(_MIN_SECONDS, seconds / num_steps)
    # The tolerance keeps n steps of equal length n intervals.
    count = int(seconds / interval * (1 + 1e-9))
    return np.linspace(0.0, seconds, 1 + min(_MAX_POINTS, max(1, count)))


def of_steps(
    edges: Array, end_seconds: Array, wait_seconds: Array, num_examples: int
) -> Series:
    """Returns examples a second and the share of waiting of a rank, float64 [n].

    Steps begin with the wait for input, and all steps have equally many examples.
    """
    ends = np.pad(end_seconds, (1, 0))
    done = np.linspace(0.0, num_examples, len(ends))
    fed = ends[:-1] + wait_seconds  # the times at which the steps got their batches
    times = np.pad(np.stack([fed, ends[1:]], axis=1).ravel(), (1, 0))
    waited = np.pad(np.repeat(np.cumsum(wait_seconds), 2), (1, 0))
    return {
        "examples_per_second": _growth(edges, ends, done),
        "wait_fraction": np.clip(_growth(edges, times, waited), 0.0, 1.0),
    }


def of_samples(edges: Array, samples: Sequence[Reading]) -> Series:
    """Returns the figures from the samples of a rank, float64 [n].

    gpu_utilization is the mean over GPUs, resident_fraction the value at the end of an
    interval. A figure is missing if a sample lacks its counters.
    """
    values = columns(samples)
    times = values["seconds"] - values["seconds"][0]
    series: dict[str, Array] = {}
    if "process_storage_bytes" in values:
        rate = _growth(edges, times, values["process_storage_bytes"])
        series["storage_megabytes_per_second"] = rate / 1e6
    if "host_busy" in values:
        total = _growth(edges, times, values["host_capacity_seconds"])
        busy = _growth(edges, times, values["host_busy"])
        if total.all():  # a sandbox may show a host whose times do not grow
            series["host_cpu_fraction"] = np.clip(busy / total, 0.0, 1.0)
    if "gpu_utilization" in values:
        gpus = values["gpu_utilization"].mean(axis=1)
        area = np.cumsum(np.diff(times) * (gpus[1:] + gpus[:-1]) / 2)
        series["gpu_utilization"] = _growth(edges, times, np.pad(area, (1, 0)))
    if "resident_fraction" in values:
        held = np.interp(edges[1:], times, values["resident_fraction"])
        series["resident_fraction"] = held
    return series


def join_series(
    edges: Array, ranks: Sequence[Series], local_ranks: Sequence[int]
) -> dict[str, Any]:
    """Joins the series of all ranks; local rank 0 stands for its host.

    Returns:
        interval_seconds, seconds (ends of the intervals), and a list for each figure;
        None if a rank lacks the figure.
    """
    hosts = _of_hosts(ranks, local_ranks)
    series = {"seconds": edges[1:]}
    for name, join in _JOINS.items():
        group = hosts if join is np.mean else ranks
        if all(name in own for own in group):
            series[name] = join([own[name] for own in group], axis=0)
    rounded = {
        name: [float(f"{value:.{_DIGITS}g}") for value in values]
        for name, values in series.items()
    }
    interval = float(edges[1] - edges[0])
    return {"interval_seconds": interval, **dict.fromkeys(_JOINS), **rounded}


def _growth(edges: Array, times: Array, total: Array) -> Array:
    """Returns the growth a second of a total in each interval."""
    rates: Array = np.diff(np.interp(edges, times, total)) / np.diff(edges)
    return rates
