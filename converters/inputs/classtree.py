"""Lists any class-per-directory tree as classes and named images.

In: a folder. A folder of images is a class, named by its path, so that classes
may be nested. Folders at the top whose names say splits are splits; otherwise all
images are of the split `train`. Out: the images by split and class. Files are
listed, not opened.
"""

import collections
import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from converters.inputs import files, folders, fractions, kaggle, listing
from converters.inputs.classes import Class, printable
from converters.inputs.folder_images import Place as Place
from converters.inputs.ilsvrc import Image, Tree, catalog_name
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import Meaning
from tfpipe.shards.split_names import SPLITS, TEST, TRAIN, split_of_name

# A line of a label map: a label, a colon or a space, and a class.
_NUMBERED = re.compile(r"([0-9]+)(?:\s*:\s*|\s+)(\S.*)")
# A folder is read once for every path to the folder, with links. Links from all
# folders to all other folders would turn a few folders into millions of classes.
_MAX_READS = 100
# A folder below a class with all images of the class, as in Tiny-ImageNet.
_LIST_END = "_annotations.txt"
_LEAVES = {"images", "image", "imgs", "img", "JPEGImages"}

_Identity = tuple[int, int]  # device and inode; folders of a store have none


class ClassTree(NamedTuple):
    """Images and classes of an input.

    Attributes:
        splits: By split and by class (sorted by name), the images.
        left_out: Names left out, with reasons.
    """

    splits: Mapping[str, Mapping[str, Sequence[Place]]]
    left_out: Sequence[LeftOut]

    @property
    def ignored(self) -> dict[str, int]:
        """Number of names left out, by reason."""
        return listing.count(self.left_out)

    def class_names(self) -> list[str]:
        """Returns the classes of all splits, sorted by name."""
        return sorted({name for split in self.splits.values() for name in split})


def read_class_tree(input_dir: pathlib.Path, meaning: Meaning) -> ClassTree:
    """Lists a tree. Links are followed, but not in circles.

    Args:
        input_dir: Path or URL of the tree.
        meaning: The words of a user about splits and classes.

    Raises:
        ValueError: If a split has no image, if two folders say the same split, or if
            links lead to a folder by too many paths.
        OSError: If a folder cannot be read.
        RemoteError: If the store cannot be listed.
    """
    source = folders.open_folder(input_dir)
    folders.require(source)
    kaggle.refuse(source, reader="converters.imagenet")
    left_out: list[LeftOut] = []
    splits = {}
    for split, top in _split_folders(source, meaning, left_out).items():
        found = _walk(source, top, meaning.class_depth, left_out)
        if not found:
            raise ValueError(
                f"{source.shown(top)} must hold a folder for each class, with images "
                "named *.jpg, *.png or as another format that Pillow reads in it; got "
                "none."
            )
        splits[split] = _listed_classes(source, top, found, left_out) or found
    splits = _without_leaf(splits, left_out)
    ordered = {split: dict(sorted(found.items())) for split, found in splits.items()}
    return ClassTree(ordered, left_out)


def _listed_classes(
    source: folders.Folder,
    top: str,
    found: Mapping[str, Sequence[Place]],
    left_out: list[LeftOut],
) -> dict[str, list[Place]]:
    """Returns the images of a split by the list of classes in its folder, if any.

    Tiny-ImageNet has such a list, `val/val_annotations.txt`: a line for an image,
    with its name, its class and a box, with tabs between them.
    """
    others = source.scan(top, ()).left_out if top else []
    lists = [f"{top}/{item.name}" for item in others if item.name.endswith(_LIST_END)]
    if len(lists) != 1:
        return {}
    with folders.near(source, lists) as folder:
        lines = files.read_text(folder / lists[0]).splitlines()
    class_of = dict(line.split("\t")[:2] for line in lines if line.count("\t"))
    classes: dict[str, list[Place]] = {}
    for place in itertools.chain.from_iterable(found.values()):
        if name := class_of.get(place.name.rpartition("/")[2]):
            classes.setdefault(name, []).append(place)
        else:
            left_out.append(LeftOut(place.name, listing.NO_LABEL))
    return classes


def _without_leaf(
    splits: Mapping[str, Mapping[str, list[Place]]], left_out: list[LeftOut]
) -> dict[str, dict[str, list[Place]]]:
    """Returns classes without the folder `images` at the end of all classes of train.

    An image of another split in the folder alone has no class.
    """
    leaves = {name.rpartition("/")[2] for name in splits.get(TRAIN, {})}
    if len(leaves) != 1 or not leaves <= _LEAVES or TRAIN not in splits:
        return {split: dict(classes) for split, classes in splits.items()}
    (leaf,) = leaves
    result: dict[str, dict[str, list[Place]]] = {}
    for split, classes in splits.items():
        for name, places in classes.items():
            if name == leaf:
                left_out += (LeftOut(place.name, listing.NO_CLASS) for place in places)
            else:
                result.setdefault(split, {})[name.removesuffix(f"/{leaf}")] = places
    return result


def _split_folders(
    source: folders.Folder, meaning: Meaning, left_out: list[LeftOut]
) -> dict[str, str]:
    """Returns the folders of the splits, relative to the input folder; "" is all."""
    whole = {meaning.split or TRAIN: ""}
    if meaning.split is not None or not meaning.split_names:
        return whole
    top = source.scan("", listing.IMAGE_SUFFIXES)
    said = {name: split for name in top.folders if (split := split_of_name(name))}
    others = [name for name in top.folders if name not in said]
    divided = {name for name in said if _has_classes(source, name)}
    splits = {said[name] for name in (divided if others else said)}
    if (not divided and len(splits) < 2) or (others and len(splits) < 2):
        return whole  # a class may be called `train`
    # Test images often have no class. Other images without a class are an error later.
    others += [name for name in said if said[name] == TEST and name not in divided]
    named = {name: split for name, split in said.items() if name not in others}
    folder_of = {split: name for name, split in named.items()}
    for name, split in named.items():
        if folder_of[split] != name:
            raise ValueError(
                f"{source.shown('')} must hold one {split} split, got {name}/ and "
                f"{folder_of[split]}/. Remove or rename one of them, or convert them "
                "apart."
            )
    left_out += top.left_out
    left_out += (LeftOut(f"{name}/", listing.NOT_A_SPLIT) for name in sorted(others))
    left_out += (LeftOut(name, listing.NO_CLASS) for name, _ in top.files)
    return {split: folder_of[split] for split in SPLITS if split in folder_of}


def _has_classes(source: folders.Folder, name: str) -> bool:
    """Whether a folder holds folders and no image."""
    here = source.scan(name, listing.IMAGE_SUFFIXES)
    return bool(here.folders) and not here.names


class _Folder(NamedTuple):
    """A folder to read: its class, the prefix of names in it, the folders above it."""

    class_name: str
    prefix: str
    above: frozenset[_Identity]


def _walk(
    source: folders.Folder, top: str, class_depth: int | None, left_out: list[LeftOut]
) -> dict[str, list[Place]]:
    """Returns the images by class in a folder and in all folders below it."""
    found: dict[str, list[Place]] = {}
    num_reads: collections.Counter[_Identity] = collections.Counter()
    pending = [_Folder("", f"{top}/" if top else "", frozenset())]
    while pending:
        class_name, prefix, above = pending.pop()
        identity = source.identity(prefix)
        if identity in above:
            left_out.append(LeftOut(prefix, listing.LINK_LOOP))
            continue
        if identity is not None:
            num_reads[identity] += 1
            if num_reads[identity] > _MAX_READS:
                raise _too_many_ways_error(source.shown(prefix))
            above |= {identity}
        here = source.scan(prefix, listing.IMAGE_SUFFIXES)
        left_out += (item.under(prefix) for item in here.left_out)
        if here.files and class_name:
            name = "/".join(class_name.split("/")[:class_depth])
            places = (_place(prefix + base, size) for base, size in here.files)
            found.setdefault(name, []).extend(places)
        elif here.files:
            left_out += (
                LeftOut(prefix + name, listing.NO_CLASS) for name, _ in here.files
            )
        elif not here.folders:
            left_out.append(LeftOut(prefix, listing.EMPTY_FOLDER))
        for name in reversed(here.folders):
            below = f"{class_name}/{name}" if class_name else name
            pending.append(_Folder(below, f"{prefix}{name}/", above))
    return found


def _place(path: str, num_bytes: int) -> Place:
    return Place(path, path, 0, num_bytes)  # the same string object for both fields


def _too_many_ways_error(where: str) -> ValueError:
    return ValueError(
        f"A folder must be reached by at most {_MAX_READS} ways, got more for the one "
        f"at {where}: links lead from folder to folder. Remove the links that are not "
        "classes of their own."
    )


def make_tree(
    tree: ClassTree,
    labels: Mapping[str, int],
    *,
    chosen: Sequence[str],
    split_fractions: Mapping[str, float],
    seed: int,
) -> Tree:
    """Returns the images by split with the number of their class.

    Args:
        tree: Images and classes of the input.
        labels: Labels by class, in label order; the first is the label base.
        chosen: Classes to take; all classes if empty.
        split_fractions: Fraction of the train images of each class that goes to each
            split, see `fractions.held_out`; empty leaves the splits as they are.
        seed: Seed of the choice.

    Raises:
        ValueError: If a class has no label or does not exist, or if a split is empty.
    """
    _require_known(tree, labels, chosen)
    left_out = list(tree.left_out)
    numbers = {name: number for number, name in enumerate(labels)}
    splits: dict[str, list[Image]] = {
        split: [] for split in dict.fromkeys([*tree.splits, *split_fractions])
    }
    for split, found in tree.splits.items():
        divided = split_fractions if split == TRAIN else {}
        for name, places in found.items():
            names = [place.name for place in places]
            if chosen and name not in chosen:
                left_out += (LeftOut(each, listing.OTHER_CLASS) for each in names)
                continue
            held_out = fractions.held_out(names, divided, seed)
            for place in places:
                image = Image(place.name, numbers[name], *place[1:])
                splits[held_out.get(place.name, split)].append(image)
    for split, split_images in splits.items():
        if not split_images:
            raise ValueError(
                f"Split {split} must have at least one image, got none. Take more "
                "--classes, or classes with more images, or move the folder of the "
                "split away."
            )
    return Tree(splits, left_out)


def _require_known(
    tree: ClassTree, labels: Mapping[str, int], chosen: Sequence[str]
) -> None:
    missing = [name for name in chosen if name not in labels]
    if missing:
        raise ValueError(
            f"--classes must name classes of the input, got {missing[0]!r}. There are "
            f"{len(labels)}, the first is {next(iter(labels))!r}."
        )
    unknown = [
        name
        for name in tree.class_names()
        if name not in labels and (not chosen or name in chosen)
    ]
    if unknown:
        raise ValueError(
            "--label_map must name every class of the input, but lacks "
            f"{len(unknown)}, the first is {unknown[0]!r}. Add them, or choose "
            "others with --classes."
        )


def sorted_labels(names: Sequence[str], label_base: int) -> dict[str, int]:
    """Returns the labels by class, counted up from `label_base`."""
    return {name: label for label, name in enumerate(names, start=label_base)}


def read_label_map(path: pathlib.Path, label_base: int | None) -> dict[str, int]:
    """Reads the labels of classes from lines of `<label> <class>`, or of `<class>`.

    Args:
        path: The file, in UTF-8. If every line starts with a number, these numbers are
            the labels; otherwise all lines are classes.
        label_base: First label. None: the lowest label in the file, or 1 if the file
            has only classes.

    Raises:
        ValueError: If a label or a class occurs twice, or if labels have gaps.
    """
    lines = files.read_text(path, errors="surrogateescape", pipe=True).splitlines()
    lines = [line.strip() for line in lines if line.strip()]
    matches = [match for line in lines if (match := _NUMBERED.fullmatch(line))]
    if len(matches) == len(lines):
        pairs = sorted((int(match[1]), match[2]) for match in matches)
    else:
        first = 1 if label_base is None else label_base
        pairs = list(enumerate(lines, start=first))
    _check_labels(path, pairs, label_base)
    return {name: label for label, name in pairs}


def _check_labels(
    path: pathlib.Path, pairs: Sequence[tuple[int, str]], label_base: int | None
) -> None:
    if not pairs:
        raise ValueError(f"{path} must name at least one class, got none.")
    base = pairs[0][0]
    if base not in (0, 1) or label_base not in (None, base):
        wanted = "0 or 1" if label_base is None else f"--label_base={label_base}"
        raise ValueError(f"The labels in {path} must start at {wanted}, got {base}.")
    for expected, (label, name) in enumerate(pairs, start=base):
        if label != expected:
            raise ValueError(
                f"{path} must give each label from {base} on to one class, got "
                f"{label} ({name}) where {expected} is due. Add a line for a label "
                "that no image has."
            )
    name, count = collections.Counter(name for _, name in pairs).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{path} must name each class once, got {name!r} twice.")


def make_classes(labels: Mapping[str, int]) -> list[Class]:
    """Returns the classes in label order, with names for text files."""
    return [
        Class(label, catalog_name(name), printable(name))
        for name, label in labels.items()
    ]
