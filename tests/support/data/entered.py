"""Data sets with entry points: which tables their files hold, and which are right."""

import pathlib

from tfpipe.native import entry_file, entry_points
from tfpipe.shards import index, records
from tfpipe.shards.example import decode_example


def tables(folder: pathlib.Path, split: str) -> list[bytes]:
    """Returns the table of each record of a split, from the file of the data set."""
    return entry_file.decode((folder / entry_file.name_of(split)).read_bytes())


def expected(folder: pathlib.Path, split: str) -> list[bytes]:
    """Returns the table of the JPEG of each record of a split."""
    return [
        entry_points.find(decode_example(record.data)["image/encoded"].values[0]).table
        for shard in index.load(folder).splits[split]
        for record in records.read(folder / shard.name)
    ]


def require_right(folder: pathlib.Path, *splits: str) -> None:
    """Checks that these splits, and no others, have the tables of their JPEGs."""
    names = {path.name for path in folder.glob(f"{entry_file.PREFIX}*")}
    assert names == {entry_file.name_of(split) for split in splits}
    assert names <= (index.load(folder).files or {}).keys()
    for split in splits:
        wanted = expected(folder, split)
        assert any(wanted)
        assert tables(folder, split) == wanted
