"""Shards of made-up records, with their index and catalog, for the shard cache."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

import numpy as np
import xxhash

from tfpipe.shards import index, records
from tfpipe.shards.index import Shard
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
) -> MadeShards:
    """Writes shards of random records, whose lengths differ by up to a half."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    shards, offsets, data, rows = [], [], [], []
    for number, size in enumerate(sizes):
        name = f"{split}-{number:05d}-of-{len(sizes):05d}"
        content = b""
        for record in range(size):
            length = int(random.integers(record_bytes // 2, record_bytes * 3 // 2))
            data.append(random.bytes(length))
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
