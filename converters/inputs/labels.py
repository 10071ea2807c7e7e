"""The labels of the classes of an input.

In: the images of an input by split and class, and the words of a user about labels.
Out: the labels of the classes. `meaning` has the rules.
"""

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from converters.inputs import files, meaning
from converters.inputs.class_lists import numbered
from converters.inputs.classes import Class
from converters.inputs.image import catalog_name
from converters.inputs.listed import Listed
from tfpipe.errors import printable


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

    def classes(self) -> list[Class]:
        """Returns the classes in label order, with names for text files."""
        texts = self.listed.classes.texts
        return [
            Class(label, catalog_name(name), texts.get(name, printable(name)))
            for name, label in self.labels.items()
        ]


def give_labels(
    listed: Listed,
    *,
    label_map: pathlib.Path | None,
    label_base: int | None,
    label_type: meaning.LabelType | None,
) -> Labelled:
    """Gives the classes their labels, by the same rule for all inputs.

    The arguments are the values of the flags of their names.
    """
    listed = listed.of_type(label_type)
    names = listed.class_names()
    if label_map is not None:
        labels = read_label_map(label_map, label_base)
        is_known = all(name in labels for name in names)
        if not is_known and meaning.label_type(names, label_type) == meaning.NUMBER:
            name_of = {label: name for name, label in labels.items()}
            listed = listed.named(name_of, names_from="--label_map")
        return Labelled(listed, labels, "--label_map")
    own_list = listed.classes
    if own_list.labels and label_base in (None, min(own_list.labels.values())):
        own = listed if label_type == meaning.TEXT else listed.named()
        if set(own.class_names()) <= own_list.labels.keys():
            return Labelled(own, own_list.labels, f"{own_list.origin} says so")
    if meaning.label_type(names, label_type) == meaning.NUMBER:
        if own_list.names:
            return _with_names(listed, label_base)
        numbers = list(map(int, names))
        return Labelled(listed, *meaning.numbers_as_labels(numbers, label_base))
    base, reason = 1, "the classes are names"
    if label_base is not None:
        base, reason = label_base, f"--label_base={label_base}"
    labels = {name: label for label, name in enumerate(names, start=base)}
    return Labelled(listed, labels, reason)


def _with_names(listed: Listed, label_base: int | None) -> Labelled:
    names, origin = listed.classes.names, listed.classes.origin
    base = min(min(names), 1) if label_base is None else label_base
    labels = {names[key]: label for label, key in enumerate(sorted(names), base)}
    if len(labels) < len(names):
        raise ValueError(
            f"{origin} must name each class once. Give other names with --label_map."
        )
    return Labelled(listed.named(), labels, f"{origin} begins there")


def read_label_map(path: pathlib.Path, label_base: int | None) -> dict[str, int]:
    """Reads the labels of classes from lines of `<label> <class>`, or of `<class>`.

    If every line starts with a number, these numbers are the labels. Without
    `label_base` the lowest one is the first label, or 1 in a file of classes.
    """
    lines = [line.strip() for line in files.lines_of(path) if line.strip()]
    pairs = sorted(numbered(lines, 1 if label_base is None else label_base))
    if not pairs:
        raise ValueError(f"{path} must name at least one class, got none.")
    base = pairs[0][0]
    if base not in (0, 1) or label_base not in (None, base):
        wanted = "0 or 1" if label_base is None else f"--label_base={label_base}"
        raise ValueError(f"The labels in {path} must start at {wanted}, got {base}.")
    labels: dict[str, int] = {}
    for expected, (label, name) in enumerate(pairs, start=base):
        if label != expected:
            raise ValueError(
                f"{path} must give each label from {base} on to one class, got "
                f"{label} ({name}) where {expected} is due. Add a line for a label "
                "that no image has."
            )
        if labels.setdefault(name, label) != label:
            raise ValueError(f"{path} must name each class once, got {name!r} twice.")
    return labels
