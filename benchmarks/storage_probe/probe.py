"""The measurements of the probe, one after the other, each with its proof.

In: a `ProbeFiles`. Out: the rate of each measurement, the percentiles of its latency,
the part of the files that was in the page cache before, and whether the figures of the
kernel prove the state of the measurement:

  direct  reads go around the page cache (O_DIRECT)
  cold    the files were evicted before, and every byte is read once
  warm    the files were read into the page cache before
  remote  ranged reads from a store; nothing on this host keeps their bytes
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.page_cache import states
from benchmarks.storage_probe import latencies, reads, summary
from benchmarks.storage_probe.probe_files import PIECE_BYTES, ProbeFiles
from benchmarks.storage_probe.reads import Job, Piece
from benchmarks.storage_probe.workers import Workers

SHARDS = "shards"  # beside the kinds of a job
DIRECT, COLD, WARM, REMOTE = "direct", "cold", "warm", "remote"

LARGE, SMALL = 1 << 20, 4096  # bytes of a read
_WARM_BYTES = 256 << 20  # of the files, read into the page cache
_WARM_LIMIT = 0.99  # part of the files in memory before a warm measurement
_FETCHED = 0.9  # part of the bytes that the kernel must have fetched
_NAMES_SECONDS = 1.0  # to open files, or to ask for sizes
_STEP = 4  # factor from one number of threads or processes to the next number
_IN_MEMORY = ("tmpfs", "ramfs")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """One way to read.

    Attributes:
        what: "sequential", "random", "shards", "open" or "stat".
        state: One of "direct", "cold", "warm" and "remote".
        num_processes: Processes that read at the same time.
        num_threads: Threads of each process.
    """

    what: str
    state: str
    num_processes: int = 1
    num_threads: int = 1

    @property
    def is_of_names(self) -> bool:
        """Whether files are opened or asked for their size, and not read."""
        return self.what in (reads.OPEN, reads.STAT)

    @property
    def block_bytes(self) -> int:
        """Bytes of each read."""
        return SMALL if self.what == reads.RANDOM else LARGE


def plan(
    *,
    is_remote: bool,
    is_direct: bool,
    in_memory: bool,
    max_parallel: int,
    num_pieces: int,
) -> list[Measurement]:
    """Returns the measurements that fit the files, in order.

    Args:
        is_remote: Whether the files are at a URL.
        is_direct: Whether the files can be read with O_DIRECT.
        in_memory: Whether memory is the storage, so that no file can be cold.
        max_parallel: Largest number of threads, and of processes.
        num_pieces: Pieces of the files; more threads would have no shard to read.
    """
    cold = [] if in_memory else [REMOTE if is_remote else COLD]
    alone = [DIRECT] if is_direct else cold
    warm = [] if is_remote else [WARM]
    counts = _up_to(min(max_parallel, num_pieces))
    planned = [
        *(Measurement(what=reads.SEQUENTIAL, state=s) for s in (*alone, *warm)),
        *(Measurement(what=reads.RANDOM, state=s) for s in (*alone, *warm)),
    ]
    if max_parallel > 1:
        planned += [
            Measurement(what=reads.RANDOM, state=s, num_threads=max_parallel)
            for s in alone
        ]
    for state in cold or warm:
        shards = functools.partial(Measurement, what=SHARDS, state=state)
        planned += [shards(num_threads=n) for n in counts]
        planned += [shards(num_processes=n) for n in counts[1:]]
    if cold and warm:
        planned.append(Measurement(what=SHARDS, state=WARM, num_processes=counts[-1]))
    for kind in (reads.STAT,) if is_remote else (reads.OPEN, reads.STAT):
        planned += [Measurement(what=kind, state=s) for s in (*cold, *warm)]
    return planned


def _up_to(most: int) -> list[int]:
    """Returns 1, 4, 16 and so on, and `most` at the end."""
    counts = [1]
    while counts[-1] < most:
        counts.append(min(most, counts[-1] * _STEP))
    return counts


def is_proven(
    state: str, *, resident: float | None, num_bytes: int, fetched: int | None
) -> bool | None:
    """Checks whether figures of the kernel prove the state of a measurement.

    Args:
        state: State of the measurement.
        resident: Part of the files in the page cache before, 0 to 1; None if unknown.
        num_bytes: Bytes that were read.
        fetched: Bytes that the kernel fetched from storage for the reads; None if the
            kernel does not count, as for some file systems in user space.

    Returns:
        None if the kernel does not tell enough.
    """
    if state == COLD and resident is not None:
        return resident <= states.COLD_LIMIT
    if state == WARM and resident is not None:
        return resident >= _WARM_LIMIT
    if state in (COLD, DIRECT) and fetched:
        return fetched >= _FETCHED * num_bytes
    return None


def run(
    files: ProbeFiles,
    workers: Workers,
    *,
    seconds: float,
    max_parallel: int,
    begin: Callable[[str], object],
) -> Iterator[dict[str, Any]]:
    """Measures each way to read.

    Args:
        files: The files.
        workers: The processes that read.
        seconds: Longest time of each measurement. A cold measurement ends when every
            byte is read: a second read would be warm.
        max_parallel: Largest number of threads, and of processes.
        begin: Called with the name of each measurement before it.

    Yields:
        The figures of each measurement, for JSON. A measurement whose state is
        impossible has the reason as `skipped`, and no figures.

    Raises:
        OSError: If the files cannot be read, or a read does not come back.
    """
    in_memory = files.file_system in _IN_MEMORY
    is_direct = not (files.url or in_memory) and reads.can_read_direct(
        files.files[0], SMALL
    )
    planned = plan(
        is_remote=files.url is not None,
        is_direct=is_direct,
        in_memory=in_memory,
        max_parallel=max_parallel,
        num_pieces=len(files.pieces),
    )
    for seed, measurement in enumerate(planned):
        row = dataclasses.asdict(measurement)
        begin(f"{summary.name(row)}, {measurement.state}")
        pieces = _pieces(files, measurement)
        names = list(dict.fromkeys(name for name, _, _ in pieces))
        resident, problem = _prepare(measurement, names, workers)
        if problem:
            yield {**row, "skipped": problem}
            continue
        limit = min(seconds, _NAMES_SECONDS) if measurement.is_of_names else seconds
        outcomes = workers.run(jobs(measurement, pieces, files.url, limit, seed=seed))
        yield {**row, **figures(measurement, outcomes, resident)}


def _pieces(files: ProbeFiles, measurement: Measurement) -> Sequence[Piece]:
    if measurement.is_of_names:
        return [(name, 0, 0) for name in files.names]
    if measurement.state != WARM:
        return files.pieces
    return files.pieces[: max(1, _WARM_BYTES // PIECE_BYTES)]


def jobs(
    measurement: Measurement,
    pieces: Sequence[Piece],
    url: str | None,
    seconds: float,
    *,
    seed: int,
) -> list[Job]:
    """Returns the job of each process.

    The processes of a cold measurement share the pieces, so that each byte is read
    once. The processes of other measurements read all pieces, from different pieces on.

    Args:
        measurement: The measurement.
        pieces: The pieces; a cold measurement needs a piece for each process.
        url: The store, or None.
        seconds: Longest time.
        seed: Seed of the order of random reads.
    """
    count, repeats = measurement.num_processes, measurement.state != COLD
    what = measurement.what
    return [
        Job(
            kind=reads.SEQUENTIAL if what == SHARDS else what,
            pieces=_rotated(pieces, first) if repeats else pieces[first::count],
            seconds=seconds,
            block_bytes=measurement.block_bytes,
            num_threads=measurement.num_threads,
            url=url,
            is_direct=measurement.state == DIRECT,
            repeats=repeats,
            seed=seed,
        )
        for first in range(count)
    ]


def _rotated(pieces: Sequence[Piece], first: int) -> list[Piece]:
    first %= len(pieces)
    return [*pieces[first:], *pieces[:first]]


def _prepare(
    measurement: Measurement, files: Sequence[str], workers: Workers
) -> tuple[float | None, str | None]:
    """Brings the files into the state of a measurement.

    Returns:
        The part of the files in the page cache, or None; the reason why the state is
        impossible, or None.
    """
    if measurement.state not in (COLD, WARM):
        return None, None
    if measurement.is_of_names:
        try:
            if measurement.state == COLD:
                workers.act("drop_caches", ())
        except OSError as error:
            return None, f"Only root can make names cold: {error}"
        return None, None
    workers.act("evict" if measurement.state == COLD else "fill", files)
    measured = workers.act("measure", files)
    resident = measured["resident_bytes"]
    return None if resident is None else resident / max(1, measured["num_bytes"]), None


def figures(
    measurement: Measurement,
    outcomes: Sequence[Mapping[str, Any]],
    resident: float | None,
) -> dict[str, Any]:
    """Joins the outcomes of all processes.

    Args:
        measurement: The measurement.
        outcomes: The result of `TimedReads.run` in each process.
        resident: Part of the files in the page cache before.

    Returns:
        The figures of a measurement, for JSON, with seconds from the first to the last
        read of all processes.
    """
    begin = min(outcome["start_ns"] for outcome in outcomes)
    end = max(outcome["end_ns"] for outcome in outcomes)
    seconds = max(1, end - begin) / 1e9
    num_bytes, num_reads = (
        sum(outcome[name] for outcome in outcomes)
        for name in ("num_bytes", "num_reads")
    )
    counts = np.sum([outcome["counts"] for outcome in outcomes], axis=0)
    fetched = [outcome["storage_bytes"] for outcome in outcomes]
    total = None if None in fetched else sum(fetched)
    reads_bytes = not measurement.is_of_names
    return {
        "block_bytes": measurement.block_bytes if reads_bytes else None,
        "num_reads": num_reads,
        "num_bytes": num_bytes,
        "seconds": seconds,
        "megabytes_per_second": num_bytes / seconds / 1e6 if reads_bytes else None,
        "reads_per_second": num_reads / seconds,
        "latency_seconds": latencies.percentiles(counts),
        "storage_bytes": total,
        "resident_fraction": resident,
        "is_proven": is_proven(
            measurement.state, resident=resident, num_bytes=num_bytes, fetched=total
        ),
    }
