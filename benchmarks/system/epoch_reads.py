"""Bytes of the data's files that storage gave in an epoch, on one host.

In: counters of the kernel at both ends of an epoch. Out: bytes from storage. Two
figures bound these bytes from above:

- read_bytes of /proc/self/io, which the kernel counts for each rank. The process's
  libraries are in it, as they are read from storage when first used.
- The growth of the files' part in the page cache (mincore), and the bytes that the
  kernel reclaimed meanwhile: a byte that storage gave is in memory, or left it again.

The smaller of the two is taken. While the files fit in memory the second is exact, and
holds no library. If they do not fit, libraries are small beside them, and the first
takes over.
"""

import dataclasses
import mmap
import pathlib
from collections.abc import Sequence

from benchmarks.system import page_cache, probes

_VMSTAT = pathlib.Path("/proc/vmstat")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Counters of a rank and its host at one moment; None if unknown.

    Attributes:
        read_bytes: Bytes that storage delivered to the process so far.
        resident_bytes: Bytes of the files in the host's page cache. Only the first rank
            of a host knows them.
        reclaimed_bytes: Bytes of any files that the kernel took out of the page cache
            so far because memory was needed.
        server_bytes: Bytes that a shard cache fetched for the rank so far; None without
            a shard cache.
    """

    read_bytes: int | None = None
    resident_bytes: int | None = None
    reclaimed_bytes: int | None = None
    server_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochReads:
    """Reads of one rank in the timed part of an epoch.

    Attributes:
        epoch: Number of the epoch.
        host: Name of the rank's host.
        consumed_bytes: Size of the records that the rank's timed steps used.
        before: Counters at its begin.
        after: Counters at its end.
    """

    epoch: int
    host: str
    consumed_bytes: float
    before: Snapshot
    after: Snapshot


def snapshot(files: Sequence[str], *, server_bytes: int | None = None) -> Snapshot:
    """Reads the counters now; looking at the files takes about 0.1 s a gigabyte.

    Args:
        files: The files to look at in the page cache; empty on all ranks of a host but
            the first.
        server_bytes: Becomes a field of the snapshot.
    """
    counted = probes.process_storage_bytes()
    try:
        resident = page_cache.measure(files)["resident_bytes"] if files else None
        reclaimed = parse_reclaimed(_VMSTAT.read_text(encoding="ascii"))
    except (OSError, ValueError):
        resident = reclaimed = None
    return Snapshot(
        read_bytes=counted,
        resident_bytes=resident,
        reclaimed_bytes=reclaimed,
        server_bytes=server_bytes,
    )


def parse_reclaimed(text: str) -> int:
    """Returns the bytes of files that the kernel reclaimed since the host started.

    Args:
        text: Contents of /proc/vmstat. Kernels before 5.8 have no count of files alone:
            anonymous memory is then in the figure too.

    Raises:
        ValueError: If the text has none of the counters.
    """
    counters = dict(line.split() for line in text.splitlines())
    names = ("pgsteal_kswapd", "pgsteal_direct")
    if "pgsteal_file" in counters:
        names = ("pgsteal_file",)
    elif not set(names) <= set(counters):
        raise ValueError("/proc/vmstat has no pgsteal_file")
    return sum(int(counters[name]) for name in names) * mmap.PAGESIZE


def storage_bytes(ranks: Sequence[EpochReads], *, counts_reads: bool) -> int | None:
    """Returns the bytes of the files that storage gave to a host in an epoch.

    Args:
        ranks: The reads of all ranks of the host in that epoch.
        counts_reads: Whether the kernel counts what this file system delivers.

    Returns:
        Bytes; None if neither figure is known. Where the kernel does not count, and
        memory was short meanwhile, the growth of the files proves nothing either; nor
        does it if a shard cache fetched bytes, as these are in memory when they are
        written.
    """
    if server_bytes(ranks):
        return _grown_by(ranks, "read_bytes") if counts_reads else None
    grown = [_grown(rank.before, rank.after) for rank in ranks]
    residency = next((growth for growth in grown if growth is not None), None)
    read = _grown_by(ranks, "read_bytes") if counts_reads else None
    if residency is None:
        return read
    growth, reclaimed = residency
    if read is not None:
        return min(read, growth + reclaimed)
    return None if reclaimed else growth


def server_bytes(ranks: Sequence[EpochReads]) -> int | None:
    """Returns the bytes that a shard cache fetched for a host in an epoch.

    Args:
        ranks: The reads of all ranks of the host in that epoch.

    Returns:
        Bytes; None without a shard cache.
    """
    return _grown_by(ranks, "server_bytes")


def resident_at_begin(ranks: Sequence[EpochReads]) -> int | None:
    """Returns the bytes of the files in a host's memory at the begin; None if unknown.

    Args:
        ranks: The reads of all ranks of the host in an epoch.
    """
    measured = (rank.before.resident_bytes for rank in ranks)
    return next((resident for resident in measured if resident is not None), None)


def _grown(before: Snapshot, after: Snapshot) -> tuple[int, int] | None:
    """Returns the bytes by which the files grew in memory, and the reclaimed bytes.

    None also if the files shrank more than the kernel reclaimed: somebody evicted them,
    and nobody knows how much of them was read before.
    """
    values = (
        *(before.resident_bytes, after.resident_bytes),
        *(before.reclaimed_bytes, after.reclaimed_bytes),
    )
    if any(value is None for value in values):
        return None
    growth = after.resident_bytes - before.resident_bytes
    reclaimed = after.reclaimed_bytes - before.reclaimed_bytes
    return None if growth + reclaimed < 0 else (growth, reclaimed)


def _grown_by(ranks: Sequence[EpochReads], name: str) -> int | None:
    """Returns the growth of a counter over all ranks; None if a rank does not know."""
    total = 0
    for rank in ranks:
        before, after = getattr(rank.before, name), getattr(rank.after, name)
        if before is None or after is None:
            return None
        total += after - before
    return total
