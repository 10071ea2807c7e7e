"""Copies of records in new shards: the plan of a shard, and its writer.

In: a source, and the records that each new shard gets; a job and the task of a
`CopyPlan`. Out: the shard, its catalog fragment and its marker in the folder of the
job, as `jobs.write_shard` makes them. The records are copied as they are, or with a
changed image; whole shards can share the bytes of their source. The writer runs in
worker processes.
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Literal

from converters.checks.record import CatalogRow
from converters.engines import processes
from converters.exports import identical
from converters.exports.change import Change, Changed
from converters.exports.source import Source, damaged, read_records
from converters.exports.tables import Tables
from converters.jobs import side_files, write_shard
from converters.jobs.job import Job
from converters.jobs.more_columns import MoreColumns
from converters.jobs.plan import ShardPlan
from converters.jobs.write_shard import NewShard, Task, Written
from tfpipe import errors
from tfpipe.shards import index, records
from tfpipe.shards.catalog import further_columns


@dataclasses.dataclass(frozen=True)
class CopyPlan(ShardPlan):
    """One file of copied records; it has no images of its own.

    Attributes:
        parts: Number of each source shard in its split, and the numbers of the records
            that are taken of it, rising.
        num_bytes: Bytes of these records in the source.
        copy: Number of the copy, from 0.
        growth: Bytes on the disk, as a ratio to those in the source; 0 for links.
        first: Number of the first source shard in all splits.
    """

    parts: Sequence[tuple[int, Sequence[int]]]
    num_bytes: int
    copy: int = 0
    growth: float = 1.0
    first: int = 0

    @property
    def num_images(self) -> int:
        """Number of records."""
        return sum(len(chosen) for _, chosen in self.parts)

    @property
    def num_input_bytes(self) -> int:
        """Bytes of the records in the source."""
        return self.num_bytes

    @property
    def order(self) -> int:
        """The copies of a source shard are written together: its rows are read once."""
        return self.first

    def room(self, *, shrinks: bool) -> int:
        """Returns the bytes that the shard may need on the disk."""
        return round(self.num_bytes * self.growth)


def make_plans(
    source: Source, copies: int, *, layout: str, growth: float
) -> list[CopyPlan]:
    """Returns the plan of each shard of whole copies, by split and number.

    Copy c of shard s is shard c * (number of source shards) + s of its split.

    Args:
        source: The data set.
        copies: Number of copies.
        layout: How shards are named: a key of `side_files.LAYOUTS`.
        growth: As in `CopyPlan`.

    Raises:
        ValueError: If TFDS could not read the shards' names.
    """
    plans, first = [], 0
    for split, shards in source.known.splits.items():
        num_shards = copies * len(shards)
        names = side_files.shard_names(layout, source.known.name, split, num_shards)
        for number, name in enumerate(names):
            copy, shard = divmod(number, len(shards))
            entry = shards[shard]
            parts = ((shard, range(entry.num_records)),)
            values = (parts, entry.num_bytes, copy, growth, first + shard)
            plans.append(CopyPlan(split, number, name, (), *values))
        first += len(shards)
    return plans


def more_columns(
    source: Source, *, path: pathlib.Path | None = None
) -> MoreColumns | None:
    """Returns the columns that copies get beside the usual ones; None without such.

    Args:
        source: The data set.
        path: File with a row for each copied record, by split, shard and record; None
            takes the catalog of the source.
    """
    path = path or source.folder.absolute() / index.CATALOG_NAME
    return MoreColumns(path=path, on=_SOURCE) if further_columns(path) else None


# A column of a fragment, and the column of the source that it is equal to.
_SOURCE = {"split": "split", "source_shard": "shard", "source_record": "record"}

Damaged = Literal["fail", "skip"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CopyWriter:
    """Writes the shards of copies.

    Attributes:
        source: The data set that is copied.
        leave_out: How a user leaves out a damaged record, for the error; {} stands for
            the record as a condition of SQL.
        change: What becomes of each image; None keeps it.
        seed: Decides the bits of all changed images.
        damaged: What to do about a damaged record of the source.
        share: How whole shards share the bytes of the source; None copies records.
        tables: The entry points of its records, for records that are kept.

    Raises:
        ValueError: If links are wanted of shards that are not in a folder.
    """

    source: Source
    leave_out: str
    change: Change | None = None
    seed: int = 0
    damaged: Damaged = "fail"
    share: identical.By | None = None
    tables: Tables = dataclasses.field(default_factory=Tables)

    def __post_init__(self) -> None:
        if self.source.files is not None and self.share in ("reflink", "link"):
            raise ValueError(
                f"--identical_by={self.share} needs a DIR in the file system of "
                f"--output_dir, got {self.source.name}. Leave it out."
            )

    def __call__(self, job: Job, folder: pathlib.Path, task: Task) -> Written:
        """Writes a shard, its catalog fragment and its marker.

        Raises:
            BadRecordError: If a record is damaged, and the choice is to fail.
            OSError: If a file cannot be read, written or shared, or a source shard is
                not the one in the index.
            RemoteError: If the source cannot be read.
        """
        plan = task.plan
        assert isinstance(plan, CopyPlan), "the job copies no records"
        if self.share is not None and (shared := self._shared(job, folder, plan)):
            return write_shard.mark(job, folder, shared)
        with write_shard.new_shard(job, folder, plan) as new:
            for shard, chosen in plan.parts:
                tables = self._tables(job, plan.split, shard, chosen)
                _Copy(self, plan, shard, new).write(chosen, tables)
        return write_shard.mark(job, folder, new.written())

    def _shared(self, job: Job, folder: pathlib.Path, plan: CopyPlan) -> Written | None:
        """Makes a shard with the bytes of its source; None if bytes must be copied."""
        ((shard, chosen),) = plan.parts
        entry = self.source.known.splits[plan.split][shard]
        path, share = folder / plan.name, self.share
        if share is None or share == "copy" or self.source.files is not None:
            return None
        how = identical.share(self.source.folder / entry.name, path, job, by=share)
        if not how:
            return None
        rows = self.source.rows(plan.split, shard, entry)
        if plan.copy == 0:  # the other copies have the same bytes
            reject = _Copy(self, plan, shard, None).reject
            checked = read_records(self.source, plan.split, shard, rows, reject)
            collections.deque(checked, maxlen=0)
        with write_shard.new_file(write_shard.fragment_path(path), job) as fragment:
            start = f'{{"split": {json.dumps(plan.split)}, "shard": {plan.number}, '
            for row in rows:
                members = f"{_origin(shard, row)}, {json.dumps(row._asdict())[1:]}\n"
                fragment.write([f"{start}{members}".encode()])
                processes.image_done()
        if job.has_entry_points(plan.split):
            tables = self._tables(job, plan.split, shard, chosen)
            write_shard.write_entry_points(path, tables, job)
        return Written(
            split=plan.split,
            shard=dataclasses.replace(entry, name=plan.name),
            decisions={f"identical_{how}": entry.num_records},
            num_source_bytes=plan.num_input_bytes,
            job=job.identity,
        )

    def _tables(
        self, job: Job, split: str, shard: int, chosen: Sequence[int]
    ) -> list[bytes]:
        """Returns the entry points of records that are kept; empty without such."""
        if self.change is not None or not job.has_entry_points(split):
            return [b""] * len(chosen)
        return self.tables.of(self.source, split, shard, chosen)


def _origin(shard: int, row: CatalogRow) -> str:
    """Returns the members of a fragment that say the source of a record."""
    return f'"source_shard": {shard}, "source_record": {row.record}'


@dataclasses.dataclass(frozen=True)
class _Copy:
    """The records of one source shard on their way into a new shard."""

    writer: CopyWriter
    plan: CopyPlan
    shard: int
    new: NewShard | None

    def write(self, chosen: Sequence[int], tables: Sequence[bytes]) -> None:
        """Copies records with their entry points."""
        source, split = self.writer.source, self.plan.split
        rows = source.rows(split, self.shard, source.known.splits[split][self.shard])
        wanted = [rows[record] for record in chosen]
        table_of = dict(zip(chosen, tables, strict=True))
        for row, framed in read_records(source, split, self.shard, wanted, self.reject):
            self._copy(row, framed, table_of[row.record])
            processes.image_done()

    def _copy(self, row: CatalogRow, framed: bytes, table: bytes) -> None:
        assert self.new is not None, "only a new shard gets records"
        origin, buffers, decision = _origin(self.shard, row), [framed], row.decision
        if self.writer.share is not None:
            decision = "identical_copy"
        elif self.writer.change is not None:
            if (changed := self._changed(self.writer.change, row, framed)) is None:
                return
            buffers, table = records.frame(changed.data), changed.table
            decision = changed.decision
            row = row._replace(
                height=changed.height,
                width=changed.width,
                decision=decision,
                digest=changed.digest,
            )
        self.new.add(buffers, f"{origin}, {row.to_json()}", table=table)
        self.new.decisions[decision] += 1

    def _changed(
        self, change: Change, row: CatalogRow, framed: bytes
    ) -> Changed | None:
        source = self.writer.source
        name = source.known.splits[self.plan.split][self.shard].name
        data = framed[records.HEADER_BYTES : -records.FOOTER_BYTES]
        seed = f"{self.writer.seed}/{self.plan.copy}/{name}/{row.record}"
        try:
            return change(data, (row.height, row.width), seed=seed)
        except errors.BadRecordError as error:
            self.reject(row, str(error))
            return None
        except MemoryError as error:
            raise OSError(
                f"{source.name}/{name}: record {row.record} ({row.filename}) needs "
                "more memory than there is. Try fewer --num_workers."
            ) from error

    def reject(self, row: CatalogRow, fault: str) -> None:
        """Leaves out a damaged record, or raises an error about it."""
        writer, plan = self.writer, self.plan
        how = writer.leave_out.format(
            f"split = '{plan.split}' AND shard = {self.shard} AND record = {row.record}"
        )
        error = damaged(writer.source, plan.split, self.shard, row, fault, how)
        if writer.damaged == "fail" or self.new is None:
            raise error
        self.new.decisions["skipped_damaged_record"] += 1
        self.new.rejects.append(
            {
                "name": row.filename,
                "action": "skipped",
                "reason": "damaged_record",
                "detail": f"copy {plan.copy} of {error}",
            }
        )
