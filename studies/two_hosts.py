"""How many bytes does a store send to two hosts with caches of half the data?

  python -m studies.two_hosts --save_result=result.json

Question: does a store send a byte once to a job, if a host keeps its part for all
epochs (affinity), or if the hosts share a folder? Two hosts, namespaces of the machine
with links of 1 Gb/s, read --num_epochs epochs from an S3 server on a third host. The
hosts have shard caches of 0.55 of the data. The shared folder is on JuiceFS, with a
client on both hosts. The bytes are counted as they leave the server's link, with
protocols, index and catalog.

A record must come once an epoch. The exit code is 2 if a record does not, or if the
server sends more than 1.15 of the data with affinity or the shared folder. Needs root.
The last line on stdout is a JSON object.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from studies import harness
from tests.support.processes import horovodrun
from tests.support.servers import shared_mount
from tests.support.servers.cluster import Cluster, cluster
from tfpipe import cli

NUM_SHARDS, NUM_EPOCHS, BATCH_SIZE = 24, 3, 10
MOST_SENT = 1.15
_CACHE_SHARE = 0.55
_URL = "s3://photos/records"
_READ = ("-m", "tests.support.processes.epochs_of_hosts")
# Name of a variant -> its affinity, and whether the hosts share a folder.
_VARIANTS = {
    "neither": (None, False),
    "affinity": (NUM_EPOCHS, False),
    "a shared folder": (None, True),
}


@cli.options
class Options(harness.StudyOptions):
    """Options of the study."""

    num_records: int = cli.flag(
        3200, "Images of noise, of 75 kB each.", least=NUM_SHARDS
    )


@contextlib.contextmanager
def data(hosts: Cluster, folder: pathlib.Path, num_records: int) -> Iterator[int]:
    """Converts a data set to the server of the third host; yields its bytes.

    The variables of the server are set within the block.
    """
    random = np.random.default_rng(0)
    for index in range(num_records):
        pixels = random.integers(0, 256, (192, 192, 3), dtype=np.uint8)
        path = folder / "raw" / "train" / str(index % 2) / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=95)
    with hosts.s3(hosts.hosts[2], folder / "s3") as variables:
        before = dict(os.environ)
        os.environ.update(variables)
        try:
            done = _run(
                hosts.hosts[0].command(
                    *(sys.executable, "-m", "converters.folder", folder / "raw", _URL),
                    *(f"--num_train_shards={NUM_SHARDS}", "--num_workers=1", "--json"),
                )
            )
            done.check_returncode()
            yield json.loads(done.stdout.splitlines()[-1])["num_bytes"]
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextlib.contextmanager
def shared_folder(hosts: Cluster, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder of a file system that the first two hosts mount."""
    mount = folder / "mount"
    mount.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        meta = stack.enter_context(shared_mount.volume(folder))
        for host in hosts.hosts[:2]:
            client = shared_mount.client(meta, mount, prefix=host.command())
            stack.enter_context(client)
        yield mount / "cache"


def job(hosts: Cluster, folder: pathlib.Path, most: int, **fields: Any) -> list[Any]:
    """Returns the words that read the epochs; each host has an own cache.

    Args:
        hosts: The hosts.
        folder: An empty folder.
        most: Bytes of each cache.
        fields: `affinity` of the source, the folder `shared`, and other fields of the
            job.
    """
    cache = folder / "cache"
    cache.mkdir()
    for host in hosts.hosts[:2]:
        (folder / host.name).mkdir()
        host.run("mount", "--bind", folder / host.name, cache)
    options = {"batch_size": BATCH_SIZE, "block_length": 10, "window_size": 20}
    source = options | {"seed": 1, "data_dir": _URL}
    source["affinity"] = fields.pop("affinity", None)
    source["shard_cache"] = {"directory": str(cache), "max_bytes": most}
    if (shared := fields.pop("shared", None)) is not None:
        source["shard_cache"]["shared_directory"] = str(shared)
    text = json.dumps(
        {"source": source, "num_epochs": NUM_EPOCHS, "dies": None} | fields
    )
    (folder / "job.json").write_text(text)
    return [*_READ, folder / "job.json", folder]


def read(
    hosts: Cluster, words: list[Any], *, num_hosts: int = 2
) -> subprocess.CompletedProcess[str]:
    """Runs a job with a rank on each host."""
    return _run(hosts.horovodrun(1, *words, num_hosts=num_hosts))


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=horovodrun.environment(),
    )


def comes_once(folder: pathlib.Path, num_records: int) -> bool:
    """Returns whether each record came once in each epoch of a job in a folder."""
    counts: dict[int, collections.Counter[int]] = collections.defaultdict(
        collections.Counter
    )
    for line in (folder / "steps").read_text().splitlines():
        epoch, ids = json.loads(line)
        for of_rank in ids:
            counts[epoch].update(of_rank)
    once = dict.fromkeys(range(num_records), 1)
    return counts == dict.fromkeys(range(NUM_EPOCHS), once)


def _row(
    hosts: Cluster, folder: pathlib.Path, num_bytes: int, variant: str, num_records: int
) -> dict[str, Any]:
    affinity, is_shared = _VARIANTS[variant]
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        shared = None
        if is_shared:
            shared = stack.enter_context(shared_folder(hosts, folder / "juicefs"))
        most = int(_CACHE_SHARE * num_bytes)
        words = job(hosts, folder, most, affinity=affinity, shared=shared)
        before = hosts.sent_bytes(hosts.hosts[2])
        read(hosts, words).check_returncode()
    fetched = [int((folder / f"fetched-{rank}").read_text()) for rank in range(2)]
    return {
        "sent_bytes": hosts.sent_bytes(hosts.hosts[2]) - before,
        "fetched_bytes": fetched,
        "comes_once": comes_once(folder, num_records),
    }


def _study(options: Options) -> harness.Outcome:
    rows: dict[str, dict[str, Any]] = {}
    count = options.num_records
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        work = pathlib.Path(name)
        (work / "hosts").mkdir()
        hosts = stack.enter_context(cluster(work / "hosts", num_hosts=3, link="1gbit"))
        num_bytes = stack.enter_context(data(hosts, work / "data", count))
        for index, variant in enumerate(_VARIANTS):
            rows[variant] = _row(hosts, work / str(index), num_bytes, variant, count)
            print(json.dumps({variant: rows[variant]}), file=sys.stderr, flush=True)
    for row in rows.values():
        row["ratio"] = row["sent_bytes"] / num_bytes
    misses = [
        f"{variant}: the server must send at most {MOST_SENT} of the data and each "
        f"record come once, got {row['ratio']:.2f} and {row['comes_once']}."
        for variant, row in rows.items()
        if not row["comes_once"] or (variant != "neither" and row["ratio"] > MOST_SENT)
    ]
    table = [f"{num_bytes / 1e6:.0f} MB, {NUM_EPOCHS} epochs"]
    table += [
        f"{variant:20}{row['sent_bytes'] / 1e6:8.0f} MB sent{row['ratio']:8.2f}"
        for variant, row in rows.items()
    ]
    config = {"num_records": count, "num_epochs": NUM_EPOCHS, "share": _CACHE_SHARE}
    return harness.Outcome(
        figures={"config": config, "num_bytes": num_bytes, "variants": rows},
        table="\n".join(table),
        misses=misses,
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.two_hosts", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
