"""The plan: which image goes to which place in which shard, before any work.

In: the images of the splits, the number of shards, a seed. Out: one `ShardPlan` a
shard. A pure function, so that any shard can be written alone, by any process, and
comes out the same.
"""

import dataclasses
import itertools
import math
import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import xxhash

from converters.inputs.ilsvrc import Image
from converters.jobs import side_files

# At 48 MB a shard ImageNet reaches the customary numbers of its shards, which are caps.
SHARD_BYTES = 48_000_000
MAX_DEFAULT_SHARDS = {"train": 1024, "validation": 128}


@dataclasses.dataclass(frozen=True)
class PackedImages(Sequence[Image]):
    """Images in an eighth of their memory, made anew each time they are looked at.

    The parent keeps the images of all shards for as long as a job runs, and its workers
    look at those of one shard once.
    """

    _data: bytes
    _length: int

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Image]:
        return map(Image._make, pickle.loads(zlib.decompress(self._data)))

    @overload
    def __getitem__(self, place: int) -> Image: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Image]: ...
    def __getitem__(self, place: int | slice) -> Image | Sequence[Image]:
        return list(self)[place]


def pack(images: Sequence[Image]) -> PackedImages:
    """The same images as a sequence that takes less memory."""
    data = pickle.dumps([tuple(image) for image in images])
    return PackedImages(zlib.compress(data, level=1), len(images))


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """One shard: its split, its number in it, its file name, its images in order."""

    split: str
    number: int
    name: str
    images: Sequence[Image]


def make_plan(
    splits: Mapping[str, Sequence[Image]],
    num_shards: Mapping[str, int | None],
    seed: int,
    *,
    layout: str = "inception",
    dataset_name: str = "",
) -> list[ShardPlan]:
    """Shuffles each split and cuts it into shards that differ by at most one record.

    Args:
        splits: Images of each split.
        num_shards: Shards of each split; None or absent chooses by the size.
        seed: Changes the order; the same on every run gives the same plan.
        layout: How shards are named: a key of `compat.LAYOUTS`.
        dataset_name: Name of the data set; only the layout tfds shows it.

    Raises:
        ValueError: If a split has no image or fewer than shards, or TFDS could not read
            the shards' names.
    """
    plans = []
    for split, images in splits.items():
        if not images:
            raise ValueError(
                f"Split {split} must have at least one image, got none. Add some, or "
                "take the split out of the input; --drop_duplicates may have left out "
                "all, as copies of another split's."
            )
        shards = num_shards.get(split) or _default_num_shards(split, images)
        if shards > len(images):
            raise ValueError(
                f"--num_{split}_shards must be at most the {len(images)} images of the "
                f"split, so that no shard is empty; got {shards}."
            )
        ordered = _shuffle(images, seed)
        names = [
            side_files.shard_name(
                layout, dataset_name, split=split, number=number, num_shards=shards
            )
            for number in range(shards)
        ]
        bounds = [len(ordered) * number // shards for number in range(shards + 1)]
        plans += [
            ShardPlan(split, number, name, pack(ordered[start:stop]))
            for number, (name, (start, stop)) in enumerate(
                zip(names, itertools.pairwise(bounds), strict=True)
            )
        ]
    return plans


def _shuffle(images: Sequence[Image], seed: int) -> list[Image]:
    """Sorts by a hash of seed and path: an order that no library version changes."""

    def key(image: Image) -> int:
        name = f"{seed}/{image.name}".encode(errors="surrogateescape")
        return xxhash.xxh3_64_intdigest(name)

    # In parts by the first byte, since the keys of all would take a fifth of the memory
    # of the images. Equal hashes, which one ImageNet in 20 million has, stay in the
    # order of the listing.
    parts: list[list[Image]] = [[] for _ in range(256)]
    for image in images:
        parts[key(image) >> 56].append(image)
    return [image for part in parts for image in sorted(part, key=key)]


def _default_num_shards(split: str, images: Sequence[Image]) -> int:
    num_bytes = sum(image.num_bytes for image in images)
    shards = min(math.ceil(num_bytes / SHARD_BYTES), MAX_DEFAULT_SHARDS[split])
    return max(1, min(shards, len(images)))  # files may be empty
