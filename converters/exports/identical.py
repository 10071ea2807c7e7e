"""Writes one shard of identical copies: a file with the bytes of its source shard.

In: a job, and the task of a `ReplicaPlan`. Out: the shard, its catalog fragment and its
marker in the job's folder. Nothing is decoded, and with a reflink or a hard link no
byte is copied. This code runs in worker processes.

A reflink (`FICLONE` of Btrfs, XFS and others) is a file of its own whose blocks are
shared until one of the two is written. A hard link is a second name of the same file:
a change of one is a change of all.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Literal

import xxhash

from converters.engines import processes
from converters.exports.source import Source, changed
from converters.exports.tables import Tables
from converters.exports.write import ReplicaPlan, plan_of
from converters.jobs import write_shard
from converters.jobs.job import Job
from converters.jobs.write_shard import Task, Written, new_file
from tfpipe.shards import atomic

# How the bytes of a shard are shared. "auto" is the first one that the disk can do.
By = Literal["auto", "reflink", "link", "copy"]
_FICLONE = 0x40049409  # _IOW(0x94, 9, int), linux/fs.h
_PIECE_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdenticalWriter:
    """Writes the shards of identical copies.

    Attributes:
        source: The data set that is copied.
        by: How its bytes are shared.
        tables: The entry points of its records.

    Raises:
        ValueError: If links are wanted of shards that are not in a folder.
    """

    source: Source
    by: By = "auto"
    tables: Tables = dataclasses.field(default_factory=Tables)

    def __post_init__(self) -> None:
        if self.source.files is not None and self.by in ("reflink", "link"):
            raise ValueError(
                f"--identical_by={self.by} needs a DIR in the file system of "
                f"--output_dir, got {self.source.name}. Leave it out."
            )

    def __call__(self, job: Job, folder: pathlib.Path, task: Task) -> Written:
        """Writes a shard, its catalog fragment and its marker.

        Raises:
            OSError: If a file cannot be read or written, cannot be shared in the way
                that is wanted, or is not the one in the index.
            RemoteError: If the source cannot be read.
        """
        plan = plan_of(task)
        path = folder / plan.name
        how = self._make(plan, path, job)
        start = f'{{"split": {json.dumps(plan.split)}, "shard": {plan.number}, '
        with new_file(write_shard.fragment_path(path), job) as fragment:
            for row in _rows(self.source, plan):
                fragment.write([f"{start}{row}".encode()])
                processes.image_done()
        if job.has_entry_points(plan.split):
            known, number = range(plan.source.num_records), plan.source_number
            tables = self.tables.of(self.source, plan.split, number, known)
            write_shard.write_entry_points(path, tables, job)
        entry = dataclasses.replace(plan.source, name=plan.name)
        decisions = {f"identical_{how}": plan.source.num_records}
        written = Written(
            split=plan.split,
            shard=entry,
            decisions=decisions,
            num_source_bytes=plan.num_input_bytes,
            job=job.identity,
        )
        return write_shard.mark(job, folder, written)

    def _make(self, plan: ReplicaPlan, path: pathlib.Path, job: Job) -> str:
        """Makes the file, and returns how: "reflink", "link" or "copy"."""
        how = self.by
        if how in ("auto", "reflink", "link") and self.source.files is None:
            shared = share(self.source.folder / plan.source.name, path, job, by=how)
            if shared:
                if plan.copy == 0:  # the other copies have the same bytes
                    self._check(plan)
                return shared
        self._copy(plan, path, job)
        return "copy"

    def _check(self, plan: ReplicaPlan) -> None:
        digest = xxhash.xxh3_128()
        with self.source.reading(plan.source) as pread:
            for offset in range(0, plan.source.num_bytes, _PIECE_BYTES):
                digest.update(pread(_PIECE_BYTES, offset))
        self._require(plan, digest.hexdigest())

    def _copy(self, plan: ReplicaPlan, path: pathlib.Path, job: Job) -> None:
        digest = xxhash.xxh3_128()
        with self.source.reading(plan.source) as pread, new_file(path, job) as shard:
            for offset in range(0, plan.source.num_bytes, _PIECE_BYTES):
                piece = pread(_PIECE_BYTES, offset)
                digest.update(piece)
                shard.write([piece])
            self._require(plan, digest.hexdigest())

    def _require(self, plan: ReplicaPlan, digest: str) -> None:
        if digest != plan.source.digest:
            raise changed(self.source, plan.source, f"digest {digest}")


def share(source: pathlib.Path, path: pathlib.Path, job: Job, *, by: By) -> str:
    """Makes a file that shares the bytes of another one.

    Args:
        source: The file with the bytes.
        path: The new file; one of this name is replaced.
        job: The job, which names the unfinished file.
        by: "reflink" or "link"; "auto" tries a reflink first.

    Returns:
        "reflink" or "link"; empty if the file system can do neither and `by` is "auto".

    Raises:
        OSError: If `by` names a way that the file system does not have.
    """
    for way, make in (("reflink", _reflink), ("link", _link)):
        if by not in ("auto", way):
            continue
        part = write_shard.part_path(path, job)
        fsync = job.fsync and way == "reflink"
        try:
            with atomic.new_file(path, part=part, fsync=fsync):
                make(source, part)
        except OSError as error:
            if by == way:
                raise _refused(way, source, path, error) from error
        else:
            return way
    return ""


def _reflink(source: pathlib.Path, path: pathlib.Path) -> None:
    with open(source, "rb") as old, open(path, "wb") as new:
        fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())


def _link(source: pathlib.Path, path: pathlib.Path) -> None:
    # The file itself: a link to a symbolic link would be a symbolic link.
    os.link(os.path.realpath(source), path)


def _refused(
    by: str, source: pathlib.Path, path: pathlib.Path, error: OSError
) -> OSError:
    return OSError(
        f"--identical_by={by}: {path.parent} must be in a file system in which "
        f"{source} can be shared so, got: {error.strerror}. Choose another folder or "
        "--identical_by=copy."
    )


def way(source: Source, folder: pathlib.Path, by: By) -> str:
    """Returns how shards will be shared: "reflink", "link" or "copy".

    Nothing is made that has a name.

    Args:
        source: The data set.
        folder: A folder in the file system of the copies.
        by: The way that is wanted.
    """
    if by != "auto" or source.files is not None:
        return "copy" if by == "auto" else by
    shard = source.folder / next(
        shard.name for shards in source.known.splits.values() for shard in shards
    )
    with contextlib.suppress(OSError):
        nameless = os.open(folder, os.O_TMPFILE | os.O_WRONLY)
        try:
            with open(shard, "rb") as old:
                fcntl.ioctl(nameless, _FICLONE, old.fileno())
            return "reflink"
        finally:
            os.close(nameless)
    return "link" if shard.stat().st_dev == folder.stat().st_dev else "copy"


def _rows(source: Source, plan: ReplicaPlan) -> Iterator[str]:
    """Yields the catalog's rows of a shard as JSON, without split and shard."""
    for row in source.rows(plan.split, plan.source_number, plan.source):
        yield f"{json.dumps(row._asdict())[1:]}\n"
