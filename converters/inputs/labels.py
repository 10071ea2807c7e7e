"""The labels of the classes of an input.

In: the images of an input by split and class, and the words of a user about labels.
Out: the labels of the classes. `meaning` has the rules.
"""

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from converters.inputs import classes, meaning
from converters.inputs.classes import Class
from converters.inputs.image import catalog_name
from converters.inputs.listed import Listed
from converters.inputs.meaning import NUMBER, TEXT
from tfpipe.errors import printable
from tfpipe.location import parts


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


def give_labels(listed: Listed, said: meaning.Meaning) -> Labelled:
    """Gives the classes their labels, by the same rule for all inputs."""
    listed = listed.of_type(said.label_type)
    names, own, base = listed.class_names(), listed.classes, said.label_base
    if labels := of_map(said):
        is_known = labels.keys() >= {*names}
        if not is_known and meaning.label_type(names, said.label_type) == NUMBER:
            name_of = {label: name for name, label in labels.items()}
            listed = listed.named(name_of, names_from="--label_map")
        return Labelled(listed, labels, "--label_map")
    if own.labels and base in (None, min(own.labels.values())):
        named = listed if said.label_type == TEXT else listed.named()
        if own.labels.keys() >= {*named.class_names()}:
            return Labelled(named, own.labels, f"{own.origin} says so")
    if meaning.label_type(names, said.label_type) != NUMBER:
        reason = "the classes are names" if base is None else f"--label_base={base}"
        numbered = enumerate(names, start=1 if base is None else base)
        return Labelled(listed, {name: label for label, name in numbered}, reason)
    if not own.names:
        numbers = list(map(int, names))
        return Labelled(listed, *meaning.numbers_as_labels(numbers, base))
    base = min(min(own.names), 1) if base is None else base
    labels = {own.names[key]: n for n, key in enumerate(sorted(own.names), base)}
    if len(labels) < len(own.names):
        raise ValueError(
            f"{own.origin} must name each class once. Give other names with "
            "--label_map."
        )
    return Labelled(listed.named(), labels, f"{own.origin} begins there")


def of_map(said: meaning.Meaning) -> dict[str, int]:
    """Returns the labels of --label_map; none without it."""
    if said.label_map is None:
        return {}
    return read_label_map(said.label_map, said.label_base)


def lines_of(path: pathlib.Path) -> list[str]:
    """Returns the lines of a UTF-8 file, or of a pipe, as a shell passes for a flag."""
    data = parts.read_bytes(path, pipe=True)
    return parts.decode_text(data, str(path), errors="surrogateescape").splitlines()


def read_label_map(path: pathlib.Path, label_base: int | None) -> dict[str, int]:
    """Reads the labels of classes from lines of `<label> <class>`, or of `<class>`.

    If every line starts with a number, these numbers are the labels. Without
    `label_base` the lowest one is the first label, or 1 in a file of classes.
    """
    lines = [line.strip() for line in lines_of(path) if line.strip()]
    pairs = sorted(classes.numbered(lines, 1 if label_base is None else label_base))
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
