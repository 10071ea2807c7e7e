"""Distinct copies of a data set: the plan of their shards, and the writer of a shard.

In: a source and the number of copies; a job and the task of a `ReplicaPlan`. Out: a
`ReplicaPlan` for each new shard; or the shard, its catalog fragment and its marker in
the folder of the job, as `jobs.write_shard` makes them. Copy c of shard s is shard
c * (number of source shards) + s of its split. The writer reads the source shard once,
compares its digest with the index, and runs in worker processes.
"""

import dataclasses
import pathlib
from typing import Literal

import xxhash

from converters.checks.record import CatalogRow
from converters.engines import processes
from converters.exports.change import Change, Changed
from converters.exports.source import Source, changed
from converters.jobs import side_files, write_shard
from converters.jobs.job import Job
from converters.jobs.plan import ShardPlan
from converters.jobs.write_shard import NewShard, Task, Written
from tfpipe import errors
from tfpipe.shards import index, records


@dataclasses.dataclass(frozen=True)
class ReplicaPlan(ShardPlan):
    """One shard of the copies; it has no images of its own.

    Attributes:
        copy: Number of the copy, from 0.
        source: The shard that is copied.
        source_number: Its number in the split of the source.
        num_bytes: Bytes that the shard is expected to take on the disk.
        first: Number of the source shard in all splits.
    """

    copy: int
    source: index.Shard
    source_number: int
    num_bytes: int
    first: int

    @property
    def num_images(self) -> int:
        """Number of records."""
        return self.source.num_records

    @property
    def num_input_bytes(self) -> int:
        """Bytes of the source shard."""
        return self.source.num_bytes

    @property
    def order(self) -> int:
        """The copies of a source shard are written together: it is read once."""
        return self.first

    def room(self, *, shrinks: bool) -> int:
        """Returns the bytes that the shard may need on the disk."""
        return self.num_bytes


def make_plans(
    source: Source, copies: int, *, layout: str, growth: float
) -> list[ReplicaPlan]:
    """Returns the plan of each shard of the copies, by split and number.

    Args:
        source: The data set.
        copies: Number of copies.
        layout: How shards are named: a key of `side_files.LAYOUTS`.
        growth: Bytes on the disk of a copy, as a ratio to its source; 0 for links.

    Raises:
        ValueError: If TFDS could not read the shards' names.
    """
    plans, first = [], 0
    for split, shards in source.known.splits.items():
        num_shards = copies * len(shards)
        names = side_files.shard_names(layout, source.known.name, split, num_shards)
        for number, name in enumerate(names):
            copy, source_number = divmod(number, len(shards))
            shard = shards[source_number]
            plans.append(
                ReplicaPlan(
                    split,
                    number,
                    name,
                    (),
                    copy,
                    shard,
                    source_number,
                    round(shard.num_bytes * growth),
                    first + source_number,
                )
            )
        first += len(shards)
    return plans


Damaged = Literal["fail", "skip"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistinctWriter:
    """Writes the shards of distinct copies.

    Attributes:
        source: The data set that is copied.
        change: What becomes of each record.
        seed: Decides the bits of all copies.
        damaged: What to do about a damaged record of the source.
    """

    source: Source
    change: Change
    seed: int
    damaged: Damaged = "fail"

    def __call__(self, job: Job, folder: pathlib.Path, task: Task) -> Written:
        """Writes a shard, its catalog fragment and its marker.

        Raises:
            BadRecordError: If a record is damaged, and the choice is to fail.
            OSError: If a file cannot be read or written, or the source shard is not the
                one in the index.
            RemoteError: If the source cannot be read.
        """
        plan = plan_of(task)
        with write_shard.new_shard(job, folder, plan) as made:
            _Copy(self, plan, made).write()
        return write_shard.mark(job, folder, made.written())


def plan_of(task: Task) -> ReplicaPlan:
    """Returns the plan of a task, which is one of a copy."""
    assert isinstance(task.plan, ReplicaPlan), "the job copies no data set"
    return task.plan


class _Copy:
    """One shard while it is written."""

    def __init__(
        self, writer: DistinctWriter, plan: ReplicaPlan, made: NewShard
    ) -> None:
        self._writer, self._plan, self._made = writer, plan, made

    def write(self) -> None:
        """Copies every record, and compares the source with its digest."""
        source, plan = self._writer.source, self._plan
        rows = source.rows(plan.split, plan.source_number, plan.source)
        digest, is_damaged = xxhash.xxh3_128(), False
        with source.reading(plan.source) as pread:
            found = records.read_from(
                pread,
                plan.source.num_bytes,
                byte_offsets=[row.byte_offset for row in rows],
                on_bytes=digest.update,
            )
            num_found = 0
            for record in found:
                if num_found < len(rows):
                    self._copy(rows[num_found], record)
                is_damaged = is_damaged or bool(record.fault)
                num_found += 1
                processes.image_done()
        if is_damaged:
            return
        if num_found != len(rows):
            raise changed(source, plan.source, f"{num_found} records")
        if digest.hexdigest() != plan.source.digest:
            raise changed(source, plan.source, f"digest {digest.hexdigest()}")

    def _copy(self, row: CatalogRow, record: records.Record) -> None:
        seed = f"{self._writer.seed}/{self._plan.copy}/{self._plan.source.name}"
        try:
            if record.fault:
                raise errors.BadRecordError(record.fault)
            made = self._writer.change(
                record.data, (row.height, row.width), seed=f"{seed}/{row.record}"
            )
        except errors.BadRecordError as error:
            self._reject(row, record, str(error))
        except MemoryError as error:
            raise OSError(
                f"{self._where(row, record)}: {row.filename} needs more memory than "
                "there is. Try fewer --num_workers."
            ) from error
        else:
            self._store(row, made)

    def _where(self, row: CatalogRow, record: records.Record) -> str:
        shard = f"{self._writer.source.name}/{self._plan.source.name}"
        return f"{shard}: record {row.record} at byte {record.byte_offset}"

    def _reject(self, row: CatalogRow, record: records.Record, fault: str) -> None:
        where = self._where(row, record)
        if self._writer.damaged == "fail":
            raise errors.BadRecordError(
                f"{where} ({row.filename}) is damaged: {fault.rstrip('.')}. Complete "
                "shards are kept: mend the data set with python -m converters.verify "
                "--repair, or leave such records out with --damaged=skip, and run the "
                "same command again to go on."
            )
        self._made.decisions["skipped_damaged_record"] += 1
        self._made.rejects.append(
            {
                "name": row.filename,
                "action": "skipped",
                "reason": "damaged_record",
                "detail": f"{where}, for copy {self._plan.copy}: {fault}",
            }
        )

    def _store(self, row: CatalogRow, made: Changed) -> None:
        new = row._replace(
            height=made.height,
            width=made.width,
            decision=made.decision,
            digest=made.digest,
        )
        self._made.add(records.frame(made.data), new.to_json(), table=made.table)
        self._made.decisions[made.decision] += 1
