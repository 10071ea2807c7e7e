"""Two hosts with a cache of half the data each, and a store behind a link.

With affinity a host fetches its part once. With a shared folder, on JuiceFS with a
client on each host, a host fetches for both. A host that is killed costs no record.
The hosts are namespaces of this machine. TORTURE=1 runs the tests.
"""

import collections
import contextlib
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.faults.torture import IS_LONG
from tests.support.processes import horovodrun
from tests.support.servers import shared_mount
from tests.support.servers.cluster import Cluster, cluster_or_skip

pytestmark = pytest.mark.skipif(not IS_LONG, reason="TORTURE=1 runs them: 2 minutes")

NUM_RECORDS, NUM_SHARDS, NUM_EPOCHS = 480, 24, 3
READ = ("-m", "tests.support.processes.epochs_of_hosts")
URL = "s3://photos/records"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with cluster_or_skip(folder, num_hosts=3, link="1gbit") as made:
        yield made


@pytest.fixture(scope="module")
def num_bytes(
    hosts: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """The size of the shards of a data set at URL, on the third host."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    for index in range(NUM_RECORDS):
        pixels = random.integers(0, 256, (192, 192, 3), dtype=np.uint8)
        path = folder / "raw" / "train" / str(index % 2) / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=95)
    with (
        hosts.s3(hosts.hosts[2], folder / "s3") as variables,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in variables.items():
            patch.setenv(name, value)
        done = subprocess.run(
            hosts.hosts[0].command(
                *(sys.executable, "-m", "converters.folder", folder / "raw", URL),
                *(f"--num_train_shards={NUM_SHARDS}", "--num_workers=1", "--json"),
            ),
            capture_output=True,
            text=True,
            check=True,
            env=horovodrun.environment(),
        )
        yield json.loads(done.stdout.splitlines()[-1])["num_bytes"]


def _job(hosts: Cluster, folder: pathlib.Path, most: int, **fields: Any) -> list[Any]:
    """Returns the words that read the epochs; each host has an own cache."""
    cache = folder / "cache"
    cache.mkdir()
    for host in hosts.hosts[:2]:
        (folder / host.name).mkdir()
        host.run("mount", "--bind", folder / host.name, cache)
    options = {"batch_size": 10, "block_length": 10, "window_size": 20, "seed": 1}
    source = options | {"data_dir": URL, "affinity": fields.pop("affinity")}
    source["shard_cache"] = {"directory": str(cache), "max_bytes": most}
    if (shared := fields.pop("shared", None)) is not None:
        source["shard_cache"]["shared_directory"] = str(shared)
    job = {"source": source, "num_epochs": NUM_EPOCHS, "dies": None} | fields
    (folder / "job.json").write_text(json.dumps(job))
    return [*READ, folder / "job.json", folder]


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=horovodrun.environment(),
    )


def _times_read(folder: pathlib.Path) -> dict[int, collections.Counter[int]]:
    """Returns by epoch how often each record was read."""
    counts: dict[int, collections.Counter[int]] = collections.defaultdict(
        collections.Counter
    )
    for line in (folder / "steps").read_text().splitlines():
        epoch, ids = json.loads(line)
        for of_rank in ids:
            counts[epoch].update(of_rank)
    return counts


def _each_once(folder: pathlib.Path) -> bool:
    once = dict.fromkeys(range(NUM_RECORDS), 1)
    return _times_read(folder) == dict.fromkeys(range(NUM_EPOCHS), once)


# The index, the catalog and the headers of TCP and HTTP are some percent of 36 MB.
@pytest.mark.parametrize(
    ("affinity", "least", "most"), [(NUM_EPOCHS, 1.0, 1.15), (None, 1.5, 3.5)]
)
def test_the_store_sends_each_record_once(
    hosts: Cluster,
    num_bytes: int,
    tmp_path: pathlib.Path,
    affinity: int | None,
    least: float,
    most: float,
) -> None:
    words = _job(hosts, tmp_path, int(num_bytes / 2 * 1.1), affinity=affinity)
    before = hosts.sent_bytes(hosts.hosts[2])

    done = _run(hosts.horovodrun(1, *words, num_hosts=2))

    assert done.returncode == 0, done.stderr
    sent = hosts.sent_bytes(hosts.hosts[2]) - before
    assert least <= sent / num_bytes <= most
    assert _each_once(tmp_path)


@pytest.fixture
def shared(hosts: Cluster, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder of a file system that the first two hosts mount."""
    if not shared_mount.can_mount():
        pytest.skip("no FUSE on this host")
    folder = tmp_path / "juicefs"
    mount = folder / "mount"
    mount.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        meta = stack.enter_context(shared_mount.volume(folder))
        for host in hosts.hosts[:2]:
            client = shared_mount.client(meta, mount, prefix=host.command())
            stack.enter_context(client)
        yield mount / "cache"


def test_a_shared_folder_gets_each_record_once(
    hosts: Cluster, num_bytes: int, tmp_path: pathlib.Path, shared: pathlib.Path
) -> None:
    most = int(num_bytes / 2 * 1.1)
    words = _job(hosts, tmp_path, most, affinity=None, shared=shared)
    before = hosts.sent_bytes(hosts.hosts[2])

    done = _run(hosts.horovodrun(1, *words, num_hosts=2))

    assert done.returncode == 0, done.stderr
    sent = hosts.sent_bytes(hosts.hosts[2]) - before
    assert 1.0 <= sent / num_bytes <= 1.15
    fetched = [int((tmp_path / f"fetched-{r}").read_text()) for r in range(2)]
    assert sum(fetched) == num_bytes
    assert min(fetched) > 0
    assert _each_once(tmp_path)


@pytest.mark.parametrize("by", ["affinity", "a shared folder"])
def test_a_host_that_is_killed_costs_no_record(
    hosts: Cluster,
    num_bytes: int,
    tmp_path: pathlib.Path,
    request: pytest.FixtureRequest,
    by: str,
) -> None:
    """The second host dies in the second epoch, and the first one goes on alone."""
    num_steps = NUM_RECORDS // 20
    fields: dict[str, Any] = {"dies": num_steps + num_steps // 2}
    if by == "affinity":
        fields |= {"affinity": NUM_EPOCHS}
    else:
        fields |= {"affinity": None, "shared": request.getfixturevalue("shared")}
    words = _job(hosts, tmp_path, num_bytes, **fields)

    done = _run(hosts.horovodrun(1, *words, num_hosts=2))
    assert done.returncode != 0
    state = json.loads((tmp_path / "state").read_text())
    # Only an order with affinity depends on the hosts.
    expected = [1, 1] if by == "affinity" else []
    assert (state["epoch"], state["ranks_per_host"]) == (1, expected)

    job = tmp_path / "job.json"
    job.write_text(json.dumps(json.loads(job.read_text()) | {"dies": None}))
    done = _run(hosts.horovodrun(1, *words, num_hosts=1))

    assert done.returncode == 0, done.stderr
    assert _each_once(tmp_path)
