"""Load of the hosts by others: cores taken, stolen or waited for while a run is timed.

In: the counters of the ranks and their hosts over the timed window. Out: the section
`host_load` of the result: four shares of the worst host, and a sentence. A rate of a
busy host says little about the pipeline.

The CPU time of a run is the time of the ranks and of their child processes. The
launcher and kernel threads are other processes; interrupts belong to nobody.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.system.figures import joined

# A host with larger shares is busy.
OTHERS_LIMIT = 0.05
STOLEN_LIMIT = 0.01
QUEUE_LIMIT = 0.05

Figures = Mapping[str, Any]


class ThreadTimes:
    """Times of all threads of a process, ended threads included.

    Attributes:
        running_seconds: Time on a core.
        queued_seconds: Time in the run queue, ready and waiting for a core.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}
        self.running_seconds = self.queued_seconds = 0.0

    def update(self, times: Mapping[str, tuple[int, int]]) -> None:
        """Takes a reading of /proc/PID/task/*/schedstat.

        An ended thread counts up to the last reading before its end.

        Args:
            times: Number of a thread -> nanoseconds on a core, and in the run queue.
        """
        for thread, (running, queued) in times.items():
            before = self._last.get(thread, (0, 0))
            if running < before[0]:  # a new thread with the number of an ended one
                before = (0, 0)
            self.running_seconds += (running - before[0]) / 1e9
            self.queued_seconds += (queued - before[1]) / 1e9
        self._last = dict(times)


def summarize(ranks: Sequence[Figures]) -> dict[str, Any]:
    """Joins the counters of all ranks to the load of the hosts.

    Args:
        ranks: For each rank the growth of counters over the timed window, a result of
            `telemetry.summarize_samples`, and the machine as "machine_id".

    docs/reference/results.md explains the shares.
    """
    machines: dict[str, list[Figures]] = {}
    for figures in ranks:
        # Hosts of one machine share its cores.
        machines.setdefault(figures["machine_id"], []).append(figures)
    loads = [_load(group) for group in machines.values()]
    per_host = {name: [load[name] for load in loads] for name in loads[0]}
    worst = {name: joined(max, values) for name, values in per_host.items()}
    lists = {f"{name}_per_host": values for name, values in per_host.items()}
    others, stolen, queued, _ = worst.values()
    return {**worst, **lists, "text": sentence(others, stolen, queued)}


def _load(ranks: Sequence[Figures]) -> dict[str, float | None]:
    first = ranks[0]
    capacity = first.get("host_capacity_seconds")
    of_all, stolen = (
        first.get(f"host_{key}_seconds") for key in ("processes", "stolen")
    )
    own = _sum(ranks, "process_tree_cpu_seconds")
    others = joined(lambda times: max(0.0, times[0] - times[1]), (of_all, own))
    running = _sum(ranks, "process_running_seconds")
    queued = _sum(ranks, "process_run_queue_seconds")
    ready = joined(sum, (running, queued))
    return {
        "others_cpu_fraction": _share(others, capacity),
        "stolen_fraction": _share(stolen, capacity),
        "run_queue_wait_fraction": _share(queued, ready),
        "wanted_cpu_fraction": _share(ready, capacity),
    }


def _sum(ranks: Sequence[Figures], key: str) -> float | None:
    return joined(sum, [figures.get(key) for figures in ranks])


def _share(part: float | None, whole: float | None) -> float | None:
    # The times do not grow in some sandboxes.
    return min(1.0, part / whole) if part is not None and whole else None


def sentence(others: float | None, stolen: float | None, queued: float | None) -> str:
    """Returns the meaning of the four shares of the worst host, in words."""
    text = (
        f"Other processes took {share_text(others)} of the cores, the hypervisor took "
        f"{share_text(stolen)}, and the run's threads waited for a core in "
        f"{share_text(queued)} of their time"
    )
    if (others or 0.0) > OTHERS_LIMIT or (stolen or 0.0) > STOLEN_LIMIT:
        return f"The host was busy: {text}. Repeat the run on a quiet host."
    if None in (others, stolen, queued):
        return f"Whether the host was quiet is unknown: {text}; see telemetry.absent."
    if queued is not None and queued > QUEUE_LIMIT:
        return (
            f"The host was quiet, but the run had too few cores: {text}. Its own "
            "threads wait for each other."
        )
    return f"The host was quiet: {text}."


def share_text(share: float | None) -> str:
    """Returns a share as a percentage, for sentences."""
    return "an unknown part" if share is None else f"{share:.1%}"
