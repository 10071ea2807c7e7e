"""Probes of counters: processor, memory, network, storage, GPUs.

In: files of the kernel (through psutil) and NVML. Out: functions that read
counters and gauges of this process or of its host; the units are in the names.
"""

import contextlib
import functools
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import psutil

from benchmarks.system import host_load, network

_PROC = pathlib.Path("/proc")
COST_LIMIT = 0.01  # largest part of a core for repeated reading of a figure
# psutil raises NotImplementedError where the kernel lacks a file, as in some sandboxes.
UNREADABLE = (OSError, ValueError, NotImplementedError, psutil.Error)


class Reading(NamedTuple):
    """Counters, which only grow, and gauges: numbers or lists, by device."""

    counters: Mapping[str, float] = {}
    gauges: Mapping[str, float | list[float]] = {}


Probe = Callable[[], Reading]


def own_storage_bytes() -> int:
    """Returns the bytes from storage to this process so far."""
    process = psutil.Process()
    if not hasattr(process, "io_counters"):  # absent without /proc/self/io
        raise OSError("the kernel does not count the bytes that a process reads")
    return int(process.io_counters().read_bytes)


def process_storage_bytes() -> int | None:
    """Returns the bytes from storage to this process; None if unknown.

    Page-cache hits are not counted. The kernel counts the reads of its own file
    systems; for FUSE and the like see `page_cache.states.CacheStatus`.
    """
    try:
        return own_storage_bytes()
    except UNREADABLE:
        return None


def cpu_seconds(times: Any) -> tuple[float, float]:
    """Sums CPU times of the host over its cores, from `psutil.cpu_times`.

    Busy is every state but idle and waiting for storage. Stolen time, a gift of the
    hypervisor to other machines, is busy too: nobody on this host can use stolen time.

    Returns:
        Busy seconds, and seconds in all.
    """
    # The times of guests, which follow the first eight, are within user and nice.
    total = sum(times[:8])
    return total - times.idle - times.iowait, total


def _read(name: str) -> str:
    return (_PROC / name).read_text(encoding="utf-8", errors="surrogateescape")


def _host() -> Probe:
    def probe() -> Reading:
        times = psutil.cpu_times()
        busy, total = cpu_seconds(times)
        # Interrupts belong to no process: the run's own reads cause many of them.
        of_processes = times.user + times.nice + times.system
        return Reading(
            counters={
                "host_busy": busy,
                "host_capacity_seconds": total,
                "host_processes_seconds": of_processes,
                "host_stolen_seconds": times.steal,
            }
        )

    return probe


def _run_cpu() -> Probe:
    process = psutil.Process()

    def probe() -> Reading:
        seconds = 0.0
        for running in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # the child has just ended
                # An ended child is in the children's time of its parent.
                seconds += sum(running.cpu_times()[:4])
        return Reading(counters={"process_tree_cpu_seconds": seconds})

    return probe


def _run_queue() -> Probe:
    threads = host_load.ThreadTimes()

    def probe() -> Reading:
        times = {}
        for thread in os.listdir(_PROC / "self/task"):
            # A thread may end at any time; a kernel without the file is an error.
            with contextlib.suppress(ProcessLookupError):
                try:
                    text = _read(f"self/task/{thread}/schedstat")
                except FileNotFoundError:
                    if (_PROC / f"self/task/{thread}").exists():
                        raise
                    continue
                running, queued, _ = text.split()
                times[thread] = int(running), int(queued)
        threads.update(times)
        if not threads.running_seconds:
            raise OSError("the kernel does not count the time in the run queue")
        return Reading(
            counters={
                "process_running_seconds": threads.running_seconds,
                "process_run_queue_seconds": threads.queued_seconds,
            }
        )

    probe()
    return probe


def _process() -> Probe:
    # psutil's CPU time of a process is in ticks of 10 ms.
    return lambda: Reading(counters={"process_cpu_seconds": time.process_time()})


def _process_storage() -> Probe:
    return lambda: Reading(counters={"process_storage_bytes": own_storage_bytes()})


def _network() -> Probe:
    names = network.interfaces()
    speed = network.bytes_per_second(names)
    gauges = {} if speed is None else {"network_link_bytes_per_second": speed}

    def probe() -> Reading:
        return Reading(counters=network.transferred(names), gauges=gauges)

    return probe


def _rdma() -> Probe:
    ports = network.rdma_ports()
    if not ports:
        raise ValueError("the host has no RDMA port")

    def probe() -> Reading:
        return Reading(counters=network.rdma_transferred(ports))

    probe()
    return probe


def _sending() -> Probe:
    last: dict[str, float] = {}
    total = 0.0

    def probe() -> Reading:
        nonlocal last, total
        now = network.sending_seconds()
        # The slowest connection: several send at the same time.
        total += max([0.0, *(now[name] - last.get(name, 0.0) for name in now)])
        last = now
        return Reading(counters={"process_sending_seconds": total})

    probe()
    return probe


def _gpus() -> Probe:
    try:
        import pynvml
    except ImportError:
        raise ValueError("nvidia-ml-py is not installed") from None
    return gpu_probe(pynvml)


def gpu_probe(nvml: Any) -> Probe:
    """Makes a probe of the GPUs of the ranks of this host.

    The probe reads the utilization of each GPU, 0 to 1, memory in use, power in W and
    the clock of the multiprocessors in MHz, and the energy of all of them together.

    Raises:
        OSError: If there is no driver or no GPU. The probe raises the same error.
    """
    try:
        nvml.nvmlInit()
        indices = used_gpus(os.environ, nvml.nvmlDeviceGetCount())
        gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
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
    gauges = {"gpu_utilization": busy, "gpu_memory_bytes": used}
    counters: dict[str, float] = {}
    # Older GPUs and virtual GPUs know no power and no clock.
    with contextlib.suppress(nvml.NVMLError):
        gauges["gpu_power_watts"] = [
            nvml.nvmlDeviceGetPowerUsage(g) / 1e3 for g in gpus
        ]
        gauges["gpu_clock_mhz"] = [
            float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)) for gpu in gpus
        ]
        joules = [nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3 for gpu in gpus]
        counters["gpu_energy_joules"] = sum(joules)
    return Reading(counters=counters, gauges=gauges)


def used_gpus(environment: Mapping[str, str], num_gpus: int) -> list[int]:
    """Returns the numbers of the GPUs of the ranks of this host.

    Rank i of a host uses the i-th GPU that CUDA may see.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    named = [int(text) for text in visible if text.strip().isdigit()]
    gpus = [index for index in named if index < num_gpus] or list(range(num_gpus))
    return gpus[: int(environment.get("HOROVOD_LOCAL_SIZE", "1"))]


PROBES: Mapping[str, Callable[[], Probe]] = {
    "host_cpu": _host,
    "run_cpu": _run_cpu,
    "run_queue": _run_queue,
    "process": _process,
    "process_storage": _process_storage,
    "network": _network,
    "rdma": _rdma,
    "sending": _sending,
    "gpu": _gpus,
}
