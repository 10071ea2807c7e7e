"""The plan: the shard and the place of every image, before any work.

In: the images of the splits, the number of shards, a seed. Out: a `ShardPlan` for
every shard. Planning is a pure function, so any process can write any shard alone,
with the same bytes.
"""

import dataclasses
import itertools
import marshal
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import xxhash

from converters.inputs import listing
from converters.inputs.image import Image
from converters.jobs import side_files

# With 48 MB a shard, ImageNet gets its customary numbers of shards, which are the caps.
SHARD_BYTES = 48_000_000
MAX_DEFAULT_SHARDS = {"train": 1024, "validation": 128, "test": 128}
# A record adds its other fields and its frame to an image: less than this.
_MAX_OVERHEAD_BYTES = 1024


@dataclasses.dataclass(frozen=True)
class PackedImages(Sequence[Image]):
    """Images in an eighth of their memory, unpacked at every access.

    The parent process keeps the images of all shards as long as a job runs. A worker
    reads the images of a shard once.
    """

    _data: bytes
    _length: int

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Image]:
        return map(Image._make, marshal.loads(zlib.decompress(self._data)))

    @overload
    def __getitem__(self, place: int) -> Image: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Image]: ...
    def __getitem__(self, place: int | slice) -> Image | Sequence[Image]:
        return list(self)[place]


def pack(images: Sequence[Image]) -> PackedImages:
    """Packs images into a sequence that takes less memory."""
    data = marshal.dumps([tuple(image) for image in images])
    return PackedImages(zlib.compress(data, level=1), len(images))


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """A shard: split, number in the split, file name, and images in order."""

    split: str
    number: int
    name: str
    images: Sequence[Image]

    @property
    def num_images(self) -> int:
        """Planned number of records."""
        return len(self.images)

    @property
    def num_input_bytes(self) -> int:
        """Bytes of the images."""
        return sum(image.num_bytes for image in self.images)

    @property
    def order(self) -> int:
        """Shards of a smaller number are written first; equal ones in their order."""
        return 0

    def room(self, *, shrinks: bool) -> int:
        """Returns the bytes that the shard may need on the disk.

        Args:
            shrinks: Whether images are made smaller. Then only the bytes that a record
                adds to its image are sure to be written.
        """
        room = _MAX_OVERHEAD_BYTES * len(self.images)
        if shrinks:
            return room
        # Other formats are stored as JPEGs, and the JPEG of a large bitmap is small.
        return room + sum(
            image.num_bytes
            for image in self.images
            if not listing.has_suffix(image.name, listing.OTHER_SUFFIXES)
        )


def make_plan(
    splits: Mapping[str, Sequence[Image]],
    num_shards: Mapping[str, int | None],
    seed: int,
    *,
    layout: str = "inception",
    dataset_name: str = "",
) -> list[ShardPlan]:
    """Shuffles every split and cuts it into shards that differ by at most one record.

    Args:
        splits: Images of every split.
        num_shards: Number of shards of every split; for None or a missing split, the
            size of the split decides.
        seed: Decides the order; the same seed gives the same plan.
        layout: How shards are named: a key of `side_files.LAYOUTS`.
        dataset_name: Name of the data set, for the layout tfds.

    Raises:
        ValueError: If a split has no image or fewer images than shards, or if TFDS
            could not read the shards' names.
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
        names = side_files.shard_names(layout, dataset_name, split, shards)
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

    # Sorted in parts by the first byte of the key, because the keys of all images would
    # take a fifth of the images' memory. Images of equal hashes, which one ImageNet in
    # 20 million has, stay in the order of the listing.
    parts: list[list[Image]] = [[] for _ in range(256)]
    for image in images:
        parts[key(image) >> 56].append(image)
    return [image for part in parts for image in sorted(part, key=key)]


def _default_num_shards(split: str, images: Sequence[Image]) -> int:
    num_bytes = sum(image.num_bytes for image in images)
    shards = min(math.ceil(num_bytes / SHARD_BYTES), MAX_DEFAULT_SHARDS[split])
    return max(1, min(shards, len(images)))  # at least 1, because files may be empty
