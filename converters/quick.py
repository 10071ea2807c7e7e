"""The index against the files, without reading a shard: names, sizes, catalog.

In: a data set's folder and its index. Out: faults, and where the catalog says each
record of each shard starts.
"""

import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from converters.check import Fault
from tfpipe import errors, index

_NAME = re.compile(
    r"(?P<prefix>.+)-(?P<number>\d{5,})-of-(?P<num_shards>\d{5,})(?:\.tfrecords?)?",
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


def file_faults(known: index.Index, data_dir: pathlib.Path) -> Iterator[Fault]:
    """Shards that are missing, of another size or misnamed, and files among them."""
    sizes = {
        path.name: path.stat().st_size for path in data_dir.iterdir() if path.is_file()
    }
    prefixes = set()
    for shards in known.splits.values():
        for number, shard in enumerate(shards):
            name = parse_name(shard.name)
            if name is None or (name.number, name.num_shards) != (number, len(shards)):
                fault = f"shard {number} of {len(shards)} in the index has another name"
                yield Fault(shard=shard.name, fault=fault)
            else:
                prefixes.add(name.prefix)
            if fault := _size_fault(shard, sizes.get(shard.name)):
                yield Fault(shard=shard.name, fault=fault)
    listed = {shard.name for shards in known.splits.values() for shard in shards}
    for stray in sorted(sizes.keys() - listed):
        if any(stray.startswith(f"{prefix}-") for prefix in prefixes):
            fault = "the index does not list it, but readers that look by name read it"
            yield Fault(shard=stray, fault=fault)


def _size_fault(shard: index.Shard, size: int | None) -> str:
    if size is None:
        return "the index lists it, but there is no such file"
    if size != shard.num_bytes:
        return f"must have {shard.num_bytes} bytes as the index says, got {size}"
    return ""


def load_byte_offsets(
    known: index.Index, data_dir: pathlib.Path
) -> tuple[dict[str, npt.NDArray[np.int64]], list[Fault]]:
    """Where the catalog says that each record starts, and what is wrong with it.

    Returns:
        int64 [num_records] by the name of the shard, without shards of which the
        catalog has another number of records than the index; and the faults.
    """
    found = {}
    faults = []
    for split, shards in known.splits.items():
        try:
            table = index.load_catalog(data_dir, split, ["shard", "byte_offset"])
        except errors.BadIndexError as error:
            return {}, [Fault(shard=index.CATALOG_NAME, fault=str(error))]
        # Rows come in the order of shards.
        bounds = np.searchsorted(table["shard"], np.arange(len(shards) + 1))
        for shard, start, stop in zip(shards, bounds[:-1], bounds[1:], strict=True):
            if stop - start == shard.num_records:
                offsets = table["byte_offset"][start:stop]
                found[shard.name] = offsets.astype(np.int64)
                continue
            fault = (
                f"must have a row for each of the {shard.num_records} records of "
                f"{shard.name}, got {stop - start}"
            )
            faults.append(Fault(shard=index.CATALOG_NAME, fault=fault))
    return found, faults
