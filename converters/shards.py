"""Write one shard: every image of its plan, checksummed, synced, then named.

In: a `Task`. Out: in the working folder the shard, its catalog fragment (one JSON
object a record) and, last, its marker, which says that both are complete and what was
decided about each image. Runs in worker processes.
"""

import collections
import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import xxhash

from converters import images, workers
from converters.classes import Class
from converters.inputs import Image, catalog_name, read_image
from converters.plan import ShardPlan
from tfpipe import image_record, index, records

FRAGMENT_SUFFIX = ".catalog"
MARKER_SUFFIX = ".done"
_BUFFER_BYTES = 1 << 20

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
    """

    input_dir: pathlib.Path
    work_dir: pathlib.Path
    classes: Sequence[Class]
    policy: images.Policy
    fsync: bool


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
    """

    split: str
    shard: index.Shard
    decisions: Mapping[str, int]
    changes: Sequence[Mapping[str, str]]
    rejects: Sequence[Mapping[str, str]]
    num_source_bytes: int
    psnr: Sequence[float]

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
    path = settings.work_dir / task.plan.name
    tally = _Tally()
    with (
        _DigestedFile(path, fsync=settings.fsync) as shard,
        _DigestedFile(fragment_path(path), fsync=settings.fsync) as fragment,
    ):
        for image in task.plan.images:
            stored = _store(image, task.boxes.get(image.name, ()), settings, tally)
            if stored is not None:
                row, buffers = stored
                place = {
                    "split": task.plan.split,
                    "shard": task.plan.number,
                    "record": tally.num_records,
                    "byte_offset": shard.num_bytes,
                    "num_bytes": sum(map(len, buffers)),
                }
                shard.write(buffers)
                fragment.write([json.dumps(place | row).encode(), b"\n"])
                tally.num_records += 1
            workers.image_done()
    written = Written(
        split=task.plan.split,
        shard=index.Shard(
            name=task.plan.name,
            num_records=tally.num_records,
            num_bytes=shard.num_bytes,
            digest=shard.digest.hexdigest(),
        ),
        decisions=dict(tally.decisions),
        changes=tally.changes,
        rejects=tally.rejects,
        num_source_bytes=sum(image.num_bytes for image in task.plan.images),
        psnr=tally.psnr,
    )
    index.replace_file(marker_path(path), written.to_json().encode())
    return written


def fragment_path(shard_path: pathlib.Path) -> pathlib.Path:
    """Where the catalog rows of a shard wait to be joined."""
    return shard_path.with_name(shard_path.name + FRAGMENT_SUFFIX)


def marker_path(shard_path: pathlib.Path) -> pathlib.Path:
    """What says that a shard and its fragment are complete."""
    return shard_path.with_name(shard_path.name + MARKER_SUFFIX)


class _Tally:
    """What was decided so far about the images of a shard."""

    def __init__(self) -> None:
        self.num_records = 0
        self.decisions: collections.Counter[str] = collections.Counter()
        self.changes: list[dict[str, str]] = []
        self.rejects: list[dict[str, str]] = []
        self.psnr: list[float] = []

    def reject(self, image: Image, rejected: images.Rejected) -> None:
        self.decisions[f"skipped_{rejected.reason}"] += 1
        reject = {"name": catalog_name(image.name), "action": "skipped"}
        self.rejects.append(
            reject | {"reason": rejected.reason, "detail": rejected.detail}
        )

    def store(self, image: Image, prepared: images.Prepared) -> None:
        self.decisions[prepared.decision] += 1
        if images.is_changed(prepared.decision):
            name = catalog_name(image.name)
            self.changes.append({"name": name, "action": prepared.decision})
        if prepared.psnr is not None:
            self.psnr.append(prepared.psnr)


class _DigestedFile:
    """A file that counts and digests its bytes; it gets its name when it is closed."""

    def __init__(self, path: pathlib.Path, *, fsync: bool) -> None:
        self._path = path
        # Another process may write the same shard, with the same bytes.
        self._temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
        self._file = open(self._temporary, "wb", buffering=_BUFFER_BYTES)  # noqa: SIM115
        self._fsync = fsync
        self.num_bytes = 0
        self.digest = xxhash.xxh3_128()

    def __enter__(self) -> "_DigestedFile":
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        with self._file:
            if kind is None:
                self._file.flush()
                if self._fsync:
                    os.fsync(self._file.fileno())
        if kind is None:
            os.replace(self._temporary, self._path)
        else:
            self._temporary.unlink()

    def write(self, buffers: records.Buffers) -> None:
        self._file.writelines(buffers)
        for buffer in buffers:
            self.digest.update(buffer)
            self.num_bytes += len(buffer)


def _store(
    image: Image, boxes: Sequence[Box], settings: Settings, tally: _Tally
) -> tuple[dict[str, Any], records.Buffers] | None:
    """The catalog row of an image, without its place, and its framed record."""
    try:
        prepared = images.prepare(
            read_image(settings.input_dir, image), settings.policy
        )
    except ValueError as error:
        raise ValueError(
            f"{settings.input_dir / image.file}: {image.name}: {error}. "
            "Restore it, remove it from the input, or choose another policy."
        ) from error
    if isinstance(prepared, images.Rejected):
        tally.reject(image, prepared)
        return None
    tally.store(image, prepared)
    label = settings.classes[image.class_index]
    record = image_record.ImageRecord(
        encoded=prepared.encoded,
        height=prepared.height,
        width=prepared.width,
        label=label.label,
        synset=label.synset,
        text=label.text,
        filename=os.path.basename(image.name),
        boxes=boxes,
    )
    row = {
        "label": label.label,
        "synset": label.synset,
        "height": prepared.height,
        "width": prepared.width,
        "filename": catalog_name(image.name),
        "decision": prepared.decision,
        "digest": xxhash.xxh3_128_hexdigest(prepared.encoded),
    }
    return row, records.frame(image_record.encode_image(record))
