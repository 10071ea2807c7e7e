"""Readers of the kinds of archives, and the images of many files of one kind.

In: patterns of files, and a `Reader` of their kind. Out: a `Listed`: the images by
split and class, and the names that the input has for classes that are numbers.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from converters.inputs import reading, tars
from converters.inputs.archives import (
    contents,
    example_images,
    numbered,
    patterns,
    samples,
)
from converters.inputs.archives.contents import Contents
from converters.inputs.archives.example_images import Keys
from converters.inputs.archives.patterns import Archive
from converters.inputs.archives.sample_class import ClassRule
from converters.inputs.classtree import ClassTree

TARS = patterns.Kind(
    "files that end in .tar",
    is_one=lambda name: name.endswith(".tar"),
    split_of=lambda name: None,
)


class Reader(NamedTuple):
    """How files of a kind are read.

    Attributes:
        kind: Kind of the files.
        read: Lists the images of a file, from the folder that it is relative to.
        names_of: Returns the names that the input has for classes that are numbers;
            none if it has no such names.
    """

    kind: patterns.Kind
    read: Callable[[pathlib.Path, Archive], Contents]
    names_of: Callable[[pathlib.Path, Sequence[Archive]], Mapping[int, str]]


class Listed(NamedTuple):
    """Images of many files.

    Attributes:
        folder: Path or URL that the files are relative to.
        tree: The images by split and class.
        are_numbers: Whether all classes are numbers.
        names: Names that the input has for these numbers; none if it has no names.
    """

    folder: pathlib.Path
    tree: ClassTree
    are_numbers: bool
    names: Mapping[int, str]


def of_samples(rule: ClassRule, *, image_part: str | None) -> Reader:
    """Returns the reader of the tars of a WebDataset, see `samples.read_samples`."""

    def read(folder: pathlib.Path, archive: Archive) -> Contents:
        where = reading.shown_file(folder, archive.file)
        with reading.opened(folder, archive.file, archive.num_bytes) as pread:
            tar = tars.Tar(pread, where, 0, archive.num_bytes)
            return samples.read_samples(tar, rule, image_part=image_part)

    return Reader(TARS, read, lambda folder, archives: {})


def of_examples(keys: Keys) -> Reader:
    """Returns the reader of TFRecord files, see `example_images.read_images`."""

    def read(folder: pathlib.Path, archive: Archive) -> Contents:
        where = reading.shown_file(folder, archive.file)
        with reading.opened(folder, archive.file, archive.num_bytes) as pread:
            return example_images.read_images(pread, archive, where, keys)

    def names_of(
        folder: pathlib.Path, archives: Sequence[Archive]
    ) -> Mapping[int, str]:
        return example_images.class_names(folder, archives, keys)

    return Reader(example_images.TFRECORDS, read, names_of)


def list_images(
    archives: Sequence[Archive],
    reader: Reader,
    *,
    file_in_names: bool,
    split_in_names: bool = True,
) -> Listed:
    """Lists the images of all files.

    Args:
        archives: The files, as `patterns.find` returns them.
        reader: How they are read.
        file_in_names: Whether the name of an image begins with that of its file.
        split_in_names: Whether it begins with its split in any case.

    Raises:
        ValueError: If the input is not as it must be.
        OSError: If a file cannot be read.
        RemoteError: If a file cannot be read by URL.
    """
    folder, relative = patterns.relative_to_one(archives)
    tree = contents.class_tree(
        folder,
        relative,
        lambda archive: reader.read(folder, archive),
        file_in_names=file_in_names,
        split_in_names=split_in_names,
    )
    are_numbers = numbered.are_numbers(tree.class_names())
    names = reader.names_of(folder, relative) if are_numbers else {}
    return Listed(folder, tree, are_numbers, names)
