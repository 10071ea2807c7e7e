"""Shards of made-up records, with their index and catalog, for the shard cache."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
import xxhash

from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shards import index, records
from tfpipe.shards.index import Shard
from tfpipe.shards.ranges import RecordRanges, by_shard
from tfpipe.shards.records import Ints


@dataclasses.dataclass(frozen=True, eq=False)
class MadeShards:
    """Shards in a folder.

    Attributes:
        folder: The folder; it also holds an index and a catalog.
        split: Name of the split.
        shards: The shards.
        byte_offsets: int64 [num_records], byte offset of each record in its shard.
        data: The data of each record.
    """

    folder: pathlib.Path
    split: str
    shards: tuple[Shard, ...]
    byte_offsets: Ints
    data: Sequence[bytes]

    @property
    def sizes(self) -> Ints:
        """int64 [num_shards], records in each shard."""
        return np.array([shard.num_records for shard in self.shards], np.int64)

    @property
    def num_bytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.num_bytes for shard in self.shards)


def make_shards(
    folder: pathlib.Path,
    sizes: Sequence[int],
    *,
    record_bytes: int = 1000,
    seed: int = 0,
    split: str = "train",
    is_even: bool = False,
) -> MadeShards:
    """Writes shards of random records, whose lengths differ by up to a half.

    If `is_even`, all have the same length.
    """
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    shards, offsets, data, rows = [], [], [], []
    for number, size in enumerate(sizes):
        name = f"{split}-{number:05d}-of-{len(sizes):05d}"
        content = b""
        for record in range(size):
            length = int(random.integers(record_bytes // 2, record_bytes * 3 // 2))
            data.append(random.bytes(record_bytes if is_even else length))
            framed = b"".join(records.frame([data[-1]]))
            offsets.append(len(content))
            rows.append(_row(split, number, record, len(content), len(framed)))
            content += framed
        (folder / name).write_bytes(content)
        digest = xxhash.xxh3_128_hexdigest(content)
        shards.append(
            Shard(name=name, num_records=size, num_bytes=len(content), digest=digest)
        )
    made = MadeShards(
        folder, split, tuple(shards), np.array(offsets, np.int64), tuple(data)
    )
    _write_index(made, rows)
    return made


def load_shards(folder: pathlib.Path | str, split: str = "train") -> MadeShards:
    """Returns what `make_shards` wrote, for another process."""
    folder = pathlib.Path(folder)
    shards = index.load(folder).splits[split]
    catalog = index.load_catalog(folder, split, ["byte_offset", "num_bytes"])
    offsets = catalog["byte_offset"].astype(np.int64)
    contents = {shard.name: (folder / shard.name).read_bytes() for shard in shards}
    names = [shard.name for shard in shards for _ in range(shard.num_records)]
    ends = offsets + catalog["num_bytes"] - records.FOOTER_BYTES
    data = tuple(
        contents[name][start + records.HEADER_BYTES : end]
        for name, start, end in zip(names, offsets, ends, strict=True)
    )
    return MadeShards(folder, split, shards, offsets, data)


def _row(
    split: str, shard: int, record: int, offset: int, size: int
) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(index.CATALOG_COLUMNS, 1)
    names = ("synset", "filename", "decision", "digest")
    row |= dict.fromkeys(names, "x")
    row |= {"split": split, "shard": shard, "record": record}
    return row | {"byte_offset": offset, "num_bytes": size}


def _write_index(made: MadeShards, rows: Sequence[dict[str, object]]) -> None:
    fragment = made.folder / "rows.jsonl"
    fragment.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = made.folder / index.CATALOG_NAME
    with index.catalog_connection() as connection:
        index.write_catalog(connection, [fragment], path)
    fragment.unlink()
    known = index.Index(
        name="made",
        label_base=1,
        classes=(("x", "x"),),
        splits={made.split: made.shards},
        made_by={},
        files={index.CATALOG_NAME: index.describe_file(path)},
    )
    index.write(known, made.folder, fsync=False)


def _unchanged(name: str, start: int, content: bytes) -> bytes:
    return content


@dataclasses.dataclass(frozen=True, init=False)
class ScriptedFiles(Files):
    """Files of a folder whose answers a test changes and counts.

    Attributes:
        change: Function (name, first byte, right content) -> content; it may wait or
            raise.
        asked: (name, first byte, last byte + 1) of each ranged read.
    """

    change: Callable[[str, int, bytes], bytes]
    asked: list[tuple[str, int, int]]

    def __init__(
        self,
        location: str,
        *,
        change: Callable[[str, int, bytes], bytes] = _unchanged,
        time_limit: float = 60.0,
        is_pinned: bool = False,
        asked: list[tuple[str, int, int]] | None = None,
    ) -> None:
        super().__init__(location, time_limit, is_pinned=is_pinned)
        errors.settle(self, "change", change)
        errors.settle(self, "asked", [] if asked is None else asked)

    def read_view(self, name: str, start: int, stop: int) -> memoryview:
        """Returns a part of a file after `change`."""
        self.asked.append((name, start, stop))
        content = bytes(super().read_view(name, start, stop))
        return memoryview(self.change(name, start, content))


def read_records(
    made: MadeShards, ranges: RecordRanges, paths: Sequence[str]
) -> list[bytes]:
    """Reads the data of records from the local path of each extent."""
    _, extents = by_shard(ranges, made.sizes)
    found = []
    for path, first, length in zip(paths, extents.first, extents.length, strict=True):
        with open(path, "rb") as file:
            for record in range(first, first + length):
                file.seek(int(made.byte_offsets[record]) + records.HEADER_BYTES)
                found.append(file.read(len(made.data[record])))
    return found
