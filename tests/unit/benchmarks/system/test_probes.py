"""benchmarks.system.probes: counters of the kernel and of NVML."""

import collections
import itertools
import types

import pytest

from benchmarks.system import probes

CpuTimes = collections.namedtuple(
    "CpuTimes", "user nice system idle iowait irq softirq steal guest guest_nice"
)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (CpuTimes(10, 1, 5, 100, 20, 2, 3, 0, 0, 0), (21, 141)),
        (CpuTimes(10, 1, 5, 100, 20, 2, 3, 9, 0, 0), (30, 150)),  # stolen is not idle
        (CpuTimes(10, 1, 5, 100, 20, 2, 3, 0, 8, 1), (21, 141)),  # guests are in user
    ],
)
def test_cpu(times, expected, monkeypatch):
    monkeypatch.setattr(probes.psutil, "cpu_times", lambda: times)

    counters = next(probes.PROBES["host_cpu"]())

    assert (counters["host_busy"], counters["host_capacity_seconds"]) == expected


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
    counted = {
        name: types.SimpleNamespace(bytes_recv=value, bytes_sent=2 * value)
        for name, value in received.items()
    }
    monkeypatch.setattr(probes, "_INTERFACES", tmp_path)
    monkeypatch.setattr(probes.psutil, "net_io_counters", lambda pernic: counted)

    found = next(probes._network())

    assert found == {
        "network_received_bytes": expected,
        "network_sent_bytes": 2 * expected,
    }


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ([10000], {"network_link_bytes_per_second": 1.25e9}),
        ([10000, 25000], {"network_link_bytes_per_second": 4.375e9}),
        ([10000, 0], {}),  # a virtual interface tells no speed
        ([], {}),
    ],
)
def test_speed_of_the_link(speeds, expected, tmp_path, monkeypatch):
    stats = {
        f"eth{index}": types.SimpleNamespace(speed=speed)
        for index, speed in enumerate(speeds)
    }
    for name in stats:
        (tmp_path / name).mkdir()
    monkeypatch.setattr(probes, "_INTERFACES", tmp_path)
    monkeypatch.setattr(probes.psutil, "net_if_stats", lambda: stats)

    found = next(probes._network())
    assert {name: found[name] for name in found.keys() & probes.GAUGES} == expected


def test_rdma_ports_count_words(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "_RDMA_DEVICES", tmp_path)
    with pytest.raises(ValueError, match="no RDMA port"):
        next(probes._rdma())
    for device, received, sent in (("mlx5_0", 100, 7), ("mlx5_1", 20, 1)):
        counters = tmp_path / device / "ports/1/counters"
        counters.mkdir(parents=True)
        (counters / "port_rcv_data").write_text(f"{received}\n")
        (counters / "port_xmit_data").write_text(f"{sent}\n")

    found = next(probes._rdma())

    assert found == {"rdma_received_bytes": 480, "rdma_sent_bytes": 32}
    (counters / "port_rcv_data").unlink()
    with pytest.raises(FileNotFoundError, match="port_rcv_data"):
        next(probes._rdma())


def test_bytes_of_a_host_without_an_interface_are_unknown(monkeypatch):
    monkeypatch.setattr(probes.psutil, "net_io_counters", lambda **_: {})
    with pytest.raises(OSError, match="no network interface"):
        probes.received_bytes()


class _Nvml:
    """Two GPUs, in the words of pynvml; the second is lost after two readings."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1
    is_old = False

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

    def nvmlDeviceGetPowerUsage(self, gpu):  # noqa: N802
        return 300_000 + gpu

    def nvmlDeviceGetClockInfo(self, gpu, kind):  # noqa: N802
        assert kind == self.NVML_CLOCK_SM
        return 1980

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu):  # noqa: N802
        if self.is_old:
            raise self.NVMLError("Not Supported")
        return 7_000_000


def test_gpus_that_the_ranks_of_the_host_use(monkeypatch):
    monkeypatch.setenv("HOROVOD_LOCAL_SIZE", "2")

    found = next(probes.gpu_probe(_Nvml(8)))

    assert found == {
        "gpu_utilization": [0.4, 0.6],
        "gpu_memory_bytes": [1000.0, 2000.0],
        "gpu_power_watts": [300.0, 300.001],
        "gpu_clock_mhz": [1980.0, 1980.0],
        "gpu_energy_joules": 14_000.0,
    }
    old = _Nvml(2)
    old.is_old = True
    assert "gpu_energy_joules" not in next(probes.gpu_probe(old))
    with pytest.raises(OSError, match="NVML sees no GPU"):
        next(probes.gpu_probe(_Nvml(0)))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, [0]),
        ({"HOROVOD_LOCAL_SIZE": "3"}, [0, 1, 2]),
        ({"HOROVOD_LOCAL_SIZE": "2", "CUDA_VISIBLE_DEVICES": "6,7"}, [6, 7]),
        ({"HOROVOD_LOCAL_SIZE": "1", "CUDA_VISIBLE_DEVICES": "6,7"}, [6]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c"}, [0]),
    ],
)
def test_used_gpus(environment, expected):
    assert probes.used_gpus(environment, 8) == expected


def test_threads_that_ended_still_count():
    looks = [
        {},
        {"1": (10, 0), "2": (20, 10)},
        {"1": (30, 0)},  # thread 2 has ended
        {"1": (30, 0), "2": (5, 5)},
        {"2": (4, 1)},  # another thread at once
    ]

    grown = [probes.grown(now, last) for last, now in itertools.pairwise(looks)]

    sums = [rows.sum(axis=0).tolist() for rows in grown]
    assert sums == [[30, 10], [20, 0], [5, 5], [4, 1]]
    assert probes.grown({}, looks[1]).max(initial=0.0) == 0
