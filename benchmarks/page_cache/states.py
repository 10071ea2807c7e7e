"""Cold, warm or as it is: the state of the page cache before a run or an epoch.

In: files and the state to start from. Out: for every page cache, the actions done, the
resident part of the files, and the knowledge that its file system allows.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.page_cache import files as page_cache
from benchmarks.system import child_process, mounts
from benchmarks.system.machine import Machine

if TYPE_CHECKING:  # imports TensorFlow, and commands read STATES first
    from benchmarks.distributed.ranks import Ranks

COLD_LIMIT = 0.01  # largest part of the files in memory before a cold run
_ACTION_SECONDS = 600.0
Action = Callable[[Sequence[str]], dict[str, Any]]
_ACTIONS: Mapping[str, Sequence[Action]] = {
    "as_is": (),
    "warm": (page_cache.fill,),
    "cold": (page_cache.evict,),
}
STATES = tuple(_ACTIONS)


@dataclasses.dataclass(frozen=True)
class PageCache:
    """The page cache of a machine for the files of one mount.

    Attributes:
        device: Number of the device of the files, or of their mount.
    """

    machine: Machine
    device: int = 0

    @classmethod
    def of_files(cls, files: Sequence[str]) -> PageCache:
        """Returns the page cache of this process for files; the first file decides."""
        try:
            device = os.stat(files[0]).st_dev if files else 0
        except OSError:  # the error is found again, where all ranks learn of it
            device = 0
        return cls(Machine.here(), device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheStatus:
    """Actions on the files of a page cache, and its state after them.

    Attributes:
        rank: Rank of the actions, the first rank to read through the cache.
        actions: Name of an action -> "done", or the reason why the action failed.
        counts_reads: Whether the kernel counts the bytes of a read from the file
            system (not from every FUSE mount); None if unknown.
        keeps_pages: Whether pages stay in the page cache when the file is opened anew
            (not on every FUSE mount); None if unknown.
        beneath, is_memory: The storage beneath the page cache, see `mounts.Beneath`.
        remark: The reason why resident_bytes is unknown, or "".
        error: The reason why the files are not in the requested state, or "".
    """

    rank: int
    cache: PageCache
    actions: dict[str, str]
    seconds: float = 0.0
    ram_bytes: int = 0
    num_bytes: int = 0
    resident_bytes: int | None = None
    counts_reads: bool | None = None
    keeps_pages: bool | None = None
    beneath: str = ""
    is_memory: bool = False
    remark: str = ""
    error: str = ""

    @property
    def resident_fraction(self) -> float | None:
        """Part of the files in the page cache, 0 to 1; None if unknown."""
        if self.resident_bytes is None:
            return None
        return self.resident_bytes / max(1, self.num_bytes)

    @property
    def caveat(self) -> str:
        """A sentence on memory beneath the page cache, or ""."""
        return mounts.Beneath(self.is_memory, self.beneath).caveat

    def as_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        del fields["cache"]
        return fields | {"resident_fraction": self.resident_fraction}


def prepare(
    state: str,
    files: Sequence[str],
    ranks: Ranks,
    *,
    drops_all: bool | None = None,
) -> tuple[CacheStatus, ...]:
    """Brings the files of every page cache into a state, and measures them.

    Every rank must call this function; the first rank of each page cache does the work.
    With "as_is" nothing changes, so the function also measures the state after a run.

    Args:
        drops_all: Whether to empty the caches of whole machines too; None: only as
            root.

    Returns:
        The status of each page cache, in the order of ranks.

    Raises:
        ValueError: On every rank, if a page cache cannot be brought into the state.
    """
    if state not in STATES:
        raise ValueError(f"state must be one of {', '.join(STATES)}, got {state!r}.")
    status = None
    if (cache := led_by(ranks, files)) is not None:
        drop = os.geteuid() == 0 if drops_all is None else drops_all
        todo = [*_ACTIONS[state]]
        if state == "cold" and drop:
            todo.append(page_cache.drop_caches)
        status = _act(todo, files, ranks.rank, cache)
    statuses = tuple(s for s in ranks.gather(status) if s is not None)
    for status in statuses:
        if why := _why_not(state, status):
            raise ValueError(
                f"--cache={state}: host {status.cache.machine} (rank {status.rank}) is "
                f"not in that state: {why}"
            )
    return statuses


def led_by(ranks: Ranks, files: Sequence[str]) -> PageCache | None:
    """Returns the page cache of this rank; None if another rank looks after it.

    All ranks call it together. Names of hosts decide nothing.
    """
    mine = PageCache.of_files(files)
    everyone = ranks.gather(mine)
    return mine if everyone.index(mine) == ranks.rank else None


def _why_not(state: str, status: CacheStatus) -> str:
    if state == "as_is":
        return ""
    share = status.resident_fraction
    if status.error or share is None:
        return status.error
    if state == "cold" and share > COLD_LIMIT:
        return (
            f"{share:.1%} of the files are still in memory. Another process reads them "
            "or has them mapped: end it."
        )
    if state == "warm" and share <= COLD_LIMIT and status.num_bytes:
        return (
            f"all files were read, and {share:.1%} of them are in memory. This file "
            "system drops the pages of a file that is opened (a FUSE mount without "
            "kernel_cache), or memory is too small. Use --ram_cache=records."
        )
    return ""


def _act(
    todo: Sequence[Action], files: Sequence[str], rank: int, cache: PageCache
) -> CacheStatus:
    """Does each action, then measures. Errors are returned: the other ranks wait.

    A child process acts: a dead file server is an error, and no hang.
    """
    start = time.perf_counter()
    paths = [os.path.abspath(path) for path in files]
    figures: dict[str, Any] = {}
    done = {}
    for action in (*todo, page_cache.measure):
        try:
            figures |= child_process.call(action, paths, seconds=_ACTION_SECONDS)
        except OSError as error:
            done[action.__name__] = str(error)
            # Evicting the files is enough, and emptying all caches may be forbidden.
            if action is not page_cache.drop_caches:
                figures["error"] = str(error)
                break
        else:
            done[action.__name__] = "done"
    return CacheStatus(
        rank=rank,
        cache=cache,
        actions=done,
        seconds=time.perf_counter() - start,
        ram_bytes=psutil.virtual_memory().total,
        **figures,
    )
