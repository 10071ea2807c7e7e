"""benchmarks.system.telemetry: use of the host during a run."""

import collections
import json
import os
import types

import psutil
import pytest

from benchmarks.system import telemetry
from benchmarks.system.telemetry import Reading, Sample

STATUS = """\
Name:\tpython
VmHWM:\t    2112 kB
VmRSS:\t     100 kB
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

CpuTimes = collections.namedtuple(
    "CpuTimes", "user nice system idle iowait irq softirq steal guest guest_nice"
)


def test_peak_memory():
    assert telemetry.parse_peak_rss(STATUS) == 2112 * 1024
    with pytest.raises(ValueError, match="no VmHWM"):
        telemetry.parse_peak_rss("Name:\tpython\n")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (CpuTimes(10, 1, 5, 100, 20, 2, 3, 0, 0, 0), (21, 141)),
        (CpuTimes(10, 1, 5, 100, 20, 2, 3, 9, 0, 0), (30, 150)),  # stolen is not idle
        (CpuTimes(10, 1, 5, 100, 20, 2, 3, 0, 8, 1), (21, 141)),  # guests are in user
    ],
)
def test_cpu(times, expected):
    assert telemetry.cpu_seconds(times) == expected


@pytest.mark.parametrize(
    ("devices", "interfaces", "expected"),
    [
        (["eth0", "ib0"], [], 1500),
        (["eth0", "ib0"], ["bond0"], 1500),  # a bond lies over the devices
        ([], ["bond0"], 1500),  # a container sees no devices
        ([], [], 0),
        (["eth0", "gone"], [], 1000),
    ],
)
def test_network(devices, interfaces, expected, tmp_path, monkeypatch):
    for name in ("lo", *interfaces):
        (tmp_path / name).mkdir()
    for name in devices:
        (tmp_path / name / "device").mkdir(parents=True)
    received = {"lo": 999, "eth0": 1000, "ib0": 500, "bond0": 1500}
    counted = {n: types.SimpleNamespace(bytes_recv=v) for n, v in received.items()}
    monkeypatch.setattr(telemetry, "_INTERFACES", tmp_path)
    monkeypatch.setattr(telemetry.psutil, "net_io_counters", lambda pernic: counted)

    found = telemetry._network(None)()

    assert found.counters == {"network_received_bytes": expected}


def test_device(tmp_path, monkeypatch):
    number = os.stat(tmp_path).st_dev
    link = tmp_path / f"{os.major(number)}:{os.minor(number)}"
    link.symlink_to("../../devices/cciss!c0d0")
    counted = {"cciss/c0d0": types.SimpleNamespace(read_bytes=4096)}
    monkeypatch.setattr(telemetry, "_BLOCK_DEVICES", tmp_path)
    monkeypatch.setattr(telemetry.psutil, "disk_io_counters", lambda perdisk: counted)

    probe = telemetry._device(tmp_path)

    assert probe().counters == {"device_read_bytes": 4096}
    counted.clear()
    with pytest.raises(OSError, match="the block device cciss/c0d0 is gone"):
        probe()
    with pytest.raises(ValueError, match="names no block device of its own"):
        telemetry._device(tmp_path)
    with pytest.raises(ValueError, match="there is no data folder"):
        telemetry._device(None)


@pytest.mark.parametrize(
    "error",
    [OSError("no"), NotImplementedError("no"), psutil.AccessDenied(1, msg="no")],
)
def test_counters_that_the_kernel_refuses_are_absent(error, monkeypatch):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(psutil.Process, "io_counters", refuse)
    monkeypatch.setattr(psutil, "disk_io_counters", refuse)

    with telemetry.Sampler("/", interval_seconds=60.0) as sampler:
        pass
    figures = sampler.figures()

    assert telemetry.process_storage_bytes() is None
    assert {"device", "process_storage"} <= set(figures["absent"])
    assert figures["process_rss_bytes_max"] > 0


def test_storage_bytes_are_none_where_the_kernel_does_not_count(monkeypatch):
    monkeypatch.delattr(psutil.Process, "io_counters")

    assert telemetry.process_storage_bytes() is None


@pytest.mark.parametrize(("point", "expected"), [("/mnt/a", 50), ("/mnt/my data", 5)])
def test_nfs(point, expected):
    assert telemetry.parse_nfs(MOUNTSTATS, point) == expected


@pytest.mark.parametrize("point", ["/", "/mnt"])
def test_a_mount_that_is_not_nfs_is_refused(point):
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
