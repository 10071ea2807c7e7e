"""Use of the host during a run: processor, memory, network, storage, GPUs.

In: the counters of the kernel (through psutil) and of NVML, read once a second by a
thread. Out: a flat dict for one process and its host, and one dict for all ranks; the
units are in the names. A figure that cannot be read is left out, and `absent` says why.
"""

import functools
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.system import page_cache

_PROC = pathlib.Path("/proc")
_INTERFACES = pathlib.Path("/sys/class/net")
_BLOCK_DEVICES = pathlib.Path("/sys/dev/block")
# psutil raises NotImplementedError where the kernel lacks a file, as in some sandboxes.
_UNREADABLE = (OSError, ValueError, NotImplementedError, psutil.Error)


class Reading(NamedTuple):
    """Counters, which only grow, and gauges: numbers, or lists with one a device."""

    counters: Mapping[str, float] = {}
    gauges: Mapping[str, float | list[float]] = {}


class Sample(NamedTuple):
    """A reading and its time, in seconds of a monotonic clock."""

    seconds: float
    reading: Reading


Probe = Callable[[], Reading]


class Sampler:
    """Reads all probes at regular times, in a thread that runs inside its `with`.

        with Sampler("DIR") as sampler:
            ...
        figures = sampler.figures()

    Args:
        data_dir: Folder of the data; names the device or mount to watch. None: no
            device and no mount are watched.
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
            except _UNREADABLE as error:
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
        """Forgets all samples so far, which were warm-up, and takes a first one."""
        with self._lock:
            self._samples.clear()
        self._take()

    def figures(self) -> dict[str, Any]:
        """Returns the figures from first to last sample; see `summarize_samples`."""
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
                except _UNREADABLE as error:
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
    """Returns the growth of each counter, and mean and maximum of each gauge.

    host_cpu_fraction, 0 to 1, is the busy part of all cores of the host;
    host_cpu_fraction_max is the largest such part between two consecutive samples. A
    name that is missing from a sample is missing from the figures.

    Args:
        samples: At least two, in the order of time.
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
    """Returns name -> array of its values, for the names that every reading has."""
    everything = list(readings)
    names = [name for name in everything[0] if all(name in one for one in everything)]
    return {name: np.array([one[name] for one in everything]) for name in names}


def summarize(
    ranks: Sequence[Mapping[str, Any]], local_ranks: Sequence[int]
) -> dict[str, Any]:
    """Joins the figures of all ranks in one dict.

    Figures of a process become lists with one value a rank. Figures of a host become
    lists with one value a host, which its local rank 0 measured. None stands for a
    value that is missing. host_cpu_fraction is the mean over hosts.

    Args:
        ranks: What `Sampler.figures` returned on each rank, in the order of ranks.
        local_ranks: Number of each rank on its host, from 0.
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
    """Returns the bytes that storage delivered to this process so far.

    Page-cache hits are not among them. The kernel counts what its own file systems
    read; for FUSE and the like see `residency.HostStatus.counts_reads`.

    Returns:
        Bytes, or None if the kernel does not say.
    """
    try:
        return _own_storage_bytes()
    except _UNREADABLE:
        return None


def _own_storage_bytes() -> int:
    process = psutil.Process()
    if not hasattr(process, "io_counters"):  # psutil has it where /proc/self/io is
        raise OSError("the kernel does not count the bytes that a process reads")
    return int(process.io_counters().read_bytes)


def cpu_seconds(times: Any) -> tuple[float, float]:
    """Sums CPU times of the host over its cores, from `psutil.cpu_times`.

    Busy is every state but idle and waiting for storage. Stolen time, which the
    hypervisor gave to other machines, is busy too: nobody on this host can use it.

    Returns:
        Seconds that were busy, and seconds in all.
    """
    # The times of guests, which follow the first eight, are within user and nice.
    total = sum(times[:8])
    return total - times.idle - times.iowait, total


def parse_peak_rss(text: str) -> int:
    """Returns the peak resident memory in bytes, from the text of /proc/self/status.

    Raises:
        ValueError: If the text has no VmHWM line.
    """
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError("/proc/self/status has no VmHWM")


def parse_nfs(text: str, mount_point: str) -> int:
    """Returns the bytes that an NFS server sent for a mount.

    Args:
        text: Contents of /proc/self/mountstats.
        mount_point: Folder where the file system is mounted.

    Raises:
        ValueError: If no NFS file system is mounted there.
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
        busy, total = cpu_seconds(psutil.cpu_times())
        return Reading(counters={"host_busy": busy, "host_total": total})

    return probe


def _process(_: object) -> Probe:
    process = psutil.Process()

    def probe() -> Reading:
        rss = process.memory_info().rss
        # psutil has no peak on Linux, and ru_maxrss includes the process before exec.
        peak = parse_peak_rss(_read("self/status"))
        return Reading(
            # psutil's CPU time of a process is in ticks of 10 ms; this clock is finer.
            counters={"process_cpu_seconds": time.process_time()},
            gauges={"process_rss_bytes": rss, "process_peak_rss_bytes": peak},
        )

    return probe


def _process_storage(_: object) -> Probe:
    def probe() -> Reading:
        return Reading(counters={"process_storage_bytes": _own_storage_bytes()})

    return probe


def _network(_: object) -> Probe:
    names = sorted(path.name for path in _INTERFACES.iterdir() if path.name != "lo")
    # Bonds, bridges and VLANs lie over the devices and would count the same bytes
    # again. A container may see no device, only interfaces that lead out of it.
    interfaces = [n for n in names if (_INTERFACES / n / "device").exists()] or names

    def probe() -> Reading:
        counted = psutil.net_io_counters(pernic=True)
        received = sum(counted[n].bytes_recv for n in interfaces if n in counted)
        return Reading(counters={"network_received_bytes": received})

    return probe


def _device(data_dir: str | os.PathLike[str] | None) -> Probe:
    if data_dir is None:
        raise ValueError("there is no data folder")
    number = os.stat(data_dir).st_dev
    link = _BLOCK_DEVICES / f"{os.major(number)}:{os.minor(number)}"
    # sysfs writes ! where the name of a device has a slash.
    name = os.path.basename(os.path.realpath(link)).replace("!", "/")
    if name not in psutil.disk_io_counters(perdisk=True):
        raise ValueError("the data's file system names no block device of its own")

    def probe() -> Reading:
        counted = psutil.disk_io_counters(perdisk=True)
        if name not in counted:
            raise OSError(f"the block device {name} is gone")
        return Reading(counters={"device_read_bytes": counted[name].read_bytes})

    return probe


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
    """Makes a probe of each GPU's utilization, 0 to 1, and memory in use, in bytes.

    Args:
        nvml: The module `pynvml`.

    Raises:
        OSError: If there is no driver or no GPU. The probe raises it too.
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
