"""The plan: which image goes to which place in which shard, before any work.

In: the images of the splits, the number of shards, a seed. Out: one `ShardPlan` a
shard. A pure function, so that any shard can be written alone, by any process, and
comes out the same.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import xxhash

from converters.inputs import Image

# At 48 MB a shard ImageNet reaches the customary numbers of its shards, which are caps.
SHARD_BYTES = 48_000_000
MAX_DEFAULT_SHARDS = {"train": 1024, "validation": 128}


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """The images of one shard, in order."""

    split: str
    number: int
    num_shards: int
    images: Sequence[Image]

    @property
    def name(self) -> str:
        """File name: `<split>-SSSSS-of-NNNNN`."""
        return f"{self.split}-{self.number:05d}-of-{self.num_shards:05d}"


def make_plan(
    splits: Mapping[str, Sequence[Image]],
    num_shards: Mapping[str, int | None],
    seed: int,
) -> list[ShardPlan]:
    """Shuffles each split and cuts it into shards that differ by at most one record.

    Args:
        splits: Images of each split.
        num_shards: Shards of each split; None or absent chooses by the size.
        seed: Changes the order; the same on every run gives the same plan.

    Raises:
        ValueError: If a split has fewer images than shards.
    """
    plans = []
    for split, images in splits.items():
        shards = num_shards.get(split) or _default_num_shards(split, images)
        if shards > len(images):
            raise ValueError(
                f"--num_{split}_shards must be at most the {len(images)} images of the "
                f"split, so that no shard is empty; got {shards}."
            )
        ordered = _shuffle(images, seed)
        bounds = [len(ordered) * number // shards for number in range(shards + 1)]
        plans += [
            ShardPlan(split, number, shards, ordered[start:stop])
            for number, (start, stop) in enumerate(itertools.pairwise(bounds))
        ]
    return plans


def _shuffle(images: Sequence[Image], seed: int) -> list[Image]:
    """Sorts by a hash of seed and path: an order that no library version changes."""

    def key(image: Image) -> tuple[int, str]:
        name = f"{seed}/{image.name}".encode(errors="surrogateescape")
        return xxhash.xxh3_64_intdigest(name), image.name

    return sorted(images, key=key)


def _default_num_shards(split: str, images: Sequence[Image]) -> int:
    num_bytes = sum(image.num_bytes for image in images)
    shards = min(math.ceil(num_bytes / SHARD_BYTES), MAX_DEFAULT_SHARDS[split])
    return min(shards, len(images))
