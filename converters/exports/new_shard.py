"""A shard of copied records while it is written, its catalog fragment and its marker.

In: a job, the plan of a shard, and its records with their rows. Out: the three files in
the job's folder, as `jobs.write_shard` makes them. This code runs in worker processes.
"""

import collections
import contextlib
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import xxhash

from converters.exports.source import CatalogRow
from converters.jobs import write_shard
from converters.jobs.job import Job
from converters.jobs.plan import ShardPlan
from converters.jobs.write_shard import NewFile, Written
from tfpipe.shards import atomic, index
from tfpipe.shards.example import Buffers


class NewShard:
    """A shard while it is written.

    Attributes:
        decisions: Number of records by decision.
        tables: Entry points of the records, if the job writes them.
    """

    def __init__(self, plan: ShardPlan, shard: NewFile, fragment: NewFile) -> None:
        self.decisions: collections.Counter[str] = collections.Counter()
        self._plan, self._shard, self._fragment = plan, shard, fragment
        self.tables: list[bytes] = []
        self._digest = xxhash.xxh3_128()
        self._num_records = 0

    @property
    def entry(self) -> index.Shard:
        """The shard as the index lists it."""
        return index.Shard(
            name=self._plan.name,
            num_records=self._num_records,
            num_bytes=self._shard.num_bytes,
            digest=self._digest.hexdigest(),
        )

    def add(self, buffers: Buffers, row: CatalogRow, *, table: bytes = b"") -> None:
        """Writes a record.

        Args:
            buffers: The record with its frame.
            row: Its row of the catalog; its place in the shard is set here.
            table: Its entry points.
        """
        self.tables.append(table)
        byte_offset = self._shard.num_bytes
        self._shard.write(buffers)
        for buffer in buffers:
            self._digest.update(buffer)
        entry = {
            **row._asdict(),
            "split": self._plan.split,
            "shard": self._plan.number,
            "record": self._num_records,
            "byte_offset": byte_offset,
            "num_bytes": self._shard.num_bytes - byte_offset,
        }
        self._fragment.write([f"{json.dumps(entry)}\n".encode()])
        self._num_records += 1
        self.decisions[row.decision] += 1


@contextlib.contextmanager
def opened(job: Job, folder: pathlib.Path, plan: ShardPlan) -> Iterator[NewShard]:
    """Yields a new shard, which is complete on the disk after the block.

    Raises:
        OSError: If a file cannot be written.
    """
    write_shard.keep_freed_memory()
    path = folder / plan.name
    with (
        write_shard.new_file(path, job) as shard,
        write_shard.new_file(write_shard.fragment_path(path), job) as fragment,
    ):
        made = NewShard(plan, shard, fragment)
        yield made
    if job.has_entry_points(plan.split):
        write_shard.write_entry_points(path, made.tables, job)


def mark(
    job: Job,
    folder: pathlib.Path,
    plan: ShardPlan,
    entry: index.Shard,
    decisions: Mapping[str, int],
    *,
    rejects: Sequence[Mapping[str, str]] = (),
) -> Written:
    """Writes the marker of a complete shard, and returns what was written."""
    written = Written(
        split=plan.split,
        shard=entry,
        decisions=dict(decisions),
        changes=(),
        rejects=rejects,
        num_source_bytes=plan.num_input_bytes,
        psnr=(),
        num_rewritten=0,
        num_bytes_saved=0,
        job=job.identity,
    )
    marker = write_shard.marker_path(folder / plan.name)
    atomic.write(marker, written.to_json().encode(), fsync=job.fsync)
    return written
