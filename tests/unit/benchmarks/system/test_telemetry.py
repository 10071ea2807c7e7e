"""benchmarks.system.telemetry: use of the host during a run."""

import json

import psutil
import pytest

from benchmarks.system import probes, telemetry
from tests.unit.benchmarks.system.test_probes import _Nvml


@pytest.mark.parametrize(
    "error",
    [OSError("no"), NotImplementedError("no"), psutil.AccessDenied(1, msg="no")],
)
def test_counters_that_the_kernel_refuses_are_absent(error, monkeypatch):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(psutil.Process, "io_counters", refuse)

    with telemetry.Sampler(interval_seconds=60.0) as sampler:
        pass
    figures = sampler.figures()

    assert probes.process_storage_bytes() is None
    assert "process_storage" in figures["absent"]
    assert figures["process_cpu_seconds"] >= 0


def test_storage_bytes_are_none_where_the_kernel_does_not_count(monkeypatch):
    monkeypatch.delattr(psutil.Process, "io_counters")

    assert probes.process_storage_bytes() is None


def test_figures_of_samples():
    samples = [
        {
            "seconds": seconds,
            "host_busy": busy,
            "host_capacity_seconds": total,
            "network_received_bytes": net,
            "resident_fraction": rss,
            **gpu,
        }
        for seconds, busy, total, net, rss, gpu in [
            (5.0, 100, 1000, 7, 10, {"gpu_utilization": [0.0, 1.0]}),
            (6.0, 190, 1100, 8, 30, {"gpu_utilization": [0.5, 1.0], "late": 1.0}),
            (7.0, 200, 1200, 9, 20, {"gpu_utilization": [1.0, 1.0], "late": 1.0}),
        ]
    ]

    figures = telemetry.summarize_samples(samples)

    assert figures == {
        "seconds": 2.0,
        "num_samples": 3,
        "host_capacity_seconds": 200,
        "host_cpu_fraction": 0.5,
        "host_cpu_fraction_max": 0.9,
        "network_received_bytes": 2,
        "network_received_megabytes_per_second": 1e-06,
        "resident_fraction_mean": 20.0,
        "resident_fraction_max": 30,
        "gpu_utilization_mean": [0.5, 1.0],
        "gpu_utilization_max": [1.0, 1.0],
    }
    assert json.loads(json.dumps(figures)) == figures


def test_rates_of_the_network_and_of_rdma():
    names = ("network_received", "network_sent", "rdma_received", "rdma_sent")
    counters = [{f"{name}_bytes": n * 1e6 for name in names} for n in (3, 11)]
    times = (1.0, 5.0)
    samples = [{"seconds": s, **c} for s, c in zip(times, counters, strict=True)]

    figures = telemetry.summarize_samples(samples)

    assert [figures[f"{n}_megabytes_per_second"] for n in names] == [2.0] * 4
    assert [figures[f"{n}_bytes"] for n in names] == [8e6] * 4


def test_ranks_and_hosts_are_told_apart():
    figures = [
        {
            "seconds": 2.0,
            "process_cpu_seconds": 10 * (rank + 1),
            "host_cpu_fraction": [0.2, 0.9, 0.6][rank],
            "absent": {"gpu": "none here"},
            "machine_id": "boot",
            "started_at": "2026-11-22T17:00:00.000+00:00",
        }
        for rank in range(3)
    ]
    figures[2]["network_sent_bytes"] = 5

    found = telemetry.summarize(figures, [0, 1, 0])

    assert found == {
        "num_hosts": 2,
        "seconds_per_rank": [2.0, 2.0, 2.0],
        "process_cpu_seconds_per_rank": [10, 20, 30],
        "host_cpu_fraction_per_host": [0.2, 0.6],
        "host_cpu_fraction": pytest.approx(0.4),
        "network_sent_bytes_per_host": [None, 5],
        "absent": {"gpu": "none here"},
    }


def test_a_gpu_that_is_lost_takes_only_its_own_figures_along(monkeypatch):
    nvml = _Nvml()
    table = {
        "gpu": lambda: probes.gpu_probe(nvml),
        "process": probes._process,
    }
    monkeypatch.setattr(probes, "PROBES", table)
    monkeypatch.setenv("HOROVOD_LOCAL_SIZE", "2")
    with telemetry.Sampler(interval_seconds=60.0) as sampler:
        sampler._take(anew=True)
    figures = sampler.figures()  # the last reading is the third

    assert figures["absent"] == {"gpu": "NVML: GPU is lost"}
    assert "gpu_utilization_mean" not in figures
    assert figures["num_samples"] == 3
    assert figures["process_cpu_seconds"] >= 0


class _Clock:
    """Stands in for the module time; the probes move it."""

    def __init__(self):
        self.now = self.cpu = 100.0

    def monotonic(self):
        return self.now

    def thread_time(self):
        return self.cpu


def _sampler(monkeypatch, clock, cost):
    """A sampler of one counter, the seconds of the clock; a reading takes `cost`."""

    def probe():
        while True:
            clock.cpu += cost
            yield {"work_seconds": clock.now}

    monkeypatch.setattr(telemetry, "time", clock)
    monkeypatch.setattr(probes, "PROBES", {"work": probe})
    return telemetry.Sampler(interval_seconds=60.0)


def test_pauses_count_neither_as_time_nor_as_work(monkeypatch):
    clock = _Clock()
    with _sampler(monkeypatch, clock, 0.0) as sampler:
        clock.now += 50
        sampler.start_timing()
        for work, pause in [(2, 10), (3, 20), (4, 0)]:
            clock.now += work
            with sampler.paused():
                clock.now += pause
    figures = sampler.figures()

    start = 150.0
    assert sampler.samples == [
        dict.fromkeys(("seconds", "work_seconds"), start + seconds)
        for seconds in (0, 2, 5, 9, 9)
    ]
    assert figures["seconds"] == figures["work_seconds"] == 9


def test_a_probe_that_costs_much_is_read_less_often(monkeypatch):
    clock = _Clock()
    with _sampler(monkeypatch, clock, 0.025) as sampler:
        sampler.start_timing()
        for _ in range(7):
            clock.now += 1
            sampler._take()
    values = [sample["work_seconds"] for sample in sampler.samples]

    # 0.025 s of CPU time are 1 % of 2.5 seconds; the last reading is always new.
    assert values == [100, 100, 100, 103, 103, 103, 106, 106, 107]
