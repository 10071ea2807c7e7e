"""Opens a data set of the converters as archives: its shards, classes and names.

In: its folder or its URL. Out: the shards that its index lists, the classes by label,
and a reader that knows the images by their names in the catalog.
"""

import bisect
import itertools
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from converters.inputs.archives import example_images, readers
from converters.inputs.archives.contents import Contents
from converters.inputs.archives.patterns import Archive
from converters.inputs.archives.readers import Reader
from tfpipe.remote import metadata, urls
from tfpipe.remote.files import Files
from tfpipe.shards import index

_Names = tuple[Sequence[int], Sequence[str]]


class DataSet(NamedTuple):
    """A data set.

    Attributes:
        shown: Path or URL of its index.
        archives: Its shards.
        classes: Class and its name for people, by label.
        reader: Reader of its shards.
    """

    shown: str
    archives: Sequence[Archive]
    classes: Mapping[int, tuple[str, str]]
    reader: Reader


def opened(folder: pathlib.Path) -> DataSet:
    """Reads the index and the catalog of a data set.

    Args:
        folder: Its absolute path, or its URL.

    Raises:
        BadIndexError: If the index or the catalog is none, or a shard in the folder is
            missing or cut.
        RemoteError: If it cannot be read by URL.
    """
    place = urls.require_place("", "A place", folder)
    if not urls.is_url(folder):
        return _of(place, folder)
    with tempfile.TemporaryDirectory() as name:
        return _of(place, metadata.bring(Files(place), pathlib.Path(name)))


def _of(place: str, folder: pathlib.Path) -> DataSet:
    """Returns the data set at a place, whose index and catalog are in a folder."""
    known = index.load(folder)
    has_catalog = (folder / index.CATALOG_NAME).exists()
    archives: list[Archive] = []
    names: dict[str, _Names] = {}
    for split, shards in known.splits.items():
        if not urls.is_url(place):
            index.check(known, folder, split)
        for shard in shards:
            archives.append(
                Archive(split, urls.join(place, shard.name), shard.num_bytes)
            )
        if has_catalog:
            names |= _names(folder, split, [shard.name for shard in shards])
    return DataSet(
        shown=urls.shown(urls.join(place, index.INDEX_NAME)),
        archives=archives,
        classes=dict(enumerate(known.classes, known.label_base)),
        reader=_reader(names),
    )


def _names(
    folder: pathlib.Path, split: str, shards: Sequence[str]
) -> dict[str, _Names]:
    """Returns the start of each record and its image's name, in order, by shard."""
    query = (
        "SELECT shard, byte_offset, filename FROM read_parquet(?) "
        "WHERE split = ? ORDER BY shard, byte_offset"
    )
    rows = index.query_catalog(folder, query, [split])
    found: dict[str, _Names] = {}
    for number, records in itertools.groupby(rows, key=lambda row: int(row[0])):
        _, starts, names = zip(*records, strict=True)
        found[shards[number]] = (starts, names)
    return found


def _reader(names: Mapping[str, _Names]) -> Reader:
    """Returns the reader of shards, with the names of images by shard."""
    plain = readers.of_examples(example_images.Keys())

    def read(folder: pathlib.Path, archive: Archive) -> Contents:
        found = plain.read(folder, archive)
        starts, known = names.get(archive.file.rpartition("/")[2], ((), ()))
        if not known:
            return found
        items = [
            item._replace(name=known[bisect.bisect_right(starts, item.offset) - 1])
            for item in found.items
        ]
        return Contents(items, found.left_out)

    return Reader(plain.kind, read, lambda folder, archives: {})
