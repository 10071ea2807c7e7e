"""Writes a shard: every image of its plan, with checksums, and synced to the disk.

In: a job and a `Task`. Out: the shard, its catalog fragment (a JSON object a record)
and, last, its marker, all in the job's folder. The marker says that both files are
complete, and what was decided about every image. This code runs in worker processes.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import xxhash

from converters.engines import processes
from converters.images import prepare
from converters.inputs.image import Box, Image, catalog_name
from converters.jobs.job import Job
from converters.jobs.plan import ShardPlan
from converters.jobs.read_ahead import read_ahead
from tfpipe import errors
from tfpipe.location import atomic, parts
from tfpipe.native import entry_file, entry_points
from tfpipe.shards import image_record, index, records
from tfpipe.shards.example import Buffers

FRAGMENT_SUFFIX = ".catalog"
MARKER_SUFFIX = ".done"
ENTRY_POINTS_SUFFIX = ".entry_points"
# Bytes in one system call: with larger pieces the kernel takes larger pages.
_BATCH_BYTES = 1 << 20
_BATCH_BUFFERS = 1000  # the kernel takes 1024
_KEPT_BYTES = 16 << 20


class Task(NamedTuple):
    """A shard to write, and the boxes of its images, by name, where there are any."""

    plan: ShardPlan
    boxes: Mapping[str, Sequence[Box]]


def task_of(job: Job, plan: ShardPlan) -> Task:
    """Returns the task that writes a shard of a job."""
    found = ((image.name, job.boxes_of(image.name)) for image in plan.images)
    return Task(plan, {name: boxes for name, boxes in found if boxes})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """A complete shard.

    Attributes:
        split: Split of the shard.
        shard: Name, size and digest of the shard, as the index lists them.
        decisions: Number of images by decision: how they were stored, or why they were
            left out.
        changes: Name and decision of every image that is not stored byte for byte.
        rejects: Name, reason and detail of every image that is not stored.
        num_source_bytes: Bytes of the images as they were read.
        psnr: Peak signal-to-noise ratios in decibels between the pixels before and
            after, for a sample of the images that were scaled down or encoded again.
        num_rewritten: Number of images that were rewritten with a restart marker after
            every row of blocks.
        num_bytes_saved: Bytes by which rewriting made these images smaller.
        source_digest: Digest of the digests of the images as they were read; empty in a
            marker of an earlier version.
        job: Identity of the job that wrote the shard.
    """

    split: str
    shard: index.Shard
    decisions: Mapping[str, int]
    num_source_bytes: int
    changes: Sequence[Mapping[str, str]] = ()
    rejects: Sequence[Mapping[str, str]] = ()
    psnr: Sequence[float] = ()
    num_rewritten: int = 0
    num_bytes_saved: int = 0
    source_digest: str = ""
    job: str = ""

    def to_json(self) -> str:
        """Returns the content of the marker."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Written":
        """Returns the shard that a marker describes: the inverse of `to_json`."""
        fields = errors.from_json(text)
        return cls(**fields | {"shard": index.Shard(**fields["shard"])})


def write_shard(job: Job, folder: pathlib.Path, task: Task) -> Written:
    """Writes a shard, its catalog fragment and its marker.

    Args:
        job: The conversion.
        folder: Folder of the three files.
        task: The shard.

    Raises:
        ValueError: If an image is bad and the policy is to fail; names the file.
        OSError: If a file cannot be read or written.
    """
    with new_shard(job, folder, task.plan) as new:
        _write_records(job, task, new)
    return mark(job, folder, new.written(source_digest=new.source.hexdigest()))


@contextlib.contextmanager
def new_shard(job: Job, folder: pathlib.Path, plan: ShardPlan) -> Iterator["NewShard"]:
    """Yields a shard; after the block it is complete on the disk, without a marker.

    Raises:
        OSError: If a file cannot be written.
    """
    keep_freed_memory()
    path = folder / plan.name
    with new_file(path, job) as shard, new_file(fragment_path(path), job) as fragment:
        new = NewShard(job, plan, shard, fragment)
        yield new
    if job.has_entry_points(plan.split):
        write_entry_points(path, new.tables, job)


def mark(job: Job, folder: pathlib.Path, written: Written) -> Written:
    """Writes the marker of a complete shard, and returns what the marker says."""
    marker = marker_path(folder / written.shard.name)
    atomic.write(marker, written.to_json().encode(), fsync=job.fsync)
    return written


def keep_freed_memory() -> None:
    """Makes the C library keep the memory of one image for the next image.

    Without this call, writing a shard takes a quarter more time. The C library of Linux
    gives large pieces back to the system, and gets them again, page by page, for each
    image. After a larger piece was freed, the library keeps pieces up to the size of
    that one (mallopt(3), M_MMAP_THRESHOLD). Elsewhere the call has no effect.
    """
    bytes(_KEPT_BYTES)


def _write_records(job: Job, task: Task, new: "NewShard") -> None:
    """Writes the records and catalog rows of a shard."""
    more = _features(job, task.plan)
    images = read_ahead(job.input_dir, task.plan.images, is_read=_is_read(job))
    for image, read in images:
        features = more.get(catalog_name(image.name)) if more else None
        boxes = task.boxes.get(image.name, ())
        _store(image, read, boxes, job, new, features=features)
        processes.image_done()
    for file in {image.file for image in task.plan.images} & job.states.keys():
        parts.require_same(job.input_dir.resolve(file), job.states[file])


def _is_read(job: Job) -> Callable[[Image], bool]:
    """Returns whether the policy reads the bytes of an image."""
    return lambda image: prepare.check_bytes(image.num_bytes, job.policy) is None


def _features(job: Job, plan: ShardPlan) -> Mapping[str, Mapping[str, Buffers]]:
    """Returns more features of the images of a shard, by name, if there are any."""
    if job.more_columns is None:
        return {}
    return job.more_columns.features(catalog_name(image.name) for image in plan.images)


def fragment_path(shard_path: pathlib.Path) -> pathlib.Path:
    """Returns the path of a shard's catalog rows, which are joined at the end."""
    return shard_path.with_name(shard_path.name + FRAGMENT_SUFFIX)


def entry_points_path(shard_path: pathlib.Path) -> pathlib.Path:
    """Returns the path of a shard's entry points, which are joined at the end."""
    return shard_path.with_name(shard_path.name + ENTRY_POINTS_SUFFIX)


def write_entry_points(
    shard_path: pathlib.Path, tables: Sequence[bytes], job: Job
) -> None:
    """Writes the entry points of the records of a shard."""
    path = entry_points_path(shard_path)
    atomic.write(path, entry_file.encode(tables), fsync=job.fsync)


def marker_path(shard_path: pathlib.Path) -> pathlib.Path:
    """Returns the path of the file that marks a shard and its fragment as complete."""
    return shard_path.with_name(shard_path.name + MARKER_SUFFIX)


def part_path(path: pathlib.Path, job: Job) -> pathlib.Path:
    """Returns a path for a file until it is complete, another one at every call."""
    # Another process may write the same shard, with the same bytes, also on another
    # host, where it may have the same number. By the number of the task, later runs
    # find out whether the process may still be running.
    writer = f"{job.task_index:05d}-{int.from_bytes(os.urandom(8), 'big')}"
    return path.with_name(f"{path.name}.{writer}.part")


def read_marker(shard_path: pathlib.Path) -> Written | None:
    """Reads a shard's marker; returns None if the marker is missing or damaged.

    A power loss can empty a marker that was written with --nofsync.
    """
    try:
        return Written.from_json(marker_path(shard_path).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


class NewShard:
    """A shard while it is written, its catalog rows, and the decisions so far.

    Attributes:
        decisions: Number of images by decision.
        changes: As in `Written`.
        rejects: As in `Written`.
        tables: Entry points of the records, if the job writes them.
        source: Digest of the digests of the images as they were read.
    """

    def __init__(
        self, job: Job, plan: ShardPlan, shard: "NewFile", fragment: "NewFile"
    ) -> None:
        self._job, self._plan, self._shard, self._fragment = job, plan, shard, fragment
        self._start = f'{{"split": {_quoted(plan.split)}, "shard": {plan.number}, '
        self._digest, self.source = xxhash.xxh3_128(), xxhash.xxh3_128()
        self._num_records = self._num_rewritten = self._num_bytes_saved = 0
        self.decisions: collections.Counter[str] = collections.Counter()
        self.changes: list[dict[str, str]] = []
        self.rejects: list[dict[str, str]] = []
        self._psnr: list[float] = []
        self.tables: list[bytes] = []

    def add(self, buffers: Buffers, row: str, *, table: bytes = b"") -> None:
        """Writes a record.

        Args:
            buffers: The record with its frame.
            row: Members of the JSON object of its catalog row, without those that say
                where the record is in its split and shard.
            table: Its entry points.
        """
        byte_offset = self._shard.num_bytes
        self._shard.write(buffers)
        for buffer in buffers:
            self._digest.update(buffer)
        location = (
            f'{self._start}"record": {self._num_records}, '
            f'"byte_offset": {byte_offset}, '
            f'"num_bytes": {self._shard.num_bytes - byte_offset}, '
        )
        self._fragment.write([f"{location}{row}}}\n".encode()])
        self._num_records += 1
        self.tables.append(table)

    def written(self, *, source_digest: str = "") -> Written:
        """Returns what the marker says."""
        return Written(
            split=self._plan.split,
            shard=index.Shard(
                name=self._plan.name,
                num_records=self._num_records,
                num_bytes=self._shard.num_bytes,
                digest=self._digest.hexdigest(),
            ),
            decisions=dict(self.decisions),
            changes=self.changes,
            rejects=self.rejects,
            num_source_bytes=self._plan.num_input_bytes,
            psnr=self._psnr,
            num_rewritten=self._num_rewritten,
            num_bytes_saved=self._num_bytes_saved,
            source_digest=source_digest,
            job=self._job.identity,
        )

    def reject(self, image: Image, rejected: prepare.Rejected) -> None:
        self.decisions[f"skipped_{rejected.reason}"] += 1
        reject = {"name": catalog_name(image.name), "action": "skipped"}
        self.rejects.append(
            reject | {"reason": rejected.reason, "detail": rejected.detail}
        )

    def store(self, image: Image, prepared: prepare.Prepared) -> None:
        self.decisions[prepared.decision] += 1
        if prepare.is_changed(prepared.decision):
            name = catalog_name(image.name)
            self.changes.append({"name": name, "action": prepared.decision})
        if prepared.psnr is not None:
            self._psnr.append(prepared.psnr)
        if prepared.num_bytes_saved is not None:
            self._num_rewritten += 1
            self._num_bytes_saved += prepared.num_bytes_saved


@contextlib.contextmanager
def new_file(path: pathlib.Path, job: Job) -> Iterator["NewFile"]:
    """Yields a file that gets its name only when it is complete."""
    with (
        atomic.new_file(path, part=part_path(path, job), fsync=job.fsync) as part,
        open(part, "wb", buffering=0) as opened,
    ):
        file = NewFile(opened.fileno(), path)
        yield file
        file.flush()


class NewFile:
    """An open file, written in large batches; counts its bytes."""

    def __init__(self, descriptor: int, path: pathlib.Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._pending: list[bytes] = []
        self._num_written = 0
        self.num_bytes = 0

    def write(self, buffers: Buffers) -> None:
        self._pending += buffers
        self.num_bytes += sum(map(len, buffers))
        full = self.num_bytes - self._num_written >= _BATCH_BYTES
        if full or len(self._pending) > _BATCH_BUFFERS:
            self.flush()

    def flush(self) -> None:
        """Writes what is still in memory."""
        pending, self._pending = self._pending, []
        num_left = self.num_bytes - self._num_written
        with atomic.naming(self._path):
            num_left -= os.writev(self._descriptor, pending)
            if num_left:  # the disk is nearly full, and the next write raises an error
                rest = memoryview(b"".join(pending))[-num_left:]
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
        self._num_written = self.num_bytes


def _store(
    image: Image,
    read: Callable[[], bytes],
    boxes: Sequence[Box],
    job: Job,
    new: NewShard,
    *,
    features: Mapping[str, Buffers] | None,
) -> None:
    """Adds the record of an image to a shard, or the reason why it is left out."""
    prepared, source_digest = _prepare(image, read, job)
    if isinstance(prepared, prepare.Rejected):
        new.source.update(source_digest)
        new.reject(image, prepared)
        return
    digest = xxhash.xxh3_128_digest(prepared.encoded)
    new.source.update(source_digest or digest)
    new.store(image, prepared)
    table = b""
    if job.policy.entry_points:
        table = entry_points.find(prepared.encoded).table
    label = job.classes[image.class_index]
    record = image_record.ImageRecord(
        encoded=prepared.encoded,
        height=prepared.height,
        width=prepared.width,
        label=label.label,
        synset=label.synset,
        text=label.text,
        filename=image.name.rpartition("/")[2],
        boxes=boxes,
        features=features,
    )
    # json.dumps of the whole row takes longer: only some values need quoting.
    row = (
        f'"label": {label.label}, "synset": {_quoted(label.synset)}, '
        f'"height": {prepared.height}, "width": {prepared.width}, '
        f'"filename": {json.dumps(catalog_name(image.name))}, '
        f'"decision": "{prepared.decision}", "digest": "{digest.hex()}"'
    )
    new.add(records.frame(image_record.encode_image(record)), row, table=table)


def _prepare(
    image: Image, read: Callable[[], bytes], job: Job
) -> tuple[prepare.Prepared | prepare.Rejected, bytes]:
    """Reads an image, and decides what is stored for it.

    Returns:
        What is stored, or why nothing is; and the digest of the file's bytes, which is
        empty if these bytes are stored as they are or are not read.
    """
    try:
        rejected = prepare.check_bytes(image.num_bytes, job.policy)
        if rejected is not None:
            return rejected, b""
        source = read()
        prepared = prepare.prepare(source, job.policy)
    except MemoryError as error:
        raise OSError(
            f"{job.input_dir.resolve(image.file).shown}: {image.name} needs more "
            "memory than there is. Try fewer --num_workers or a lower "
            "--max_decoded_pixels."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{job.input_dir.resolve(image.file).shown}: {image.name}: {error}. "
            "Restore it, remove it from the input, or choose another policy."
        ) from error
    if isinstance(prepared, prepare.Prepared) and prepared.encoded is source:
        return prepared, b""
    return prepared, xxhash.xxh3_128_digest(source)


_quoted = functools.lru_cache(maxsize=1 << 14)(json.dumps)
