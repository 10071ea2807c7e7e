"""Which part of the data is in memory before a run, and whether the run fits that.

In: files, and the state to start from: cold, warm, or as it is. Out: of every host,
what was done and what is in its page cache then; after a run, whether what storage gave
fits the state. Emptying needs no root (posix_fadvise); root empties the caches of the
whole host too. It is the client's cache alone: what a file server holds in its memory
stays there.
"""

import dataclasses
import os
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.reporting.gates import Verdict
from benchmarks.system import page_cache

STATES = ("as_is", "warm", "cold")

COLD_LIMIT = 0.01  # of the files may be in memory before a cold run
COLD_STORAGE_MIN = 0.95  # of the bytes that a cold run needs come from storage
WARM_STORAGE_MAX = 0.05  # of the bytes that a warm run needs come from storage


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostStatus:
    """What one host did, and what it holds then.

    Attributes:
        rank: Which rank did it, the first of its host.
        host: Its name, for errors; not in results.
        actions: What was done, by name: "done", or why not.
        seconds: What all of it took.
        num_bytes: Size of the files.
        resident_bytes: How much of them is in the page cache; None if unknown.
        counts_reads: Whether the kernel counts what a process reads from this file
            system (FUSE may not); None if unknown.
        remark: Why resident_bytes is unknown.
        error: Why the host is not in the state that was asked for.
    """

    rank: int
    host: str
    actions: dict[str, str]
    seconds: float = 0.0
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
        """The fields as a dict that JSON can hold, without the host's name."""
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
    """Brings the files on every host into a state, and says what is in memory then.

    Every rank calls it; the first rank of each host does the work. With as_is nothing
    is changed, so that it also tells of the state after a run.

    Args:
        state: One of `STATES`.
        files: All files of the data that the ranks of this host read.
        gather: One value of each rank -> those of all ranks, on every rank.
        rank: This process.
        local_rank: The same on its host.
        host_wide: Whether to empty the caches of whole hosts too; None: if root.
        timeout_seconds: How long an action may take on a host.

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
    hosts = tuple(one for one in gather(status) if one is not None)
    for one in hosts:
        if state != "as_is" and (why := _why_not(state, one)):
            raise ValueError(
                f"--cache={state}: host {one.host} (rank {one.rank}) is not in that "
                f"state: {why}"
            )
    return hosts


def _why_not(state: str, host: HostStatus) -> str:
    """Why a host is not in a state, as far as it is known before the run."""
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
    """Does each action, then measures; never raises, as the other ranks wait."""
    start = time.perf_counter()
    found: dict[str, Any] = {}
    done = {}
    error = ""
    for action in (*actions, "measure"):
        result = page_cache.run(action, files, timeout_seconds=timeout_seconds)
        error = result.pop("error", "")
        done[action] = error or "done"
        found |= result
        # Evicting the files is enough; emptying the host's caches may be forbidden.
        if error and action != "drop_caches":
            break
    return HostStatus(
        rank=rank,
        host=platform.node(),
        actions=done,
        seconds=time.perf_counter() - start,
        error=error,
        **found,
    )


def verdict(
    state: str,
    before: Sequence[HostStatus],
    *,
    needed_bytes: float,
    storage_bytes: int | None,
) -> Verdict:
    """Whether a run was in the state that it claims; the text says by which figures.

    Cold is 1 % of the files in memory before, at most, on every host, and 95 % of the
    needed bytes from storage, at least; warm is 5 % of them from storage, at most. One
    of the two may be unknown, but not both, and neither may contradict.

    Args:
        state: One of `STATES`.
        before: What `prepare` returned.
        needed_bytes: Sizes of the records that the run used, each counted once: read a
            second time, a record comes from memory.
        storage_bytes: What storage gave the processes of the run, warm-up included;
            None if unknown.
    """
    shares = [host.resident_fraction for host in before]
    known = [share for share in shares if share is not None]
    resident = max(known) if known and len(known) == len(shares) else None
    # 0 bytes mean nothing on a file system whose reads the kernel does not count.
    counted = all(host.counts_reads is not False for host in before)
    from_storage = None
    if storage_bytes is not None and needed_bytes > 0 and counted:
        from_storage = storage_bytes / needed_bytes
    text = (
        f"{_percent(resident)} of the files were in memory before, storage gave "
        f"{_percent(from_storage)} of the {needed_bytes / 1e6:.1f} MB needed"
    )
    if state == "as_is":
        return Verdict(True, f"as it was: {text}.")
    if state == "cold":
        wrong = (max(known, default=0.0) > COLD_LIMIT) or (
            from_storage is not None and from_storage < COLD_STORAGE_MIN
        )
        unproven = resident is None and from_storage is None
    else:
        wrong = from_storage is not None and from_storage > WARM_STORAGE_MAX
        unproven = from_storage is None and (resident or 0.0) < 1 - WARM_STORAGE_MAX
    if wrong:
        return Verdict(False, f"not {state}: {text}.")
    if unproven:
        remark = next((host.remark for host in before if host.remark), "")
        return Verdict(False, f"not proven to be {state}: {text}. {remark}".strip())
    return Verdict(True, f"{state}: {text}.")


def _percent(share: float | None) -> str:
    return "an unknown part" if share is None else f"{share:.1%}"
