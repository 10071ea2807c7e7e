"""Joins the images of several sources: names get the source in front, classes are one.

In: the images and the class map of each source. Out: one `ClassTree`, whose files are
URLs or relative to a folder that has a link to each source; and labels of classes that
are numbers.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from converters.inputs import listing, reading
from converters.inputs.archives import numbered
from converters.inputs.classtree import ClassTree, Place
from converters.inputs.listing import LeftOut
from converters.inputs.merged.listed import ListedSource, local_or_url
from converters.inputs.merged.sources import TABLE, TREE, MergeSource
from tfpipe.remote import urls

Found = Sequence[tuple[MergeSource, ListedSource]]


class Joined(NamedTuple):
    """Images of all sources.

    Attributes:
        tree: The images by split and class. Names begin with the name of the source,
            and so do files that are no URLs.
        are_numbers: Whether the classes are numbers, which are the labels.
        texts: Names of classes for people, by class.
    """

    tree: ClassTree
    are_numbers: bool
    texts: Mapping[str, str]


def join(found: Found, names: Mapping[int, str]) -> Joined:
    """Joins sources.

    Args:
        found: The sources with their images.
        names: Names of classes that a source has as numbers; none leaves them numbers.

    Raises:
        ValueError: If a source has not a class of its class map, classes are numbers in
            one source and names in another, or images are in two sources.
    """
    _require_own_files(found)
    splits: dict[str, dict[str, list[Place]]] = {}
    left_out: list[LeftOut] = []
    texts: dict[str, str] = {}
    unnamed: dict[str, str] = {}
    for source, listed in sorted(found, key=lambda pair: pair[0].name):
        renamed = _new_names(source, listed, names)
        left_out += (item.under(f"{source.name}/") for item in listed.tree.left_out)
        for split, classes in listed.tree.splits.items():
            joined = splits.setdefault(split, {})
            for old, places in classes.items():
                moved = [_of_source(source, listed.folder, place) for place in places]
                if new := renamed.get(old, old):
                    joined.setdefault(new, []).extend(moved)
                else:
                    left_out += _not_mapped(moved)
        for old in listed.tree.class_names():
            text = listed.texts.get(old, old)
            if text != old and old not in renamed:
                texts.setdefault(old, text)
            if listed.are_numbers and old not in renamed:
                unnamed.setdefault(source.name, old)
    _require_classes(splits)
    # The order of the sources has no effect on any byte.
    ordered = {
        split: {
            name: sorted(splits[split][name], key=lambda place: place.name)
            for name in sorted(splits[split])
        }
        for split in sorted(splits, key=lambda split: (split != "train", split))
    }
    tree = ClassTree(ordered, left_out)
    return Joined(tree, _are_numbers(tree, unnamed), texts)


def _new_names(
    source: MergeSource, listed: ListedSource, names: Mapping[int, str]
) -> Mapping[str, str]:
    """Returns the new name of each class that gets one."""
    known = listed.tree.class_names()
    missing = sorted(set(source.class_map) - set(known))
    if missing:
        raise ValueError(
            f"--class_map of {source.name!r} must name classes of that source, got "
            f"{missing[0]!r}. It has {len(known)}, the first is {known[0]!r}."
        )
    if not (listed.are_numbers and names):
        return source.class_map
    for number in known:
        if number not in source.class_map and int(number) not in names:
            raise ValueError(
                f"--label_map must name the class of each number of {source.name!r}, "
                f"got no name for {number}."
            )
    named = {number: names.get(int(number), "") for number in known}
    return {**named, **source.class_map}


def _are_numbers(tree: ClassTree, unnamed: Mapping[str, str]) -> bool:
    """Whether all classes are numbers, some of which are numbers of labels."""
    for source, number in unnamed.items():
        for name in tree.class_names():
            if not numbered.are_numbers([name]):
                raise ValueError(
                    "Classes of all sources must be names, or all must be numbers, "
                    f"got {number} of {source!r} beside {name!r}. Name them with "
                    f"--class_map={source}=FILE, in lines of a number, a tab and a "
                    "class."
                )
    return bool(unnamed)


def _of_source(source: MergeSource, folder: pathlib.Path, place: Place) -> Place:
    name = f"{source.name}/{place.name}"
    if reading.is_remote(folder, place.file):
        return place._replace(name=name, file=_url(folder, place.file))
    file = name if place.file == place.name else f"{source.name}/{place.file}"
    return place._replace(name=name, file=file)


def _url(folder: pathlib.Path, file: str) -> str:
    if "://" in file:
        return file
    return urls.join(urls.require_place("", "A place", folder), file)


def _not_mapped(places: Sequence[Place]) -> Iterator[LeftOut]:
    return (LeftOut(place.name, listing.NOT_MAPPED) for place in places)


def _require_classes(splits: Mapping[str, Mapping[str, Sequence[Place]]]) -> None:
    for split, joined in splits.items():
        if not joined:
            raise ValueError(
                f"Split {split} must have at least one class, got none: --class_map "
                "leaves out all of them."
            )


def _require_own_files(found: Found) -> None:
    """Refuses archives that are in two sources."""
    owners: dict[str, str] = {}
    for source, listed in found:
        if source.kind in (TREE, TABLE):
            continue
        files = {
            place.file
            for classes in listed.tree.splits.values()
            for places in classes.values()
            for place in places
        }
        for file in sorted(files):
            shown = reading.shown_file(listed.folder, file)
            owner = owners.setdefault(shown, source.name)
            if owner != source.name:
                raise ValueError(
                    f"Sources must have files of their own, got {shown} in {owner!r} "
                    f"and in {source.name!r}."
                )


def require_trees_apart(sources: Sequence[MergeSource]) -> None:
    """Refuses trees that lie in each other.

    Raises:
        ValueError: If two trees do.
    """
    trees: dict[str, str] = {}
    for source in sources:
        if source.kind != TREE:
            continue
        folder = local_or_url(source.place)
        real = reading.shown(folder if urls.is_url(folder) else folder.resolve())
        for other, owner in trees.items():
            if _is_below(real, other) or _is_below(other, real):
                raise ValueError(
                    "Sources must be folders beside each other, got "
                    f"{reading.shown(folder)} for {source.name!r}, which has images of "
                    f"{owner!r} too."
                )
        trees[real] = source.name


def _is_below(path: str, above: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{above.rstrip('/')}/")
