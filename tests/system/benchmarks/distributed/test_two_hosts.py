"""Benchmarks on two hosts, each with its own name, network and ssh server."""

import pathlib
import subprocess

from tests.support.processes import horovodrun
from tests.support.servers.cluster import Cluster


def test_training_on_two_hosts_uses_each_record_once(
    two_hosts: Cluster, data_dir: pathlib.Path
) -> None:
    command = two_hosts.horovodrun(
        1,
        *("-m", "benchmarks.train", f"--data_dir={data_dir}", "--model=tiny"),
        *("--image_size=32", "--batch_size=2", "--num_epochs=1"),
    )

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=horovodrun.environment(),
    )

    result = horovodrun.result(done)
    hosts = result["environment"]["hosts"]
    assert [(host["name"], host["ranks"]) for host in hosts] == [
        ("host1", [0]),
        ("host2", [1]),
    ]
    records = result["records"]
    assert records["times_used_min"] == records["times_used_max"] == 1
    assert records["num_distinct"] == records["num_in_split"] == 24
    assert records["num_on_several_ranks"] == 0


def test_a_host_that_sends_slowly_is_named(two_hosts: Cluster) -> None:
    """Bytes of rank 1 wait for the link of its host; those of rank 0 do not.

    The queue is short, as the receipts for rank 0 wait in the queue too.
    """
    sender = two_hosts.hosts[1]
    bucket = ("tbf", "rate", "10mbit", "burst", "64kb", "latency", "10ms")
    sender.run("tc", "qdisc", "replace", "dev", "eth0", "root", *bucket)
    try:
        done = subprocess.run(
            two_hosts.horovodrun(
                1,
                *("-m", "benchmarks.train", "--synthetic", "--model=tiny"),
                *("--image_size=32", "--batch_size=2", "--num_steps=10"),
            ),
            capture_output=True,
            text=True,
            check=False,
            env=horovodrun.environment(),
        )
    finally:
        sender.run("tc", "qdisc", "del", "dev", "eth0", "root")

    result = horovodrun.result(done)
    first, second = result["telemetry"]["process_sending_seconds_per_rank"]
    assert second > first
    assert result["slow_link"]["rank"] == 1


def _probe(hosts: Cluster, ranks_per_host: int, place: pathlib.Path) -> list[str]:
    options = ("--seconds=0.1", "--max_parallel=2", "--write")
    return hosts.horovodrun(ranks_per_host, "-m", "benchmarks.storage", place, *options)


def test_storage_is_measured_on_two_hosts_at_once(
    two_hosts: Cluster, tmp_path: pathlib.Path
) -> None:
    done = subprocess.run(
        _probe(two_hosts, 1, tmp_path),
        capture_output=True,
        text=True,
        check=False,
        env=horovodrun.environment(),
    )

    result = horovodrun.result(done)
    assert result["num_ranks"] == 2
    assert [host["name"] for host in result["environment"]["hosts"]] == [
        *("host1", "host2")
    ]
    measured = [m for m in result["measurements"] if m["megabytes_per_second"]]
    assert {m["what"] for m in measured} == {"sequential", "random", "shards", "write"}
    for row in measured:
        each = row["megabytes_per_second_per_host"]
        assert len(each) == 2
        assert all(rate > 0 for rate in each)
        # The time is that of the slowest host.
        assert row["megabytes_per_second"] <= sum(each) * 1.000001
    assert "; 2 hosts: " in result["sentences"][0]
    assert not list(tmp_path.iterdir())


def test_storage_is_not_measured_by_two_processes_of_a_host(
    two_hosts: Cluster, tmp_path: pathlib.Path
) -> None:
    done = subprocess.run(
        _probe(two_hosts, 2, tmp_path),
        capture_output=True,
        text=True,
        check=False,
        env=horovodrun.environment(),
    )

    assert done.returncode != 0
    assert "must have one process a host, got 4 processes on 2" in done.stderr
    assert not list(tmp_path.iterdir())
