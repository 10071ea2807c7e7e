"""The sources of a merge: their kinds and readers, and new names of their classes.

In: the words of a user for a source: a path, a pattern or a URL, and options. Out: a
`MergeSource` with its reader. The name of a file decides the kind of a source where
possible, and otherwise the content of the folder. No image is opened.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from converters.inputs import files, folders, patterns
from converters.inputs.archives import example_images, samples
from converters.inputs.archives.data_set import DataSetReader
from converters.inputs.classtree import TreeReader
from converters.inputs.folders import Folder
from converters.inputs.meaning import USUAL
from converters.inputs.reader import Reader
from converters.inputs.tables import servers, table_sources
from converters.inputs.tables.reader import TableReader
from tfpipe import errors
from tfpipe.location.location import Location, shown, written_scheme
from tfpipe.shards import index

TREE, TABLE, DATA_SET = "tree", "table", "data_set"
TARS, TFRECORDS = "tars", "tfrecords"
# Description for people and reader of each kind.
KINDS: Mapping[str, tuple[str, Callable[..., Reader]]] = {
    TREE: ("a tree of classes", TreeReader),
    TABLE: ("a table", TableReader),
    TARS: ("tars of a WebDataset", samples.TarReader),
    TFRECORDS: ("TFRecord files", example_images.TfrecordReader),
    DATA_SET: ("a data set of the converters", DataSetReader),
}
# Kinds of files, by their names.
_FILES: Mapping[str, Callable[[str], bool]] = {
    TABLE: table_sources.has_ending,
    TARS: samples.TARS.is_one,
    TFRECORDS: example_images.TFRECORDS.is_one,
}
# Flags about the reading of a source: fields of its reader.
HOW = (
    *("image_column", "label_column", "name_column", "split_column", "root", "query"),
    *("label_from", "label_key", "image_part", "image_key", "name_key"),
    *("label_separator", "extra_columns"),
)
_ANY = patterns.Kind("files that one command converts", is_one=lambda name: True)
_EXPECTED = (
    "a folder with a folder for each class, a table (.csv, .tsv, .jsonl, .parquet, "
    "SQLite, postgresql://, mysql://), tars, TFRecord files, or a data set of the "
    "converters"
)


def kind_of(place: str) -> str:
    """Returns the kind of a path, a pattern or a URL; a split and "=" may be before.

    Raises:
        ValueError: If nothing is there, or nothing readable.
    """
    split, bare = patterns.split_of(place)
    kind = _kind_of(bare)
    if split is not None and kind not in (TARS, TFRECORDS):
        raise ValueError(
            f"A place after {split}= must be tars or TFRecord files, got "
            f"{KINDS[kind][0]}. The splits of a tree are its folders, and those of a "
            "table are in --split_column."
        )
    return kind


def _kind_of(place: str) -> str:
    if servers.may_hold_secret(place) and not servers.is_server(place):
        raise ValueError(
            "A place must be a path or a URL, or train=, validation= or test= and one "
            "of them. The text is none of these, and is not shown here because it may "
            "hold a secret."
        )
    path, before = os.path.expanduser(place), re.split(r"[*?\[{]", place)[0]
    is_remote = bool(written_scheme(place))
    if not is_remote and os.path.isdir(path):
        return _in_folder(folders.Folder(Location(path)))
    if named := _by_name(place):
        return named
    if is_remote:  # a pattern has signs of no URL
        location = Location.from_user("A place", before)
        if before == place:
            return _in_folder(folders.Folder(location))
    elif os.path.lexists(path):
        return TABLE  # a SQLite file without an ending, or else an error
    elif before == place:
        errors.require_visible(path)
        raise _no_place(f"{servers.shown(path)}: no such file or folder")
    first = patterns.find([place], _ANY, USUAL)[0].file
    if named := _by_name(first):
        return named
    raise _no_place(f"{shown(place)}, whose first file is {shown(first)}")


def _no_place(got: str) -> ValueError:
    return ValueError(f"A place must be {_EXPECTED}; got {got}.")


def _by_name(place: str) -> str | None:
    base = place.rpartition("/")[2]
    if servers.is_server(place):
        return TABLE
    return next((kind for kind, is_one in _FILES.items() if is_one(base)), None)


def _in_folder(here: Folder) -> str:
    """Returns the kind of a folder; sub-folders beside a few files are classes."""
    has_index = here.size(index.INDEX_NAME) is not None
    if has_index and not here.location.is_local:
        return DATA_SET  # a web server cannot list the folder
    try:
        listed = here.scan("", ())
    except errors.MissingFileError:
        raise _no_place(f"{here.shown('')}: there is no such file or folder") from None
    names = [item.name for item in listed.left_out if not item.name.startswith(".")]
    kinds = set(map(_by_name, names))
    if has_index and TARS not in kinds:
        return DATA_SET
    folders_are = [TREE] if listed.folders else []
    ranked = [TFRECORDS, *folders_are, TARS, TABLE]
    return next((kind for kind in ranked if kind in {*kinds, *folders_are}), TREE)


# A name is the first part of the names of images, and of a file in a folder of links.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeSource:
    """An input of a merge.

    Attributes:
        name: Name of the source, at the start of the names of its images.
        kind: A key of `KINDS`.
        reader: Reader of the source.
        options: Values of the flags of `HOW`.
        class_map: New class of some of its classes; an empty text leaves a class out.
    """

    name: str
    kind: str
    reader: Reader
    options: Mapping[str, str]
    class_map: Mapping[str, str]


def source_of(
    name: str,
    place: str,
    options: Mapping[str, str],
    class_map: str | None,
    **shared: Any,
) -> MergeSource:
    """Returns the source of a place, which may be a URL with a password.

    Args:
        name: Name of the source.
        place: Path, pattern or URL of the source.
        options: Values of the flags of `HOW`.
        class_map: File of `read_class_map`, if there is one.
        shared: Values of flags which are the same for all sources.

    Raises:
        ValueError: If the name is not letters, digits, dots, dashes and underscores, an
            option is not of the kind of the place, or nothing readable is there.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            "The name of a source must be letters, digits, dots, dashes and "
            f"underscores, got {name!r}. Write NAME=PLACE."
        )
    kind = kind_of(place)
    words, reader = KINDS[kind]
    for flag, value in options.items():
        if flag not in _fields(reader):
            takers = [said for said, other in KINDS.values() if flag in _fields(other)]
            raise ValueError(
                f"--{flag} must be of a source that is {' or '.join(takers)}, got "
                f"{name!r}, which is {words}."
            )
        if not value and flag not in ("name_key", "extra_columns"):
            raise ValueError(f"--{flag} of {name!r} must not be empty.")
    field = "input_dir" if kind in (TREE, DATA_SET) else "input"
    own = {field: [place] if kind in (TARS, TFRECORDS) else place, **options}
    if (columns := options.get("extra_columns")) is not None:
        own["extra_columns"] = [*filter(None, columns.split(","))]
    own |= {key: shared[key] for key in shared.keys() & _fields(reader)}
    classes = {}
    if class_map is not None:
        classes = read_class_map(files.path_of(f"--class_map={name}", class_map))
    return MergeSource(
        name=name, kind=kind, reader=reader(**own), options=options, class_map=classes
    )


def _fields(reader: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(reader)}


def read_class_map(path: pathlib.Path) -> dict[str, str]:
    """Reads new classes from lines of `<class>TAB<new class>`.

    A line whose new class is empty leaves the class out of the data set. Empty lines
    are ignored.

    Raises:
        ValueError: If a line has no tab, or a class occurs twice.
    """
    found: dict[str, str] = {}
    text = files.read_text(path, errors="surrogateescape", pipe=True)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        old, tab, new = line.partition("\t")
        if not tab or not old or "\t" in new:
            raise ValueError(
                f"{path} must have lines of a class, a tab and its new class, got "
                f"{line!r:.80} in line {number}."
            )
        if old in found:
            raise ValueError(f"{path} must name each class once, got {old!r} twice.")
        found[old] = new.strip()
    return found
