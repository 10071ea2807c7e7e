"""What the host does meanwhile: processor, memory, network, storage, GPUs.

In: the kernel's counters and NVML's, read once a second by a thread. Out: a flat dict
of one process and its host, and one of all ranks together; units in the names. What
cannot be read here is left out, and `absent` says why.
"""

import functools
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.system import page_cache

_SECTOR_BYTES = 512  # of /sys/block/*/stat, whatever the device's own are
_PROC = pathlib.Path("/proc")
_INTERFACES = pathlib.Path("/sys/class/net")


class Reading(NamedTuple):
    """Counters, which only grow, and gauges, numbers or lists of one a device."""

    counters: Mapping[str, float] = {}
    gauges: Mapping[str, float | list[float]] = {}


class Sample(NamedTuple):
    """All that was read at a time, in seconds of a monotonic clock."""

    seconds: float
    reading: Reading


Probe = Callable[[], Reading]


class Sampler:
    """Reads while it is entered, from a thread of its own.

        with Sampler("DIR") as sampler:
            ...
        figures = sampler.figures()

    Args:
        data_dir: Where the data is, to find the device or mount that it comes from.
        interval_seconds: Time between two readings.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        interval_seconds: float = 1.0,
    ) -> None:
        self._interval_seconds = interval_seconds
        self._probes: dict[str, Probe] = {}
        self._absent: dict[str, str] = {}
        for name, open_probe in _PROBES.items():
            try:
                self._probes[name] = open_probe(data_dir)
            except (OSError, ValueError) as error:
                self._absent[name] = str(error)
        self._samples: list[Sample] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Sampler":
        self._take()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._take()

    def start_timing(self) -> None:
        """Forgets what was read so far: it was warm-up."""
        with self._lock:
            self._samples.clear()
        self._take()

    def figures(self) -> dict[str, Any]:
        """The figures from the first reading to the last; see `summarize_samples`."""
        with self._lock:
            return summarize_samples(self._samples) | {"absent": dict(self._absent)}

    def _run(self) -> None:
        while not self._stop.wait(self._interval_seconds):
            self._take()

    def _take(self) -> None:
        with self._lock:
            reading = Reading({}, {})
            for name, probe in list(self._probes.items()):
                try:
                    found = probe()
                except (OSError, ValueError) as error:
                    # A GPU may fall off its bus; the run and the other figures go on.
                    self._absent[name] = str(error)
                    del self._probes[name]
                    continue
                reading = Reading(
                    {**reading.counters, **found.counters},
                    {**reading.gauges, **found.gauges},
                )
            self._samples.append(Sample(time.monotonic(), reading))


def summarize_samples(samples: Sequence[Sample]) -> dict[str, Any]:
    """What counters grew by, and mean and maximum of gauges, of two samples or more.

    A fraction of the host's CPU is of all its cores, everything that is not idle; its
    maximum is over the time between two samples. What is not in every sample is not in
    the figures.
    """
    first, last = samples[0], samples[-1]
    figures: dict[str, Any] = {
        "seconds": last.seconds - first.seconds,
        "num_samples": len(samples),
    }
    counted = _series(sample.reading.counters for sample in samples)
    busy, total = counted.pop("host_busy", None), counted.pop("host_total", None)
    if busy is not None and total is not None and total[-1] > total[0]:
        grown = np.diff(total)
        parts = np.diff(busy)[grown > 0] / grown[grown > 0]
        mean = (busy[-1] - busy[0]) / (total[-1] - total[0])
        figures["host_cpu_fraction"] = float(mean)
        figures["host_cpu_fraction_max"] = float(parts.max())
    for name, values in counted.items():
        figures[name] = (values[-1] - values[0]).item()
    for name, values in _series(sample.reading.gauges for sample in samples).items():
        if not name.startswith("process_peak_"):
            figures[f"{name}_mean"] = values.mean(axis=0).tolist()
            name = f"{name}_max"
        figures[name] = values.max(axis=0).tolist()
    return figures


def _series(readings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """name -> its values, of the names that are in every reading."""
    everything = list(readings)
    names = [name for name in everything[0] if all(name in one for one in everything)]
    return {name: np.array([one[name] for one in everything]) for name in names}


def summarize(
    ranks: Sequence[Mapping[str, Any]], local_ranks: Sequence[int]
) -> dict[str, Any]:
    """One dict of the figures of all ranks, in the order of ranks.

    Figures of processes become lists of one a rank, those of hosts lists of one a host,
    as its local rank 0 saw it; None where one lacks it. host_cpu_fraction is the mean
    over hosts.
    """
    hosts = [
        figures
        for figures, local_rank in zip(ranks, local_ranks, strict=True)
        if local_rank == 0
    ]
    result: dict[str, Any] = {"num_hosts": len(hosts)}
    for name in dict.fromkeys(name for figures in ranks for name in figures):
        if name == "absent":
            continue
        of_process = name.startswith("process_") or name in ("seconds", "num_samples")
        group, suffix = (ranks, "rank") if of_process else (hosts, "host")
        result[f"{name}_per_{suffix}"] = [figures.get(name) for figures in group]
    used = result.get("host_cpu_fraction_per_host", [None])
    if None not in used:
        result["host_cpu_fraction"] = float(np.mean(used))
    absent = [figures["absent"] for figures in hosts]
    return result | {"absent": {k: v for reasons in absent for k, v in reasons.items()}}


def process_storage_bytes() -> int | None:
    """Bytes that storage delivered to this process so far, page-cache hits excluded.

    None if the kernel does not tell. It tells what its own file systems read; of FUSE
    and the like see `residency.HostStatus.counts_reads`.
    """
    try:
        return parse_fields(_read("self/io"))["read_bytes"]
    except OSError:
        return None


def parse_fields(text: str) -> dict[str, int]:
    """The numbers of /proc/self/io and /proc/self/status by name, kB as bytes."""
    fields = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        value, *unit = rest.split() or [""]
        if value.isdigit():
            fields[name] = int(value) * (1024 if unit == ["kB"] else 1)
    return fields


def parse_cpu(text: str) -> tuple[int, int]:
    """Clock ticks of all cores, busy and in all, from /proc/stat (kernel: proc(5)).

    Busy is all but idle and waiting for storage; time that the hypervisor gave to
    others is busy too, as nobody here can use it.
    """
    numbers = [int(number) for number in text.splitlines()[0].split()[1:]]
    total = sum(numbers[:8])  # guests' time, which follows, is in user's already
    return total - numbers[3] - numbers[4], total


def parse_network(text: str, interfaces: Sequence[str]) -> int:
    """Bytes that some interfaces received, from /proc/net/dev."""
    received = 0
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() in interfaces:
            received += int(rest.split()[0])
    return received


def parse_device(text: str) -> int:
    """Bytes read from a block device, from its stat file (kernel: block/stat.rst)."""
    return int(text.split()[2]) * _SECTOR_BYTES


def parse_nfs(text: str, mount_point: str) -> int:
    """Bytes that an NFS server sent for a mount, from /proc/self/mountstats.

    Raises:
        ValueError: If the mount point is none of NFS.
    """
    place = mount_point.replace(" ", "\\040")  # as the kernel writes it
    is_ours = False
    for line in text.splitlines():
        words = line.split()
        if line.startswith("device "):
            is_ours = f" mounted on {place} with fstype nfs" in line
        elif is_ours and words and words[0] == "bytes:":
            return int(words[5])  # NFSIOS_SERVERREADBYTES of kernel: nfs_iostat.h
    raise ValueError("the data is not on NFS")


def _read(name: str) -> str:
    return (_PROC / name).read_text(encoding="utf-8", errors="surrogateescape")


def _host(_: object) -> Probe:
    def probe() -> Reading:
        busy, total = parse_cpu(_read("stat"))
        return Reading(counters={"host_busy": busy, "host_total": total})

    return probe


def _process(_: object) -> Probe:
    def probe() -> Reading:
        memory = parse_fields(_read("self/status"))
        return Reading(
            counters={"process_cpu_seconds": time.process_time()},
            gauges={
                "process_rss_bytes": memory["VmRSS"],
                "process_peak_rss_bytes": memory["VmHWM"],
            },
        )

    return probe


def _process_storage(_: object) -> Probe:
    def probe() -> Reading:
        num_bytes = parse_fields(_read("self/io"))["read_bytes"]
        return Reading(counters={"process_storage_bytes": num_bytes})

    return probe


def _network(_: object) -> Probe:
    names = sorted(path.name for path in _INTERFACES.iterdir() if path.name != "lo")
    # Bonds, bridges and VLANs lie over these, and would count the same bytes again. In
    # a container there may be no device in sight, only what leads out of it.
    interfaces = [n for n in names if (_INTERFACES / n / "device").exists()] or names

    def probe() -> Reading:
        num_bytes = parse_network(_read("net/dev"), interfaces)
        return Reading(counters={"network_received_bytes": num_bytes})

    return probe


def _device(data_dir: str | os.PathLike[str] | None) -> Probe:
    if data_dir is None:
        raise ValueError("there is no data folder")
    number = os.stat(data_dir).st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    path = pathlib.Path("/sys/dev/block") / name / "stat"
    if not path.exists():
        raise ValueError("the data's file system names no block device of its own")
    return lambda: Reading(
        counters={"device_read_bytes": parse_device(path.read_text(encoding="ascii"))}
    )


def _nfs(data_dir: str | os.PathLike[str] | None) -> Probe:
    if data_dir is None:
        raise ValueError("there is no data folder")
    mount_point = page_cache.mount_point(data_dir)

    def probe() -> Reading:
        num_bytes = parse_nfs(_read("self/mountstats"), mount_point)
        return Reading(counters={"nfs_received_bytes": num_bytes})

    probe()
    return probe


def _gpus(_: object) -> Probe:
    try:
        import pynvml
    except ImportError:
        raise ValueError("nvidia-ml-py is not installed") from None
    return gpu_probe(pynvml)


def gpu_probe(nvml: Any) -> Probe:
    """How busy each GPU of the host is, 0 to 1, and its memory in use.

    Args:
        nvml: The module `pynvml`.

    Raises:
        OSError: If there is no driver or no GPU, now or later.
    """
    try:
        nvml.nvmlInit()
        numbers = range(nvml.nvmlDeviceGetCount())
        gpus = [nvml.nvmlDeviceGetHandleByIndex(number) for number in numbers]
    except nvml.NVMLError as error:
        raise OSError(f"NVML: {error}") from error
    if not gpus:
        raise OSError("NVML sees no GPU")
    return functools.partial(_read_gpus, nvml, gpus)


def _read_gpus(nvml: Any, gpus: Sequence[Any]) -> Reading:
    try:
        busy = [nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100 for gpu in gpus]
        used = [float(nvml.nvmlDeviceGetMemoryInfo(gpu).used) for gpu in gpus]
    except nvml.NVMLError as error:
        raise OSError(f"NVML: {error}") from error
    return Reading(gauges={"gpu_utilization": busy, "gpu_memory_bytes": used})


_PROBES: Mapping[str, Callable[[str | os.PathLike[str] | None], Probe]] = {
    "host_cpu": _host,
    "process": _process,
    "process_storage": _process_storage,
    "network": _network,
    "device": _device,
    "nfs": _nfs,
    "gpu": _gpus,
}
