"""Two hosts with a cache of half the data each, and a store behind a link.

With affinity a host fetches its part once. With a shared folder, on JuiceFS with a
client on each host, a host fetches for both. A host that is killed costs no record.
The hosts are namespaces of this machine. TORTURE=1 runs the tests.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from studies import two_hosts
from studies.two_hosts import NUM_EPOCHS
from tests.support.faults.torture import IS_LONG
from tests.support.servers import shared_mount
from tests.support.servers.cluster import Cluster, cluster_or_skip

pytestmark = pytest.mark.skipif(not IS_LONG, reason="TORTURE=1 runs them: 2 minutes")

NUM_RECORDS = 480


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with cluster_or_skip(folder, num_hosts=3, link="1gbit") as made:
        yield made


@pytest.fixture(scope="module")
def num_bytes(
    hosts: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """The size of the shards of a data set at a URL, on the third host."""
    folder = tmp_path_factory.mktemp("data")
    with two_hosts.data(hosts, folder, NUM_RECORDS) as made:
        yield made


# The index, the catalog and the headers of TCP and HTTP are some percent of 36 MB.
@pytest.mark.parametrize(
    ("affinity", "least", "most"),
    [(NUM_EPOCHS, 1.0, two_hosts.MOST_SENT), (None, 1.5, 3.5)],
)
def test_the_store_sends_each_record_once(
    hosts: Cluster,
    num_bytes: int,
    tmp_path: pathlib.Path,
    affinity: int | None,
    least: float,
    most: float,
) -> None:
    words = two_hosts.job(hosts, tmp_path, int(num_bytes / 2 * 1.1), affinity=affinity)
    before = hosts.sent_bytes(hosts.hosts[2])

    done = two_hosts.read(hosts, words)

    assert done.returncode == 0, done.stderr
    sent = hosts.sent_bytes(hosts.hosts[2]) - before
    assert least <= sent / num_bytes <= most
    assert two_hosts.comes_once(tmp_path, NUM_RECORDS)


@pytest.fixture
def shared(hosts: Cluster, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder of a file system that the first two hosts mount."""
    if not shared_mount.can_mount():
        pytest.skip("no FUSE on this host")
    with two_hosts.shared_folder(hosts, tmp_path / "juicefs") as folder:
        yield folder


def test_a_shared_folder_gets_each_record_once(
    hosts: Cluster, num_bytes: int, tmp_path: pathlib.Path, shared: pathlib.Path
) -> None:
    most = int(num_bytes / 2 * 1.1)
    words = two_hosts.job(hosts, tmp_path, most, shared=shared)
    before = hosts.sent_bytes(hosts.hosts[2])

    done = two_hosts.read(hosts, words)

    assert done.returncode == 0, done.stderr
    sent = hosts.sent_bytes(hosts.hosts[2]) - before
    assert 1.0 <= sent / num_bytes <= two_hosts.MOST_SENT
    fetched = [int((tmp_path / f"fetched-{r}").read_text()) for r in range(2)]
    assert sum(fetched) == num_bytes
    assert min(fetched) > 0
    assert two_hosts.comes_once(tmp_path, NUM_RECORDS)


@pytest.mark.parametrize("by", ["affinity", "a shared folder"])
def test_a_host_that_is_killed_costs_no_record(
    hosts: Cluster,
    num_bytes: int,
    tmp_path: pathlib.Path,
    request: pytest.FixtureRequest,
    by: str,
) -> None:
    """The second host dies in the second epoch, and the first one goes on alone."""
    num_steps = NUM_RECORDS // (2 * two_hosts.BATCH_SIZE)
    fields: dict[str, Any] = {"dies": num_steps + num_steps // 2}
    if by == "affinity":
        fields |= {"affinity": NUM_EPOCHS}
    else:
        fields |= {"shared": request.getfixturevalue("shared")}
    words = two_hosts.job(hosts, tmp_path, num_bytes, **fields)

    done = two_hosts.read(hosts, words)
    assert done.returncode != 0
    state = json.loads((tmp_path / "state").read_text())
    # Only an order with affinity depends on the hosts.
    expected = [1, 1] if by == "affinity" else []
    assert (state["epoch"], state["ranks_per_host"]) == (1, expected)

    job = tmp_path / "job.json"
    job.write_text(json.dumps(json.loads(job.read_text()) | {"dies": None}))
    done = two_hosts.read(hosts, words, num_hosts=1)

    assert done.returncode == 0, done.stderr
    assert two_hosts.comes_once(tmp_path, NUM_RECORDS)
