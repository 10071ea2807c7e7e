"""Cold, warm or as it is: the state of the page cache before a run or an epoch.

In: files and the state to start from. Out: for every host, the actions that were done
and the part of the files in its page cache. Evicting files needs no root
(posix_fadvise); root also empties the caches of the whole host. Only the cache of the
client is emptied: data in the memory of a file server stays there.
"""

import dataclasses
import os
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from benchmarks.system import page_cache

STATES = ("as_is", "warm", "cold")

COLD_LIMIT = 0.01  # largest part of the files in memory before a cold run


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostStatus:
    """Actions on one host, and the state of its page cache after them.

    Attributes:
        rank: Rank that did the actions, the first rank of the host.
        host: Name of the host, for errors; results do not hold it.
        actions: Name of an action -> "done", or the reason why it failed.
        seconds: Seconds of all actions together.
        ram_bytes: Memory of the host, in bytes.
        num_bytes: Size of the files.
        resident_bytes: Bytes of the files in the page cache; None if unknown.
        counts_reads: Whether the kernel counts the bytes that a process reads from this
            file system (for FUSE it may not); None if unknown.
        remark: The reason why resident_bytes is unknown, or "".
        error: The reason why the host is not in the requested state, or "".
    """

    rank: int
    host: str
    actions: dict[str, str]
    seconds: float = 0.0
    ram_bytes: int = 0
    num_bytes: int = 0
    resident_bytes: int | None = None
    counts_reads: bool | None = None
    remark: str = ""
    error: str = ""

    @property
    def resident_fraction(self) -> float | None:
        """Part of the files in the page cache, 0 to 1; None if unknown."""
        if self.resident_bytes is None:
            return None
        return self.resident_bytes / max(1, self.num_bytes)

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as a dict that JSON can hold, without the host's name."""
        fields = dataclasses.asdict(self) | {
            "resident_fraction": self.resident_fraction
        }
        return {name: value for name, value in fields.items() if name != "host"}


def prepare(
    state: str,
    files: Sequence[str],
    gather: Callable[[HostStatus | None], list[HostStatus | None]],
    *,
    rank: int = 0,
    local_rank: int = 0,
    host_wide: bool | None = None,
    timeout_seconds: float = 600.0,
) -> tuple[HostStatus, ...]:
    """Brings the files on every host into a state, and measures the page caches.

    Every rank must call this function; the first rank of each host does the work. With
    "as_is" nothing is changed, so the function also measures the state after a run.

    Args:
        state: One of `STATES`.
        files: All files of the data that the ranks of this host read.
        gather: Takes the value of this rank, returns the values of all ranks.
        rank: Number of this process among all ranks.
        local_rank: Number of this process among the ranks of its host.
        host_wide: Whether to empty the caches of whole hosts too; None: only as root.
        timeout_seconds: Limit for each action on a host, in seconds.

    Returns:
        The status of each host, in the order of ranks.

    Raises:
        ValueError: On every rank, if a host cannot be brought into the state.
    """
    if state not in STATES:
        raise ValueError(f"state must be one of {', '.join(STATES)}, got {state!r}.")
    status = None
    if local_rank == 0:
        drop = os.geteuid() == 0 if host_wide is None else host_wide
        actions = {"as_is": [], "warm": ["fill"], "cold": ["evict"]}[state]
        if state == "cold" and drop:
            actions.append("drop_caches")
        status = _prepare_host(actions, files, rank, timeout_seconds)
    hosts = tuple(host for host in gather(status) if host is not None)
    for host in hosts:
        if state != "as_is" and (why := _why_not(state, host)):
            raise ValueError(
                f"--cache={state}: host {host.host} (rank {host.rank}) is not in that "
                f"state: {why}"
            )
    return hosts


def _why_not(state: str, host: HostStatus) -> str:
    """Returns the reason why a host is not in a state before the run, or ""."""
    share = host.resident_fraction
    if state == "cold" and not host.error and share is not None and share > COLD_LIMIT:
        return (
            f"{share:.1%} of the files are still in memory. Another process reads them "
            "or has them mapped: end it."
        )
    return host.error


def _prepare_host(
    actions: Sequence[str], files: Sequence[str], rank: int, timeout_seconds: float
) -> HostStatus:
    """Does each action, then measures. Errors are returned: the other ranks wait."""
    start = time.perf_counter()
    figures: dict[str, Any] = {}
    done = {}
    error = ""
    for action in (*actions, "measure"):
        result = page_cache.run(action, files, timeout_seconds=timeout_seconds)
        error = result.pop("error", "")
        done[action] = error or "done"
        figures |= result
        # Evicting the files is enough, and emptying the host's caches may be forbidden.
        if error and action != "drop_caches":
            break
    return HostStatus(
        rank=rank,
        host=platform.node(),
        actions=done,
        seconds=time.perf_counter() - start,
        ram_bytes=psutil.virtual_memory().total,
        error=error,
        **figures,
    )
