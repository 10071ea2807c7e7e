"""Probes of counters: processor, memory, network, storage, GPUs.

In: files of the kernel (through psutil) and NVML. Out: generators of readings: counters
and gauges of this process or of its host; the units are in the names. A generator that
cannot read raises an error of `UNREADABLE`. Interfaces and RDMA ports belong to a
`machine.Host`: another network namespace has others.
"""

import contextlib
import os
import pathlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

_PROC = pathlib.Path("/proc")
_INTERFACES = pathlib.Path("/sys/class/net")
_RDMA_DEVICES = pathlib.Path("/sys/class/infiniband")
_RDMA_WORD = 4  # bytes: port_rcv_data and port_xmit_data count words
_TIMES, _TIMES_OFFSET = struct.Struct("=2Q"), 168  # microseconds, in struct tcp_info
COST_LIMIT = 0.01  # largest part of a core for repeated reading of a figure
# psutil raises NotImplementedError where the kernel lacks a file, as in some sandboxes.
UNREADABLE = (OSError, ValueError, NotImplementedError, psutil.Error)


# Counters, which only grow, and gauges: numbers, or lists by device.
Reading = dict[str, Any]
GAUGES = {
    *("resident_fraction", "network_link_bytes_per_second"),
    *("gpu_utilization", "gpu_memory_bytes", "gpu_power_watts", "gpu_clock_mhz"),
}
Probe = Iterator[Reading]
Counts = Mapping[str, Sequence[float]]  # by thread or socket


def own_storage_bytes() -> int:
    """Returns the bytes from storage to the process so far."""
    process = psutil.Process()
    if not hasattr(process, "io_counters"):  # absent without /proc/self/io
        raise OSError("the kernel does not count the bytes that a process reads")
    return int(process.io_counters().read_bytes)


def process_storage_bytes() -> int | None:
    """Returns the bytes from storage to the process; None if unknown.

    Page-cache hits are not counted. The kernel counts the reads of its own file
    systems; for FUSE and the like see `page_cache.states.CacheStatus`.
    """
    try:
        return own_storage_bytes()
    except UNREADABLE:
        return None


def grown(now: Counts, last: Counts) -> npt.NDArray[np.float64]:
    """Returns the growth of counters, float64 [number of threads, number of counters].

    Threads that ended count up to the last reading before their end. A smaller first
    counter is the counter of a new thread with the number of an ended thread.
    """
    rows = []
    for name, values in now.items():
        before = last.get(name, [0.0] * len(values))
        rows.append(np.subtract(values, before if values[0] >= before[0] else 0.0))
    return np.array(rows)


def _host_cpu() -> Probe:
    while True:
        times = psutil.cpu_times()
        # The times of guests, which follow the first eight, are within user and nice.
        total = sum(times[:8])
        yield {
            # Stolen time is busy too: nobody on the host can use the time.
            "host_busy": total - times.idle - times.iowait,
            "host_capacity_seconds": total,
            # Interrupts belong to no process: the run's own reads cause many.
            "host_processes_seconds": times.user + times.nice + times.system,
            "host_stolen_seconds": times.steal,
        }


def _run_cpu() -> Probe:
    process = psutil.Process()
    while True:
        seconds = 0.0
        for running in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # the child has just ended
                # An ended child is in the children's time of its parent.
                seconds += sum(running.cpu_times()[:4])
        yield {"process_tree_cpu_seconds": seconds}


def _run_queue() -> Probe:
    last: Counts = {}
    running = queued = 0.0
    while True:
        now = _thread_nanoseconds()
        of_threads = grown(now, last).sum(axis=0) / 1e9
        running, queued, last = running + of_threads[0], queued + of_threads[1], now
        if not running:
            raise OSError("the kernel does not count the time in the run queue")
        yield {
            "process_running_seconds": float(running),
            "process_run_queue_seconds": float(queued),
        }


def _thread_nanoseconds() -> Counts:
    """Returns the time of each thread on a core, and ready and waiting for a core."""
    times = {}
    for thread in (_PROC / "self/task").iterdir():
        # A thread may end at any time; a kernel without the file is an error.
        with contextlib.suppress(ProcessLookupError):
            try:
                text = (thread / "schedstat").read_text(encoding="ascii")
            except FileNotFoundError:
                if thread.exists():
                    raise
                continue
            times[thread.name] = [int(field) for field in text.split()[:2]]
    return times


def _process() -> Probe:
    while True:  # psutil's CPU time of a process is in ticks of 10 ms
        yield {"process_cpu_seconds": time.process_time()}


def _process_storage() -> Probe:
    while True:
        yield {"process_storage_bytes": own_storage_bytes()}


def _network() -> Probe:
    names = _interfaces()
    stats = psutil.net_if_stats()
    # A virtual interface may tell no speed; a link that is down has none.
    megabits = [stats[name].speed if name in stats else 0 for name in names]
    link: Reading = {}
    if megabits and all(megabits):
        link["network_link_bytes_per_second"] = sum(megabits) * 1e6 / 8
    while True:
        counted = psutil.net_io_counters(pernic=True)
        present = [counted[name] for name in names if name in counted]
        yield {
            "network_received_bytes": sum(each.bytes_recv for each in present),
            "network_sent_bytes": sum(each.bytes_sent for each in present),
            **link,
        }


def _interfaces() -> list[str]:
    """Returns the interfaces to other hosts, without counting bytes twice.

    Bonds, bridges and VLANs lie over the devices and would count the same bytes again.
    A container may see no device, only virtual interfaces.
    """
    names = sorted(path.name for path in _INTERFACES.iterdir() if path.name != "lo")
    return [n for n in names if (_INTERFACES / n / "device").exists()] or names


def received_bytes() -> int:
    """Returns the bytes that all interfaces and RDMA ports received since their start.

    The loopback counts: the server of a mount may run on this host. A host without an
    interface, and an RDMA port without a counter, are an OSError.
    """
    interfaces = psutil.net_io_counters(pernic=True, nowrap=False).values()
    if not interfaces:
        raise OSError("the host has no network interface")
    return int(sum(each.bytes_recv for each in interfaces)) + _rdma_bytes("rcv")


def _rdma() -> Probe:
    """Reads all RDMA ports; the interfaces count no bytes of RDMA."""
    if not any(_RDMA_DEVICES.glob("*/ports/*/counters")):
        raise ValueError("the host has no RDMA port")
    while True:
        received, sent = _rdma_bytes("rcv"), _rdma_bytes("xmit")
        yield {"rdma_received_bytes": received, "rdma_sent_bytes": sent}


def _rdma_bytes(way: str) -> int:
    ports = _RDMA_DEVICES.glob("*/ports/*/counters")
    words = [int((port / f"port_{way}_data").read_text()) for port in ports]
    return sum(words) * _RDMA_WORD


def _sending() -> Probe:
    last: Counts = {}
    total = 0.0
    while True:
        now = {name: [busy] for name, busy in sending_seconds().items()}
        # The slowest connection: several send at the same time.
        total += float(grown(now, last).max(initial=0.0))
        last = now
        yield {"process_sending_seconds": total}


def sending_seconds() -> dict[str, float]:
    """Returns the seconds in which bytes of this process were on their way, by socket.

    The bytes were sent and not yet acknowledged. The time in which the receiver had no
    room does not count, because then the receiver is slow, and not the network. Source:
    tcpi_busy_time and tcpi_rwnd_limited of struct tcp_info, linux/tcp.h.
    """
    seconds = {}
    for name in os.listdir(_PROC / "self/fd"):
        with contextlib.suppress(OSError):  # no socket of TCP, or closed meanwhile
            link = os.readlink(_PROC / "self/fd" / name)
            if not link.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as own:
                info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
            if len(info) < _TIMES_OFFSET + _TIMES.size:
                raise ValueError(
                    "the kernel does not say how long bytes are on their way"
                )
            busy, no_room = _TIMES.unpack_from(info, _TIMES_OFFSET)
            seconds[link] = (busy - no_room) / 1e6
    return seconds


def _gpus() -> Probe:
    try:
        import pynvml
    except ImportError:
        raise ValueError("nvidia-ml-py is not installed") from None
    return gpu_probe(pynvml)


def gpu_probe(nvml: Any) -> Probe:
    """Reads the GPUs of the ranks of this host; without a driver or a GPU an OSError.

    The probe reads the utilization of each GPU, 0 to 1, memory in use, power in W and
    the clock of the multiprocessors in MHz, and the energy of all of them together.
    """
    try:
        nvml.nvmlInit()
        indices = used_gpus(os.environ, nvml.nvmlDeviceGetCount())
        gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
        if not gpus:
            raise OSError("NVML sees no GPU")
        while True:
            yield _read_gpus(nvml, gpus)
    except nvml.NVMLError as error:
        raise OSError(f"NVML: {error}") from error


def _read_gpus(nvml: Any, gpus: Sequence[Any]) -> Reading:
    def each(name: str, *which: object) -> list[Any]:
        return [getattr(nvml, f"nvmlDeviceGet{name}")(gpu, *which) for gpu in gpus]

    reading: Reading = {
        "gpu_utilization": [rates.gpu / 100 for rates in each("UtilizationRates")],
        "gpu_memory_bytes": [float(memory.used) for memory in each("MemoryInfo")],
    }
    # Older GPUs and virtual GPUs know no power and no clock.
    with contextlib.suppress(nvml.NVMLError):
        reading["gpu_power_watts"] = [used / 1e3 for used in each("PowerUsage")]
        reading["gpu_clock_mhz"] = [*map(float, each("ClockInfo", nvml.NVML_CLOCK_SM))]
        reading["gpu_energy_joules"] = sum(each("TotalEnergyConsumption")) / 1e3
    return reading


def used_gpus(environment: Mapping[str, str], num_gpus: int) -> list[int]:
    """Returns the GPUs of this host's ranks: rank i uses the i-th that CUDA sees."""
    visible = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    named = [int(text) for text in visible if text.strip().isdigit()]
    gpus = [index for index in named if index < num_gpus] or list(range(num_gpus))
    return gpus[: int(environment.get("HOROVOD_LOCAL_SIZE", "1"))]


PROBES: Mapping[str, Callable[[], Probe]] = {
    "host_cpu": _host_cpu,
    "run_cpu": _run_cpu,
    "run_queue": _run_queue,
    "process": _process,
    "process_storage": _process_storage,
    "network": _network,
    "rdma": _rdma,
    "sending": _sending,
    "gpu": _gpus,
}
