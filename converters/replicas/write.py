"""Writes one shard of copies: each record of a source shard, with another image in it.

In: a job, and the task of a `ReplicaPlan`. Out: the shard, its catalog fragment and its
marker in the job's folder, as `jobs.write_shard` makes them. The source shard is read
once, and its digest is compared with the index. This code runs in worker processes.
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Literal

import xxhash

from converters.engines import processes
from converters.jobs import write_shard
from converters.jobs.job import Job
from converters.jobs.write_shard import NewFile, Task, Written
from converters.replicas.change import Change, Changed
from converters.replicas.plan import ReplicaPlan
from converters.replicas.source import Row, Source, changed
from tfpipe import errors
from tfpipe.shards import index, records

Damaged = Literal["fail", "skip"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Writer:
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
        write_shard.keep_freed_memory()
        path = folder / plan.name
        with (
            NewFile(path, job) as shard,
            NewFile(write_shard.fragment_path(path), job) as fragment,
        ):
            copy = _Copy(self, plan, shard, fragment)
            copy.write()
        return mark(job, folder, plan, copy.entry, copy.decisions, copy.rejects)


def plan_of(task: Task) -> ReplicaPlan:
    """Returns the plan of a task, which is one of a copy."""
    assert isinstance(task.plan, ReplicaPlan), "the job copies no data set"
    return task.plan


def mark(
    job: Job,
    folder: pathlib.Path,
    plan: ReplicaPlan,
    entry: index.Shard,
    decisions: Mapping[str, int],
    rejects: Sequence[Mapping[str, str]],
) -> Written:
    """Writes the marker of a complete shard, and returns what was written."""
    written = Written(
        split=plan.split,
        shard=entry,
        decisions=dict(decisions),
        changes=(),
        rejects=rejects,
        num_source_bytes=plan.source.num_bytes,
        psnr=(),
        num_rewritten=0,
        num_bytes_saved=0,
        job=job.identity,
    )
    marker = write_shard.marker_path(folder / plan.name)
    index.replace_file(marker, written.to_json().encode(), fsync=job.fsync)
    return written


class _Copy:
    """One shard while it is written."""

    def __init__(
        self, writer: Writer, plan: ReplicaPlan, shard: NewFile, fragment: NewFile
    ) -> None:
        self._writer, self._plan = writer, plan
        self._shard, self._fragment = shard, fragment
        self._digest = xxhash.xxh3_128()
        self._num_records = 0
        self.decisions: collections.Counter[str] = collections.Counter()
        self.rejects: list[dict[str, str]] = []

    @property
    def entry(self) -> index.Shard:
        """The shard as the index lists it."""
        return index.Shard(
            name=self._plan.name,
            num_records=self._num_records,
            num_bytes=self._shard.num_bytes,
            digest=self._digest.hexdigest(),
        )

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

    def _copy(self, row: Row, record: records.Record) -> None:
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

    def _where(self, row: Row, record: records.Record) -> str:
        shard = f"{self._writer.source.name}/{self._plan.source.name}"
        return f"{shard}: record {row.record} at byte {record.byte_offset}"

    def _reject(self, row: Row, record: records.Record, fault: str) -> None:
        where = self._where(row, record)
        if self._writer.damaged == "fail":
            raise errors.BadRecordError(
                f"{where} ({row.filename}) is damaged: {fault.rstrip('.')}. Complete "
                "shards are kept: mend the data set with python -m converters.verify "
                "--repair, or leave such records out with --damaged=skip, and run the "
                "same command again to go on."
            )
        self.decisions["skipped_damaged_record"] += 1
        self.rejects.append(
            {
                "name": row.filename,
                "action": "skipped",
                "reason": "damaged_record",
                "detail": f"{where}, for copy {self._plan.copy}: {fault}",
            }
        )

    def _store(self, row: Row, made: Changed) -> None:
        buffers = records.frame(made.data)
        byte_offset = self._shard.num_bytes
        self._shard.write(buffers)
        for buffer in buffers:
            self._digest.update(buffer)
        entry = {
            "split": self._plan.split,
            "shard": self._plan.number,
            "record": self._num_records,
            "byte_offset": byte_offset,
            "num_bytes": self._shard.num_bytes - byte_offset,
            "label": row.label,
            "synset": row.synset,
            "height": made.height,
            "width": made.width,
            "filename": row.filename,
            "decision": made.decision,
            "digest": made.digest,
        }
        self._fragment.write([f"{json.dumps(entry)}\n".encode()])
        self._num_records += 1
        self.decisions[made.decision] += 1
