"""benchmarks.system.telemetry on the real counters and clocks of this host."""

import json
import os
import time

import numpy as np

from benchmarks.page_cache.states import trial
from benchmarks.system import telemetry


def test_a_second_of_this_host(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(2_000_000))
    with telemetry.Sampler(interval_seconds=0.1) as sampler:
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
    if trial([str(path)])["counts_reads"]:
        assert figures["process_storage_bytes"] >= 2_000_000
    assert set(figures["absent"]) <= {"gpu", "rdma", "process_storage"}
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
