"""The labels of the classes of an input.

In: the images of an input by split and class, and the words of a user about labels.
Out: the same images under the names of their classes, and the labels of the classes.
`meaning` has the rules.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from converters.inputs import classtree, meaning
from converters.inputs.class_lists import ClassList
from converters.inputs.classtree import ClassTree, Place
from converters.inputs.files import State

# The list of names of an input, for errors.
BESIDE = "The list of classes beside the files"


class Listed(NamedTuple):
    """Images of an input.

    Attributes:
        folder: Path or URL that the files of the images are relative to.
        tree: The images by split and class, as the input calls the classes.
        names: Names of classes that are numbers, from the input.
        names_from: The origin of these names, for errors.
        labels: Label of each class, if the list of classes says labels.
        texts: Names of classes for people, by class.
        several: All classes of an image with several classes, by the name of the
            image; the first is its class in the tree.
        states: State of each file that holds many images, before it was read.
        num_rows: Number of rows, records or samples of the input, counted as they are
            read; None for trees.
    """

    folder: pathlib.Path
    tree: ClassTree
    names: Mapping[int, str] = {}
    names_from: str = BESIDE
    labels: Mapping[str, int] = {}
    texts: Mapping[str, str] = {}
    several: Mapping[str, Sequence[str]] = {}
    states: Mapping[str, State] = {}
    num_rows: int | None = None

    def class_names(self) -> list[str]:
        """Returns all classes, sorted by name, also further classes of an image."""
        more = {name for names in self.several.values() for name in names}
        return sorted({*self.tree.class_names(), *more})

    def with_list(self, classes: ClassList) -> "Listed":
        """Returns the same images with the names of a list of classes."""
        if not classes.origin:
            return self
        return self._replace(
            names=classes.names,
            names_from=classes.origin,
            labels=classes.labels,
            texts=classes.texts,
        )

    def renamed(self, names: Mapping[str, str]) -> "Listed":
        """Returns the same images with other names of classes."""
        splits = {}
        for split, classes in self.tree.splits.items():
            moved: dict[str, list[Place]] = {}
            for old in sorted(classes, key=_by_number):
                moved.setdefault(names.get(old, old), []).extend(classes[old])
            splits[split] = {name: moved[name] for name in sorted(moved)}
        several = {
            image: [names.get(each, each) for each in classes]
            for image, classes in self.several.items()
        }
        tree = ClassTree(splits, self.tree.left_out)
        return self._replace(tree=tree, several=several)

    def named(self) -> "Listed":
        """Returns the same images with the names of the numbers.

        Raises:
            ValueError: If a number has no name.
        """
        numbers = self.class_names()
        if not self.names or meaning.label_type(numbers, None) != meaning.NUMBER:
            return self
        return self._named(self.names, self.names_from)

    def _named(self, names: Mapping[int, str], origin: str) -> "Listed":
        numbers = self.class_names()
        unknown = [number for number in map(int, numbers) if number not in names]
        if unknown:
            raise ValueError(
                f"{origin} must name the class of each number in the input, got no "
                f"name for {unknown[0]}. It has {len(names)} names, the first is for "
                f"{min(names, default=0)}."
            )
        return self.renamed({number: names[int(number)] for number in numbers})


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), name) if name.isdecimal() else (-1, name)


class Labelled(NamedTuple):
    """Images of an input whose classes have labels.

    Attributes:
        listed: The images, by the names of their classes.
        labels: Label of each class, in label order.
        reason: Why the labels begin where they do, for people.
    """

    listed: Listed
    labels: Mapping[str, int]
    reason: str


def give_labels(
    listed: Listed,
    *,
    label_map: pathlib.Path | None,
    label_base: int | None,
    label_type: meaning.LabelType | None,
) -> Labelled:
    """Gives the classes their labels, by the same rule for all inputs.

    Args:
        listed: The images as their reader listed them.
        label_map: File of --label_map.
        label_base: Value of --label_base.
        label_type: Value of --label_type.

    Raises:
        ValueError: If numbers and words are mixed, a class has no label or no name, or
            labels have gaps.
        OSError: If the file cannot be read.
    """
    names = listed.class_names()
    if label_map is not None:
        labels = classtree.read_label_map(label_map, label_base)
        is_known = all(name in labels for name in names)
        if not is_known and meaning.label_type(names, label_type) == meaning.NUMBER:
            name_of = {label: name for name, label in labels.items()}
            listed = listed._named(name_of, "--label_map")
        return Labelled(listed, labels, "--label_map")
    if listed.labels and label_base in (None, min(listed.labels.values())):
        own = listed if label_type == meaning.TEXT else listed.named()
        if set(own.class_names()) <= listed.labels.keys():
            return Labelled(own, listed.labels, f"{listed.names_from} says so")
    if meaning.label_type(names, label_type) == meaning.NUMBER:
        if listed.names:
            return _with_names(listed, label_base)
        numbers = list(map(int, names))
        return Labelled(listed, *meaning.numbers_as_labels(numbers, label_base))
    base, reason = 1, "the classes are names"
    if label_base is not None:
        base, reason = label_base, f"--label_base={label_base}"
    return Labelled(listed, classtree.sorted_labels(names, base), reason)


def _with_names(listed: Listed, label_base: int | None) -> Labelled:
    """Returns the labels of numbers with names."""
    names = listed.names
    base = min(min(names), 1) if label_base is None else label_base
    labels = {names[key]: label for label, key in enumerate(sorted(names), base)}
    if len(labels) < len(names):
        raise ValueError(
            f"{listed.names_from} must name each class once. Give other names with "
            "--label_map."
        )
    return Labelled(listed.named(), labels, f"{listed.names_from} begins there")
