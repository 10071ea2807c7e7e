"""Write one shard: every image of its plan, checksummed, synced, then named.

In: a `ShardPlan`. Out: the shard file and its catalog fragment (one JSON object a
record) in the working folder, and what the index says of it. Runs in worker processes.
"""

import collections
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import xxhash

from converters import images, workers
from converters.classes import Class
from converters.inputs import Image, read_image
from converters.plan import ShardPlan
from tfpipe import index, records

FRAGMENT_SUFFIX = ".jsonl"
_BUFFER_BYTES = 1 << 20


class Written(NamedTuple):
    """A finished shard: what the index says of it, and the decisions made for it."""

    split: str
    shard: index.Shard
    decisions: dict[str, int]


def write_shard(
    plan: ShardPlan,
    *,
    input_dir: pathlib.Path,
    work_dir: pathlib.Path,
    classes: Sequence[Class],
) -> Written:
    """Writes a shard and its catalog fragment into the working folder.

    Both are on the disk when this returns.

    Raises:
        ValueError: If an image cannot be stored; names the file.
        OSError: If a file cannot be read or written.
    """
    path = work_dir / plan.name
    decisions: collections.Counter[str] = collections.Counter()
    with (
        _DigestedFile(path) as shard,
        open(fragment_path(path), "w", encoding="utf-8") as fragment,
    ):
        for number, image in enumerate(plan.images):
            row, buffers = _encode(image, input_dir, classes[image.class_index])
            offset = shard.num_bytes
            shard.write(buffers)
            place = {
                "split": plan.split,
                "shard": plan.number,
                "record": number,
                "byte_offset": offset,
                "num_bytes": shard.num_bytes - offset,
            }
            fragment.write(json.dumps(place | row) + "\n")
            decisions[row["decision"]] += 1
            workers.image_done()
        fragment.flush()
        os.fsync(fragment.fileno())
    entry = index.Shard(
        name=plan.name,
        num_records=len(plan.images),
        num_bytes=shard.num_bytes,
        digest=shard.digest.hexdigest(),
    )
    return Written(plan.split, entry, dict(decisions))


class _DigestedFile:
    """A file that counts and digests its bytes, and is on the disk at the end."""

    def __init__(self, path: pathlib.Path) -> None:
        self._file = open(path, "wb", buffering=_BUFFER_BYTES)  # noqa: SIM115
        self.num_bytes = 0
        self.digest = xxhash.xxh3_128()

    def __enter__(self) -> "_DigestedFile":
        return self

    def __exit__(self, *exception: object) -> None:
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())

    def write(self, buffers: records.Buffers) -> None:
        for buffer in buffers:
            self._file.write(buffer)
            self.digest.update(buffer)
            self.num_bytes += len(buffer)


def fragment_path(shard_path: pathlib.Path) -> pathlib.Path:
    """Where the catalog rows of a shard wait to be joined."""
    return shard_path.with_name(shard_path.name + FRAGMENT_SUFFIX)


def _encode(
    image: Image, input_dir: pathlib.Path, label: Class
) -> tuple[dict[str, Any], records.Buffers]:
    """The catalog row of an image, without its place, and its framed record."""
    try:
        prepared = images.prepare(read_image(input_dir, image))
    except ValueError as error:
        raise ValueError(
            f"{input_dir / image.file}: {image.name}: {error}. "
            "Restore it or remove it from the input."
        ) from error
    encoded = prepared.encoded
    record = records.ImageRecord(
        encoded=encoded,
        height=prepared.height,
        width=prepared.width,
        label=label.label,
        synset=label.synset,
        text=label.text,
        filename=os.path.basename(image.name),
    )
    row = {
        "label": label.label,
        "synset": label.synset,
        "height": prepared.height,
        "width": prepared.width,
        "filename": image.name,
        "decision": prepared.decision,
        "digest": xxhash.xxh3_128_hexdigest(encoded),
    }
    return row, records.frame(records.encode_image(record))
