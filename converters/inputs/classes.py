"""Reads class lists: the label and the name of each synset.

In: a text file with one synset a line, in label order, or the ILSVRC-2012 list that
comes with the package. Out: `Class` values. The first line has label 1, because label
0 is the background class of ImageNet.
"""

import collections
import dataclasses
import importlib.resources
import os
import pathlib
import sys

from converters.inputs import files, kaggle
from tfpipe.shards import index

LABEL_BASE = 1


@dataclasses.dataclass(frozen=True)
class Class:
    """A class: its label on disk, its synset (folder name) and its name."""

    label: int
    synset: str
    text: str


def classes_of(listed: index.Index) -> list[Class]:
    """Returns the classes of a data set in label order."""
    return [
        Class(label, synset, text)
        for label, (synset, text) in enumerate(listed.classes, listed.label_base)
    ]


def printable(name: str) -> str:
    """Replaces unprintable characters, such as line breaks, with escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def for_stdout(text: str) -> str:
    """Returns text on one line that standard output can encode."""
    encoding = sys.stdout.encoding or "ascii"
    return printable(text).encode(encoding, errors="backslashreplace").decode(encoding)


def imagenet_classes() -> list[Class]:
    """Returns the 1000 classes of ILSVRC-2012 in label order (labels 1 to 1000)."""
    data = importlib.resources.files("converters.inputs") / "data"
    synsets = (data / "synsets.txt").read_text(encoding="utf-8")
    words = (data / "synset_words.txt").read_text(encoding="utf-8")
    return _classes(synsets.split(), _parse_words(words))


def read_classes(input_dir: pathlib.Path) -> list[Class]:
    """Reads the classes from `synsets.txt` in the input folder, or those of ImageNet.

    Names come from `synset_words.txt` in the same folder; a synset without a name is
    its own name. Without `synsets.txt` Kaggle's `LOC_synset_mapping.txt` gives synsets
    and names. Without both, all 1000 classes of ImageNet are returned, so that a folder
    with a subset of the classes keeps their labels.

    Raises:
        ValueError: If the file is empty or lists a synset twice.
    """
    path, words = input_dir / "synsets.txt", input_dir / "synset_words.txt"
    if os.path.lexists(path):
        synsets = files.read_text(path).split()
    elif os.path.lexists(path := input_dir / kaggle.MAPPING_NAME):
        words = path
        lines = files.read_text(path).splitlines()
        synsets = [line.split()[0] for line in lines if line.strip()]
    else:
        return imagenet_classes()
    if not synsets:
        raise ValueError(f"{path} must list at least one synset a line, got none.")
    synset, count = collections.Counter(synsets).most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"{path} must list each synset once, got {synset} {count} times."
        )
    names = _parse_words(files.read_text(words)) if os.path.lexists(words) else {}
    return _classes(synsets, names)


def _parse_words(text: str) -> dict[str, str]:
    """Maps synsets to names; each line is a synset, a tab or a space, and a name."""
    fields = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return {field[0]: field[-1].strip() for field in fields}


def _classes(synsets: list[str], names: dict[str, str]) -> list[Class]:
    return [
        Class(label, synset, names.get(synset, synset))
        for label, synset in enumerate(synsets, start=LABEL_BASE)
    ]
