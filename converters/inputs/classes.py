"""Reads class lists: the label and the name of each synset.

In: a text file with a synset a line, in label order, or the ILSVRC-2012 list of the
package. Out: `Class` values. The first line has label 1, because label 0 is the
background class of ImageNet.
"""

import collections
import dataclasses
import pathlib
from collections.abc import Iterable

from converters.inputs import devkit
from tfpipe.location.browse import Folder
from tfpipe.location.location import Location
from tfpipe.shards import index

LABEL_BASE = 1
_SYNSETS_NAME, _WORDS_NAMES = "synsets.txt", ("synset_words.txt", "words.txt")


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


def imagenet_classes() -> list[Class]:
    """Returns the 1000 classes of ILSVRC-2012 in label order (labels 1 to 1000)."""
    lists = pathlib.Path(__file__).with_name("data")
    return read_classes(Folder(Location(str(lists))))


def read_classes(folder: Folder) -> list[Class]:
    """Reads the classes from `synsets.txt` in the input folder, or ImageNet's.

    Names come from `synset_words.txt` in the same folder; a synset without a name is
    its own name. Without `synsets.txt` Kaggle's `LOC_synset_mapping.txt` gives synsets
    and names. Without both, all 1000 classes of ImageNet are returned, so that a folder
    with a subset of the classes keeps their labels.
    """
    if folder.exists(name := _SYNSETS_NAME):
        words, synsets = _WORDS_NAMES[0], folder.read_text(name).split()
    elif folder.exists(name := devkit.MAPPING_NAME):
        words, lines = name, folder.read_text(name).splitlines()
        synsets = [line.split()[0] for line in lines if line.strip()]
    else:
        return imagenet_classes()
    if not synsets:
        raise ValueError(
            f"{folder.shown(name)} must list at least one synset a line, got none."
        )
    synset, count = collections.Counter(synsets).most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"{folder.shown(name)} must list each synset once, got {synset} {count} "
            "times."
        )
    text_of = _read_words(folder, words)
    return [
        Class(label, synset, text_of.get(synset, synset))
        for label, synset in enumerate(synsets, start=LABEL_BASE)
    ]


def texts(folder: Folder, synsets: Iterable[str]) -> dict[str, str]:
    """Returns the names of synsets from a list in a folder, as Tiny-ImageNet has it."""
    words: dict[str, str] = {}
    for name in _WORDS_NAMES:
        words |= _read_words(folder, name)
    return {synset: words[synset] for synset in synsets if synset in words}


def _read_words(folder: Folder, name: str) -> dict[str, str]:
    """Maps synsets to names; each line is a synset, a tab or a space, and a name."""
    lines = folder.read_text(name).splitlines() if folder.exists(name) else []
    fields = (line.split(maxsplit=1) for line in lines if line.strip())
    return {field[0]: field[-1].strip() for field in fields}
