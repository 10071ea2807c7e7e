"""The index against the shards, without reading one: names and sizes.

In: a data set's folder and its index. Out: faults.
"""

import collections
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from converters.checks.shard import Fault
from tfpipe.shards import index
from tfpipe.shards.index import Index

_NAME = re.compile(
    r"(?P<prefix>.+)-(?P<number>[0-9]{5,})-of-(?P<num_shards>[0-9]{5,})(?:\.tfrecords?)?",
    re.DOTALL,
)
_TFDS_INFIX = ".tfrecord"


class ShardName(NamedTuple):
    """A shard's file name taken apart: what comes before the numbers, and those."""

    prefix: str
    number: int
    num_shards: int

    @property
    def split(self) -> str:
        """The split: the prefix, or of `<name>-<split>.tfrecord` the split."""
        if self.prefix.endswith(_TFDS_INFIX):
            return self.prefix.removesuffix(_TFDS_INFIX).rpartition("-")[2]
        return self.prefix


def parse_name(name: str) -> ShardName | None:
    """Takes a shard's name apart; None if it is not that of a shard.

    Shards are named `<split>-SSSSS-of-NNNNN`, or, by TFDS,
    `<name>-<split>.tfrecord-SSSSS-of-NNNNN`.
    """
    match = _NAME.fullmatch(name)
    if match is None or name.startswith("."):
        return None
    return ShardName(match["prefix"], int(match["number"]), int(match["num_shards"]))


def index_faults(known: Index, data_dir: pathlib.Path) -> Iterator[Fault]:
    """An index that was changed after it was written, or lists no record."""
    if change := index.change(data_dir):
        fault = f"was changed after it was written: {change}"
        yield Fault(shard=index.INDEX_NAME, fault=fault)
    if not known.splits:
        yield Fault(shard=index.INDEX_NAME, fault="must list a split, got none")
    for split in known.splits:
        if not known.num_records(split):
            fault = f"split {split!r} must have a record, got none"
            yield Fault(shard=index.INDEX_NAME, fault=fault)


def shard_faults(known: Index, data_dir: pathlib.Path) -> Iterator[Fault]:
    """Shards that are missing, of another size, misnamed or listed twice."""
    listed: collections.Counter[str] = collections.Counter()
    for split, shards in known.splits.items():
        for number, shard in enumerate(shards):
            name = parse_name(shard.name)
            wanted = (split, number, len(shards))
            if name is None or (name.split, name.number, name.num_shards) != wanted:
                fault = (
                    f"shard {number} of {len(shards)} of split {split!r} in the index "
                    "has another name"
                )
                yield Fault(shard=shard.name, fault=fault)
            if fault := _size_fault(shard, data_dir):
                yield Fault(shard=shard.name, fault=fault)
            listed[shard.name] += 1
    for file, count in listed.items():
        if count > 1:
            yield Fault(shard=file, fault=f"the index lists it {count} times")


def _size_fault(shard: index.Shard, data_dir: pathlib.Path) -> str:
    path = data_dir / shard.name
    if not path.is_file():
        return "the index lists it, but there is no such file"
    if (size := path.stat().st_size) != shard.num_bytes:
        return f"must have {shard.num_bytes} bytes as the index says, got {size}"
    return ""
