"""Conversions, services and stores over three hosts give what one host gives.

The hosts are namespaces of this machine with a network of their own, and share its
files. TORTURE=1 runs the tests.
"""

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from benchmarks.results import collection
from tests.support.data.trees import JOB_X, JobDigests, digests
from tests.support.faults.torture import IS_LONG
from tests.support.processes import horovodrun
from tests.support.servers import hdfs_server
from tests.support.servers.cluster import Cluster, Host, cluster_or_skip

pytestmark = pytest.mark.skipif(not IS_LONG, reason="TORTURE=1 runs them: 2 minutes")

END_SECONDS = 200.0
PROGRAMS = pathlib.Path(sys.executable).parent
# Counts the records that a pipeline delivers through a service.
DELIVER = """
import dataclasses, sys, tfpipe
pipeline = tfpipe.imagenet_train(sys.argv[1], batch_size=2, image_size=32)
service = tfpipe.Service("host1:5050")
pipeline = dataclasses.replace(pipeline, stages=[*pipeline.stages, service])
print(sum(len(batch["label"]) for batch in pipeline.build()))
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with cluster_or_skip(folder, num_hosts=3, link="1gbit") as made:
        yield made


def _python(host: Host, *arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        host.command(sys.executable, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=horovodrun.environment(),
    )


def _output(process: "subprocess.Popen[str]", *, seconds: float = END_SECONDS) -> str:
    stdout, stderr = process.communicate(timeout=seconds)
    assert process.returncode == 0, stderr
    return stdout


def _trained(
    hosts: Cluster,
    *flags: str,
    last_rank: Mapping[str, str] = MappingProxyType({}),
    **variables: str,
) -> dict[str, Any]:
    """Trains with a rank on each of the first two hosts; returns the result."""
    words = ("-m", "benchmarks.train", "--model=tiny", "--image_size=32")
    words += ("--batch_size=2", *flags)
    done = subprocess.run(
        hosts.horovodrun(1, *words, num_hosts=2, last_rank=last_rank),
        capture_output=True,
        text=True,
        check=False,
        timeout=END_SECONDS,
        env=horovodrun.environment(**variables),
    )
    return horovodrun.result(done)


def _convert(raw_dir: pathlib.Path, folder: object) -> list[str]:
    options = [f"--{name}={value}" for name, value in JOB_X.items()]
    folders = [f"--input_dir={raw_dir}", f"--output_dir={folder}"]
    return ["-m", "converters.imagenet", *folders, *options]


def test_tasks_of_several_hosts_write_one_data_set(
    hosts: Cluster,
    raw_dir: pathlib.Path,
    job_digests: JobDigests,
    tmp_path: pathlib.Path,
) -> None:
    command = _convert(raw_dir, tmp_path / "out")

    tasks = [
        _python(host, *command, "--num_tasks=3", f"--task_index={index}")
        for index, host in enumerate(hosts.hosts)
    ]

    for task in tasks:
        _output(task)
    assert digests(tmp_path / "out") == job_digests["X"]


def test_ray_converts_on_several_hosts(
    hosts: Cluster,
    raw_dir: pathlib.Path,
    job_digests: JobDigests,
    tmp_path: pathlib.Path,
) -> None:
    first, second, _ = hosts.hosts
    address = f"{first.address}:6379"
    ray = str(PROGRAMS / "ray")
    head = ("--head", "--port=6379", "--include-dashboard=false", "--num-cpus=1")
    with contextlib.ExitStack() as stack:
        stack.callback(subprocess.run, first.command(ray, "stop", "--force"))
        first.run(ray, "start", *head, f"--node-ip-address={first.address}")
        node = ("--num-cpus=1", f"--node-ip-address={second.address}")
        patient = ("env", "RAY_raylet_start_wait_time_s=150")  # 30 s on a busy host
        second.run(*patient, ray, "start", f"--address={address}", *node)
        options = ("--engine=ray", f"--ray_address={address}")
        _output(_python(first, *_convert(raw_dir, tmp_path / "out"), *options))

    assert digests(tmp_path / "out") == job_digests["X"]


def test_service_of_several_hosts_delivers_each_record_once(
    hosts: Cluster, data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    first, second, third = hosts.hosts
    command = ("-m", "benchmarks.service")
    address = "--address=host1:5050"
    servers = [
        _python(first, *command, "dispatcher", address, f"--work_dir={tmp_path}")
    ]
    try:
        assert servers[0].stdout is not None
        next(line for line in servers[0].stdout if "Service(" in line)
        for host in (second, third):
            own = f"--address={host.name}:5051"
            arguments = ("worker", "--dispatcher=host1:5050", own)
            servers.append(_python(host, *command, *arguments))
        for worker in servers[1:]:
            assert worker.stderr is not None
            next(line for line in worker.stderr if "serves" in line)
        count = _output(_python(third, "-c", DELIVER, data_dir))
    finally:
        for server in servers:
            server.kill()
            server.communicate()

    assert int(count) == 24


@contextlib.contextmanager
def _store(
    hosts: Cluster, name: str, folder: pathlib.Path
) -> Iterator[tuple[str, dict[str, str]]]:
    """Runs a store on the network of the third host; yields a URL and variables."""
    host = hosts.hosts[2]
    if name == "s3":
        with hosts.s3(host, folder) as variables:
            yield "s3://photos/records", variables
    else:
        if not hdfs_server.is_installed():
            pytest.skip("Java and HADOOP_JARS are missing, see BUILD.md")
        with hosts.hdfs(host, folder) as name_node:
            yield f"hdfs://{name_node}/records", {}


@pytest.mark.parametrize("name", ["s3", "hdfs"])
def test_training_reads_a_store_of_another_host(
    hosts: Cluster,
    name: str,
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with _store(hosts, name, tmp_path / name) as (url, variables):
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setenv("TFPIPE_SHARD_CACHE", str(tmp_path / "cache"))
        _output(_python(hosts.hosts[0], *_convert(raw_dir, url)))
        before = hosts.sent_bytes(hosts.hosts[2])
        result = _trained(hosts, f"--data_dir={url}", "--num_epochs=1")
        sent = hosts.sent_bytes(hosts.hosts[2]) - before

    records = result["records"]
    assert records["times_used_min"] == records["times_used_max"] == 1
    assert records["num_on_several_ranks"] == 0
    assert sent >= result["consumed_bytes"] > 0


def test_evaluation_on_two_hosts_counts_each_record_once(
    hosts: Cluster, data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Seven records on two ranks with batches of two: some places are empty."""
    flags = (f"--data_dir={data_dir}", f"--checkpoint_dir={tmp_path}")
    _trained(hosts, *flags, "--num_epochs=1")

    result = _trained(hosts, *flags, "--mode=eval")

    assert [h["name"] for h in result["environment"]["hosts"]] == ["host1", "host2"]
    assert result["num_evaluated"] == 7


def test_sweep_runs_the_same_ranks_on_one_two_and_four_hosts(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    names = [f"host{number}" for number in range(1, 5)]
    command = (
        *("-m", "benchmarks.sweep", f"--sweep_dir={tmp_path / 'sweep'}"),
        *(f"--data_dirs={data_dir}", f"--hosts={','.join(names)}"),
        *("--placements=1x4,2x2,4x1", "--models=tiny", "--batch_sizes=2"),
        "--horovodrun_arguments=--network-interfaces eth0",
        *("--", "--image_size=32", "--num_steps=3"),
    )

    with cluster_or_skip(tmp_path / "cluster", num_hosts=4) as made:
        _output(_python(made.hosts[0], *command), seconds=3 * END_SECONDS)

    found = collection.read([tmp_path / "sweep"])
    (sweep,) = found.sweeps
    points = sweep.values.series[0].points
    assert [point.name for point in points] == ["1 x 4", "2 x 2", "4 x 1"]
    runs = [run.document for group in found.groups for run in group.results]
    assert sorted(len(run["environment"]["hosts"]) for run in runs) == [1, 2, 4]


@pytest.mark.parametrize("clocks", [("-7m", "+0m"), ("+0m", "-7m")])
def test_training_on_hosts_whose_clocks_are_minutes_apart(
    hosts: Cluster, data_dir: pathlib.Path, clocks: tuple[str, str]
) -> None:
    """All clocks of a host go behind those of the other host.

    faketime could leave the monotonic clocks alone, but then `time.sleep` ends with
    EINVAL. It leaves out the system call futex, with which TensorFlow waits until a
    time: a host whose clock went before would wait the minutes.
    """
    libraries = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        pytest.skip("faketime is not installed: apt-get install faketime")
    first, second = (60 * int(clock.strip("m")) for clock in clocks)
    result = _trained(
        hosts,
        *(f"--data_dir={data_dir}", "--num_epochs=3"),
        last_rank={"FAKETIME": clocks[1]},
        LD_PRELOAD=str(libraries[0]),
        FAKETIME=clocks[0],
    )

    path = result["critical_path"]
    assert sum(path["shares"].values()) == pytest.approx(1)
    assert all(0 <= share <= 1 for share in path["shares"].values())
    offset = path["clock_offset_seconds_per_rank"][1]
    assert offset == pytest.approx(second - first, abs=30)
    assert result["records"]["times_used_min"] == result["records"]["times_used_max"]
    assert result["records"]["num_on_several_ranks"] <= 24


def test_tasks_on_hosts_whose_clocks_are_minutes_apart(
    hosts: Cluster,
    raw_dir: pathlib.Path,
    job_digests: JobDigests,
    tmp_path: pathlib.Path,
) -> None:
    if shutil.which("faketime") is None:
        pytest.skip("faketime is not installed: apt-get install faketime")
    command = [*_convert(raw_dir, tmp_path / "out"), "--num_tasks=3"]
    tasks = [
        subprocess.Popen(
            host.command(
                *("faketime", "-f", f"{minutes:+}m", sys.executable),
                *(*command, f"--task_index={index}"),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=horovodrun.environment(),
        )
        for index, (host, minutes) in enumerate(
            zip(hosts.hosts, (0, 7, 14), strict=True)
        )
    ]

    for task in tasks:
        _output(task)
    assert digests(tmp_path / "out") == job_digests["X"]


def test_plain_ssh_trains_without_horovodrun(
    hosts: Cluster, data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """SIGTERM ends the first training with the code of rank 0; the second goes on."""
    script = horovodrun.ROOT / "examples/train_ssh.py"
    words = ("host1:1,host2:1", "eth0", f"--data_dir={data_dir}", "--model=tiny")
    words += ("--image_size=32", "--batch_size=2", f"--checkpoint_dir={tmp_path}")
    first = hosts.hosts[0]

    process = _python(first, script, *words, "--num_epochs=10000")
    end = time.monotonic() + END_SECONDS
    while not (tmp_path / "checkpoint").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    process.terminate()
    _, stderr = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 75, stderr
    ended = re.search(r"SIGTERM ended epoch (\d+) after step (\d+)\.", stderr)
    assert ended is not None
    epoch, step = map(int, ended.groups())

    stdout = _output(_python(first, script, *words, f"--num_epochs={epoch + 3}"))
    result = json.loads(stdout.splitlines()[-1])
    names = [host["name"] for host in result["environment"]["hosts"]]
    assert names == ["host1", "host2"]
    assert result["records"]["num_used"] == 3 * 24 - 4 * step


def test_tasks_of_several_hosts_write_to_a_url(
    hosts: Cluster,
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hosts.s3(hosts.hosts[2], tmp_path / "s3") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        url = "s3://photos/tasks"
        tasks = [
            _python(
                host,
                *_convert(raw_dir, url),
                *("--num_tasks=2", f"--task_index={index}", f"--work_dir={tmp_path}"),
            )
            for index, host in enumerate(hosts.hosts[:2])
        ]
        for task in tasks:
            _output(task)
        check = ("-m", "converters.verify", url, "--level=crc", "--json")
        text = _output(_python(hosts.hosts[0], *check))

    assert json.loads(text.splitlines()[-1])["command"] == "converters.verify"
