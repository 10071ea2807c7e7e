"""Measures one loader, alone in its process, with all processes that it starts.

  python -m studies.loaders.run NAME '{"data_dir": "DIR", ...}'

In: a name of `peers.PEERS` and the fields of `images.Job`. Out: a line of JSON.
`studies.loaders` starts this module for each run.
"""

import contextlib
import json
import sys

import psutil

from studies import interleaved
from studies.loaders import peers
from studies.loaders.images import Job


def measure(name: str, job: Job) -> interleaved.Run:
    """Measures a loader with its worker processes; see `interleaved.measure`."""
    with contextlib.closing(peers.PEERS[name].load(job)) as batches:
        return interleaved.measure(batches, job, tree_cpu_seconds)


def tree_cpu_seconds() -> float:
    """Returns user and system time of this process and of all processes below it.

    Processes that have ended count as well. Linux counts in ticks of 10 ms (proc(5),
    /proc/PID/stat).
    """
    process = psutil.Process()
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        # A process may end before it is read; then its parent has its time.
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
            total += times.children_user + times.children_system
    return total


def main(argv: list[str]) -> None:
    """Measures the loader of the command line and prints its figures."""
    print(json.dumps(measure(argv[1], Job(**json.loads(argv[2])))))


if __name__ == "__main__":
    main(sys.argv)
