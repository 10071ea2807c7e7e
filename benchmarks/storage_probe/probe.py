"""The measurements of the probe, one after the other, with the figures of the kernel.

In: a `ProbeFiles`. Out: the rate of each measurement, the percentiles of its latency,
the part of the files in the page cache before, and whether the figures of the kernel
fit the state of the measurement:

  direct   reads go around the page cache (O_DIRECT)
  cold     the files were evicted before, and every byte is read once
  warm     the files were read into the page cache before
  remote   ranged reads from a store; nothing on this host keeps their bytes
  durable  files are on the disk (fsync) and have their names before they count

The figures are of the page caches of the reading hosts. A disk, a hypervisor, a server
or the file of a loop device may have caches too, see `system.mounts.Beneath`. Several
hosts do a measurement at the same time.
"""

import dataclasses
import functools
import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.models.accelerators import Accelerators
from benchmarks.page_cache import states
from benchmarks.results.other_results import ReadLatency, StorageReading
from benchmarks.storage_probe import reads
from benchmarks.storage_probe.probe_files import PIECE_BYTES, ProbeFiles
from benchmarks.storage_probe.reads import Job, Piece, Workers
from benchmarks.system.figures import joined
from tfpipe.cli.text_table import Column
from tfpipe.errors import count_of
from tfpipe.pages.frame import amount, milliseconds

Group = list[StorageReading]  # with more and more threads or processes

SHARDS = "shards"  # beside the kinds of a job
DIRECT, COLD, WARM, REMOTE = "direct", "cold", "warm", "remote"
DURABLE = "durable"

LARGE, SMALL = 1 << 20, 4096  # bytes of a read
REMOTE_BYTES = 4 << 20  # as a shard cache fetches
_WARM_BYTES = 256 << 20  # of the files, read into the page cache
_WARM_LIMIT = 0.99  # part of the files in memory before a warm measurement
_FETCHED = 0.9  # part of the bytes that the kernel must have fetched
_NAMES_SECONDS = 1.0  # to open files, or to ask for sizes
_LEAST_GAIN = 1.05  # of the rate, for more threads to be worth a measurement
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}  # of a latency


def way(
    what: str, state: str, *, num_threads: int = 1, num_processes: int = 1
) -> StorageReading:
    """Returns a reading without figures; block_bytes is None if nothing is read."""
    usual = REMOTE_BYTES if state == REMOTE else LARGE
    special = {reads.RANDOM: SMALL, reads.OPEN: None, reads.STAT: None}
    return StorageReading(
        what=what,
        state=state,
        num_threads=num_threads,
        num_processes=num_processes,
        block_bytes=special.get(what, usual),
    )


class FileFacts(NamedTuple):
    """The properties of files that decide the measurements, alike on every host.

    Attributes:
        in_memory: Whether memory is the storage, so that no file can be cold.
        num_pieces: Pieces of the files; more threads would have no shard to read.
    """

    is_remote: bool
    in_memory: bool
    is_direct: bool
    num_pieces: int


def plan(facts: FileFacts, max_parallel: int) -> list[Group]:
    """Returns the readings that fit the files, in order."""
    cold = [] if facts.in_memory else [REMOTE if facts.is_remote else COLD]
    alone = [DIRECT] if facts.is_direct else cold
    warm = [] if facts.is_remote else [WARM]
    counts = _up_to(min(max_parallel, facts.num_pieces))
    both = [
        way(w, s) for w in (reads.SEQUENTIAL, reads.RANDOM) for s in (*alone, *warm)
    ]
    planned = [[reading] for reading in both]
    if max_parallel > 1:
        most = {"num_threads": max_parallel}
        planned += [[way(reads.RANDOM, state, **most)] for state in alone]
    for state in cold or warm:
        planned.append([way(SHARDS, state, num_threads=count) for count in counts])
        more = counts[1:]
        planned.append([way(SHARDS, state, num_processes=count) for count in more])
    if cold and warm:
        planned.append([way(SHARDS, WARM, num_processes=counts[-1])])
    names = (reads.STAT,) if facts.is_remote else (reads.OPEN, reads.STAT)
    return planned + [[way(name, state)] for name in names for state in (*cold, *warm)]


def _up_to(most: int) -> list[int]:
    """Returns 1, 2, 4, 8 and so on, and `most` at the end."""
    return [*(1 << power for power in range((most - 1).bit_length())), most]


def is_proven(
    state: str, *, resident: float | None, num_bytes: int, fetched: int | None
) -> bool | None:
    """Checks whether figures of the kernel fit the state of a measurement.

    The figures are those of the page cache of this host. None means that the kernel
    does not tell enough, as for some file systems in user space: it counts no reads.
    """
    if state == COLD and resident is not None:
        return resident <= states.COLD_LIMIT
    if state == WARM and resident is not None:
        return resident >= _WARM_LIMIT
    if state in (COLD, DIRECT) and fetched:
        return fetched >= _FETCHED * num_bytes
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageProbe:
    """The measurements of this host, in step with those of other hosts.

    Args:
        seconds: Longest time of each measurement. A cold measurement ends when every
            byte is read: a second read would be warm.
        gather: Returns the value of every host, in the order of hosts; a barrier.
    """

    files: ProbeFiles
    workers: Workers
    seconds: float
    max_parallel: int
    begin: Callable[[str], object]
    gather: Callable[[Any], list[Any]] = lambda value: [value]

    def run(self) -> Iterator[StorageReading]:
        """Measures each way to read, and the fastest way again, over all hosts.

        A reading whose state is impossible has the reason as `skipped`, and no figures.
        """
        rows = []
        for group in plan(self.facts(), self.max_parallel):
            for row in self._measure_group(group):
                rows.append(row)
                yield row
        if (fastest_row := best(rows)) is not None:
            what, state, processes, threads = fastest_row.way
            again = way(what, state, num_threads=threads, num_processes=processes)
            yield self._measure(dataclasses.replace(again, is_again=True))
        if self.files.write_folder:  # last, because a disk may work on after the writes
            write = functools.partial(way, reads.WRITE, DURABLE)
            counts = _up_to(self.max_parallel)
            yield from self._measure_group([write(num_threads=n) for n in counts])

    def facts(self) -> FileFacts:
        """Returns what holds on every host."""
        in_memory, is_remote = self.files.beneath.is_memory, self.files.url is not None
        is_apart = not is_remote and not in_memory
        is_direct = is_apart and reads.can_read_direct(self.files.files[0], SMALL)
        everywhere = self.gather((in_memory, is_direct, len(self.files.pieces)))
        memories, directs, counts = zip(*everywhere, strict=True)
        if len({*memories}) > 1:
            raise ValueError(
                "DIR must be on the same storage on all hosts; on some hosts it is "
                "memory. Mount it everywhere."
            )
        return FileFacts(is_remote, in_memory, all(directs), min(counts))

    def _measure_group(self, group: Group) -> Iterator[StorageReading]:
        """Yields the rows of a group until two in a row gain nothing."""
        most, num_idle = 0.0, 0
        for reading in group:
            row = self._measure(reading)
            yield row
            rate = row.megabytes_per_second or 0.0
            num_idle = 0 if rate >= most * _LEAST_GAIN else num_idle + 1
            most = max(most, rate)
            if num_idle == 2:
                return

    def _measure(self, reading: StorageReading) -> StorageReading:
        self.begin(f"{name_of(reading)}, {reading.state}")
        pieces = _pieces(self.files, reading, self.max_parallel)
        names = list(dict.fromkeys(name for name, _, _ in pieces))
        # No host reads before the page caches of all hosts are ready.
        ready = self.gather(_prepare(reading, names, self.workers))
        if problem := next((why for _, why in ready if why), None):
            return dataclasses.replace(reading, skipped=problem)
        most = math.inf if reading.block_bytes else _NAMES_SECONDS
        limit = min(self.seconds, most)
        seed = zlib.crc32(repr((*reading.way, reading.is_again)).encode())
        work = jobs(reading, pieces, self.files.url, limit, seed=seed)
        by_host = self.gather(self.workers.run(work))
        return with_figures(reading, by_host, [part for part, _ in ready])


def _pieces(
    files: ProbeFiles, reading: StorageReading, max_parallel: int
) -> Sequence[Piece]:
    if reading.what == reads.WRITE:
        # Each thread has a file, and the next file beside it for a while.
        most = files.write_bytes // (2 * max_parallel) // LARGE * LARGE
        return [(str(files.write_folder), 0, max(LARGE, min(PIECE_BYTES, most)))]
    if reading.block_bytes is None:
        return [(name, 0, 0) for name in files.names]
    if reading.state != WARM:
        return files.pieces
    return files.pieces[: max(1, _WARM_BYTES // PIECE_BYTES)]


def jobs(
    reading: StorageReading,
    pieces: Sequence[Piece],
    url: str | None,
    seconds: float,
    *,
    seed: int,
) -> list[Job]:
    """Returns the job of each process.

    The processes of a cold measurement share the pieces, so that each byte is read
    once, and need a piece each. The processes of other measurements read all pieces,
    from different pieces on.
    """
    count, repeats = reading.num_processes, reading.state != COLD
    starts = [first % len(pieces) for first in range(count)]
    return [
        Job(
            kind=reads.SEQUENTIAL if reading.what == SHARDS else reading.what,
            pieces=[*pieces[start:], *pieces[:start]]
            if repeats
            else pieces[start::count],
            seconds=seconds,
            block_bytes=reading.block_bytes or 1,
            num_threads=reading.num_threads,
            url=url,
            is_direct=reading.state == DIRECT,
            repeats=repeats,
            seed=seed,
        )
        for start in starts
    ]


def _prepare(
    reading: StorageReading, files: Sequence[str], workers: Workers
) -> tuple[float | None, str | None]:
    """Brings the files into a state; returns their resident part and an obstacle."""
    if reading.state not in (COLD, WARM):
        return None, None
    is_cold = reading.state == COLD
    if reading.block_bytes is None:
        try:
            if is_cold:
                workers.act(states.drop_caches, ())
        except OSError as error:
            return None, f"Only root can make names cold: {error}"
        return None, None
    workers.act(states.evict if is_cold else states.fill, files)
    measured = workers.act(states.measure, files)
    resident, num_bytes = measured["resident_bytes"], measured["num_bytes"]
    return None if resident is None else resident / max(1, num_bytes), None


def with_figures(
    reading: StorageReading,
    by_host: Sequence[Sequence[Mapping[str, Any]]],
    resident: Sequence[float | None],
) -> StorageReading:
    """Joins the outcomes of `reads.timed` in all processes, by host.

    `resident` is the part of the files in the page cache before, by host.
    """
    outcomes = [outcome for host in by_host for outcome in host]
    each = [_seconds(host) for host in by_host]
    seconds = max(each)
    num_bytes = sum(outcome["num_bytes"] for outcome in outcomes)
    nanoseconds = np.concatenate([outcome["nanoseconds"] for outcome in outcomes])
    fetched = joined(sum, [outcome["storage_bytes"] for outcome in outcomes])
    part = joined(min if reading.state == WARM else max, resident)
    has_bytes = reading.block_bytes is not None
    per_host = [
        sum(outcome["num_bytes"] for outcome in host) / of_host / 1e6
        for host, of_host in zip(by_host, each, strict=True)
        if has_bytes and len(by_host) > 1
    ]
    return dataclasses.replace(
        reading,
        num_reads=len(nanoseconds),
        num_bytes=num_bytes,
        seconds=seconds,
        megabytes_per_second=num_bytes / seconds / 1e6 if has_bytes else None,
        reads_per_second=len(nanoseconds) / seconds,
        latency_seconds=latency(nanoseconds),
        storage_bytes=fetched,
        resident_fraction=part,
        is_proven=is_proven(
            reading.state, resident=part, num_bytes=num_bytes, fetched=fetched
        ),
        megabytes_per_second_per_host=tuple(per_host),
    )


def latency(nanoseconds: npt.NDArray[np.int64]) -> ReadLatency:
    """Returns the percentiles; a percentile without a read beyond is None."""
    seconds = {
        name: float(np.quantile(nanoseconds, share, method="inverted_cdf")) / 1e9
        for name, share in PERCENTILES.items()
        if len(nanoseconds) * (1 - share) >= 1 - 1e-9
    }
    return ReadLatency(**seconds)


def _seconds(outcomes: Sequence[Mapping[str, Any]]) -> float:
    begin = min(outcome["start_ns"] for outcome in outcomes)
    end = max(outcome["end_ns"] for outcome in outcomes)
    return float(max(1, end - begin)) / 1e9


_NAMES = {
    "sequential": "1 MB sequential",
    "random": "4 kB random",
    "shards": "whole shards",
    "open": "open a file",
    "stat": "ask for the size of a file",
    "write": "write, fsync, rename",
}
# By state: what the kernel's figures say, which know this page cache alone.
_SEEN = {
    "direct": "around this page cache",
    "cold": "not in this page cache",
    "warm": "in this page cache",
}


def name_of(row: StorageReading) -> str:
    """Returns the name of a reading, such as "whole shards, 4 threads"."""
    readers = count_of(row.num_threads, "thread")
    if row.num_processes > 1:
        readers = f"{row.num_processes} processes"
    again = ", again" if row.is_again else ""
    return f"{_NAMES.get(row.what, row.what)}, {readers}{again}"


def seen(row: StorageReading) -> str:
    """Returns the state of a reading as the kernel saw it.

    "not in this page cache" says nothing of caches in disks, servers and hypervisors.
    """
    if row.state not in _SEEN or row.what in ("open", "stat"):
        return row.state
    if row.is_proven is None:
        return f"{row.state}: the kernel does not tell"
    return f"{row.state}: {'' if row.is_proven else 'NOT '}{_SEEN[row.state]}"


def proof(row: StorageReading) -> str:
    """Returns `seen` with the part in memory before, or why a row is left out."""
    if row.skipped:
        return f"{row.state}: left out. {row.skipped}"
    part = row.resident_fraction
    return seen(row) + (f", {part:.1%} there before" if part is not None else "")


READINGS: Sequence[Column[StorageReading]] = (
    Column("reading", name_of, is_left=True),
    Column("MB/s", lambda row: amount(row.megabytes_per_second)),
    Column("reads/s", lambda row: amount(row.reads_per_second)),
    Column("p50 ms", lambda row: milliseconds(row.latency_seconds.p50)),
    Column("p90 ms", lambda row: milliseconds(row.latency_seconds.p90)),
    Column("p99 ms", lambda row: milliseconds(row.latency_seconds.p99)),
    Column("p99.9 ms", lambda row: milliseconds(row.latency_seconds.p99_9)),
    Column("state", proof, is_left=True),
)


_IN_ORDER = ("shards", "sequential")  # kinds of readings
_IN_SENTENCE = ("h100", "v100")


def best(measured: Iterable[StorageReading]) -> StorageReading | None:
    """Returns the fastest reading in order without help of the page cache.

    Where memory is the storage, any reading counts.
    """
    read = [m for m in measured if m.what in _IN_ORDER and not m.skipped]
    apart = [m for m in read if m.state != "warm"]
    return max(apart or read, key=_rate, default=None)


def fastest_write(measured: Iterable[StorageReading]) -> StorageReading | None:
    """Returns the fastest of the writes; None if nothing was written."""
    return max((m for m in measured if m.what == reads.WRITE), key=_rate, default=None)


def fastest(measured: Iterable[StorageReading], best: StorageReading) -> str:
    """Returns a sentence about the fastest reading, with the rate of its other try."""
    text = f"The fastest: {_rate(best):,.0f} MB/s with "
    text += name_of(dataclasses.replace(best, is_again=False)) + f", {seen(best)}"
    if each := best.megabytes_per_second_per_host:
        text += f"; {len(each)} hosts: {' + '.join(f'{rate:,.0f}' for rate in each)}"
    tries = [_rate(row) for row in measured if row.way == best.way and not row.skipped]
    if len(tries) > 1:
        text += f"; {min(tries):,.0f} in another try"
    return f"{text}."


def _rate(reading: StorageReading) -> float:
    return reading.megabytes_per_second or 0.0


def fed(
    rate: float,
    record_bytes: Sequence[float],
    models: Sequence[str],
    accelerators: Accelerators,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns how many accelerators a rate in bytes a second feeds, for training.

    Returns:
        A row for each model, size and accelerator with a figure for the model; a
        sentence for each model and size, with two of the accelerators.
    """
    rows: list[dict[str, Any]] = []
    sentences = []
    for model, size in itertools.product(models, record_bytes):
        own: dict[str, dict[str, Any]] = {
            name: {
                "model": model,
                "record_bytes": size,
                "accelerator": name,
                "images_per_second": figure.images_per_second,
                "num_accelerators": rate / (figure.images_per_second * size),
                "basis": figure.basis,
                "source": figure.source,
            }
            for name, modes in accelerators.items()
            if (figure := modes["train"].get(model))
        }
        rows += own.values()
        words = [
            f"{_count_text(own[name]['num_accelerators'])} {name.upper()}"
            for name in _IN_SENTENCE
            if name in own
        ]
        if words:
            shown = f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
            sentences.append(
                f"It feeds {' or '.join(words)} that train {model} with records of "
                f"{shown}."
            )
    return rows, sentences


def _count_text(value: float) -> str:
    """Returns a value with two significant digits below 10, and no decimals above."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.95 else f"{value:.2g}"
