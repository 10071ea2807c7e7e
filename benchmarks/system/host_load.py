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
    def add(key: str, figures: Sequence[Figures] = ranks) -> float | None:
        return joined(sum, [each.get(key) for each in figures])

    capacity, of_all, stolen = (
        add(f"host_{key}_seconds", ranks[:1])
        for key in ("capacity", "processes", "stolen")
    )
    own, queued = add("process_tree_cpu_seconds"), add("process_run_queue_seconds")
    others = joined(lambda times: max(0.0, times[0] - times[1]), (of_all, own))
    ready = joined(sum, (add("process_running_seconds"), queued))
    return {
        "others_cpu_fraction": _share(others, capacity),
        "stolen_fraction": _share(stolen, capacity),
        "run_queue_wait_fraction": _share(queued, ready),
        "wanted_cpu_fraction": _share(ready, capacity),
    }


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
