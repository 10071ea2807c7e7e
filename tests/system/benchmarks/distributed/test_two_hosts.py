"""benchmarks.train on two hosts, each with its own name, network and ssh server."""

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
