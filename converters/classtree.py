"""Any class-per-directory tree as classes and named images.

In: a folder. A directory that holds images is a class; the class is named by the path
to it, so that trees may be nested. `train/` and `val/` (or `validation/`) are splits if
`train/` holds directories and no image; otherwise all is one split, `train`. Out: the
images of each split and class. Files are listed, not opened.
"""

import collections
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import xxhash

from converters import listing
from converters.classes import Class
from converters.inputs import Image, Tree, catalog_name

NO_CLASS = "no_class_folder"
NOT_A_SPLIT = "not_a_split"
OTHER_CLASS = "other_class"
EMPTY_FOLDER = "empty_folder"
LINK_LOOP = "link_loop"

# A label, a colon or space, and a class.
_NUMBERED = re.compile(r"([0-9]+)(?:\s*:\s*|\s+)(\S.*)")
_VALIDATION_NAMES = ("val", "validation")


class ClassTree(NamedTuple):
    """What a folder holds.

    Attributes:
        splits: Path, relative to the folder, and bytes of each image; by split, and by
            class in the order of the names.
        ignored: How many names were left out, by reason.
    """

    splits: Mapping[str, Mapping[str, Sequence[tuple[str, int]]]]
    ignored: "collections.Counter[str]"

    def class_names(self) -> list[str]:
        """The classes of all splits, by name."""
        return sorted({name for split in self.splits.values() for name in split})


def read_class_tree(input_dir: pathlib.Path) -> ClassTree:
    """Lists a tree; links are followed, but not in circles.

    Raises:
        ValueError: If there is no image, or the splits are not as they must be.
        OSError: If something cannot be looked at.
    """
    if not input_dir.is_dir():
        raise ValueError(
            f"--input_dir must be a folder, got {input_dir}: no such folder."
        )
    ignored: collections.Counter[str] = collections.Counter()
    splits = {}
    for split, folder in _split_folders(input_dir, ignored).items():
        found: dict[str, list[tuple[str, int]]] = {}
        root = input_dir / folder
        _walk(root, "", f"{folder}/" if folder else "", found, ignored, frozenset())
        if not found:
            raise ValueError(
                f"{root} must hold a folder for each class, with images named "
                f"{' '.join('*' + suffix for suffix in listing.IMAGE_SUFFIXES)} in it; "
                "got none."
            )
        splits[split] = {name: found[name] for name in sorted(found)}
    return ClassTree(splits, ignored)


def _split_folders(
    input_dir: pathlib.Path, ignored: "collections.Counter[str]"
) -> dict[str, str]:
    """The folder of each split, relative to the input folder; "" is all of it."""
    top = listing.scan(input_dir, listing.IMAGE_SUFFIXES)
    if "train" not in top.folders:
        return {"train": ""}
    train = listing.scan(input_dir / "train", listing.IMAGE_SUFFIXES)
    if train.names or not train.folders:
        return {"train": ""}  # a class of trains
    validation = [name for name in _VALIDATION_NAMES if name in top.folders]
    if len(validation) > 1:
        raise ValueError(
            f"{input_dir} must hold one validation split, got {validation[0]}/ and "
            f"{validation[1]}/. Remove one of them."
        )
    others = len(top.folders) - 1 - len(validation)
    ignored += top.ignored + collections.Counter({NOT_A_SPLIT: others})
    ignored[NO_CLASS] += len(top.files)
    return {"train": "train"} | dict(zip(["validation"], validation, strict=False))


def _walk(
    folder: pathlib.Path,
    class_name: str,
    prefix: str,
    found: dict[str, list[tuple[str, int]]],
    ignored: "collections.Counter[str]",
    above: frozenset[tuple[int, int]],
) -> None:
    """Adds the images of a directory and of all below it."""
    status = folder.stat()
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        ignored[LINK_LOOP] += 1
        return
    here = listing.scan(folder, listing.IMAGE_SUFFIXES)
    ignored += here.ignored
    if here.files and class_name:
        found[class_name] = [(prefix + name, size) for name, size in here.files]
    elif here.files:
        ignored[NO_CLASS] += len(here.files)
    elif not here.folders:
        ignored[EMPTY_FOLDER] += 1
    for name in here.folders:
        below = f"{class_name}/{name}" if class_name else name
        _walk(
            folder / name, below, f"{prefix}{name}/", found, ignored, above | {identity}
        )


def make_tree(
    tree: ClassTree,
    labels: Mapping[str, int],
    *,
    chosen: Sequence[str],
    validation_fraction: float,
    seed: int,
) -> Tree:
    """The images of each split with the number of their class.

    Args:
        tree: What the folder holds.
        labels: Label of each class, in label order; the first is the label base.
        chosen: Classes to take; all if there are none.
        validation_fraction: Share of each class that goes to a validation split: as
            many images as come nearest to it, but at least one of a class of two or
            more, and never all. Which ones depends on their names and the seed only.
        seed: Changes which ones.

    Raises:
        ValueError: If a class is not in the list, or nothing is left.
    """
    _require_known(tree, labels, chosen)
    ignored = tree.ignored.copy()
    numbers = {name: number for number, name in enumerate(labels)}
    splits: dict[str, list[Image]] = {split: [] for split in tree.splits}
    if validation_fraction:
        splits["validation"] = []
    for split, found in tree.splits.items():
        for name, files in found.items():
            if chosen and name not in chosen:
                ignored[OTHER_CLASS] += len(files)
                continue
            images = [Image(path, numbers[name], path, 0, size) for path, size in files]
            held_out = _held_out(images, validation_fraction, seed)
            splits[split] += [image for image in images if image.name not in held_out]
            if held_out:
                splits["validation"] += [i for i in images if i.name in held_out]
    for split, of_split in splits.items():
        if not of_split:
            raise ValueError(
                f"Split {split} must have at least one image, got none. Take more "
                "--classes, or classes with two images or more."
            )
    return Tree(splits, dict(sorted((+ignored).items())))


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
            f"--label_map must name every class of the input, {len(unknown)} are "
            f"missing, the first is {unknown[0]!r}. Add them, or choose others with "
            "--classes."
        )


def _held_out(images: Sequence[Image], fraction: float, seed: int) -> set[str]:
    """Names of the images of one class that go to the validation split."""
    if not fraction or len(images) < 2:
        return set()
    count = min(max(int(len(images) * fraction + 0.5), 1), len(images) - 1)

    def key(name: str) -> tuple[int, str]:
        text = f"validation/{seed}/{name}".encode(errors="surrogateescape")
        return xxhash.xxh3_64_intdigest(text), name

    return set(sorted((image.name for image in images), key=key)[:count])


def sorted_labels(names: Sequence[str], label_base: int) -> dict[str, int]:
    """Label of each class, counted up from `label_base` in the order given."""
    return {name: label for label, name in enumerate(names, start=label_base)}


def read_label_map(path: pathlib.Path, label_base: int | None) -> dict[str, int]:
    """Label of each class from a file of `<label> <class>` lines, or of classes only.

    Args:
        path: The file, UTF-8. If every line starts with a number, these are the labels.
        label_base: First label; None is the lowest in the file, or 1 if it has none.

    Raises:
        ValueError: If labels or classes are there twice, or labels have gaps.
    """
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
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
    """The classes in label order, named so that text files can list them."""
    return [
        Class(label, catalog_name(name), _printable(name))
        for name, label in labels.items()
    ]


def _printable(name: str) -> str:
    """A name with line breaks and the like as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
