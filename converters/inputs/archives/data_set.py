"""Images of a data set of these converters, as places in its shards.

In: a folder or a URL with index.json. Out: `Listed`: the images by split and class,
with the names that the catalog has for images and the index for classes.
"""

import bisect
import collections
import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from converters.inputs.archives import example_images
from converters.inputs.archives.patterns import Archive
from converters.inputs.archives.readers import Found, list_archives
from converters.inputs.class_lists import ClassList
from converters.inputs.listed import Listed
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import Meaning
from converters.inputs.reader import Reader, Workspace
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shard_cache import metadata
from tfpipe.shards import index
from tfpipe.shards.sql import PARQUET


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSetReader(Reader):
    """Reads a data set of these converters at a path or a URL."""

    input_dir: str
    file_in_names: bool = False

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        """Lists the records of the shards that the index lists.

        Raises:
            BadIndexError: If the index or the catalog is none, or a shard in the folder
                is missing or cut.
        """
        location = Location.from_user("A place", self.input_dir, expand_user=True)
        if location.is_local:
            return self._list(location.absolute(), location.path).in_splits(meaning)
        with tempfile.TemporaryDirectory() as name:
            near = metadata.bring(Files(location), pathlib.Path(name))
            return self._list(location, near).in_splits(meaning)

    def _list(self, location: Location, near: pathlib.Path) -> Listed:
        """Lists a data set whose index and catalog are in a folder."""
        known = index.load(near)
        archives = list(_archives(known, location))
        records_of = _records(near, known)
        reader = example_images.TfrecordReader(input=[location.text])

        def read(folder: Location, archive: Archive) -> Iterator[Found]:
            stored = records_of.get(archive.file.rpartition("/")[2])
            for found in reader.read_archive(folder, archive):
                if isinstance(found, LeftOut) or not stored:
                    yield found
                    continue
                label, image = found
                _, name = stored[bisect.bisect(stored, (image.offset,)) - 1]
                yield label, image._replace(name=name)

        numbers = dict(enumerate(known.classes, known.label_base))
        classes = ClassList(
            (location / index.INDEX_NAME).shown,
            {label: synset for label, (synset, _) in numbers.items()},
            texts=dict(known.classes),
        )
        listed = list_archives(
            archives, read, file_in_names=self.file_in_names, split_in_names=False
        )
        return listed._replace(classes=classes, apart=[location])


def _archives(known: index.Index, location: Location) -> Iterator[Archive]:
    """Yields the shards of a data set; those on a disk are checked for their sizes."""
    for split, shards in known.splits.items():
        if location.is_local:
            index.check(known, location.path, split)
        for shard in shards:
            yield Archive(split, (location / shard.name).text, shard.num_bytes)


def _records(
    folder: pathlib.Path, known: index.Index
) -> Mapping[str, Sequence[tuple[int, str]]]:
    """Returns offset and name of each record by shard, if there is a catalog."""
    if not (folder / index.CATALOG_NAME).exists():
        return {}
    query = (
        f"SELECT split, shard, byte_offset, filename FROM {PARQUET} "
        "ORDER BY split, shard, byte_offset"
    )
    records: dict[str, list[tuple[int, str]]] = collections.defaultdict(list)
    for split, shard, offset, name in index.query_catalog(folder, query, []):
        records[known.splits[split][shard].name].append((offset, name))
    return records
