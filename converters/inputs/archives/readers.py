"""The images of many files of a kind, by split and class.

In: files, and the `Reader` of their kind. Out: `Listed`: images by split
and class, and the names of classes beside the files. Several files
are listed at a time; the order of the images stays the same.
"""

import collections
import concurrent.futures
import pathlib
import posixpath
from collections.abc import Callable, Sequence
from typing import NamedTuple

from converters.engines import processes
from converters.inputs import class_lists, folders, listing, meaning, reading
from converters.inputs.archives import patterns
from converters.inputs.archives.patterns import Archive
from converters.inputs.class_lists import ClassList
from converters.inputs.classtree import ClassTree, Place
from converters.inputs.labels import Listed
from tfpipe.location import urls
from tfpipe.shards import label_rows

# The threads wait for the disk or the store most of the time.
_NUM_READERS = 16
# Begins a row of 0 and 1 as the class of an image, until the end of the list.
ROW = "\0row "


class ArchivedImage(NamedTuple):
    """An image in a file of many images.

    Attributes:
        name: Name of the image, without the split.
        class_name: Name or number of its class.
        offset: Start of its bytes in the file.
        num_bytes: Size in bytes.
    """

    name: str
    class_name: str
    offset: int
    num_bytes: int


class ArchiveContents(NamedTuple):
    """Images of a file, and the names that were left out.

    Attributes:
        items: The images.
        left_out: The parts without an image.
        num_rows: Number of records or samples in the file, counted as they are read.
    """

    items: Sequence[ArchivedImage]
    left_out: Sequence[listing.LeftOut]
    num_rows: int


def class_tree(
    folder: pathlib.Path,
    archives: Sequence[Archive],
    read: Callable[[Archive], ArchiveContents],
    *,
    file_in_names: bool,
    split_in_names: bool = True,
) -> ClassTree:
    """Lists all files.

    Args:
        folder: Path or URL above the files.
        archives: The files.
        read: Lists a file; several threads call the function.
        file_in_names: Whether the name of an image begins with the name of its file.
        split_in_names: Whether the name begins with the split in any case.

    Raises:
        ValueError: If a split has no image, or two images have the same name.
        OSError: If a file cannot be read.
        RemoteError: If a file cannot be read by URL.
    """
    splits: dict[str, dict[str, list[Place]]] = {}
    left_out: list[listing.LeftOut] = []
    owners: dict[str, str] = {}
    with (
        concurrent.futures.ThreadPoolExecutor(_NUM_READERS) as pool,
        processes.make_bar(len(archives), "file") as bar,
    ):
        for start in range(0, len(archives), _NUM_READERS):
            # Groups limit how far the threads read ahead, and end soon after an error.
            group = archives[start : start + _NUM_READERS]
            for archive, found in zip(group, pool.map(read, group), strict=True):
                prefix = f"{archive.split}/" if split_in_names else ""
                prefix = _with_file(archive) if file_in_names else prefix
                _add(splits, archive, prefix, found.items, owners, folder)
                left_out += (item.under(f"{archive.file}/") for item in found.left_out)
                bar.update()
    for split in dict.fromkeys(archive.split for archive in archives):
        if not splits.get(split):
            raise _nothing_found(split, left_out)
    return ClassTree(
        {split: dict(sorted(found.items())) for split, found in splits.items()},
        left_out,
    )


def _with_file(archive: Archive) -> str:
    base = archive.file.rpartition("/")[2].removesuffix(".tar")
    return f"{archive.split}/{base}/"


def _add(
    splits: dict[str, dict[str, list[Place]]],
    archive: Archive,
    prefix: str,
    items: Sequence[ArchivedImage],
    owners: dict[str, str],
    folder: pathlib.Path,
) -> None:
    classes = splits.setdefault(archive.split, collections.defaultdict(list))
    for item in items:
        name = prefix + item.name
        count = len(owners)
        owner = owners.setdefault(name, archive.file)
        if len(owners) == count:
            one, other = (
                reading.shown_file(folder, file) for file in (owner, archive.file)
            )
            raise ValueError(
                f"An image must have a name of its own, but {item.name} is in {one} "
                f"and in {other}. If these are two files, --file_in_names puts the "
                "name of the file before that of the image."
            )
        place = Place(name, archive.file, item.offset, item.num_bytes)
        classes[item.class_name].append(place)


def _nothing_found(split: str, left_out: Sequence[listing.LeftOut]) -> ValueError:
    counts = listing.count(left_out)
    reasons = "; ".join(
        f"{count:,} because {listing.DETAILS[reason]}"
        for reason, count in counts.items()
    )
    first = f", the first is {left_out[0].name}" if left_out else ""
    return ValueError(
        f"The {split} files of --input must hold images with a class, got none"
        f"{first}. Left out: {reasons or 'nothing'}. See --help for where the class "
        "comes from."
    )


class Reader(NamedTuple):
    """How files of a kind are read.

    Attributes:
        kind: Kind of the files.
        read: Lists the images of a file, from the folder above the file.
        label_keys: Keys of the label in a record; TFDS names lists of classes by them.
    """

    kind: patterns.Kind
    read: Callable[[pathlib.Path, Archive], ArchiveContents]
    label_keys: Sequence[str] = ()


def list_images(
    archives: Sequence[Archive],
    reader: Reader,
    *,
    file_in_names: bool,
    split_in_names: bool = True,
    label_type: meaning.LabelType | None = None,
) -> Listed:
    """Lists the images of all files.

    Args:
        archives: The files, as `patterns.find` returns them.
        reader: How they are read.
        file_in_names: Whether the name of an image begins with the name of its file.
        split_in_names: Whether the name begins with the split in any case.
        label_type: Value of --label_type.

    Raises:
        ValueError: If the input is wrong.
        OSError: If a file cannot be read.
        RemoteError: If a file cannot be read by URL.
    """
    folder, relative = patterns.relative_to_one(archives)
    num_rows = []

    def read(archive: Archive) -> ArchiveContents:
        contents = reader.read(folder, archive)
        num_rows.append(contents.num_rows)
        return contents

    tree = class_tree(
        folder,
        relative,
        read,
        file_in_names=file_in_names,
        split_in_names=split_in_names,
    )
    tree, classes = _without_rows(tree)
    is_text = meaning.label_type(tree.class_names(), label_type) == meaning.TEXT
    states = {each.file: each.state for each in relative if each.state is not None}
    listed = Listed(folder, tree, states=states, num_rows=sum(num_rows))
    listed = listed.with_list(classes)
    above = posixpath.dirname(relative[0].file)
    place = above if urls.is_url(above) else str(folder / above)
    first = folders.open_folder(pathlib.Path(place))
    if is_text:
        return listed.with_list(class_lists.exported(first))
    return listed.with_list(class_lists.beside(first, reader.label_keys))


def _without_rows(tree: ClassTree) -> tuple[ClassTree, ClassList]:
    """Returns a tree whose classes are numbers where they are one-hot rows.

    Raises:
        ValueError: If rows of 0 and 1 are no one-hot rows, or are beside other labels.
    """
    names = tree.class_names()
    rows = {name: name.removeprefix(ROW) for name in names if name.startswith(ROW)}
    if not rows:
        return tree, class_lists.NO_LIST
    if len(rows) < len(names) or not label_rows.is_one_hot(
        [[*map(int, row)] for row in rows.values()], None
    ):
        raise ValueError(
            "Labels must be one number or text for each image, or rows of 0 and 1 of "
            f"one length above 2, got {next(iter(rows.values()))} beside others. Name "
            "another feature with --label_key."
        )
    if several := [row for row in rows.values() if row.count("1") != 1]:
        raise ValueError(
            f"A row of a label must have one 1, got the row {several[0]}. Each image "
            "of these files has one class; name another feature with --label_key, or "
            "read the images as a table, whose rows may have several."
        )
    number_of = {name: str(row.index("1")) for name, row in rows.items()}
    splits = {
        split: {number_of[name]: places for name, places in classes.items()}
        for split, classes in tree.splits.items()
    }
    numbers = {number: str(number) for number in range(len(rows[names[0]]))}
    classes = ClassList("The length of the rows of 0 and 1", numbers)
    return ClassTree(splits, tree.left_out), classes
