"""Bytes of the data's files that storage gave: measured around a run, by epoch.

In: the files, the batches of a rank, and counters of the kernel at both ends of an
epoch. Out: the reads of every rank by epoch; bytes from storage for a page cache: the
smaller of two upper bounds, see docs/reference/results.md. The growth of the files'
part in the page cache is exact while the files fit in memory; otherwise read_bytes of
/proc/self/io takes over, beside which libraries are small. A bound from below checks
both: the page cache gives no more than it held at the begin and got meanwhile.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import math
import mmap
import pathlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import tfpipe
from benchmarks.page_cache import states
from benchmarks.page_cache.states import CacheStatus, OpenFiles, PageCache
from benchmarks.system import probes
from benchmarks.system.figures import joined
from benchmarks.system.machine import Host

if TYPE_CHECKING:  # imports TensorFlow
    from benchmarks.distributed.ranks import Ranks

Pause = Callable[[], AbstractContextManager[None]]

_VMSTAT = pathlib.Path("/proc/vmstat")
Moment = concurrent.futures.Future["Snapshot"]
_EXPLAINED = 0.9  # part of the consumed bytes whose origin the counters must tell


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Counters of a rank and its host at one moment; None if unknown.

    Attributes:
        read_bytes: Bytes that storage delivered to the process so far.
        resident_bytes: Bytes of the files in the page cache. Only the first rank of a
            page cache knows them.
        reclaimed_bytes: Bytes of any files that the kernel took out of the page cache
            so far because memory was needed.
        server_bytes: Bytes that a shard cache fetched for the rank so far; None without
            a shard cache.
        num_requests: Reads of the store by the rank's shard cache so far, likewise.
        network_bytes: Bytes that all interfaces and RDMA ports of the host received so
            far, loopback included.
    """

    read_bytes: int | None = None
    resident_bytes: int | None = None
    reclaimed_bytes: int | None = None
    server_bytes: int | None = None
    num_requests: int | None = None
    network_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochReads:
    """Reads of one rank in the timed part of an epoch."""

    epoch: int
    cache: PageCache
    host: Host
    consumed_bytes: float
    before: Snapshot
    after: Snapshot

    def grown(self, name: str) -> int | None:
        """Returns the growth of a counter; None if the rank does not know it."""
        both = [getattr(self.before, name), getattr(self.after, name)]
        return joined(lambda pair: pair[1] - pair[0], both)


def snapshot(files: OpenFiles | None, *, fetched: Any = None) -> Snapshot:
    """Reads the counters now; looking at the files takes about 0.1 s a gigabyte.

    Args:
        files: The files to look at in the page cache; None on all ranks of a page cache
            but the first.
        fetched: The statistics of the rank's shard cache; None without a shard cache.
    """
    resident = reclaimed = received = None
    with contextlib.suppress(OSError, ValueError):
        reclaimed = parse_reclaimed(_VMSTAT.read_text(encoding="ascii"))
        resident = None if files is None else files.resident_bytes()
    with contextlib.suppress(*probes.UNREADABLE):
        received = probes.received_bytes()
    return Snapshot(
        read_bytes=probes.process_storage_bytes(),
        resident_bytes=resident,
        reclaimed_bytes=reclaimed,
        server_bytes=getattr(fetched, "bytes_fetched", None),
        num_requests=getattr(fetched, "num_requests", None),
        network_bytes=received,
    )


def parse_reclaimed(text: str) -> int:
    """Returns the bytes of files that the kernel reclaimed, from /proc/vmstat.

    Kernels before 5.8 have no count of files alone: anonymous memory is then in the
    figure too.
    """
    counters = dict(line.split() for line in text.splitlines())
    for names in (["pgsteal_file"], ["pgsteal_kswapd", "pgsteal_direct"]):
        if {*names} <= {*counters}:
            return sum(int(counters[name]) for name in names) * mmap.PAGESIZE
    raise ValueError("/proc/vmstat has no pgsteal_file")


class Meter:
    """Measures the bytes from storage in timed epochs; keeps a cold run cold.

    A cold run empties the page cache of the data when the timing begins and after every
    epoch. The pipeline ends before and starts again after, because records read ahead
    would come from memory otherwise. All ranks call every method together.

    Args:
        fetched: Returns the statistics of the rank's shard cache; None without one.
        batches: `training.caches.Batches` of the rank in a cold run, which stops
            and starts the batches; otherwise None.
        state: Begin of the timed steps if there is no warm-up; the page cache is then
            in the state after `states.prepare`.
    """

    def __init__(
        self,
        files: Sequence[str],
        ranks: Ranks,
        *,
        fetched: Callable[[], Any],
        record_bytes: float,
        batches: Any = None,
        state: tfpipe.State | None = None,
    ) -> None:
        self._files, self._ranks, self._batches = files, ranks, batches
        self._record_bytes, self._fetched = record_bytes, fetched
        self._cache = PageCache.of_files(files)
        self._looks = states.led_by(ranks, files) is not None and bool(files)
        self._held: OpenFiles | None = None
        # A thread looks at the files, because no step may wait for it.
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._epochs: list[tuple[int, Moment, Moment]] = []
        self._begin: tuple[int, Moment] | None = None
        if state is not None:
            self._begin = (state.epoch, self._look())

    def start(self, state: tfpipe.State) -> None:
        self._stop()
        self._restart(state)

    def end_epoch(self, state: tfpipe.State, pause: Pause, *, is_last: bool) -> None:
        """Ends an epoch and begins the next epoch at a state.

        In warm-up and after the last step there is nothing to do. Only a cold run
        pauses, because its input reads nothing meanwhile.
        """
        if self._begin is None or is_last:
            return
        if self._batches is None:
            now = self._end(self._begin)
            self._begin = (state.epoch, now)
            return
        with pause():
            self._stop()
            self._end(self._begin).result()  # before the files leave
            self._restart(state)

    def end(self) -> None:
        """Ends the timed steps: bytes that storage gives later do not count."""
        if self._begin is not None:
            self._end(self._begin)
            self._begin = None

    def finish(self, num_examples: Callable[[int], int]) -> list[list[EpochReads]]:
        """Returns the reads of every rank by epoch, from its timed examples of each."""
        self.end()
        self._thread.shutdown()
        here = Host.here()
        epochs = [
            EpochReads(
                epoch=epoch,
                cache=self._cache,
                host=here,
                consumed_bytes=num_examples(epoch) * self._record_bytes,
                before=before.result(),
                after=after.result(),
            )
            for epoch, before, after in self._epochs
        ]
        return self._ranks.gather(epochs)

    def _look(self) -> Moment:
        return self._thread.submit(self._snapshot, self._fetched())

    def _end(self, begin: tuple[int, Moment]) -> Moment:
        self._epochs.append((*begin, self._look()))
        return self._epochs[-1][-1]

    def _snapshot(self, fetched: Any) -> Snapshot:
        if self._looks and self._held is None:
            # The files of a shard cache may come with the records.
            with contextlib.suppress(OSError):
                self._held = OpenFiles(self._files)
        return snapshot(self._held, fetched=fetched)

    def _stop(self) -> None:
        if self._batches is not None:
            self._batches.stop()
            self._ranks.gather(None)  # until no rank reads any more

    def _restart(self, state: tfpipe.State) -> None:
        """Begins an epoch; a cold epoch waits for the counters of all ranks."""
        if self._batches is not None:
            states.prepare("cold", self._files, self._ranks, drops_all=False)
            self._batches.start(state, 1)
        self._begin = (state.epoch, self._look())
        self._begin[1].result()
        self._ranks.gather(None)


class Origin(NamedTuple):
    """Bytes of an epoch that storage gave, and bytes in the page cache at its begin."""

    storage_bytes: int | None
    resident_bytes: int | None


def origin(ranks: Sequence[EpochReads], status: CacheStatus | None) -> Origin:
    """Returns where the bytes came from that ranks read through a page cache.

    Storage gives nothing if memory is the storage. Where the kernel does not count, and
    memory was short meanwhile, the growth of the files proves nothing; nor does it if a
    shard cache fetched bytes, as these are in memory when they are written.
    """
    held = [rank.before.resident_bytes for rank in ranks]
    resident = next((each for each in held if each is not None), None)
    if status is not None and status.is_memory:
        return Origin(0, resident)
    counts = status is not None and status.counts_reads is True
    stored = total(ranks, "read_bytes") if counts else None
    moved = [(r.grown("resident_bytes"), r.grown("reclaimed_bytes")) for r in ranks]
    growth, reclaimed = next((both for both in moved if None not in both), (None, None))
    if resident is None or growth is None or reclaimed is None:
        return Origin(stored, resident)
    if total(ranks, "server_bytes"):
        return Origin(stored, resident)
    came = growth + reclaimed  # into memory, by any process
    most = resident + max(came, stored or 0)
    # If more left than was reclaimed, somebody evicted the files, and nobody knows how
    # much of them was read before.
    keeps = status is None or status.keeps_pages is not False
    if keeps and came >= 0:
        if stored is not None:
            stored = min(stored, came)
        elif not reclaimed:
            stored = growth
    consumed = sum(rank.consumed_bytes for rank in ranks)
    if stored is None and not keeps:  # only what was in memory at the begin counts
        least = math.ceil(consumed - resident)
        return Origin(least if least >= _EXPLAINED * consumed else None, None)
    if stored is not None and most < _EXPLAINED * consumed:
        return Origin(None, None)
    return Origin(stored, resident if keeps else None)


def total(ranks: Sequence[EpochReads], name: str) -> int | None:
    """Returns the growth of a counter over ranks; None if a rank does not know."""
    return joined(sum, [rank.grown(name) for rank in ranks])
