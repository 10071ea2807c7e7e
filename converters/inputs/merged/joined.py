"""Joins the images of several sources under the names of the sources.

In: the images and the class map of the sources. Out: a `Listed`, whose files are URLs
or relative to a folder with a link to every source.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence

from converters.inputs import listing, meaning, reading
from converters.inputs.classtree import ClassTree, Place
from converters.inputs.files import State
from converters.inputs.labels import Listed
from converters.inputs.listing import LeftOut
from converters.inputs.merged.listed import local_or_url
from converters.inputs.merged.sources import TABLE, TREE, MergeSource
from tfpipe.location import urls

Found = Sequence[tuple[MergeSource, Listed]]


def join(
    sources: Found,
    folder: pathlib.Path,
    names: Mapping[int, str],
    label_type: meaning.LabelType | None,
) -> Listed:
    """Joins sources.

    Args:
        sources: The sources with their images.
        folder: Folder with a link to every source on the host.
        names: Names of classes that are numbers; no name leaves the numbers.
        label_type: Value of --label_type.

    Raises:
        ValueError: If a source lacks a class of its class map, some sources have
            numeric classes and others have names, or images are in two sources.
    """
    _require_own_files(sources)
    splits: dict[str, dict[str, list[Place]]] = {}
    left_out: list[LeftOut] = []
    texts: dict[str, str] = {}
    unnamed: dict[str, str] = {}
    for source, listed in sorted(sources, key=lambda pair: pair[0].name):
        kind = meaning.label_type(listed.class_names(), label_type)
        is_number = kind == meaning.NUMBER
        renamed = _new_names(source, listed, names if is_number else {})
        left_out += (item.under(f"{source.name}/") for item in listed.tree.left_out)
        for split, classes in listed.tree.splits.items():
            joined = splits.setdefault(split, {})
            for old, places in classes.items():
                moved = [_of_source(source, listed.folder, image) for image in places]
                if new := renamed.get(old, old):
                    joined.setdefault(new, []).extend(moved)
                else:
                    left_out += _not_mapped(moved)
        for old in listed.tree.class_names():
            text = listed.texts.get(old, old)
            if text != old and old not in renamed:
                texts.setdefault(old, text)
            if is_number and old not in renamed:
                unnamed.setdefault(source.name, old)
    _require_classes(splits)
    # The order of the sources has no effect on any byte.
    ordered = {
        split: {
            name: sorted(splits[split][name], key=lambda image: image.name)
            for name in sorted(splits[split])
        }
        for split in sorted(splits, key=lambda split: (split != "train", split))
    }
    tree = ClassTree(ordered, left_out)
    _require_one_type(tree, unnamed)
    return Listed(
        folder, tree, texts=texts, states=_states(sources), num_rows=_num_rows(sources)
    )


def _num_rows(sources: Found) -> int | None:
    counts = [listed.num_rows for _, listed in sources]
    return None if None in counts else sum(filter(None, counts))


def _states(sources: Found) -> dict[str, State]:
    return {
        f"{source.name}/{file}": state
        for source, listed in sources
        for file, state in listed.states.items()
    }


def _new_names(
    source: MergeSource, listed: Listed, names: Mapping[int, str]
) -> Mapping[str, str]:
    """Returns the new names of renamed classes, by their old name."""
    classes = listed.tree.class_names()
    missing = sorted(set(source.class_map) - set(classes))
    if missing:
        raise ValueError(
            f"--class_map of {source.name!r} must name classes of that source, got "
            f"{missing[0]!r}. It has {len(classes)}, the first is {classes[0]!r}."
        )
    if not names:
        return source.class_map
    for label in classes:
        if label not in source.class_map and int(label) not in names:
            raise ValueError(
                f"--label_map must name the class of each number of {source.name!r}, "
                f"got no name for {label}."
            )
    named = {label: names.get(int(label), "") for label in classes}
    return {**named, **source.class_map}


def _require_one_type(tree: ClassTree, unnamed: Mapping[str, str]) -> None:
    """Refuses numbers of a source beside names of another."""
    names = tree.class_names()
    for source, class_name in unnamed.items():
        for name in names:
            if meaning.label_type([name], None) == meaning.TEXT:
                raise ValueError(
                    "Classes of all sources must be names, or all must be numbers, "
                    f"got {class_name} of {source!r} beside {name!r}. Name them with "
                    f"--class_map={source}=FILE, in lines of a number, a tab and a "
                    "class."
                )


def _of_source(source: MergeSource, folder: pathlib.Path, image: Place) -> Place:
    name = f"{source.name}/{image.name}"
    if reading.is_remote(folder, image.file):
        return image._replace(name=name, file=_url(folder, image.file))
    file = name if image.file == image.name else f"{source.name}/{image.file}"
    return image._replace(name=name, file=file)


def _url(folder: pathlib.Path, file: str) -> str:
    if "://" in file:
        return file
    return urls.join(urls.require_place("", "A place", folder), file)


def _not_mapped(places: Sequence[Place]) -> Iterator[LeftOut]:
    return (LeftOut(image.name, listing.NOT_MAPPED) for image in places)


def _require_classes(splits: Mapping[str, Mapping[str, Sequence[Place]]]) -> None:
    for split, joined in splits.items():
        if not joined:
            raise ValueError(
                f"Split {split} must have at least one class, got none: --class_map "
                "leaves out all of them."
            )


def _require_own_files(sources: Found) -> None:
    """Refuses archives in two sources."""
    owners: dict[str, str] = {}
    for source, listed in sources:
        if source.kind in (TREE, TABLE):
            continue
        files = {
            image.file
            for classes in listed.tree.splits.values()
            for places in classes.values()
            for image in places
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
    """Refuses trees inside other trees.

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
