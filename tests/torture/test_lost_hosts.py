"""Hosts that are cut off, paused or hold other data: named, or without a trace.

The hosts are namespaces of this machine with a network of their own. TORTURE=1 runs the
tests; `make test` trains on two hosts once, see tests/system/benchmarks/distributed.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.faults.torture import IS_LONG
from tests.support.processes import horovodrun
from tests.support.servers.cluster import Cluster, Host, cluster_or_skip

pytestmark = pytest.mark.skipif(not IS_LONG, reason="TORTURE=1 runs them: 4 minutes")

END_SECONDS = 200.0
STEPS = ("-m", "tests.support.processes.watched_ranks")
TRAIN = ("-m", "benchmarks.train", "--model=tiny", "--image_size=32", "--batch_size=2")


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    """Hosts of this test alone; the third one only starts ranks on the others."""
    with cluster_or_skip(tmp_path / "cluster", num_hosts=3) as made:
        yield made


@contextlib.contextmanager
def _started(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=horovodrun.environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_for(*paths: pathlib.Path) -> None:
    end = time.monotonic() + END_SECONDS
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end
        time.sleep(0.05)


def _errors(stderr: str) -> list[str]:
    lines = [line.partition(">:")[2] for line in stderr.splitlines()]
    return [line for line in lines if line.startswith("Error: ")]


@contextlib.contextmanager
def _steps(
    hosts: Cluster, folder: pathlib.Path, num_steps: int
) -> Iterator["subprocess.Popen[str]"]:
    """Two ranks, one a host, that have made more than five steps of 50 ms."""
    with _started(
        hosts.horovodrun(1, *STEPS, folder, 300, num_steps, num_hosts=2)
    ) as process:
        _wait_for(folder / "rank0", folder / "rank1")
        yield process


def test_host_out_of_reach_is_named(hosts: Cluster, tmp_path: pathlib.Path) -> None:
    with _steps(hosts, tmp_path, 10_000) as process:
        hosts.cut(hosts.hosts[1])
        _, stderr = process.communicate(timeout=END_SECONDS)

    (error,) = _errors(stderr)
    assert error.startswith("Error: Rank 1 (host2) of 2 cannot be reached; its last")
    assert process.returncode != 0
    assert not _ranks_on(hosts.hosts[1])


def test_link_that_comes_back_costs_only_time(
    hosts: Cluster, tmp_path: pathlib.Path
) -> None:
    with _steps(hosts, tmp_path, 60) as process:
        hosts.cut(hosts.hosts[1])
        time.sleep(5.0)
        hosts.cut(hosts.hosts[1], cut=False)
        _, stderr = process.communicate(timeout=END_SECONDS)

    assert process.returncode == 0, stderr


def test_paused_host_costs_only_time(hosts: Cluster, tmp_path: pathlib.Path) -> None:
    with _steps(hosts, tmp_path, 60) as process:
        paused = _ranks_on(hosts.hosts[1])
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for process_id in paused:
                os.kill(process_id, number)
            time.sleep(5.0)
        _, stderr = process.communicate(timeout=END_SECONDS)

    assert len(paused) > 0
    assert process.returncode == 0, stderr


@pytest.mark.parametrize("rank", [0, 1])
def test_elastic_training_goes_on_without_the_host_of_a_rank(
    hosts: Cluster, data_dir: pathlib.Path, tmp_path: pathlib.Path, rank: int
) -> None:
    """The lost host keeps its ssh open: nothing arrives, and nothing is refused.

    Horovod gives rank 0 to either host.
    """
    alive, script, saved = (tmp_path / name for name in ("hosts", "hosts.sh", "saved"))
    alive.write_text("host1:1\nhost2:1\n")
    script.write_text(f"#!/bin/sh\ncat {alive}\n")
    script.chmod(0o755)
    num_epochs = 40
    command = horovodrun.command(
        2,
        *(*TRAIN, "--elastic", f"--data_dir={data_dir}", f"--checkpoint_dir={saved}"),
        f"--num_epochs={num_epochs}",
        options=(
            *("--min-np", "1", "--host-discovery-script", str(script)),
            *("--network-interfaces", "eth0"),
        ),
    )

    with _started(hosts.hosts[2].command(*command)) as process:
        _wait_for(saved / "checkpoint")
        by_rank = sorted(hosts.hosts[:2], key=_first_rank)
        lost = by_rank.pop(rank)
        alive.write_text(f"{by_rank[0].name}:1\n")
        hosts.cut(lost)
        stdout, stderr = process.communicate(timeout=END_SECONDS)

    sentence = f"goes on without a rank: Rank {rank} ({lost.name}) of 2 cannot be"
    assert sentence in stderr
    assert process.returncode == 0, stderr
    line = next(text for text in stdout.splitlines() if '"command"' in text)
    result = json.loads(line.partition("<stdout>:")[2])
    assert (result["num_ranks"], result["num_ranks_at_start"]) == (1, 2)
    records = result["records"]
    assert records["times_used_min"] == records["times_used_max"] == num_epochs


def test_other_data_on_a_host_is_an_error_before_the_first_step(
    hosts: Cluster, data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The second host has an empty folder where the first one has the data."""
    (tmp_path / "empty").mkdir()
    hosts.hosts[1].run("mount", "--bind", tmp_path / "empty", data_dir)

    words = (*TRAIN, f"--data_dir={data_dir}", "--num_steps=2")
    command = hosts.horovodrun(1, *words, num_hosts=2)
    with _started(command) as process:
        _, stderr = process.communicate(timeout=END_SECONDS)

    assert process.returncode != 0
    assert any(
        "Rank 1 (host2) of 2 failed, before the first" in e for e in _errors(stderr)
    )
    assert any("The folder is empty." in error for error in _errors(stderr))


def _ranks_on(host: Host) -> dict[int, int]:
    """Returns the processes of ranks on a host, each with its rank."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "environ").read_bytes().split(b"\0")
            if host.has(int(path.name)):
                for word in words:
                    name, _, value = word.partition(b"=")
                    if name == b"HOROVOD_RANK":
                        found[int(path.name)] = int(value)
    return found


def _first_rank(host: Host) -> int:
    return min(_ranks_on(host).values())
