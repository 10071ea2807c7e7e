"""Checks the index against the names and sizes of the shards.

In: the files of a data set and its index. Out: faults. No shard is read here.
"""

import collections
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from converters.checks.contents import DataSetFiles
from converters.checks.shard import Fault
from tfpipe.shards import index
from tfpipe.shards.index import Index

_NAME = re.compile(
    r"(?P<prefix>.+)-(?P<number>[0-9]{5,})-of-(?P<num_shards>[0-9]{5,})(?:\.tfrecords?)?",
    re.DOTALL,
)
_TFDS_INFIX = ".tfrecord"


class ShardName(NamedTuple):
    """The parts of a shard's file name.

    Attributes:
        prefix: The text before the numbers.
        number: The number of the shard, from 0.
        num_shards: The number of shards in the split.
    """

    prefix: str
    number: int
    num_shards: int

    @property
    def split(self) -> str:
        """The split: the prefix, or its last part in `<name>-<split>.tfrecord`."""
        if self.prefix.endswith(_TFDS_INFIX):
            return self.prefix.removesuffix(_TFDS_INFIX).rpartition("-")[2]
        return self.prefix


def parse_shard_name(name: str) -> ShardName | None:
    """Parses a file name; returns None if it is not the name of a shard.

    Shards are named `<split>-SSSSS-of-NNNNN`. TFDS names them
    `<name>-<split>.tfrecord-SSSSS-of-NNNNN`.
    """
    match = _NAME.fullmatch(name)
    if match is None or name.startswith("."):
        return None
    return ShardName(match["prefix"], int(match["number"]), int(match["num_shards"]))


def index_faults(known: Index, data_dir: pathlib.Path) -> Iterator[Fault]:
    """Yields faults of an index that was changed by hand, or that lists no record."""
    if change := index.change(data_dir):
        fault = f"was changed after it was written: {change}"
        yield Fault(shard=index.INDEX_NAME, fault=fault)
    if not known.splits:
        yield Fault(shard=index.INDEX_NAME, fault="must list a split, got none")
    for split in known.splits:
        if not known.num_records(split):
            fault = f"split {split!r} must have a record, got none"
            yield Fault(shard=index.INDEX_NAME, fault=fault)


def shard_faults(known: Index, contents: DataSetFiles) -> Iterator[Fault]:
    """Yields shards that are missing, of another size, misnamed or listed twice."""
    listed: collections.Counter[str] = collections.Counter()
    for split, shards in known.splits.items():
        for number, shard in enumerate(shards):
            name = parse_shard_name(shard.name)
            wanted = (split, number, len(shards))
            if name is None or (name.split, name.number, name.num_shards) != wanted:
                fault = (
                    f"the index lists this file as shard {number} of {len(shards)} of "
                    f"split {split!r}, but its name says otherwise"
                )
                yield Fault(shard=shard.name, fault=fault)
            if fault := _size_fault(shard, contents):
                yield Fault(shard=shard.name, fault=fault)
            listed[shard.name] += 1
    for file, count in listed.items():
        if count > 1:
            yield Fault(shard=file, fault=f"the index lists it {count} times")


def _size_fault(shard: index.Shard, contents: DataSetFiles) -> str:
    if (size := contents.size(shard.name)) is None:
        return "the index lists it, but there is no such file"
    if size != shard.num_bytes:
        return f"must have {shard.num_bytes} bytes as the index says, got {size}"
    return ""
