"""Finds out what a place holds: a tree of classes, a table, tars, or TFRecords.

In: a path, a pattern or a URL, as a user wrote it. Out: its kind. The name decides
where it can, and otherwise what is in the folder. No image is opened.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Literal

from converters.inputs import folders
from converters.inputs.archives import example_images, patterns, readers
from converters.inputs.folders import Folder, OnDisk
from converters.inputs.tables import places
from tfpipe import errors
from tfpipe.remote import urls
from tfpipe.shards import index

Kind = Literal["tree", "table", "tars", "tfrecords", "data_set"]
TREE: Kind = "tree"
TABLE: Kind = "table"
TARS: Kind = "tars"
TFRECORDS: Kind = "tfrecords"
DATA_SET: Kind = "data_set"

# Names for people.
WORDS: Mapping[Kind, str] = {
    TREE: "a tree of classes",
    TABLE: "a table",
    TARS: "tars of a WebDataset",
    TFRECORDS: "TFRecord files",
    DATA_SET: "a data set of the converters",
}
# Flags that say how a source of a kind is read.
FLAGS: Mapping[Kind, Sequence[str]] = {
    TREE: (),
    TABLE: (
        *("image_column", "label_column", "name_column", "split_column"),
        *("root", "query"),
    ),
    TARS: ("label_from", "label_key", "image_part"),
    TFRECORDS: ("image_key", "label_key", "name_key"),
    DATA_SET: (),
}
_ANY = patterns.Kind(
    "files that one command converts",
    is_one=lambda name: True,
    split_of=lambda name: None,
)
_EXPECTED = (
    "a folder with a folder for each class, a table (.csv, .tsv, .jsonl, .parquet, "
    "SQLite, postgresql://, mysql://), tars, TFRecord files, or a data set of the "
    "converters"
)


def kind_of(place: str) -> Kind:
    """Returns what a place holds.

    Args:
        place: Path, pattern or URL; before those of tars and of TFRecord files may be
            a split and "=".

    Raises:
        ValueError: If nothing is there, or nothing that can be read.
        OSError: If a folder cannot be listed.
        RemoteError: If a store cannot be read.
    """
    split, bare = patterns.split_of(place)
    kind = _kind_of(bare)
    if split is not None and kind not in (TARS, TFRECORDS):
        raise ValueError(
            f"A place after {split}= must be tars or TFRecord files, got "
            f"{WORDS[kind]}. The splits of a tree are its folders, and those of a "
            "table are in --split_column."
        )
    return kind


def _kind_of(place: str) -> Kind:
    if "://" in place and not urls.is_url(place):
        raise ValueError(
            "A place must be a path or a URL, or train=, validation= or test= and one "
            "of them. The one with :// is none of these, and is not shown here because "
            "it may hold a secret."
        )
    path = os.path.expanduser(place)
    if not urls.is_url(place) and os.path.isdir(path):
        return _in_folder(folders.open_folder(pathlib.Path(path)))
    if named := _by_name(place):
        return named
    if urls.is_url(place):
        urls.require_place("", "A place", _before_wildcards(place))
        if not any(sign in place for sign in "*?[{"):
            return _in_folder(folders.open_folder(pathlib.Path(place.rstrip("/"))))
    elif os.path.lexists(path):
        return TABLE  # a SQLite file without an ending, or else an error
    elif not any(sign in place for sign in "*?[{"):
        raise ValueError(
            f"A place must be {_EXPECTED}; got {path}: there is no such file or folder."
        )
    found = patterns.find([place], _ANY)
    if named := _by_name(found[0].file):
        return named
    raise ValueError(
        f"A place must be {_EXPECTED}; got {urls.shown(place)}, whose first file is "
        f"{urls.shown(found[0].file)}."
    )


def _before_wildcards(url: str) -> str:
    """Returns a URL up to its pattern, which may hold what a URL must not."""
    for sign in "*?[{":
        url = url.partition(sign)[0]
    return url


def _by_name(place: str) -> Kind | None:
    base = place.rpartition("/")[2]
    if places.is_server(place) or places.has_ending(base):
        return TABLE
    if readers.TARS.is_one(base):
        return TARS
    return TFRECORDS if example_images.TFRECORDS.is_one(base) else None


def _in_folder(here: Folder) -> Kind:
    """Returns what a folder holds; sub-folders beside a few files are classes."""
    has_index = here.size(index.INDEX_NAME) is not None
    if has_index and not isinstance(here, OnDisk):
        return DATA_SET  # a web server cannot list what is beside it
    try:
        listed = here.scan("", ())
    except errors.MissingFileError:
        raise ValueError(
            f"A place must be {_EXPECTED}; got {here.shown('')}: there is no such file "
            "or folder."
        ) from None
    names = [item.name for item in listed.left_out if not item.name.startswith(".")]
    has_tars = any(map(readers.TARS.is_one, names))
    if has_index and not has_tars:
        return DATA_SET
    if any(map(example_images.TFRECORDS.is_one, names)):
        return TFRECORDS
    if listed.folders:
        return TREE
    if has_tars:
        return TARS
    return TABLE if any(map(places.has_ending, names)) else TREE
