"""Damages records of a data set: flips bytes, spoils JPEGs; and reads the rest."""

import pathlib
from typing import Any

import tfpipe
from tfpipe.shards import index, records

NUM_TRAIN = 24  # records of the fixture `data_dir`


def places(
    folder: pathlib.Path, split: str = "train"
) -> list[tuple[pathlib.Path, int, int, str]]:
    """(path of the shard, byte offset, bytes with frame, file name) of each record."""
    columns = ["shard", "byte_offset", "num_bytes", "filename"]
    catalog = index.load_catalog(folder, split, columns)
    shards = index.load(folder).splits[split]
    return [
        (folder / shards[shard].name, int(offset), int(size), name)
        for shard, offset, size, name in zip(*catalog.values(), strict=True)
    ]


def flip(path: pathlib.Path, offset: int, *, mask: int = 0xFF) -> None:
    """Inverts the bits of a mask in the byte at an offset of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        value = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([value ^ mask]))


def spoil_jpeg(folder: pathlib.Path, number: int, split: str = "train") -> None:
    """Gives a record a JPEG that cannot be decoded, and the CRC that it should have."""
    path, offset, size, _ = places(folder, split)[number]
    whole = bytearray(path.read_bytes())
    end = offset + size - records.FOOTER_BYTES
    data = bytes(whole[offset + records.HEADER_BYTES : end])
    damaged = data.replace(b"\xff\xd8\xff", b"\x00\x00\x00")
    assert damaged != data
    framed = b"".join(records.frame([damaged]))
    whole[offset : offset + size] = framed
    path.write_bytes(whole)


def read(
    folder: pathlib.Path, log: tfpipe.FaultLog | None, **options: Any
) -> list[tuple[int, bool]]:
    """(record, whether it is real) of each that Interleave passes on."""
    defaults = {"block_length": 3, "window_size": 10, "remainder": "pad"}
    source = tfpipe.TFRecordSource(folder, "train", **defaults | options)
    stages = [tfpipe.Interleave(faults=log), tfpipe.AssertCardinality()]
    dataset = tfpipe.Pipeline(source, stages).build()
    return [
        (int(e["record_id"]), bool(e["is_real"])) for e in dataset.as_numpy_iterator()
    ]
