"""One loader, alone in its process, measured with everything that it starts.

  python -m benchmarks.studies.loaders.run NAME '{"data_dir": "DIR", ...}'

In: a name of `peer_loaders.PEERS` and the fields of `peer_images.Job`. Out: a line of
JSON. `benchmarks.studies.loaders` runs all of them in turns.
"""

import contextlib
import json
import os
import pathlib
import sys
import time

from benchmarks.studies.loaders import peers
from benchmarks.studies.loaders.images import Job


def measure(name: str, job: Job) -> dict[str, float]:
    """Seconds and CPU-seconds of the timed images, those of worker processes too."""
    warmup, timed = (
        -(-count // job.batch_size)
        for count in (job.num_warmup_images, job.num_timed_images)
    )
    with contextlib.closing(peers.PEERS[name].load(job)) as batches:
        for _ in range(warmup):
            next(batches)
        seconds, cpu_seconds = time.perf_counter(), tree_cpu_seconds()
        for _ in range(timed):
            next(batches)
        return {
            "cpu_seconds": tree_cpu_seconds() - cpu_seconds,
            "seconds": time.perf_counter() - seconds,
            "num_images": timed * job.batch_size,
        }


def tree_cpu_seconds() -> float:
    """User and system time of this process and all below it, ended ones included.

    Linux counts it in ticks of 10 ms (proc(5), /proc/PID/stat).
    """
    parents, ticks = {}, {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        # A process may end while the folder is read.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # After the name, which may hold spaces: state, parent and so on.
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {os.getpid()}
    while below := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= below
    return sum(ticks[pid] for pid in tree) / os.sysconf("SC_CLK_TCK")


def main(argv: list[str]) -> None:
    """Measures one loader."""
    print(json.dumps(measure(argv[1], Job(**json.loads(argv[2])))))


if __name__ == "__main__":
    main(sys.argv)
