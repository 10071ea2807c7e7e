"""The chosen records as shards of their own: the plan, and how a shard is written.

In: the connection of a question and its data set; or a job and a task with a
`ChosenPlan`. Out: a plan for each new shard; or the shard, its catalog fragment and its
marker in the job's folder. Records are copied whole, after a check of their CRCs. The
writer runs in worker processes.
"""

import collections
import contextlib
import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import xxhash

from converters.engines import processes
from converters.jobs import side_files, write_shard
from converters.jobs.job import Job
from converters.jobs.plan import ShardPlan
from converters.jobs.write_shard import NewFile, Task, Written
from converters.replicas.source import Pread, Row, Source, changed
from tfpipe import errors
from tfpipe.shards import index, records

if TYPE_CHECKING:
    import duckdb

# Part of a shard at a URL from which on all of it is read: one request for each record
# takes longer than the bytes between them.
_READ_WHOLE = 0.2


@dataclasses.dataclass(frozen=True)
class ChosenPlan(ShardPlan):
    """One shard of chosen records; it has no images of its own.

    Attributes:
        parts: Number of each source shard in its split, and the numbers of the chosen
            records in it, rising.
        num_bytes: Bytes of these records.
    """

    parts: Sequence[tuple[int, Sequence[int]]]
    num_bytes: int

    @property
    def num_images(self) -> int:
        """Number of records."""
        return sum(len(chosen) for _, chosen in self.parts)

    @property
    def num_input_bytes(self) -> int:
        """Bytes of the records."""
        return self.num_bytes

    def room(self, *, shrinks: bool) -> int:
        """Returns the bytes that the shard needs on the disk."""
        return self.num_bytes


def make_plans(
    connection: "duckdb.DuckDBPyConnection", source: Source, *, layout: str
) -> list[ChosenPlan]:
    """Returns the plan of each new shard, by split and number.

    The records keep their order. A split gets as many shards as its bytes fill at the
    mean size of its shards in the source; their records differ by at most one.

    Args:
        connection: The connection of a question.
        source: The data set.
        layout: How shards are named: a key of `side_files.LAYOUTS`.

    Raises:
        ValueError: If no record is chosen, or TFDS could not read the shards' names.
    """
    plans = []
    for split, shards in source.known.splits.items():
        rows = connection.execute(
            "SELECT shard, record, num_bytes FROM chosen WHERE split = ? "
            "ORDER BY shard, record",
            [split],
        ).fetchall()
        if not rows:
            continue
        mean = sum(shard.num_bytes for shard in shards) / len(shards)
        full = math.ceil(sum(row[2] for row in rows) / max(mean, 1))
        count = min(max(full, 1), len(rows))
        for number in range(count):
            start, stop = (len(rows) * n // count for n in (number, number + 1))
            name = side_files.shard_name(
                layout,
                source.known.name,
                split=split,
                number=number,
                num_shards=count,
            )
            plans.append(_plan(split, number, name, rows[start:stop]))
    if not plans:
        raise ValueError("No record is chosen, so there is nothing to write.")
    return plans


def _plan(
    split: str, number: int, name: str, rows: Sequence[tuple[int, int, int]]
) -> ChosenPlan:
    parts: dict[int, list[int]] = {}
    for shard, record, _ in rows:
        parts.setdefault(shard, []).append(record)
    num_bytes = sum(row[2] for row in rows)
    listed = tuple((shard, tuple(chosen)) for shard, chosen in parts.items())
    return ChosenPlan(split, number, name, (), listed, num_bytes)


def digest(plans: Sequence[ChosenPlan]) -> str:
    """Returns a digest of the choice, for the identity of the job."""
    found = xxhash.xxh3_128()
    for plan in plans:
        found.update(repr((plan.name, plan.parts)).encode())
    return found.hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Writer:
    """Writes the shards of chosen records.

    Attributes:
        source: The data set they are chosen from.
    """

    source: Source

    def __call__(self, job: Job, folder: pathlib.Path, task: Task) -> Written:
        """Writes a shard, its catalog fragment and its marker.

        Raises:
            BadRecordError: If a record is damaged.
            OSError: If a file cannot be read or written, or a source shard is not the
                one in the index.
            RemoteError: If the source cannot be read.
        """
        plan = task.plan
        assert isinstance(plan, ChosenPlan), "the job copies no chosen records"
        write_shard.keep_freed_memory()
        path = folder / plan.name
        with (
            NewFile(path, job) as shard,
            NewFile(write_shard.fragment_path(path), job) as fragment,
        ):
            copy = _Copy(self.source, plan, shard, fragment)
            copy.write()
        written = Written(
            split=plan.split,
            shard=copy.entry,
            decisions=dict(copy.decisions),
            changes=(),
            rejects=(),
            num_source_bytes=plan.num_bytes,
            psnr=(),
            num_rewritten=0,
            num_bytes_saved=0,
            job=job.identity,
        )
        marker = write_shard.marker_path(path)
        index.replace_file(marker, written.to_json().encode(), fsync=job.fsync)
        return written


class _Copy:
    """One shard while it is written."""

    def __init__(
        self, source: Source, plan: ChosenPlan, shard: NewFile, fragment: NewFile
    ) -> None:
        self._source, self._plan = source, plan
        self._shard, self._fragment = shard, fragment
        self._digest = xxhash.xxh3_128()
        self._num_records = 0
        self.decisions: collections.Counter[str] = collections.Counter()

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
        """Copies the chosen records of each source shard."""
        for number, chosen in self._plan.parts:
            shard = self._source.known.splits[self._plan.split][number]
            rows = self._source.rows(self._plan.split, number, shard)
            wanted = [rows[record] for record in chosen]
            with _reading(self._source, shard, wanted) as pread:
                for row in wanted:
                    self._copy(shard, row, pread(row.num_bytes, row.byte_offset))
                    processes.image_done()

    def _copy(self, shard: index.Shard, row: Row, content: bytes) -> None:
        if records.record_bytes(content[: records.HEADER_BYTES]) != row.num_bytes:
            raise changed(self._source, shard, f"no record at byte {row.byte_offset}")
        data = content[records.HEADER_BYTES : -records.FOOTER_BYTES]
        if fault := records.data_fault(data, content[-records.FOOTER_BYTES :]):
            where = (
                f"split = '{self._plan.split}' AND shard = "
                f"{self._source.known.splits[self._plan.split].index(shard)} AND "
                f"record = {row.record}"
            )
            raise errors.BadRecordError(
                f"{self._source.name}/{shard.name}: record {row.record} at byte "
                f"{row.byte_offset} ({row.filename}) is damaged: {fault}. Mend "
                "the data set with python -m converters.verify --repair, or leave the "
                f"record out with AND NOT ({where}) in the clause."
            )
        offset = self._shard.num_bytes
        self._shard.write([content])
        self._digest.update(content)
        entry = {
            **row._asdict(),
            "split": self._plan.split,
            "shard": self._plan.number,
            "record": self._num_records,
            "byte_offset": offset,
        }
        self._fragment.write([f"{json.dumps(entry)}\n".encode()])
        self._num_records += 1
        self.decisions[row.decision] += 1


@contextlib.contextmanager
def _reading(
    source: Source, shard: index.Shard, wanted: Sequence[Row]
) -> Iterator[Pread]:
    """Opens a shard for reading some of its records."""
    num_bytes = sum(row.num_bytes for row in wanted)
    if source.files is None or num_bytes >= _READ_WHOLE * shard.num_bytes:
        with source.reading(shard) as pread:
            yield pread
        return
    files = source.files

    def pread_range(num_bytes: int, offset: int) -> bytes:
        return files.read_range(shard.name, offset, offset + num_bytes)

    yield pread_range
