"""The load of this host by others, with a real process beside the measurement."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from benchmarks.system import telemetry
from benchmarks.system.telemetry import Sampler

SECONDS = 2.0
# On core 0, until it is ended or half a minute is over.
_LOOP = """
import os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
end = time.monotonic() + 30
while time.monotonic() < end: pass
"""


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """A busy loop that is no child of this process."""
    # The shell ends at once, so that the loop gets another parent.
    script = '"$0" -S -c "$1" > /dev/null 2>&1 & echo $!'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, _LOOP], stdout=subprocess.PIPE, check=True
    )
    process = psutil.Process(int(done.stdout))
    yield process
    process.kill()


def _others_cpu_seconds() -> float:
    """Returns the CPU time of all processes outside the run, ended children too."""
    own = {os.getpid(), *(c.pid for c in psutil.Process().children(recursive=True))}
    return sum(
        sum(process.info["cpu_times"][:4])
        for process in psutil.process_iter(["cpu_times"])
        if process.pid not in own and process.info["cpu_times"]
    )


def _measure() -> tuple[dict[str, Any], float]:
    """Returns the load of the host, and the part that the other processes took."""
    with Sampler() as sampler:
        sampler.start_timing()
        before, start = _others_cpu_seconds(), time.monotonic()
        time.sleep(SECONDS)
        taken, seconds = _others_cpu_seconds() - before, time.monotonic() - start
    load = telemetry.host_load([sampler.figures()])
    return load, taken / seconds / psutil.cpu_count()


def test_a_busy_process_beside_is_seen(stranger: psutil.Process) -> None:
    before = sum(stranger.cpu_times()[:4])

    load, others = _measure()

    its_time = sum(stranger.cpu_times()[:4]) - before
    assert load["others_cpu_fraction"] == pytest.approx(others, abs=0.1)
    assert load["others_cpu_fraction"] > its_time / SECONDS / psutil.cpu_count() - 0.1
    assert load["text"].startswith("The host was busy: ")


def test_child_processes_belong_to_the_run() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", _LOOP]) as child:
        process = psutil.Process(child.pid)
        with Sampler() as sampler:
            sampler.start_timing()
            before = sum(process.cpu_times()[:2])
            time.sleep(SECONDS)
            its_time = sum(process.cpu_times()[:2]) - before
        child.kill()

    of_run = sampler.figures()["process_tree_cpu_seconds"]
    assert 0.05 < its_time <= of_run + 0.02
