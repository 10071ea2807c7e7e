"""The plan of the copies: which shard is copied from which, under which name.

In: a source and the number of copies. Out: one `ReplicaPlan` for each new shard. Copy
c of shard s is shard c * (number of source shards) + s of its split.
"""

import dataclasses

from converters.exports.source import Source
from converters.jobs import side_files
from converters.jobs.plan import ShardPlan
from tfpipe.shards import index


@dataclasses.dataclass(frozen=True)
class ReplicaPlan(ShardPlan):
    """One shard of the copies; it has no images of its own.

    Attributes:
        copy: Number of the copy, from 0.
        source: The shard that is copied.
        source_number: Its number in the split of the source.
        num_bytes: Bytes that the shard is expected to take on the disk.
        first: Number of the source shard in all splits.
    """

    copy: int
    source: index.Shard
    source_number: int
    num_bytes: int
    first: int

    @property
    def num_images(self) -> int:
        """Number of records."""
        return self.source.num_records

    @property
    def num_input_bytes(self) -> int:
        """Bytes of the source shard."""
        return self.source.num_bytes

    @property
    def order(self) -> int:
        """The copies of a source shard are written together: it is read once."""
        return self.first

    def room(self, *, shrinks: bool) -> int:
        """Returns the bytes that the shard may need on the disk."""
        return self.num_bytes


def make_plans(
    source: Source, copies: int, *, layout: str, growth: float
) -> list[ReplicaPlan]:
    """Returns the plan of each shard of the copies, by split and number.

    Args:
        source: The data set.
        copies: Number of copies.
        layout: How shards are named: a key of `side_files.LAYOUTS`.
        growth: Bytes on the disk of a copy, as a ratio to its source; 0 for links.

    Raises:
        ValueError: If TFDS could not read the shards' names.
    """
    plans, first = [], 0
    for split, shards in source.known.splits.items():
        for number in range(copies * len(shards)):
            copy, source_number = divmod(number, len(shards))
            shard = shards[source_number]
            name = side_files.shard_name(
                layout,
                source.known.name,
                split=split,
                number=number,
                num_shards=copies * len(shards),
            )
            plans.append(
                ReplicaPlan(
                    split,
                    number,
                    name,
                    (),
                    copy,
                    shard,
                    source_number,
                    round(shard.num_bytes * growth),
                    first + source_number,
                )
            )
        first += len(shards)
    return plans
