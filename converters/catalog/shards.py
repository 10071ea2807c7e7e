"""The chosen records as shards of their own: the plan, the columns, and the writer.

In: the connection of a question and its data set; or a job and a task with a
`ChosenPlan`. Out: a plan for each new shard, and a file with the columns beside the
usual ones: columns that a table brought, and columns that were added; or the shard, its
catalog fragment and its marker in the folder of the job. Records are copied whole,
after a check of their CRCs. The writer runs in worker processes.
"""

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import xxhash

from converters.catalog import question
from converters.checks.record import CatalogRow
from converters.engines import processes
from converters.exports.source import Pread, Source, changed
from converters.exports.tables import Tables
from converters.inputs.tables.extras import MoreColumns
from converters.jobs import side_files, write_shard
from converters.jobs.job import Job
from converters.jobs.plan import ShardPlan
from converters.jobs.write_shard import NewShard, Task, Written
from tfpipe import errors
from tfpipe.shards import index, records
from tfpipe.shards.sql import identifier, quoted

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
        names = side_files.shard_names(layout, source.known.name, split, count)
        for number, name in enumerate(names):
            start, stop = (len(rows) * n // count for n in (number, number + 1))
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
class ChosenWriter:
    """Writes the shards of chosen records.

    Attributes:
        source: The data set they are chosen from.
        tables: The entry points of its records.
    """

    source: Source
    tables: Tables = dataclasses.field(default_factory=Tables)

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
        with write_shard.new_shard(job, folder, plan) as made:
            for number, chosen in plan.parts:
                tables = [b""] * len(chosen)
                if job.has_entry_points(plan.split):
                    tables = self.tables.of(self.source, plan.split, number, chosen)
                _copy(self.source, plan.split, number, (chosen, tables), made)
        return write_shard.mark(job, folder, made.written())


def _copy(
    source: Source,
    split: str,
    number: int,
    chosen: tuple[Sequence[int], Sequence[bytes]],
    made: NewShard,
) -> None:
    """Copies the chosen records of one source shard, and their entry points."""
    shard = source.known.splits[split][number]
    rows = source.rows(split, number, shard)
    wanted = [rows[record] for record in chosen[0]]
    with _reading(source, shard, wanted) as pread:
        for row, table in zip(wanted, chosen[1], strict=True):
            content = pread(row.num_bytes, row.byte_offset)
            if records.record_bytes(content[: records.HEADER_BYTES]) != row.num_bytes:
                raise changed(source, shard, f"no record at byte {row.byte_offset}")
            data = content[records.HEADER_BYTES : -records.FOOTER_BYTES]
            if fault := records.data_fault(data, content[-records.FOOTER_BYTES :]):
                where = f"split = '{split}' AND shard = {number}"
                raise errors.BadRecordError(
                    f"{source.name}/{shard.name}: record {row.record} at byte "
                    f"{row.byte_offset} ({row.filename}) is damaged: {fault}. Mend the "
                    "data set with python -m converters.verify --repair, or leave the "
                    f"record out with AND NOT ({where} AND record = {row.record}) in "
                    "the clause."
                )
            made.add([content], row.to_json(), table=table)
            made.decisions[row.decision] += 1
            processes.image_done()


@contextlib.contextmanager
def _reading(
    source: Source, shard: index.Shard, wanted: Sequence[CatalogRow]
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


CARRIED_NAME = "carried.parquet"
_KEYS = ("split", "shard", "record")
_OWN = ("place", "file_row_number", *question.CLASS_COLUMNS)


def write_carried(
    connection: "duckdb.DuckDBPyConnection",
    plans: Sequence[ChosenPlan],
    path: pathlib.Path,
) -> MoreColumns | None:
    """Writes the columns with the new places of the records.

    Args:
        connection: The connection of a question that may write the file.
        plans: The new shards, whose records are the chosen ones in order.
        path: The file.

    Returns:
        The file; None if there are no such columns.
    """
    brought = _others(connection.view("file").columns, ("file_row_number",))
    added = _others(connection.view("catalog").columns, (*_OWN, *brought))
    if not brought and not added:
        return None
    listed = [f"file.{identifier(name)}" for name in brought]
    listed += [f"catalog.{identifier(name)}" for name in added]
    values, start = [], {plan.split: 0 for plan in plans}
    for plan in plans:
        first = start[plan.split]
        start[plan.split] += plan.num_images
        bounds = f"{plan.number}, {first}, {start[plan.split]}"
        values.append(f"({quoted(plan.split)}, {bounds})")
    connection.execute(
        "COPY (SELECT n.split, p.number AS shard, n.number - p.first AS record, "
        f"{', '.join(listed)} FROM (SELECT split, place, row_number() OVER (PARTITION "
        "BY split ORDER BY shard, record) - 1 AS number FROM chosen) n "
        f"JOIN (VALUES {', '.join(values)}) p (split, number, first, last) "
        "ON n.split = p.split AND n.number >= p.first AND n.number < p.last "
        "JOIN file ON file.file_row_number = n.place "
        "JOIN catalog ON catalog.place = n.place) "
        f"TO {quoted(path)} (FORMAT parquet)"
    )
    return MoreColumns(path=path, keys=_KEYS)


def _others(columns: Sequence[str], known: Sequence[str]) -> list[str]:
    taken = {*map(str.lower, known), *index.CATALOG_COLUMNS}
    return [name for name in columns if name.lower() not in taken]
