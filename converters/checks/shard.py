"""Checks a shard against index and catalog, record by record.

In: a shard and what index and catalog say about it. Out: its faults, each with record
number, byte offset and source file. Runs in worker processes and changes no file.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xxhash

from converters.checks.record import (
    CatalogRow,
    Example,
    decode_faults,
    pixel_faults,
    schema_faults,
    source_faults,
)
from converters.engines import processes
from converters.inputs.image import Image, read_image
from converters.jobs.at_url import Ahead
from tfpipe import errors
from tfpipe.cli.signals import terminated_as_interrupted
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shards import index, records
from tfpipe.shards.example import decode_example
from tfpipe.shards.sql import PARQUET

if TYPE_CHECKING:
    from converters.jobs.again import Again

# Each level includes the levels before it.
LEVELS = ("quick", "crc", "schema", "decode", "source")
# Faults that are kept for one shard, and for the whole result; more are only counted.
MAX_FAULTS = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault in a data set, and its place.

    Attributes:
        shard: Name of the shard, or of the file beside the shards.
        record: Number of the record in its shard; None for a fault of the file.
        byte_offset: Where the record starts in the shard; None if unknown.
        file: Source file of the record; None if unknown.
        fault: The expected and the actual state.
    """

    shard: str
    record: int | None = None
    byte_offset: int | None = None
    file: str | None = None
    fault: str

    def __str__(self) -> str:
        place = "" if self.record is None else f" record {self.record}"
        place += "" if self.byte_offset is None else f" at byte {self.byte_offset}"
        place += "" if self.file is None else f" ({self.file})"
        return f"{self.shard}{place}: {self.fault}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the check of all shards of a data set.

    Attributes:
        data_dir: Folder of the shards; for a URL, folder of a copy of the catalog.
        files: The files at the URL of the shards; None for a folder.
        level: One of LEVELS.
        features: Kind of each feature that a record must have; None stands for the
            features that the converters write.
        classes: (synset, text) of each class, in label order.
        label_base: Label of the first class.
        input_dir: Folder of the source images; needed by the level "source" only.
        multi_label: Whether a record may have any number of labels.
    """

    data_dir: pathlib.Path
    files: Files | None = None
    level: str
    features: Mapping[str, str] | None
    classes: Sequence[tuple[str, str]]
    label_base: int
    input_dir: Location | None
    multi_label: bool = False

    def reaches(self, level: str) -> bool:
        """Whether the level of the settings includes the checks of this level."""
        return LEVELS.index(self.level) >= LEVELS.index(level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckTask:
    """A shard to check.

    Attributes:
        split: Name of its split.
        number: Number of the shard in its split, from 0.
        shard: Entry of the shard in the index.
        byte_offsets: int64 [num_records], the start of each record according to the
            catalog; None if the catalog cannot be used for this shard.
        images: The source images by their names in the catalog.
    """

    split: str
    number: int
    shard: index.Shard
    byte_offsets: records.Ints | None
    images: Mapping[str, Image] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Findings:
    """Faults of a shard.

    Attributes:
        shard: Name of the shard.
        faults: The first MAX_FAULTS of its faults.
        num_faults: Number of all its faults.
        num_not_comparable: Number of records with other bytes or pixels than their
            source, such as smaller images; the level "source" cannot check these.
    """

    shard: str
    faults: list[Fault] = dataclasses.field(default_factory=list)
    num_faults: int = 0
    num_not_comparable: int = 0

    def add(self, fault: Fault) -> None:
        """Counts a fault, and keeps it if it is among the first MAX_FAULTS."""
        self.num_faults += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)


@dataclasses.dataclass
class Result:
    """Faults and counts of a whole data set.

    Attributes:
        num_records: Number of records in all shards.
        num_shards: Number of shards.
        num_bytes: Bytes of all shards.
        faults: The first MAX_FAULTS faults.
        num_faults: Number of all faults.
        bad_names: Names of the shards and other files that have faults.
        details: Further keys of the JSON document, written as they are.
    """

    num_records: int
    num_shards: int
    num_bytes: int
    faults: list[Fault] = dataclasses.field(default_factory=list)
    num_faults: int = 0
    bad_names: set[str] = dataclasses.field(default_factory=set)
    details: dict[str, Any] = dataclasses.field(default_factory=lambda: {"remarks": []})

    def add(self, faults: Iterable[Fault]) -> None:
        """Counts faults, and keeps those among the first MAX_FAULTS."""
        for fault in faults:
            self.num_faults += 1
            self.bad_names.add(fault.shard)
            if len(self.faults) < MAX_FAULTS:
                self.faults.append(fault)

    def add_findings(self, findings: Findings) -> None:
        """Adds the faults of one shard, including those that it only counted."""
        self.add(findings.faults)
        self.num_faults += findings.num_faults - len(findings.faults)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The data set to check, the level, and the resources.

    Attributes:
        data_dir: Folder of the data set; for a URL, folder with copies of its index and
            its catalog.
        files: The files at the URL of the data set; None for a folder.
        level: One of LEVELS.
        num_workers: Most worker processes to use.
        again: The source images, if they are needed.
    """

    data_dir: pathlib.Path
    files: Files | None = None
    level: str
    num_workers: int
    again: "Again | None" = None

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], *, num_records: int
    ) -> list[Any]:
        """Calls a function on all tasks in worker processes; a task is a shard.

        Args:
            function: Takes a task; must be picklable.
            tasks: The tasks.
            num_records: Number of records in all tasks, for the progress line; 0 if
                it is unknown.

        Returns:
            The results of the function, in the order of the tasks.
        """
        if not tasks:
            return []
        num_workers = min(self.num_workers, len(tasks))
        with terminated_as_interrupted():
            return processes.run(
                function, tasks, num_workers=num_workers, num_images=num_records
            )


def check_shard(settings: Settings, task: CheckTask) -> Findings:
    """Reads all of a shard and checks it up to the level of the settings.

    Raises:
        OSError: If the shard, the catalog or a source image cannot be read: an error of
            the system is no fault of the data.
        RemoteError: If a URL cannot be read.
    """
    checker = _Checker(settings, task)
    checker.check()
    return checker.findings


class _Checker:
    """Checks a shard; reads the catalog's rows only if they are needed."""

    def __init__(self, settings: Settings, task: CheckTask) -> None:
        self._settings = settings
        self._task = task
        self.findings = Findings(task.shard.name)

    def check(self) -> None:
        digest = xxhash.xxh3_128()
        offsets = self._task.byte_offsets
        number = 0
        for record in self._read(digest.update):
            for fault in self._record_faults(number, record):
                self._add(number, record.byte_offset, fault)
            number += 1
            processes.image_done()
        expected = self._task.shard
        if number < expected.num_records:
            offset = None if offsets is None else int(offsets[number])
            last = expected.num_records - 1
            self._add(
                number, offset, f"missing, like all records up to {last}, the last one"
            )
        # A damaged record changes the digest too, so that the digest adds nothing then.
        elif not self.findings.num_faults and digest.hexdigest() != expected.digest:
            fault = (
                f"the digest must be {expected.digest} as the index says, got "
                f"{digest.hexdigest()}, though every CRC is right: the shard was "
                "written again; --level=schema compares its records with the catalog"
            )
            self.findings.add(Fault(shard=expected.name, fault=fault))

    def _read(self, on_bytes: Callable[[bytes], object]) -> Iterator[records.Record]:
        offsets, name = self._task.byte_offsets, self._task.shard.name
        known: Sequence[int] = () if offsets is None else offsets.tolist()
        if self._settings.files is None:
            path = self._settings.data_dir / name
            yield from records.read(path, byte_offsets=known, on_bytes=on_bytes)
            return
        size = self._settings.files.size(name)
        with Ahead(self._settings.files, name, size) as shard:
            yield from records.read_from(
                shard.pread, size, byte_offsets=known, on_bytes=on_bytes
            )

    def _add(self, number: int, byte_offset: int | None, fault: str) -> None:
        rows = self._rows
        file = rows[number].filename if number < len(rows) else None
        self.findings.add(
            Fault(
                shard=self._task.shard.name,
                record=number,
                byte_offset=byte_offset,
                file=file or None,
                fault=fault,
            )
        )

    @functools.cached_property
    def _rows(self) -> Sequence[CatalogRow]:
        if self._task.byte_offsets is None:
            return ()
        return load_rows(self._settings.data_dir, self._task.split, self._task.number)

    def _record_faults(self, number: int, record: records.Record) -> Iterator[str]:
        if record.fault:
            yield record.fault
            return  # damaged data cannot be trusted
        num_records = self._task.shard.num_records
        if number >= num_records:
            yield f"too many: the index says that the shard has {num_records} records"
            return
        offsets = self._task.byte_offsets
        if offsets is None:
            return
        if record.byte_offset != offsets[number]:
            yield f"the catalog says that it starts at byte {offsets[number]}"
        if self._settings.reaches("schema"):
            yield from self._content_faults(record.data, self._rows[number])

    def _content_faults(self, data: bytes, row: CatalogRow) -> Iterator[str]:
        settings = self._settings
        wrong = list(
            schema_faults(
                data,
                row,
                features=settings.features,
                classes=settings.classes,
                label_base=settings.label_base,
                multi_label=settings.multi_label,
            )
        )
        yield from wrong
        if wrong or not settings.reaches("decode"):
            return
        example = decode_example(data)
        yield from decode_faults(example, decision=row.decision)
        if settings.reaches("source"):
            yield from self._source_faults(example, row)

    def _source_faults(self, example: Example, row: CatalogRow) -> Iterator[str]:
        rewritten = row.decision.startswith("rewritten")
        if not rewritten and not row.decision.startswith("kept"):
            self.findings.num_not_comparable += 1
            return
        assert self._settings.input_dir is not None, "the level source has a source"
        if (image := self._task.images.get(row.filename)) is None:
            yield f"the input must hold the image {row.filename}, got no such image"
            return
        try:
            source = read_image(self._settings.input_dir, image)
        except (ValueError, FileNotFoundError, errors.MissingFileError) as error:
            yield f"the source cannot be read: {error}"
            return
        except OSError as error:
            if error.errno is not None:  # of the disk, and no fault of the data
                raise
            yield f"the source cannot be read: {error}"
            return
        compare = pixel_faults if rewritten else source_faults
        yield from compare(example, source)


def load_rows(data_dir: pathlib.Path, split: str, number: int) -> list[CatalogRow]:
    """Loads the catalog's rows of a shard, in the order of the records.

    Raises:
        BadIndexError: If the catalog cannot be read.
    """
    names = ", ".join(CatalogRow._fields)
    query = (
        f"SELECT {names} FROM {PARQUET} WHERE split = ? AND shard = ? ORDER BY record"
    )
    rows = index.query_catalog(data_dir, query, [split, number])
    return [CatalogRow(*row) for row in rows]
