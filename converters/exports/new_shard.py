"""A shard of copied records while it is written, with its fragment, marker and tables.

In: a job, the plan of a shard, and its records with their rows. Out: the shard, its
catalog fragment and its marker in the folder of the job, as `jobs.write_shard` makes
them; and the entry points of the records, which stay valid for equal bytes (see
`tfpipe.native.entry_file`). This code runs in worker processes.
"""

import collections
import contextlib
import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence

import xxhash

from converters.checks.record import CatalogRow
from converters.exports.source import Source
from converters.jobs import write_shard
from converters.jobs.job import Job
from converters.jobs.plan import ShardPlan
from converters.jobs.write_shard import NewFile, Written
from tfpipe import errors
from tfpipe.native import entry_file
from tfpipe.remote import metadata
from tfpipe.shards import atomic, index
from tfpipe.shards.example import Buffers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tables:
    """The entry points of a data set.

    Attributes:
        paths: The file of each split that has one, on this host.
    """

    paths: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)

    def of(
        self, source: Source, split: str, number: int, records: Sequence[int]
    ) -> list[bytes]:
        """Returns the tables of some records of a shard, of a split that has a file.

        Raises:
            ValueError: If the file does not fit the data set; names it.
            OSError: If the file cannot be read.
        """
        before = source.known.splits[split][:number]
        first = sum(shard.num_records for shard in before)
        return entry_file.select(self.paths[split], first, records)

    def options(self) -> dict[str, list[str]]:
        """Returns what the options of a job say about them; nothing without them."""
        return {"entry_points_of": sorted(self.paths)} if self.paths else {}


def find_tables(source: Source) -> Tables:
    """Finds the files of a data set, and fetches those at a URL.

    A file that is not the one in the index is left out, and a line on stderr says so.

    Raises:
        OSError: If there is no room for a file at a URL.
    """
    paths = {}
    for split in source.known.splits:
        name = entry_file.name_of(split)
        if (listed := (source.known.files or {}).get(name)) is None:
            continue
        try:
            paths[split] = _sound(source, name, listed)
        except (errors.RemoteError, errors.BadIndexError) as error:
            print(
                f"Warning: the entry points of {split} are left out. {error} Make them "
                f"again before or afterwards: {entry_file.REMEDY}",
                file=sys.stderr,
            )
    return Tables(paths=paths)


def _sound(source: Source, name: str, listed: index.File) -> pathlib.Path:
    """Returns the path of a file that is the one in the index."""
    if source.files is not None:
        folder = source.folder
        return metadata.bring_side_file(source.files, source.known, name, folder)
    path = source.folder / name
    if not path.is_file() or index.describe_file(path) != listed:
        raise errors.BadIndexError(
            f"{path} must be the file that {index.INDEX_NAME} lists, but it is missing "
            "or damaged."
        )
    return path.absolute()


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
