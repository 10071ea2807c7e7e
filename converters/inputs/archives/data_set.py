"""Images of a data set of these converters, as places in its shards.

In: a folder or a URL with index.json. Out: `Listed`: the images by split and class,
with the names that the catalog has for images and the index for classes.
"""

import collections
import dataclasses
import itertools
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from converters.inputs.archives import example_images
from converters.inputs.archives.readers import Found, FoundImage, list_archives
from converters.inputs.classes import ClassList
from converters.inputs.listed import ImageRows, Listed
from converters.inputs.meaning import Meaning
from converters.inputs.patterns import Archive
from converters.inputs.reader import Reader, Workspace
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shard_cache import metadata
from tfpipe.shards import catalog as catalogs, index
from tfpipe.shards.sql import PARQUET, PARQUET_ROWS


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSetReader(Reader):
    """Reads a data set of these converters at a path or a URL."""

    input_dir: str
    file_in_names: bool = False
    extra_columns: Sequence[str] | None = None  # None keeps all of the catalog

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        """Lists the records of the shards that the index lists.

        Raises:
            BadIndexError: If the index or the catalog is none, or a shard in the folder
                is missing or cut.
        """
        location = Location.from_user("A place", self.input_dir, expand_user=True)
        if location.is_local:
            return self._list(location.absolute(), location.path).in_splits(meaning)
        # Further columns are read from the catalog until the plan is made.
        folder = workspace.stack.enter_context(tempfile.TemporaryDirectory())
        near = metadata.bring(Files(location), pathlib.Path(folder))
        return self._list(location, near).in_splits(meaning)

    def _list(self, location: Location, near: pathlib.Path) -> Listed:
        known = index.load(near)
        for split in known.splits if location.is_local else ():
            index.check(known, location.path, split)
        archives = [
            Archive(split, (location / shard.name).text, shard.num_bytes)
            for split, shards in known.splits.items()
            for shard in shards
        ]
        records_of = _records(near, known)
        rows: dict[tuple[str, int], int] = {}
        reader = example_images.TfrecordReader(input=[location.text])

        def read(folder: Location, archive: Archive) -> Iterator[Found]:
            found_in = reader.read_archive(folder, archive)
            if not records_of:
                yield from found_in
            records = records_of.get(archive.file.rpartition("/")[2], ())
            for (name, row), found in zip(records, found_in, strict=False):
                if isinstance(found, FoundImage):
                    rows[found.image.file, found.image.offset] = row
                    found = found._replace(image=found.image._replace(name=name))
                yield found

        numbers = dict(enumerate(known.classes, known.label_base))
        classes = ClassList(
            (location / index.INDEX_NAME).shown,
            {label: synset for label, (synset, _) in numbers.items()},
            texts=dict(known.classes),
        )
        listed = list_archives(
            archives,
            read,
            file_in_names=self.file_in_names,
            split_in_names=False,
        )
        listed = listed._replace(classes=classes, apart=[location])
        row_of = {i.name: rows[i.file, i.offset] for i in listed.images() if rows}
        return self._with_columns(listed, near / index.CATALOG_NAME, row_of)

    def _with_columns(
        self, listed: Listed, catalog: pathlib.Path, row_of: Mapping[str, int]
    ) -> Listed:
        own = catalogs.further_columns(catalog) if row_of else []
        kept: Sequence[str] = [name for name in own if name != catalogs.LABELS]
        for name in self.extra_columns or ():
            if name not in kept:
                raise ValueError(
                    "--extra_columns must name columns that the data set has beside "
                    f"the usual ones, got {name}. It has {', '.join(kept) or 'none'}."
                    f"{errors.did_you_mean(name, kept)}"
                )
        if not own:
            return listed
        several = {}
        if catalogs.LABELS in own:
            query = f"SELECT {catalogs.LABELS} FROM {PARQUET}"
            labels = index.query_catalog(catalog.parent, query, [])
            several = {n: [*map(str, labels[row][0])] for n, row in row_of.items()}
        kept = kept if self.extra_columns is None else self.extra_columns
        columns = ImageRows(catalog, row_of, {name: name for name in kept})
        return listed._replace(rows=[columns], several=several)


def _records(
    folder: pathlib.Path, known: index.Index
) -> Mapping[str, Sequence[tuple[str, int]]]:
    """Returns name and row in the catalog of each record, by shard; none without it.

    Raises:
        BadIndexError: If the catalog is not that of the index.
    """
    if not (folder / index.CATALOG_NAME).exists():
        return {}
    catalogs.check_catalog(known, folder)
    query = (
        "SELECT split, shard, filename, file_row_number "
        f"FROM {PARQUET_ROWS} ORDER BY split, shard, byte_offset"
    )
    records: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
    for split, shard, name, row in index.query_catalog(folder, query, []):
        records[known.splits[split][shard].name].append((name, row))
    for shard in itertools.chain.from_iterable(known.splits.values()):
        if (count := len(records[shard.name])) != shard.num_records:
            raise errors.BadIndexError(
                f"{index.CATALOG_NAME} in {folder} must have a row for each of the "
                f"{shard.num_records} records of {shard.name}, got {count}. Copy the "
                "data set again."
            )
    return records
