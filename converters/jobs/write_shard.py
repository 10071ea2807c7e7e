"""Write one shard: every image of its plan, checksummed, synced, then named.

In: a `Task`. Out: in the working folder the shard, its catalog fragment (one JSON
object a record) and, last, its marker, which says that both are complete and what was
decided about each image. RecordRanges in worker processes.
"""

import collections
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import xxhash

from converters.engines import processes
from converters.images import policy as policy_images, prepare, restart
from converters.inputs.classes import Class
from converters.inputs.ilsvrc import Image, catalog_name, read_image
from converters.jobs.plan import ShardPlan
from tfpipe.shards import image_record, index, records

FRAGMENT_SUFFIX = ".catalog"
MARKER_SUFFIX = ".done"
# What one system call writes: with larger pieces the kernel takes larger pages.
_BATCH_BYTES = 1 << 20
_BATCH_BUFFERS = 1000  # the kernel takes 1024
_KEPT_BYTES = 16 << 20

Box = tuple[float, float, float, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What all shards of a job have in common.

    Attributes:
        input_dir: Folder that the images' files are relative to.
        work_dir: Where shards are written.
        classes: All classes in label order.
        policy: What to do about each kind of image.
        fsync: Whether a shard is on the disk, and not only with the kernel, when it is
            called complete.
        job: Identity of the job, which its markers carry.
        task: Which of the job's tasks writes, for the names of unfinished files.

    Raises:
        ValueError: If the policy needs a library that is not built.
    """

    input_dir: pathlib.Path
    work_dir: pathlib.Path
    classes: Sequence[Class]
    policy: policy_images.Policy
    fsync: bool
    job: str = ""
    task: int = 0

    def __post_init__(self) -> None:
        if self.policy.restart_rows:
            restart.require()


class Task(NamedTuple):
    """One shard to write, and the boxes of those of its images that have some."""

    plan: ShardPlan
    boxes: Mapping[str, Sequence[Box]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """A complete shard.

    Attributes:
        split: Its split.
        shard: What the index says of it.
        decisions: How many images were stored in which way, or left out and why.
        changes: name, decision of each image that is not stored byte for byte.
        rejects: name, reason, detail of each image that is not stored.
        num_source_bytes: Bytes of its images as they came.
        psnr: Decibels between pixels before and after, of a sample of shrunk images.
        num_rewritten: Images with a restart marker after each row of blocks.
        num_bytes_saved: Bytes by which that made them smaller.
        source_digest: Of the digests of its images as they came; empty in a marker of
            an earlier version.
        job: Identity of the job that wrote it.
    """

    split: str
    shard: index.Shard
    decisions: Mapping[str, int]
    changes: Sequence[Mapping[str, str]]
    rejects: Sequence[Mapping[str, str]]
    num_source_bytes: int
    psnr: Sequence[float]
    num_rewritten: int
    num_bytes_saved: int
    source_digest: str = ""
    job: str = ""

    def to_json(self) -> str:
        """The content of the marker."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Written":
        """The inverse of `to_json`."""
        fields = json.loads(text)
        return cls(**fields | {"shard": index.Shard(**fields["shard"])})


def write_shard(settings: Settings, task: Task) -> Written:
    """Writes a shard, its catalog fragment and its marker into the working folder.

    Raises:
        ValueError: If an image is bad and the policy is to fail; names the file.
        OSError: If a file cannot be read or written.
    """
    _keep_freed_memory()
    path = settings.work_dir / task.plan.name
    tally = _Tally()
    with (
        _NewFile(path, settings) as shard,
        _NewFile(fragment_path(path), settings) as fragment,
    ):
        digest = _write_records(settings, task, tally, shard, fragment)
    written = Written(
        split=task.plan.split,
        shard=index.Shard(
            name=task.plan.name,
            num_records=tally.num_records,
            num_bytes=shard.num_bytes,
            digest=digest,
        ),
        decisions=dict(tally.decisions),
        changes=tally.changes,
        rejects=tally.rejects,
        num_source_bytes=sum(image.num_bytes for image in task.plan.images),
        psnr=tally.psnr,
        num_rewritten=tally.num_rewritten,
        num_bytes_saved=tally.num_bytes_saved,
        source_digest=tally.source.hexdigest(),
        job=settings.job,
    )
    marker = written.to_json().encode()
    index.replace_file(marker_path(path), marker, fsync=settings.fsync)
    return written


def _keep_freed_memory() -> None:
    """Lets memory of one image serve the next; without it, a quarter slower.

    The C library of Linux gives large pieces back to the system and gets them again,
    page by page, for each image. Once a larger piece was freed, it keeps those up to
    that size (mallopt(3), M_MMAP_THRESHOLD). Elsewhere this does nothing.
    """
    bytes(_KEPT_BYTES)


def _write_records(
    settings: Settings,
    task: Task,
    tally: "_Tally",
    shard: "_NewFile",
    fragment: "_NewFile",
) -> str:
    """Writes what is stored of a shard's images; returns the digest of the shard."""
    start = f'{{"split": {_quoted(task.plan.split)}, "shard": {task.plan.number}, '
    digest = xxhash.xxh3_128()
    for image in task.plan.images:
        stored = _store(image, task.boxes.get(image.name, ()), settings, tally)
        if stored is not None:
            row, buffers = stored
            byte_offset = shard.num_bytes
            shard.write(buffers)
            for buffer in buffers:
                digest.update(buffer)
            place = (
                f'{start}"record": {tally.num_records}, "byte_offset": {byte_offset}, '
                f'"num_bytes": {shard.num_bytes - byte_offset}, '
            )
            fragment.write([f"{place}{row}}}\n".encode()])
            tally.num_records += 1
        processes.image_done()
    return digest.hexdigest()


def fragment_path(shard_path: pathlib.Path) -> pathlib.Path:
    """Where the catalog rows of a shard wait to be joined."""
    return shard_path.with_name(shard_path.name + FRAGMENT_SUFFIX)


def marker_path(shard_path: pathlib.Path) -> pathlib.Path:
    """What says that a shard and its fragment are complete."""
    return shard_path.with_name(shard_path.name + MARKER_SUFFIX)


def read_marker(shard_path: pathlib.Path) -> Written | None:
    """What a shard's marker says; None if it is not there or was spoiled.

    A power loss can empty a marker that was written with --nofsync.
    """
    try:
        return Written.from_json(marker_path(shard_path).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


class _Tally:
    """What was decided so far about the images of a shard."""

    def __init__(self) -> None:
        self.num_records = 0
        self.decisions: collections.Counter[str] = collections.Counter()
        self.changes: list[dict[str, str]] = []
        self.rejects: list[dict[str, str]] = []
        self.psnr: list[float] = []
        self.num_rewritten = 0
        self.num_bytes_saved = 0
        self.source = xxhash.xxh3_128()

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
            self.psnr.append(prepared.psnr)
        if prepared.num_bytes_saved is not None:
            self.num_rewritten += 1
            self.num_bytes_saved += prepared.num_bytes_saved


class _NewFile:
    """A file that gets its name when it is closed, whole; it counts its bytes."""

    def __init__(self, path: pathlib.Path, settings: Settings) -> None:
        self._path = path
        # Another process may write the same shard, with the same bytes. The task tells
        # later runs whether its process may still be there.
        writer = f"{settings.task:05d}-{os.getpid()}"
        self._temporary = path.with_name(f"{path.name}.{writer}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._descriptor = os.open(self._temporary, flags, 0o666)
        self._fsync = settings.fsync
        self._pending: list[bytes] = []
        self._num_written = 0
        self.num_bytes = 0

    def __enter__(self) -> "_NewFile":
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        complete = False
        try:
            if kind is None:
                self._flush()
                if self._fsync:
                    os.fsync(self._descriptor)
                complete = True
        finally:
            os.close(self._descriptor)
            if complete:
                os.replace(self._temporary, self._path)
            else:
                self._temporary.unlink(missing_ok=True)

    def write(self, buffers: records.Buffers) -> None:
        self._pending += buffers
        self.num_bytes += sum(map(len, buffers))
        full = self.num_bytes - self._num_written >= _BATCH_BYTES
        if full or len(self._pending) > _BATCH_BUFFERS:
            self._flush()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        num_left = self.num_bytes - self._num_written
        num_left -= os.writev(self._descriptor, pending)
        if num_left:  # the disk is nearly full: the next write says so
            rest = memoryview(b"".join(pending))[-num_left:]
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        self._num_written = self.num_bytes


def _store(
    image: Image, boxes: Sequence[Box], settings: Settings, tally: _Tally
) -> tuple[str, records.Buffers] | None:
    """An image's columns of the catalog that are not its place; its framed record."""
    prepared, source_digest = _prepare(image, settings)
    if isinstance(prepared, prepare.Rejected):
        tally.source.update(source_digest)
        tally.reject(image, prepared)
        return None
    digest = xxhash.xxh3_128_digest(prepared.encoded)
    tally.source.update(source_digest or digest)
    tally.store(image, prepared)
    label = settings.classes[image.class_index]
    record = image_record.ImageRecord(
        encoded=prepared.encoded,
        height=prepared.height,
        width=prepared.width,
        label=label.label,
        synset=label.synset,
        text=label.text,
        filename=image.name.rpartition("/")[2],
        boxes=boxes,
    )
    # By hand: what must be quoted are two values of seven.
    row = (
        f'"label": {label.label}, "synset": {_quoted(label.synset)}, '
        f'"height": {prepared.height}, "width": {prepared.width}, '
        f'"filename": {json.dumps(catalog_name(image.name))}, '
        f'"decision": "{prepared.decision}", "digest": "{digest.hex()}"'
    )
    return row, records.frame(image_record.encode_image(record))


def _prepare(
    image: Image, settings: Settings
) -> tuple[prepare.Prepared | prepare.Rejected, bytes]:
    """What is stored for an image; the digest of its bytes unless they are stored."""
    try:
        rejected = prepare.check_bytes(image.num_bytes, settings.policy)
        if rejected is not None:
            return rejected, b""
        source = read_image(settings.input_dir, image)
        prepared = prepare.prepare(source, settings.policy)
    except MemoryError as error:
        raise OSError(
            f"{settings.input_dir / image.file}: {image.name} needs more memory than "
            "there is. Try fewer --num_workers or a lower --max_decoded_pixels."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{settings.input_dir / image.file}: {image.name}: {error}. "
            "Restore it, remove it from the input, or choose another policy."
        ) from error
    if isinstance(prepared, prepare.Prepared) and prepared.encoded is source:
        return prepared, b""
    return prepared, xxhash.xxh3_128_digest(source)


_quoted = functools.lru_cache(maxsize=1 << 14)(json.dumps)
