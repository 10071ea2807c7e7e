"""Lists the images of a source of a merge, by the reader of its kind.

In: a `MergeSource`; for a table also a folder for the rows. Out: a `Listed`:
the images by split and class, and the folder above the files. A data set of the
converters is read as archives: the shards that its index lists, with the names of its
catalog.
"""

import bisect
import itertools
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from converters.inputs import classtree, files
from converters.inputs.archives import example_images, patterns, readers, samples
from converters.inputs.archives.patterns import Archive
from converters.inputs.archives.readers import ArchiveContents, Reader
from converters.inputs.labels import Listed
from converters.inputs.meaning import Meaning
from converters.inputs.merged import sources
from converters.inputs.merged.sources import MergeSource
from converters.inputs.tables import (
    classes_of_rows,
    columns,
    images,
    scan,
    sql,
    table_sources,
)
from tfpipe.location import metadata, urls
from tfpipe.location.files import Files
from tfpipe.shards import index
from tfpipe.shards.sql import PARQUET

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


def _opened(folder: pathlib.Path) -> DataSet:
    """Reads the index and the catalog of a data set.

    Args:
        folder: Its absolute path, or its URL.

    Raises:
        BadIndexError: If the index or the catalog is none, or a shard in the folder is
            missing or cut.
        RemoteError: If the file cannot be read by URL.
    """
    place = urls.require_place("", "A place", folder)
    if not urls.is_url(folder):
        return _data_set_at(place, folder)
    with tempfile.TemporaryDirectory() as name:
        return _data_set_at(place, metadata.bring(Files(place), pathlib.Path(name)))


def _data_set_at(place: str, folder: pathlib.Path) -> DataSet:
    """Returns the data set at a place, whose index and catalog are in a folder."""
    known = index.load(folder)
    has_catalog = (folder / index.CATALOG_NAME).exists()
    archives: list[Archive] = []
    names: dict[str, _Names] = {}
    is_local = not urls.is_url(place)
    for split, shards in known.splits.items():
        if is_local:
            index.check(known, folder, split)
        for shard in shards:
            file = urls.join(place, shard.name)
            state = files.state_of(file) if is_local else None
            archives.append(Archive(split, file, shard.num_bytes, state))
        if has_catalog:
            names |= _names(folder, split, [shard.name for shard in shards])
    return DataSet(
        shown=urls.shown(urls.join(place, index.INDEX_NAME)),
        archives=archives,
        classes=dict(enumerate(known.classes, known.label_base)),
        reader=_reader_with_names(names),
    )


def _names(
    folder: pathlib.Path, split: str, shards: Sequence[str]
) -> dict[str, _Names]:
    """Returns the starts of records and the names of images, in order, by shard."""
    query = (
        f"SELECT shard, byte_offset, filename FROM {PARQUET} "
        "WHERE split = ? ORDER BY shard, byte_offset"
    )
    rows = index.query_catalog(folder, query, [split])
    found: dict[str, _Names] = {}
    for number, records in itertools.groupby(rows, key=lambda row: int(row[0])):
        _, starts, names = zip(*records, strict=True)
        found[shards[number]] = (starts, names)
    return found


def _reader_with_names(names: Mapping[str, _Names]) -> Reader:
    """Returns the reader of shards, with the names of images by shard."""
    plain = example_images.reader(example_images.Keys())

    def read(folder: pathlib.Path, archive: Archive) -> ArchiveContents:
        found = plain.read(folder, archive)
        starts, known = names.get(archive.file.rpartition("/")[2], ((), ()))
        if not known:
            return found
        items = [
            item._replace(name=known[bisect.bisect_right(starts, item.offset) - 1])
            for item in found.items
        ]
        return found._replace(items=items)

    return Reader(plain.kind, read)


def read(
    source: MergeSource, meaning: Meaning, *, file_in_names: bool, on_null: str
) -> Listed:
    """Lists a source other than a table.

    Args:
        source: The source.
        meaning: The words of a user about splits and classes.
        file_in_names: Whether names of images in archives begin with the file.
        on_null: `columns.SKIP` leaves out an image in a tar without its class.

    Raises:
        ValueError: If the source is wrong.
        BadIndexError: If a data set is damaged.
        OSError: If the file cannot be read.
        RemoteError: If the file cannot be read by URL.
    """
    if source.kind == sources.TREE:
        folder = local_or_url(source.place)
        return Listed(folder, classtree.read_class_tree(folder, meaning))
    if source.kind == sources.DATA_SET:
        return _data_set(local_or_url(source.place), file_in_names=file_in_names)
    reader = _reader(source, on_null)
    found = patterns.find([source.place], reader.kind, meaning)
    return readers.list_images(
        found, reader, file_in_names=file_in_names, label_type=meaning.label_type
    ).named()


def local_or_url(place: str) -> pathlib.Path:
    """Returns the folder at a place as an absolute path, or as the path of a URL.

    Raises:
        ValueError: If a URL is not known or holds a password.
    """
    if urls.is_url(place):
        return pathlib.Path(urls.require_place("", "A place", place.rstrip("/")))
    return pathlib.Path(place).expanduser().absolute()


def _reader(source: MergeSource, on_null: str) -> readers.Reader:
    """Returns the reader of tars or TFRecord files with the options of a source."""
    given = source.options
    if source.kind == sources.TFRECORDS:
        return example_images.reader(
            example_images.Keys(
                image=given.get("image_key"),
                label=given.get("label_key"),
                name=given.get("name_key"),
            )
        )
    label_from = given.get("label_from") or samples.usual_source(given.get("label_key"))
    rule = samples.ClassRule(
        source=cast(samples.LabelPart, label_from),
        json_key=given.get("label_key", "label"),
    )
    return samples.reader(rule, image_part=given.get("image_part"), on_null=on_null)


def _data_set(folder: pathlib.Path, *, file_in_names: bool) -> Listed:
    """Lists the records of a data set, whose index has the names of the classes."""
    data_set = _opened(folder)
    listed = readers.list_images(
        data_set.archives,
        data_set.reader,
        file_in_names=file_in_names,
        split_in_names=False,
    )
    return listed._replace(
        names={label: synset for label, (synset, _) in data_set.classes.items()},
        names_from=data_set.shown,
        texts=dict(data_set.classes.values()),
    ).named()


def columns_of(source: MergeSource) -> columns.Columns:
    """Returns the columns of a table; `image` and `label` are usual."""
    given = source.options
    return columns.Columns(
        image=given.get("image_column", "image"),
        label=given.get("label_column", "label"),
        name=given.get("name_column"),
        split=given.get("split_column"),
    )


def read_table(
    source: MergeSource,
    table: table_sources.TableSource,
    root: images.Root,
    folder: pathlib.Path,
    meaning: Meaning,
    *,
    on_null: str,
) -> Listed:
    """Reads a table, and lists its images.

    Args:
        source: The source.
        table: Its table.
        root: Folder or URL above relative paths.
        folder: Folder for the rows and the image bytes.
        meaning: The words of a user about splits and classes.
        on_null: The fate of a row without an image or a label, see `columns`.

    Raises:
        ValueError: If the table is wrong.
        OSError: If the file cannot be read.
        RemoteError: If a URL cannot be read.
    """
    # Files beside the folder have relative names, across no link.
    folder = pathlib.Path(os.path.realpath(folder))
    wanted, split, by_file = scan.by_names(table, columns_of(source), meaning, ())
    query, states = source.options.get("query"), table.states()
    rows = scan.scan({scan.INPUT: table}, query, wanted, folder, by_file)
    how = classes_of_rows.Reading(
        root=root,
        folder=folder,
        has_splits=wanted.split is not None,
        on_null=on_null,
        split=split,
        states=states,
    )
    with sql.connected(folder) as connection:
        rows_of = classes_of_rows.read(connection, rows, how)
    for name, classes in rows_of.listed.several.items():
        raise ValueError(
            f"Each image of a merge must have one label, got {len(classes)} for row "
            f"{rows_of.rows[name]} ({name}). Choose one in --query, as in label[1] AS "
            "label."
        )
    return rows_of.listed.with_list(
        classes_of_rows.class_list(table, wanted.label, query)
    ).named()
