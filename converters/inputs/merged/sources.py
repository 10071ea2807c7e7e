"""Joins class trees: names get the source in front, classes of equal names are one.

In: the tree and the class map of each source. Out: one `ClassTree`, whose files are
relative to a folder that has a link to each source. Files are listed, not opened.
"""

import collections
import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence

from converters.inputs import classtree, files, listing
from converters.inputs.classtree import ClassTree, Place
from converters.inputs.listing import LeftOut

# A name is the first part of the names of images, and of a file in a folder of links.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """One input of a merge.

    Attributes:
        name: Name of the source, which the names of its images begin with.
        folder: Its tree of images.
        class_map: New class of some of its classes; an empty text leaves a class out.

    Raises:
        ValueError: If the name is not letters, digits, dots, dashes and underscores.
    """

    name: str
    folder: pathlib.Path
    class_map: Mapping[str, str]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                "The name of a source must be letters, digits, dots, dashes and "
                f"underscores, got {self.name!r} for {self.folder}. Write NAME=FOLDER."
            )


def read_class_map(path: pathlib.Path) -> dict[str, str]:
    """Reads the new class of each class from lines of `<class>TAB<new class>`.

    A line whose new class is empty leaves the class out of the data set. Empty lines
    are ignored.

    Raises:
        ValueError: If a line has no tab, or a class occurs twice.
        OSError: If the file cannot be read.
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


def read_sources(sources: Sequence[Source]) -> ClassTree:
    """Lists all sources as one tree.

    Returns:
        The images by split and class. Names and files begin with the name of the
        source, so that the files are relative to a folder with a link to each source.

    Raises:
        ValueError: If a source has no image, has not a class of its class map, or
            occurs twice.
        OSError: If a folder cannot be read.
    """
    _require_different(sources)
    splits: dict[str, dict[str, list[Place]]] = {}
    left_out: list[LeftOut] = []
    for source in sources:
        tree = classtree.read_class_tree(source.folder)
        _require_known(source, tree)
        left_out += (item.under(f"{source.name}/") for item in tree.left_out)
        for split, found in tree.splits.items():
            joined = splits.setdefault(split, {})
            for old, places in found.items():
                renamed = [_of_source(source, place) for place in places]
                if new := source.class_map.get(old, old):
                    joined.setdefault(new, []).extend(renamed)
                else:
                    left_out += _not_mapped(renamed)
    for split, joined in splits.items():
        if not joined:
            raise ValueError(
                f"Split {split} must have at least one class, got none: --class_map "
                "leaves out all of them."
            )
    # The order of the sources has no effect on any byte.
    ordered = {
        split: {
            name: sorted(splits[split][name], key=lambda place: place.name)
            for name in sorted(splits[split])
        }
        for split in sorted(splits, key=lambda split: (split != "train", split))
    }
    return ClassTree(ordered, left_out)


def _of_source(source: Source, place: Place) -> Place:
    name = f"{source.name}/{place.name}"
    file = name if place.file == place.name else f"{source.name}/{place.file}"
    return place._replace(name=name, file=file)


def _not_mapped(places: Sequence[Place]) -> Iterator[LeftOut]:
    return (LeftOut(place.name, listing.NOT_MAPPED) for place in places)


def _require_different(sources: Sequence[Source]) -> None:
    names = collections.Counter(source.name for source in sources)
    name, count = names.most_common(1)[0]
    if count > 1:
        raise ValueError(f"Each source must have its own name, got {name!r} twice.")
    folders: dict[pathlib.Path, str] = {}
    for source in sources:
        real = source.folder.resolve()
        for other, owner in folders.items():
            if real.is_relative_to(other) or other.is_relative_to(real):
                raise ValueError(
                    f"Sources must be folders beside each other, got {source.folder} "
                    f"for {source.name!r}, which has images of {owner!r} too."
                )
        folders[real] = source.name


def _require_known(source: Source, tree: ClassTree) -> None:
    known = tree.class_names()
    missing = sorted(set(source.class_map) - set(known))
    if missing:
        raise ValueError(
            f"--class_map of {source.name!r} must name classes of that source, got "
            f"{missing[0]!r}. It has {len(known)}, the first is {known[0]!r}."
        )
