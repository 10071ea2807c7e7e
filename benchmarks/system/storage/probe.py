"""The measurements of the probe, one after the other, each with its proof.

In: a `Place`. Out: for each measurement its rate, the percentiles of its latency, the
part of the files that was in the page cache before it, and whether both prove the state
that it names:

  direct  reads that go around the page cache (O_DIRECT)
  cold    the files were evicted before, and every byte is read once
  warm    the files were read into the page cache before
  remote  ranged reads from a store; nothing on this host keeps their bytes
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.system import residency
from benchmarks.system.storage import latencies, reads, summary
from benchmarks.system.storage.places import PIECE_BYTES, Place
from benchmarks.system.storage.reads import Job, Piece
from benchmarks.system.storage.workers import Workers

SHARDS = "shards"  # beside the kinds of a job
DIRECT, COLD, WARM, REMOTE = "direct", "cold", "warm", "remote"

LARGE, SMALL = 1 << 20, 4096  # bytes of a read
_WARM_BYTES = 256 << 20  # of the files that are read into the page cache
_WARM_LIMIT = 0.99  # part of the files in memory before a warm measurement
_FETCHED = 0.9  # part of the bytes that the kernel must have fetched
_NAMES_SECONDS = 1.0  # for files that are opened or asked for their size
_STEP = 4  # each number of threads or processes is so many times the one before
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

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as a dict that JSON can hold."""
        return dataclasses.asdict(self)


def plan(
    *,
    is_remote: bool,
    is_direct: bool,
    in_memory: bool,
    max_parallel: int,
    num_pieces: int,
) -> list[Measurement]:
    """Returns the measurements that fit a place, in order.

    Args:
        is_remote: Whether the place is a URL.
        is_direct: Whether its files can be read with O_DIRECT.
        in_memory: Whether memory is its storage, so that it cannot be cold.
        max_parallel: Largest number of threads, and of processes.
        num_pieces: Pieces of the files; more threads would have no shard to read.
    """
    cold = [] if in_memory else [REMOTE if is_remote else COLD]
    alone = [DIRECT] if is_direct else cold
    warm = [] if is_remote else [WARM]
    numbers = _up_to(min(max_parallel, num_pieces))
    found = [
        *(Measurement(what=reads.SEQUENTIAL, state=s) for s in (*alone, *warm)),
        *(Measurement(what=reads.RANDOM, state=s) for s in (*alone, *warm)),
    ]
    if max_parallel > 1:
        found += [
            Measurement(what=reads.RANDOM, state=s, num_threads=max_parallel)
            for s in alone
        ]
    for state in cold or warm:
        found += [
            *(Measurement(what=SHARDS, state=state, num_threads=n) for n in numbers),
            *(
                Measurement(what=SHARDS, state=state, num_processes=n)
                for n in numbers[1:]
            ),
        ]
    if cold and warm:
        found.append(Measurement(what=SHARDS, state=WARM, num_processes=numbers[-1]))
    for kind in (reads.STAT,) if is_remote else (reads.OPEN, reads.STAT):
        found += [Measurement(what=kind, state=s) for s in (*cold, *warm)]
    return found


def _up_to(most: int) -> list[int]:
    """Returns 1, 4, 16 and so on, and `most` at the end."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, found[-1] * _STEP))
    return found


def is_proven(
    state: str, *, resident: float | None, num_bytes: int, fetched: int | None
) -> bool | None:
    """Checks whether figures of the kernel prove the state of a measurement.

    Args:
        state: State that the measurement names.
        resident: Part of the files in the page cache before it, 0 to 1; None if
            unknown.
        num_bytes: Bytes that were read.
        fetched: Bytes that the kernel fetched from storage for them; None if it does
            not count them, as for some file systems in user space.

    Returns:
        None if the kernel does not tell enough.
    """
    if state == COLD and resident is not None:
        return resident <= residency.COLD_LIMIT
    if state == WARM and resident is not None:
        return resident >= _WARM_LIMIT
    if state in (COLD, DIRECT) and fetched:
        return fetched >= _FETCHED * num_bytes
    return None


def run(
    place: Place,
    workers: Workers,
    *,
    seconds: float,
    max_parallel: int,
    begin: Callable[[str], object],
) -> Iterator[dict[str, Any]]:
    """Measures one way to read after the other.

    Args:
        place: The files.
        workers: The processes that read.
        seconds: Longest time of each measurement; a cold one ends when every byte is
            read, because it would be warm from there on.
        max_parallel: Largest number of threads, and of processes.
        begin: Is called with the name of each measurement before it.

    Yields:
        The figures of each measurement, for JSON. One whose state cannot be had has
        the reason as `skipped`, and no figures.

    Raises:
        OSError: If the files cannot be read, or a read does not come back.
    """
    in_memory = place.file_system in _IN_MEMORY
    is_direct = not (place.url or in_memory) and reads.can_read_direct(
        place.files[0], SMALL
    )
    for number, one in enumerate(
        plan(
            is_remote=place.url is not None,
            is_direct=is_direct,
            in_memory=in_memory,
            max_parallel=max_parallel,
            num_pieces=len(place.pieces),
        )
    ):
        what = one.as_json()
        begin(f"{summary.name(what)}, {one.state}")
        pieces = _pieces(place, one)
        files = list(dict.fromkeys(name for name, _, _ in pieces))
        resident, problem = _prepare(one, files, workers)
        if problem:
            yield {**what, "skipped": problem}
            continue
        limit = min(seconds, _NAMES_SECONDS) if one.is_of_names else seconds
        outcomes = workers.run(jobs(one, pieces, place.url, limit, seed=number))
        yield {**what, **figures(one, outcomes, resident)}


def _pieces(place: Place, one: Measurement) -> Sequence[Piece]:
    if one.is_of_names:
        return [(name, 0, 0) for name in place.names]
    if one.state != WARM:
        return place.pieces
    return place.pieces[: max(1, _WARM_BYTES // PIECE_BYTES)]


def jobs(
    one: Measurement,
    pieces: Sequence[Piece],
    url: str | None,
    seconds: float,
    *,
    seed: int,
) -> list[Job]:
    """Returns the job of each process.

    Processes share the pieces if each byte is read once. Else each reads all of them,
    from another one on.

    Args:
        one: The measurement.
        pieces: What all processes read; as many as processes, at least, if it is cold.
        url: The store, or None.
        seconds: Longest time.
        seed: Seed of the order of random reads.
    """
    number, repeats = one.num_processes, one.state != COLD
    return [
        Job(
            kind=reads.SEQUENTIAL if one.what == SHARDS else one.what,
            pieces=_turned(pieces, first) if repeats else pieces[first::number],
            seconds=seconds,
            block_bytes=one.block_bytes,
            num_threads=one.num_threads,
            url=url,
            is_direct=one.state == DIRECT,
            repeats=repeats,
            seed=seed,
        )
        for first in range(number)
    ]


def _turned(pieces: Sequence[Piece], first: int) -> list[Piece]:
    """Returns the pieces from one on, and those before it after the last."""
    first %= len(pieces)
    return [*pieces[first:], *pieces[:first]]


def _prepare(
    one: Measurement, files: Sequence[str], workers: Workers
) -> tuple[float | None, str | None]:
    """Brings the files into the state of a measurement.

    Returns:
        The part of the files in the page cache, or None; the reason why the state
        cannot be had, or None.
    """
    if one.is_of_names:
        if one.state != COLD:
            return None, None
        try:
            workers.act("drop_caches", ())
        except OSError as error:
            return None, f"Only root can make names cold: {error}"
        return None, None
    if one.state not in (COLD, WARM):
        return None, None
    workers.act("evict" if one.state == COLD else "fill", files)
    found = workers.act("measure", files)
    resident = found["resident_bytes"]
    return None if resident is None else resident / max(1, found["num_bytes"]), None


def figures(
    one: Measurement, outcomes: Sequence[Mapping[str, Any]], resident: float | None
) -> dict[str, Any]:
    """Joins the outcomes of all processes.

    Args:
        one: The measurement.
        outcomes: What `Reading.run` returned in each process.
        resident: Part of the files in the page cache before.

    Returns:
        The figures of a measurement, for JSON, with seconds from the first to the last
        read of all processes.
    """
    begin = min(found["start_ns"] for found in outcomes)
    end = max(found["end_ns"] for found in outcomes)
    seconds = max(1, end - begin) / 1e9
    num_bytes = sum(found["num_bytes"] for found in outcomes)
    num_reads = sum(found["num_reads"] for found in outcomes)
    counts = np.sum([found["counts"] for found in outcomes], axis=0)
    fetched = [found["storage_bytes"] for found in outcomes]
    total = None if None in fetched else sum(fetched)
    return {
        "block_bytes": one.block_bytes if not one.is_of_names else None,
        "num_reads": num_reads,
        "num_bytes": num_bytes,
        "seconds": seconds,
        "megabytes_per_second": num_bytes / seconds / 1e6
        if not one.is_of_names
        else None,
        "reads_per_second": num_reads / seconds,
        "latency_seconds": latencies.percentiles(counts),
        "storage_bytes": total,
        "resident_fraction": resident,
        "is_proven": is_proven(
            one.state, resident=resident, num_bytes=num_bytes, fetched=total
        ),
    }
