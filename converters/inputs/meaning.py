"""The meaning of labels and classes of an input: one rule for all readers.

In: texts of labels, classes by split. Out: types and labels of classes, and warnings
about splits that do not fit together. The rule of splits: `tfpipe.shards.split_names`.
Never here: reading; the spot at which a name or a label stands in an input.
"""

import dataclasses
import itertools
import os
import pathlib
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from tfpipe.errors import count_of
from tfpipe.location.location import Location
from tfpipe.shards import split_names
from tfpipe.shards.split_names import SPLITS, TRAIN

LabelType = Literal["number", "text"]
NUMBER: LabelType = "number"
TEXT: LabelType = "text"
_PLAIN_INTEGER = re.compile(r"0|[1-9][0-9]*")
# Numbers that are no plain integers: `007` and `1.10` are names of classes.
_CODE = re.compile(r"0[0-9]+|[0-9]*\.[0-9]*")
# pandas writes whole numbers so, if a value of their column is missing.
_WHOLE_FLOAT = re.compile(r"(0|[1-9][0-9]*)\.0+")
# Every class is a line of labels.txt.
MAX_LABEL = 1_000_000
# Hugging Face and TFDS give -1 to images of a test split.
_NO_LABEL = re.compile(r"(-1(\.0+)?)?")
# A longer label is another column.
MAX_CHARACTERS = 1000
_NO_TEXT = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")
# Characters that nobody sees, such as a byte order mark in the middle of a file.
_INVISIBLE = re.compile("[\\u00ad\\u200b-\\u200f\\u2060\\ufeff]")
# Images by split and class.
_Splits = Mapping[str, Mapping[str, Sequence[object]]]
# Labels in an error, of numbers and of names.
_NUM_SHOWN = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Meaning:
    """The words of a user about the meaning of an input, the same for all readers.

    The flags of the same names describe the fields.
    """

    split: str | None = None
    split_names: bool = True
    class_depth: int | None = None
    label_type: LabelType | None = None
    label_map: pathlib.Path | None = None
    label_base: int | None = None

    def __post_init__(self) -> None:
        if self.split is not None and self.split not in SPLITS:
            raise ValueError(
                f"--split must be one of {', '.join(SPLITS)}, got {self.split!r}."
            )
        if self.class_depth is not None and self.class_depth < 1:
            raise ValueError(f"--class_depth must be >= 1, got {self.class_depth}.")

    def splits_of_files(
        self, files: Iterable[str], folders: Iterable[Location]
    ) -> dict[str, str]:
        """Returns the splits of files by their paths below the folders in the flags."""
        if self.split is not None or not self.split_names:
            return dict.fromkeys(files, self.split or TRAIN)
        named = [each.text for each in folders]
        levels = zip(*(each.split("/") for each in named), strict=False)
        shared = itertools.takewhile(lambda names: len({*names}) == 1, levels)
        top = "/".join(name for name, *_ in shared)
        paths = {file: file.removeprefix(f"{top}/") for file in files}
        said = split_names.splits_of_shards(
            paths.values(),
            named=[each.removeprefix(f"{top}/") for each in named],
            remedy="Rename one of them, name the inner folder as the input, or say "
            "--split=NAME.",
        )
        return {file: said[path] or TRAIN for file, path in paths.items()}

    def unread_names(
        self, folders: Iterable[Location], splits: Iterable[str]
    ) -> Iterator[str]:
        """Yields a line for each folder of a flag with the name of another split.

        The current folder often has a name such as `dev`, and was not named.
        """
        if self.split is not None or not self.split_names or {*splits} != {TRAIN}:
            return
        for each in dict.fromkeys(folders):
            split = split_names.split_of_name(each.name)
            if split not in (None, TRAIN) and each.text != os.getcwd():
                yield (
                    f"The folder {each.shown} is called as the {split} split, and the "
                    "images are of train. For all images of the command, say "
                    f"--split={split}, or --split=train."
                )


USUAL = Meaning()


def label_type(labels: Iterable[str], chosen: LabelType | None) -> LabelType:
    """Returns whether labels are numbers or names, by all of them and --label_type.

    They are numbers if all are plain integers, and names if no label is, or if a label
    is a number with a leading zero or a point.

    >>> label_type(["0", "12"], None), label_type(["007", "12"], None)
    ('number', 'text')
    >>> label_type(["0", "12"], "text")
    'text'
    """
    if chosen == TEXT:
        return TEXT
    if chosen == NUMBER:
        labels = map(whole_number, labels)
    integers, words, has_codes = [], [], False
    for label in dict.fromkeys(labels):
        if _PLAIN_INTEGER.fullmatch(label):
            integers.append(label)
        else:
            words.append(label)
            has_codes = has_codes or _CODE.fullmatch(label) is not None
    if chosen == NUMBER and words:
        raise ValueError(
            "--label_type=number needs labels that are whole numbers from 0 on, got "
            f"{_some(words)}."
        )
    if integers and words and not has_codes:
        raise ValueError(
            f"Labels must be numbers or names, got {len(integers):,} that are numbers "
            f"({_some(integers)}) and {len(words):,} that are names ({_some(words)}). "
            "Correct them, or say --label_type=text if the numbers are names too."
        )
    return NUMBER if integers and not words else TEXT


def is_no_label(label: str) -> bool:
    """Whether a label without blanks is empty or the number -1.

    >>> is_no_label(""), is_no_label("-1"), is_no_label("-1.0"), is_no_label("-2")
    (True, True, True, False)
    """
    return _NO_LABEL.fullmatch(label) is not None


def is_readable(label: str) -> bool:
    """Whether a label of a tar or a record can be the name of a class."""
    return len(label) <= MAX_CHARACTERS and not _NO_TEXT.search(label)


def text_of_float(label: float) -> str | None:
    """Returns a whole number as pandas writes it, such as `3.0`; None for others.

    >>> text_of_float(3.0), text_of_float(-1.0), text_of_float(0.5)
    ('3.0', '-1.0', None)
    """
    text = str(float(label))
    return text if _WHOLE_FLOAT.fullmatch(text) or is_no_label(text) else None


def whole_number(label: str) -> str:
    """Returns a label such as `3.0` as a whole number, and others as they are.

    >>> whole_number("3.0"), whole_number("1.10")
    ('3', '1.10')
    """
    match = _WHOLE_FLOAT.fullmatch(label)
    return match[1] if match else label


def _some(labels: Sequence[str]) -> str:
    more = ", ..." if len(labels) > _NUM_SHOWN else ""
    return ", ".join(map(repr, labels[:_NUM_SHOWN])) + more


def numbers_as_labels(
    numbers: Sequence[int], label_base: int | None
) -> tuple[dict[str, int], str]:
    """Returns the labels of classes that are numbers, and the reason for their base.

    A number stays the label. A number without an image is a class too: labels have no
    gap. With a label base of 0 the numbers count from 0, whatever numbers occur. With
    1, numbers from 0 on are stored as numbers from 1 on.

    >>> numbers_as_labels([1, 3], None)
    ({'1': 1, '2': 2, '3': 3}, 'no label is 0')
    >>> numbers_as_labels([1, 2], 0)[0]
    {'0': 0, '1': 1, '2': 2}
    """
    lowest, highest = min(numbers), max(numbers)
    if highest > MAX_LABEL:
        raise ValueError(
            f"Classes that are numbers must be at most {MAX_LABEL:,}, got {highest}. "
            "Say --label_type=text if the numbers are names, or name the classes, with "
            "lines `<label> <class>` in --label_map."
        )
    first = 0 if label_base == 0 or lowest == 0 else 1
    base = first if label_base is None else label_base
    labels = {str(n): n - first + base for n in range(first, highest + 1)}
    if label_base is not None:
        return labels, f"--label_base={label_base}"
    return labels, "a label is 0" if first == 0 else "no label is 0"


def values_say_splits(values: Iterable[str | None], name: str) -> tuple[bool, str]:
    """Returns whether the values of a column or a key say splits, or a warning.

    >>> values_say_splits(["Train", "VAL", None], "column")
    (True, '')
    """
    texts = sorted({value for value in values if value is not None})
    others = [text for text in texts if split_names.split_of_name(text) is None]
    if not others:
        return bool(texts), ""
    return False, (
        f"The {name} split is not read, as its value {others[0]!r} is no split. Rename "
        "its values, or say --no_split_names."
    )


def warn(lines: Sequence[str], *, strict: bool) -> None:
    """Prints warnings about an input; with --strict, a ValueError."""
    if lines and strict:
        raise ValueError(f"{lines[0]} (--strict makes this warning an error.)")
    for line in lines:
        print(f"Warning: {line}", file=sys.stderr)


def disagreements(splits: _Splits, chosen: LabelType | None) -> list[str]:
    """Returns a line for each way in which splits and classes do not fit together.

    The line says the probable meaning, and its flag. `chosen` is --label_type.
    """
    names = {name for classes in splits.values() for name in classes}
    lines = [
        *_folders_in_classes(splits),
        *_nested_class(splits),
        *_odd_names(names, chosen),
    ]
    train = splits.get(TRAIN, {})
    for split, classes in splits.items():
        unknown = sorted(set(classes) - set(train))
        if split == TRAIN or not train or not unknown:
            continue
        depth = (
            "if a folder above or below the classes was taken for a class, "
            "--class_depth=1 takes the first folder; "
        )
        is_nested = any("/" in name for name in (*train, *unknown))
        lines.append(
            f"{count_of(len(unknown), 'class')} of the {split} split "
            f"{'is' if len(unknown) == 1 else 'are'} no class of train, the first is "
            f"{unknown[0]!r}: {depth if is_nested else ''}if it is another data set, "
            f"convert it alone with --split={split}."
        )
    return lines


def _folders_in_classes(splits: _Splits) -> Iterable[str]:
    """Yields a line for folders that look like splits or parts, and are in classes."""
    for classes in splits.values():
        # By folder, and by the folder in it, the paths of classes below.
        below: dict[str, dict[str, set[str]]] = {}
        for name in classes:
            parts = name.split("/")
            for depth, part in enumerate(parts):
                level = below.setdefault("".join(f"{p}/" for p in parts[:depth]), {})
                level.setdefault(part, set()).add("/".join(parts[depth + 1 :]))
        lines = (_not_classes(*each) for each in sorted(below.items()))
        yield from itertools.islice(filter(None, lines), 1)


def _not_classes(above: str, level: Mapping[str, set[str]]) -> str:
    """Returns a line for folders beside each other that are no classes; "" for others.

    `level` has the paths of the classes in each folder.
    """
    first, *others = level
    is_same = others and all(level[name] == level[first] for name in others)
    shown = ", ".join(above + name for name in sorted(level))
    below_all = {name.partition("/")[0] for name in level[first]}
    if is_same and level[first] != {""} and not _are_splits(below_all):
        each = min(level[first])
        return (
            f"The folders {shown} hold the same classes, and {above}{first}/{each} and "
            f"{above}{others[0]}/{each} are two classes now: if the folders are "
            "splits, rename them, such as to train and test, or convert each with "
            "--split=NAME; if they are parts of one data set, merge them with "
            "converters.merge."
        )
    if above and _are_splits(level):
        return (
            f"The folders {shown} are called as splits, and are parts of classes now: "
            "if the folders are splits, make them the folders at the top, with the "
            "classes in them."
        )
    whole = [name for name in sorted(level) if "" not in level[name]]
    named = [name for name in whole if split_names.split_of_name(name)]
    if len(named) != 1 or not others:
        return ""
    (name,) = named
    return (
        f"The folder {above}{name} is called as a split, and is a part of classes now, "
        f"such as {above}{name}/{min(level[name])}: if the folder is a split, convert "
        f"the folder alone, with --split={split_names.split_of_name(name)}."
    )


def _are_splits(names: Iterable[str]) -> bool:
    """Whether all names of folders say splits, of several."""
    splits = split_names.splits_of_folders([*names]) or {}
    return len({*splits.values()}) > 1


def _odd_names(names: Collection[str], chosen: LabelType | None) -> Iterable[str]:
    alike: dict[str, list[str]] = {}
    for name in sorted(names):
        visible = " ".join(_INVISIBLE.sub("", name).split())
        seen = unicodedata.normalize("NFC", whole_number(visible)).casefold()
        alike.setdefault(seen, []).append(name)
    twins = [each for each in alike.values() if len(each) > 1]
    if twins:
        shown = " and ".join(map(ascii, twins[0]))
        yield (
            f"{shown} are classes of their own, and differ in case, in blanks, in the "
            "form of accents or in .0 alone: if these are one class, give it one name, "
            "such as by lower(trim(label)) in --query or by --class_map of "
            "converters.merge"
            f"{f'; {len(twins) - 1:,} more are like this' if twins[1:] else ''}."
        )
    for name in sorted(name for name in names if len(name.splitlines()) > 1)[:1]:
        yield (
            f"The class {name!r:.80} has a line break: if a double quote of a CSV file "
            "was lost, so that rows became a part of the label, correct the file."
        )
    if names and all(name[1:] and name[0] == name[-1] == "'" for name in names):
        yield (
            f"The classes, such as {min(names)}, stand in single quotes, which are "
            "letters as others are: if the names have no quotes, put the cells of a "
            "CSV file in double quotes."
        )
    if chosen is None and names and all(map(_WHOLE_FLOAT.fullmatch, names)):
        yield (
            f"The labels, such as {min(names)}, are taken for names, in the order of "
            "texts: whole numbers are written so if a value of their column is "
            "missing. --label_type=number takes them for whole numbers, "
            "--label_type=text for names."
        )


def _nested_class(splits: _Splits) -> Iterable[str]:
    """Yields a line for a class of a single image in a folder below another class."""
    for classes in splits.values():
        for name, images in classes.items():
            parts = name.split("/")
            folders = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
            above = next(filter(classes.__contains__, folders), "")
            if above and len(images) == 1:
                yield (
                    f"The class {name!r} has one image, and lies in the folder of the "
                    f"class {above!r}: if the image is of that class, --class_depth="
                    f"{above.count('/') + 1} takes the folders above it as the class."
                )
                break
