"""Classes of an input: beside the files, in their metadata, or those of ImageNet.

In: the folder of an input, or its Parquet files. Out: a `ClassList`: names of the
classes with numbers in the input, and, from our own data sets and lists of synsets,
labels and texts. A line N of a list of synsets has label N, because label 0 is the
background class of ImageNet.
"""

import collections
import dataclasses
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from converters.inputs import devkit
from converters.inputs.meaning import Meaning
from tfpipe import errors
from tfpipe.location.browse import Folder
from tfpipe.location.location import Location
from tfpipe.shards import index
from tfpipe.shards.sql import about_parquet

if TYPE_CHECKING:
    import duckdb

LABEL_BASE = 1
_SYNSETS_NAME, _WORDS_NAMES = "synsets.txt", ("synset_words.txt", "words.txt")
EXPORT_NAME, INDEX_NAME, CLASSES_NAME = "export.json", "index.json", "classes.tsv"
# Of an export as a tree, beside the folders of its splits.
EXPORT_FILES = (EXPORT_NAME, CLASSES_NAME, "labels.txt")
_FEATURES_NAME = "features.json"
_PLAIN_LISTS = ("labels.txt", "classes.txt", "classnames.txt")
# A line of a label map: a label, a colon or a space, and a class.
_NUMBERED = re.compile(r"([0-9]+)(?:\s*:\s*|\s+)(\S.*)")


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


class ClassList(NamedTuple):
    """Classes of an input.

    Attributes:
        origin: The file of the list, for people; empty if there is no list.
        names: Name of the class of each number in the input.
        labels: Label of each class in label order, if the list says labels.
        texts: Name of each class for people.
        export: Folder of the list, if an export has it.
    """

    origin: str = ""
    names: Mapping[int, str] = {}
    labels: Mapping[str, int] = {}
    texts: Mapping[str, str] = {}
    export: Folder | None = None


NO_LIST = ClassList()


def of_rows(length: int) -> ClassList:
    """Returns the classes of rows of 0 and 1: the numbers below their length."""
    names = {number: str(number) for number in range(length)}
    return ClassList("The length of the rows of 0 and 1", names)


def exported(folder: Folder) -> ClassList:
    """Returns the classes of a folder of converters.export or of a converter."""
    is_export = folder.is_file(EXPORT_NAME)
    is_own = is_export or folder.is_file(INDEX_NAME)
    if not is_own or not folder.is_file(CLASSES_NAME):
        return NO_LIST
    origin = folder.shown(CLASSES_NAME)
    names: dict[int, str] = {}
    labels: dict[str, int] = {}
    texts: dict[str, str] = {}
    for line in folder.read_text(CLASSES_NAME).removesuffix("\n").split("\n")[1:]:
        fields = line.split("\t")
        if len(fields) != 4 or not (fields[0].isdecimal() and fields[1].isdecimal()):
            raise ValueError(
                f"{origin} must have lines of two numbers, a class and its name, with "
                f"tabs between them, got {line!r:.80}. Export the data set again."
            )
        # Exports count classes from 0; records hold the label.
        names[int(fields[0 if is_export else 1])] = fields[2]
        labels[fields[2]] = int(fields[1])
        texts[fields[2]] = fields[3]
    return ClassList(origin, names, labels, texts, folder if is_export else None)


def beside(folder: Folder, label_keys: Sequence[str]) -> ClassList:
    """Returns the classes of a list beside shards; TFDS names a file after the key."""
    if (own := exported(folder)).names:
        return own
    tfds = (f"{k.replace('/', sign)}.labels.txt" for k in label_keys for sign in "-.")
    for name in filter(folder.is_file, tfds):
        return ClassList(folder.shown(name), dict(enumerate(_lines(folder, name))))
    if count := _num_classes(folder, label_keys):
        return of_rows(count)._replace(origin=folder.shown(_FEATURES_NAME))
    for name in filter(folder.is_file, _PLAIN_LISTS):
        lines = _lines(folder, name)
        return ClassList(folder.shown(name), dict(numbered(lines, 0)))
    return NO_LIST


def _lines(folder: Folder, name: str) -> list[str]:
    lines = folder.read_text(name).split("\n")
    return [line.strip() for line in lines if line.strip()]


def numbered(lines: Sequence[str], first: int) -> list[tuple[int, str]]:
    """Returns the classes of lines `<label> <class>`, or of classes from `first` on."""
    matches = [match for line in lines if (match := _NUMBERED.fullmatch(line))]
    if len(matches) < len(lines):
        return list(enumerate(lines, first))
    return [(int(match[1]), match[2]) for match in matches]


def _num_classes(folder: Folder, label_keys: Sequence[str]) -> int:
    """Returns the number of classes in features.json of TFDS; 0 for none."""
    if not folder.is_file(_FEATURES_NAME):
        return 0
    text = folder.read_text(_FEATURES_NAME)
    try:
        features = errors.from_json(text)["featuresDict"]["features"]
        labels = [features[key]["classLabel"] for key in label_keys if key in features]
        return int(labels[0]["numClasses"])
    except (ValueError, KeyError, TypeError, IndexError, OverflowError):
        return 0


def of_parquet(
    connection: "duckdb.DuckDBPyConnection", paths: Sequence[str], column: str
) -> Iterator[ClassList]:
    """Yields the classes in the Hugging Face metadata of Parquet files.

    The column of the label holds a number or a list of numbers.
    """
    metadata = connection.execute(
        f"SELECT file_name, decode(value) FROM {about_parquet('kv_metadata', *paths)} "
        "WHERE decode(key) = 'huggingface'"
    )
    said = dict(metadata.fetchall())
    for path in paths:
        if names := _class_names(said.get(path, ""), column):
            yield ClassList(f"The metadata of {path}", dict(enumerate(names)))


def only_list(lists: Iterable[ClassList], meaning: Meaning) -> ClassList:
    """Returns the list of all files of an input; NO_LIST if no file has a list."""
    found = [each for each in lists if each.origin]
    for other in found:
        if other.names != found[0].names and meaning.label_map is None:
            raise ValueError(
                "The files of --input must have the same classes, got other names in "
                f"{other.origin} than in {found[0].origin}. Convert them alone, or say "
                "the classes with --label_map."
            )
    return found[0] if found else NO_LIST


def _class_names(metadata: str, column: str) -> list[str]:
    try:
        feature: Any = errors.from_json(metadata)["info"]["features"][column]
        while feature.get("_type") != "ClassLabel":
            feature = feature["feature"]  # a sequence of labels
            feature = feature[0] if isinstance(feature, list) else feature
        names = feature.get("names") or range(int(feature["num_classes"]))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return []
    return [str(name) for name in names]


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
