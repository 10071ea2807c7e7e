"""benchmarks.system.telemetry: what the host does meanwhile."""

import json
import os
import time

import numpy as np
import pytest

from benchmarks.system import page_cache, telemetry
from benchmarks.system.telemetry import Reading, Sample

STATUS = """\
Name:\tpython
State:\tR (running)
VmHWM:\t    2112 kB
VmRSS:\t     100 kB
Threads:\t3
"""

NET = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes packets
    lo: 999 9 0 0 0 0 0 0 999 9
  eth0: 1000 4 0 0 0 0 0 0 77 1
  ib0:500 4 0 0 0 0 0 0 77 1
 bond0: 1500 4 0 0 0 0 0 0 77 1
"""

MOUNTSTATS = """\
device /dev/vda mounted on / with fstype ext4
device one:/a mounted on /mnt/a with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tbytes:\t10 20 30 40 50 60 70 80
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
device two:/b mounted on /mnt/my\\040data with fstype nfs statvers=1.1
\tbytes:\t1 2 3 4 5 6 7 8
"""


def test_fields():
    assert telemetry.parse_fields(STATUS) == {
        "VmHWM": 2112 * 1024,
        "VmRSS": 100 * 1024,
        "Threads": 3,
    }
    assert telemetry.parse_fields("rchar: 6976\nread_bytes: 0\n") == {
        "rchar": 6976,
        "read_bytes": 0,
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cpu  10 1 5 100 20 2 3 0 0 0", (21, 141)),
        ("cpu  10 1 5 100 20 2 3 9 0 0", (30, 150)),  # stolen time is not idle
        ("cpu  10 1 5 100 20 2 3 0 8 1", (21, 141)),  # guests are in user's time
    ],
)
def test_cpu(line, expected):
    assert telemetry.parse_cpu(f"{line}\ncpu0 1 1 1 1 1 1 1 0 0 0\n") == expected


@pytest.mark.parametrize(
    ("interfaces", "expected"),
    [(["eth0", "ib0"], 1500), (["bond0"], 1500), ([], 0)],
)
def test_network(interfaces, expected):
    assert telemetry.parse_network(NET, interfaces) == expected


def test_device():
    text = " 2148116   107822 112150298  5077745   737261  1366947 223317904 1190119\n"

    assert telemetry.parse_device(text) == 112150298 * 512


@pytest.mark.parametrize(("point", "expected"), [("/mnt/a", 50), ("/mnt/my data", 5)])
def test_nfs(point, expected):
    assert telemetry.parse_nfs(MOUNTSTATS, point) == expected


@pytest.mark.parametrize("point", ["/", "/mnt"])
def test_what_is_not_nfs(point):
    with pytest.raises(ValueError, match="not on NFS"):
        telemetry.parse_nfs(MOUNTSTATS, point)


def test_figures_of_samples():
    samples = [
        Sample(
            seconds,
            Reading(
                {"host_busy": busy, "host_total": total, "network_received_bytes": net},
                {"process_rss_bytes": rss, "process_peak_rss_bytes": peak} | gpu,
            ),
        )
        for seconds, busy, total, net, rss, peak, gpu in [
            (5.0, 100, 1000, 7, 10, 50, {"gpu_utilization": [0.0, 1.0]}),
            (6.0, 190, 1100, 8, 30, 50, {"gpu_utilization": [0.5, 1.0], "late": 1.0}),
            (7.0, 200, 1200, 9, 20, 60, {"gpu_utilization": [1.0, 1.0], "late": 1.0}),
        ]
    ]

    figures = telemetry.summarize_samples(samples)

    assert figures == {
        "seconds": 2.0,
        "num_samples": 3,
        "host_cpu_fraction": 0.5,
        "host_cpu_fraction_max": 0.9,
        "network_received_bytes": 2,
        "process_rss_bytes_mean": 20.0,
        "process_rss_bytes_max": 30,
        "process_peak_rss_bytes": 60,
        "gpu_utilization_mean": [0.5, 1.0],
        "gpu_utilization_max": [1.0, 1.0],
    }
    assert json.loads(json.dumps(figures)) == figures


def test_ranks_and_hosts_are_told_apart():
    figures = [
        {
            "seconds": 2.0,
            "process_rss_bytes_max": 10 * (rank + 1),
            "host_cpu_fraction": [0.2, 0.9, 0.6][rank],
            "absent": {"gpu": "none here"},
        }
        for rank in range(3)
    ]
    figures[2]["device_read_bytes"] = 5

    found = telemetry.summarize(figures, [0, 1, 0])

    assert found == {
        "num_hosts": 2,
        "seconds_per_rank": [2.0, 2.0, 2.0],
        "process_rss_bytes_max_per_rank": [10, 20, 30],
        "host_cpu_fraction_per_host": [0.2, 0.6],
        "host_cpu_fraction": pytest.approx(0.4),
        "device_read_bytes_per_host": [None, 5],
        "absent": {"gpu": "none here"},
    }


def test_a_second_of_this_host(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(2_000_000))
    with telemetry.Sampler(tmp_path, interval_seconds=0.1) as sampler:
        before = time.process_time()
        while time.process_time() - before < 0.2:  # 0.2 CPU-seconds at least
            np.ones(1000).sum()
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.read()
        time.sleep(0.8)
    figures = sampler.figures()

    assert figures["seconds"] >= 1.0
    assert figures["num_samples"] >= 4
    assert figures["process_cpu_seconds"] >= 0.2
    assert 0 < figures["host_cpu_fraction"] <= figures["host_cpu_fraction_max"] <= 1
    assert 10e6 < figures["process_rss_bytes_mean"] <= figures["process_rss_bytes_max"]
    assert figures["process_rss_bytes_max"] <= figures["process_peak_rss_bytes"]
    if page_cache.counts_reads([str(path)]):
        assert figures["process_storage_bytes"] >= 2_000_000
    if "device" not in figures["absent"]:
        assert figures["device_read_bytes"] >= 2_000_000
    assert set(figures["absent"]) <= {"gpu", "nfs", "device", "process_storage"}
    assert json.loads(json.dumps(figures)) == figures


def test_timing_starts_again():
    with telemetry.Sampler(interval_seconds=60.0) as sampler:
        before = time.process_time()
        while time.process_time() - before < 0.1:
            pass
        sampler.start_timing()
    figures = sampler.figures()

    assert figures["num_samples"] == 2
    assert figures["process_cpu_seconds"] < 0.1
    assert figures["absent"]["device"] == "there is no data folder"


class _Nvml:
    """Two GPUs, in the words of pynvml; the second is lost after two readings."""

    class NVMLError(Exception):
        pass

    def __init__(self, count=2):
        self.count, self.num_readings = count, 0

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlDeviceGetCount(self):  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, number):  # noqa: N802
        return number

    def nvmlDeviceGetUtilizationRates(self, gpu):  # noqa: N802
        self.num_readings += 1
        if self.num_readings > 4:
            raise self.NVMLError("GPU is lost")
        return type("Rates", (), {"gpu": 40 + 20 * gpu})

    def nvmlDeviceGetMemoryInfo(self, gpu):  # noqa: N802
        return type("Memory", (), {"used": 1000 * (gpu + 1)})


def test_gpus():
    probe = telemetry.gpu_probe(_Nvml())

    assert probe().gauges == {
        "gpu_utilization": [0.4, 0.6],
        "gpu_memory_bytes": [1000.0, 2000.0],
    }
    with pytest.raises(OSError, match="NVML sees no GPU"):
        telemetry.gpu_probe(_Nvml(0))


def test_a_gpu_that_is_lost_takes_only_its_own_figures_along(monkeypatch):
    nvml = _Nvml()
    probes = {
        "gpu": lambda _: telemetry.gpu_probe(nvml),
        "process": telemetry._process,
    }
    monkeypatch.setattr(telemetry, "_PROBES", probes)
    with telemetry.Sampler(interval_seconds=60.0) as sampler:
        sampler._take()
    figures = sampler.figures()  # the last reading is the third

    assert figures["absent"] == {"gpu": "NVML: GPU is lost"}
    assert "gpu_utilization_mean" not in figures
    assert figures["num_samples"] == 3
    assert figures["process_rss_bytes_max"] > 0
