"""Lists the images of one source of a merge, by the reader of its kind.

In: a `Source`; for a table also a folder for what is read of it. Out: a `Listed`: its
images by split and class, and the folder that their files are relative to.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import NamedTuple, cast

from converters.inputs import classtree
from converters.inputs.archives import (
    example_images,
    numbered,
    patterns,
    readers,
    sample_class,
)
from converters.inputs.classtree import ClassTree
from converters.inputs.merged import data_sets, kinds
from converters.inputs.merged.sources import Source
from converters.inputs.tables import (
    classes_of_rows,
    columns,
    images,
    places,
    scan,
    sql,
)
from tfpipe.remote import urls


class Listed(NamedTuple):
    """Images of a source.

    Attributes:
        folder: Path or URL that their files are relative to.
        tree: The images by split and class.
        are_numbers: Whether the classes are numbers of labels, and not names.
        texts: Names of classes for people, by class, where the source has them.
    """

    folder: pathlib.Path
    tree: ClassTree
    are_numbers: bool = False
    texts: Mapping[str, str] = {}


def read(source: Source, *, file_in_names: bool) -> Listed:
    """Lists a source that is no table.

    Args:
        source: The source.
        file_in_names: Whether names of images in archives begin with that of the file.

    Raises:
        ValueError: If it is not as it must be.
        BadIndexError: If it is a data set that is damaged.
        OSError: If it cannot be read.
        RemoteError: If it cannot be read by URL.
    """
    if source.kind == kinds.TREE:
        folder = local_or_url(source.place)
        return Listed(folder, classtree.read_class_tree(folder))
    if source.kind == kinds.DATA_SET:
        return _data_set(local_or_url(source.place), file_in_names=file_in_names)
    reader = _reader(source)
    found = patterns.find([source.place], reader.kind)
    listed = readers.list_images(found, reader, file_in_names=file_in_names)
    if not listed.names:
        return Listed(listed.folder, listed.tree, listed.are_numbers)
    tree = numbered.named(listed.tree, listed.names, where=numbered.BESIDE)
    return Listed(listed.folder, tree)


def local_or_url(place: str) -> pathlib.Path:
    """Returns the folder at a place as an absolute path, or as that of a URL.

    Raises:
        ValueError: If it is a URL that is not known or holds a password.
    """
    if urls.is_url(place):
        return pathlib.Path(urls.require_place("", "A place", place.rstrip("/")))
    return pathlib.Path(place).expanduser().absolute()


def _reader(source: Source) -> readers.Reader:
    """Returns the reader of tars or TFRecord files with the options of a source."""
    given = source.options
    if source.kind == kinds.TFRECORDS:
        return readers.of_examples(
            example_images.Keys(
                image=given.get("image_key"),
                label=given.get("label_key"),
                name=given.get("name_key"),
            )
        )
    label_from = given.get("label_from") or sample_class.usual_source(
        given.get("label_key")
    )
    rule = sample_class.ClassRule(
        source=cast(sample_class.Source, label_from),
        json_key=given.get("label_key", "label"),
    )
    return readers.of_samples(rule, image_part=given.get("image_part"))


def _data_set(folder: pathlib.Path, *, file_in_names: bool) -> Listed:
    """Lists the records of a data set, whose index has the names of the classes."""
    data_set = data_sets.opened(folder)
    listed = readers.list_images(
        data_set.archives,
        data_set.reader,
        file_in_names=file_in_names,
        split_in_names=False,
    )
    classes = data_set.classes
    names = {label: synset for label, (synset, _) in classes.items()}
    tree = numbered.named(listed.tree, names, where=data_set.shown)
    are_numbers = numbered.are_numbers(tree.class_names())
    return Listed(listed.folder, tree, are_numbers, dict(classes.values()))


def columns_of(source: Source) -> columns.Columns:
    """Returns the columns of a table; `image` and `label` are the usual ones."""
    given = source.options
    return columns.Columns(
        image=given.get("image_column", "image"),
        label=given.get("label_column", "label"),
        name=given.get("name_column"),
        split=given.get("split_column"),
    )


def read_table(
    source: Source,
    table: places.Source,
    root: images.Root,
    folder: pathlib.Path,
    *,
    on_null: str,
) -> Listed:
    """Reads a table, and lists its images.

    Args:
        source: The source.
        table: Its table.
        root: Folder or URL that paths are relative to.
        folder: Folder for the rows and the image bytes.
        on_null: What to do about a row without an image or a label, see `columns`.

    Raises:
        ValueError: If the table is not as it must be.
        OSError: If it cannot be read.
        RemoteError: If a URL cannot be read.
    """
    # Files beside the folder are named relative to it, across no link.
    folder = pathlib.Path(os.path.realpath(folder))
    wanted = columns_of(source)
    rows = scan.scan({scan.INPUT: table}, source.options.get("query"), wanted, folder)
    how = classes_of_rows.Reading(
        root=root,
        folder=folder,
        has_splits=wanted.split is not None,
        on_null=on_null,
    )
    with sql.connected(folder) as connection:
        listed = classes_of_rows.read(connection, rows, how)
    for name, (row, classes) in listed.several.items():
        raise ValueError(
            f"Each image of a merge must have one label, got {len(classes)} for row "
            f"{row} ({name}). Choose one in --query, as in label[1] AS label."
        )
    return Listed(listed.input_dir, listed.tree, listed.integers)
