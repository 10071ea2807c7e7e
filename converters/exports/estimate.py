"""Bytes, seconds and room that copies will take, from a short look at this machine.

In: a source, a change and a sizing; or the summary of a job. Out: an `Estimate`, lines
of text, and JSON values. A few records are changed, and a nameless file that the system
removes at once is written to the disk and synced. Nothing else is written, and nothing
stays.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from converters.exports.change import Change
from converters.exports.sizing import Sizing, shown
from converters.exports.source import Source
from tfpipe import errors
from tfpipe.errors import count_of
from tfpipe.shards import records

# Records that are changed, from different shards. Their number is fixed, because the
# growth of these records decides how many copies fill --target_bytes.
_MOST_RECORDS = 24
# Bytes that are written to measure the disk.
_WRITTEN_BYTES = 64 << 20
# Room that a file of a linked shard takes beside its bytes: an inode, a marker, rows.
_LINK_BYTES = 8192


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialCopies:
    """Figures from changing a few records.

    Attributes:
        num_records: Number of these records.
        growth: Bytes of their copies, as a ratio to the bytes of the records.
        seconds_per_byte: CPU time of one process for a byte of the source.
    """

    num_records: int
    growth: float
    seconds_per_byte: float


NOTHING = TrialCopies(num_records=0, growth=1.0, seconds_per_byte=0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bytes, room and time that copies will take.

    Attributes:
        num_bytes: Bytes of all copies.
        room_bytes: Bytes that they take on the disk; less with links.
        free_bytes: Room on the disk; None for a URL.
        cpu_seconds: Time of all workers for the changes, if nothing else limits.
        disk_seconds: Time of the disk for these bytes; None if it was not measured.
        disk_bytes_per_second: Measured speed of the disk; None if it was not measured.
    """

    num_bytes: int
    room_bytes: int
    free_bytes: int | None
    cpu_seconds: float
    disk_seconds: float | None
    disk_bytes_per_second: float | None

    @property
    def seconds(self) -> float:
        """Time of the whole job: what the slower of CPU and disk takes."""
        return max(self.cpu_seconds, self.disk_seconds or 0.0)

    @property
    def fits(self) -> bool:
        """Whether there is room."""
        return self.free_bytes is None or self.room_bytes <= self.free_bytes

    def to_json(self) -> dict[str, Any]:
        """Returns the figures as JSON values."""
        return dataclasses.asdict(self) | {"seconds": self.seconds, "fits": self.fits}


def sample(
    source: Source, change: Change, *, clock: Callable[[], float] = time.process_time
) -> TrialCopies:
    """Changes a few records, and returns how their bytes grew and the time it took.

    Damaged records are passed over; the job finds and names them.

    Raises:
        OSError: If the source cannot be read.
        RemoteError: If the source cannot be read.
    """
    num_records = before = after = 0
    spent = 0.0
    for data, size in itertools.islice(_spread(source), _MOST_RECORDS):
        begin = clock()
        try:
            made = change(data, size, seed=f"sample/{num_records}")
            framed = records.frame(made.data)
        except errors.BadRecordError:
            continue
        finally:
            spent += clock() - begin
        num_records += 1
        before += len(data)
        after += sum(map(len, framed))
    if not before:
        return NOTHING
    return TrialCopies(
        num_records=num_records,
        growth=round(after / before, 3),
        seconds_per_byte=spent / before,
    )


def _spread(source: Source) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Yields the data and image size of a record of each of some shards, then again."""
    shards = [
        (split, number, shard)
        for split, listed in source.known.splits.items()
        for number, shard in enumerate(listed)
        if shard.num_records
    ]
    chosen = shards[:: math.ceil(len(shards) / _MOST_RECORDS)]
    # With few shards, several records of each.
    for turn in range(math.ceil(_MOST_RECORDS / len(chosen))):
        for split, number, shard in chosen:
            rows = source.rows(split, number, shard)
            row = rows[turn * len(rows) // math.ceil(_MOST_RECORDS / len(chosen))]
            with source.reading(shard) as pread:
                start = row.byte_offset + records.HEADER_BYTES
                num_bytes = row.num_bytes - records.HEADER_BYTES - records.FOOTER_BYTES
                yield pread(num_bytes, start), (row.height, row.width)


def nearest_folder(path: pathlib.Path) -> pathlib.Path:
    """Returns the nearest folder that exists: the path, or one above it."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def disk_speed(
    folder: pathlib.Path,
    free_bytes: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> float | None:
    """Returns the bytes a second that a disk takes, synced.

    Returns None where it cannot be measured without a file that has a name.
    """
    if free_bytes < 4 * _WRITTEN_BYTES:
        return None
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY)
        try:
            piece = os.urandom(1 << 20)  # a disk that compresses gains nothing
            start = clock()
            for _ in range(_WRITTEN_BYTES // len(piece)):
                os.write(descriptor, piece)
            os.fsync(descriptor)
            return _WRITTEN_BYTES / max(clock() - start, 1e-9)
        finally:
            os.close(descriptor)
    return None


def estimate(
    source: Source,
    found: TrialCopies,
    *,
    copies: int,
    num_workers: int,
    output_dir: pathlib.Path | None,
    how: str,
) -> Estimate:
    """Returns what copies will take.

    Args:
        source: The data set.
        found: What a `sample` showed.
        copies: Number of copies.
        num_workers: Number of processes that write them.
        output_dir: Folder of the copies; None for a URL.
        how: How the bytes of identical copies are shared; "copy" for all others.
    """
    num_bytes = round(copies * source.num_bytes() * found.growth)
    linked = how != "copy"
    room = copies * source.num_shards * _LINK_BYTES if linked else num_bytes
    free = speed = None
    if output_dir is not None:
        folder = nearest_folder(output_dir)
        free = shutil.disk_usage(folder).free
        speed = disk_speed(folder, free)
    return Estimate(
        num_bytes=num_bytes,
        room_bytes=room,
        free_bytes=free,
        cpu_seconds=copies * source.num_bytes() * found.seconds_per_byte / num_workers,
        disk_seconds=room / speed if speed else None,
        disk_bytes_per_second=speed,
    )


_KEPT = "kept_"


def facts(source: Source, sizing: Sizing, cost: Estimate) -> dict[str, Any]:
    """Returns the plan of the copies as JSON values."""
    return {
        "copies": sizing.copies,
        "needed_bytes": sizing.needed_bytes,
        "sizing": list(sizing.lines),
        "num_records": sizing.copies * source.num_records,
        "num_shards": sizing.copies * source.num_shards,
        "num_bytes": cost.num_bytes,
        "seconds": round(cost.seconds, 3),
        "estimate": cost.to_json(),
    }


def lines(source: Source, sizing: Sizing, cost: Estimate) -> list[str]:
    """Returns the plan of the copies for people: the arithmetic, time and room."""
    splits = source.known.splits
    listed = ", ".join(f"{split} {shown(source.num_bytes(split))}" for split in splits)
    num_records, num_shards = source.num_records, source.num_shards
    copies = sizing.copies
    return [
        f"{source.name}: {count_of(num_records, 'record')} in "
        f"{count_of(num_shards, 'shard')}, "
        f"{shown(source.num_bytes())} ({listed})",
        *sizing.lines,
        f"{count_of(copies, 'copy')}: {count_of(copies * num_records, 'record')} in "
        f"{count_of(copies * num_shards, 'shard')}, about {shown(cost.num_bytes)}",
        _time(cost),
        _room(cost),
    ]


def _time(cost: Estimate) -> str:
    parts = []
    if cost.cpu_seconds:
        parts.append(f"the workers need {duration(cost.cpu_seconds)}")
    if cost.disk_seconds is not None and cost.disk_bytes_per_second:
        speed = f"{shown(cost.disk_bytes_per_second)}/s"
        parts.append(f"the disk {duration(cost.disk_seconds)} at {speed}")
    if not parts:
        return "time: not known before the first shards"
    return f"time: about {duration(cost.seconds)} ({', '.join(parts)})"


def _room(cost: Estimate) -> str:
    if cost.free_bytes is None:
        return f"room: {shown(cost.room_bytes)} at the URL"
    is_small = "" if cost.fits else "; THIS IS TOO LITTLE"
    return f"room: {shown(cost.room_bytes)} of {shown(cost.free_bytes)} free{is_small}"


def duration(seconds: float) -> str:
    """Returns a duration in its usual unit."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{max(math.ceil(seconds), 1)} s"


def details(done: Mapping[str, Any]) -> list[str]:
    """Returns what became of the images, in lines for people.

    Args:
        done: The JSON document of copies that are complete.
    """
    listed = [f"  {name:<26} {n:>11,}" for name, n in done["decisions"].items()]
    kept = sum(n for name, n in done["decisions"].items() if name.startswith(_KEPT))
    if kept:
        share = kept / done["num_records"]
        listed.append(
            f"The same bytes in every copy: {count_of(kept, 'record')} ({share:.2%}), "
            "because these images cannot be changed without loss; a deduplicating "
            "storage keeps them once"
        )
    if done["decisions"].get("identical_link"):
        listed.append(
            "Hard links are one file with many names: a host reads it once, and keeps "
            "it in its page cache for all copies."
        )
    return listed
