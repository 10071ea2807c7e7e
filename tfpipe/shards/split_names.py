"""Names of splits and shards: the split of a file, a folder or a value, by its name.

In: names and texts. Out: splits, or an error where names of several splits would end in
one split. Converters and sources follow the same rule. Imports no TensorFlow.
"""

import collections
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

TRAIN, VALIDATION, TEST = "train", "validation", "test"
# Splits are listed, and get an image each of a class with few images, in this order.
SPLITS = (TRAIN, VALIDATION, TEST)
SPLIT_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval"), VALIDATION),
    **dict.fromkeys(("test", "testing"), TEST),
}
# `train-00000-of-00008`, `set-train.tfrecord-00000-of-00008`, and the names of Hugging
# Face, `train-00000-of-00002-0a1b.parquet`, where every shard has its own text.
_SHARD = re.compile(r"(.*)-(\d+)-of-(\d+)(?:[-.].*?)??(\.[a-z]+)?", re.DOTALL)
# Numbers with leading zeros, such as `set-train-003.tar` of a WebDataset.
_NUMBERED = re.compile(r"(.*?)([0-9]{3,})(\.[a-z]+(?:\.gz)?)", re.DOTALL)
# Words end at other characters, at digits, and before an upper-case letter.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def split_of_word(text: str) -> str | None:
    """Returns the split that a whole text says, in any case; None for other texts.

    Values of columns and of JSON keys are such texts.

    >>> split_of_word("Val"), split_of_word("valley")
    ('validation', None)
    """
    return SPLIT_WORDS.get(text.strip().lower())


def split_of_name(name: str) -> str | None:
    """Returns the split that a word in a name says; None for no split or several.

    Args:
        name: Name of a file or a folder, without the folders above.

    >>> split_of_name("imagenet1k-validation-0003.tar"), split_of_name("seg_train")
    ('validation', 'train')
    >>> split_of_name("train_val.csv"), split_of_name("training2"), split_of_name("cat")
    (None, 'train', None)
    >>> split_of_name("TrainSet"), split_of_name("teST"), split_of_name("contest")
    ('train', 'test', None)
    """
    words = [*_WORD.findall(name), *re.findall(r"[a-z]+", name.lower())]
    splits = {split_of_word(word) for word in words} - {None}
    return splits.pop() if len(splits) == 1 else None


def splits_of_folders(names: Sequence[str]) -> dict[str, str] | None:
    """Returns the split of every folder of a level; None if a folder says none.

    A class `train` beside the classes `car` and `bus` is a class.

    >>> splits_of_folders(["Train", "Test"]), splits_of_folders(["bus", "train"])
    ({'Train': 'train', 'Test': 'test'}, None)
    """
    splits = {name: split for name in names if (split := split_of_name(name))}
    return splits if names and len(splits) == len(names) else None


def splits_of_shards(
    paths: Iterable[str], *, named: Collection[str] = (), remedy: str
) -> dict[str, str | None]:
    """Returns by path the split that the name of a shard says, or a folder above.

    Args:
        paths: Paths with `/`, relative to one folder. A folder says a split if all
            folders of the paths at its level do, or if two folders say different ones.
        named: Folders that the user named. These folders and the folders above
            contradict no name: the last name with a split counts.
        remedy: The advice at the end of an error.

    Raises:
        ValueError: If the names of a shard and its folders say different splits.

    >>> splits_of_shards(["train/0", "car/0"], remedy="")
    {'train/0': None, 'car/0': None}
    >>> splits_of_shards(["train/0", "val/0", "extra/0"], remedy="")
    {'train/0': 'train', 'val/0': 'validation', 'extra/0': None}
    >>> splits_of_shards(["dev/own/train-0"], named=["dev/own"], remedy="")
    {'dev/own/train-0': 'train'}
    """
    parts = {path: path.split("/") for path in paths}
    by_folder: dict[tuple[str, ...], set[str]] = {}
    for names in parts.values():
        for depth, name in enumerate(names[:-1]):
            by_folder.setdefault(tuple(names[:depth]), set()).add(name)
    levels = {}
    for above, folders in by_folder.items():
        split_of = {name: split_of_name(name) for name in folders}
        splits = {*split_of.values()}
        levels[above] = split_of if None not in splits or len(splits) > 2 else {}
    said = {}
    for path, names in parts.items():
        file = (names[-1], split_of_name(names[-1]))
        over = [
            (f"{name}/", levels[tuple(names[:depth])].get(name))
            for depth, name in enumerate(names[:-1])
        ]
        depths = [each.count("/") for each in named if path.startswith(f"{each}/")]
        below = over[max(depths, default=-1) + 1 :]
        says = {name: split for name, split in (file, *below) if split}
        require_splits_apart(says, path, remedy=remedy)
        last_first = (file, *reversed(over))
        said[path] = next((split for _, split in last_first if split), None)
    return said


def natural(name: str) -> tuple[list[str | int], str]:
    """Returns a key for sorting names, with numbers in the names by value."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], name


def require_splits_apart(
    split_of: Mapping[str, str | None],
    shown: str,
    *,
    remedy: str = "Name the files of one split.",
) -> None:
    """Refuses inputs whose names say different splits where one split is read.

    Args:
        split_of: The split of every name.
        shown: The reader of the inputs, for the error.
        remedy: The advice at the end of the error.

    Raises:
        ValueError: If two names say different splits.
    """
    first: dict[str, str] = {}
    for name, split in split_of.items():
        if split is not None:
            first.setdefault(split, name)
    if len(first) > 1:
        raise ValueError(
            f"{shown} must be of one split, got "
            f"{' and '.join(f'{n} ({s})' for s, n in first.items())}. {remedy}"
        )


def wrong_number(numbers: Sequence[int], count: int) -> int | None:
    """Returns a number that a set of shards lacks or has twice; None for a whole set.

    >>> wrong_number([0, 2], 3), wrong_number([0, 1, 1], 2), wrong_number([1, 0], 2)
    (1, 1, None)
    """
    times = collections.Counter(numbers)
    return next(
        (n for n in sorted({*range(count), *numbers}) if times[n] != 1 or n >= count),
        None,
    )


def require_whole_sets(paths: Iterable[str], flag: str) -> None:
    """Refuses sets of shards that lack a number.

    The names are such as `train-00000-of-00004`, or numbers with leading zeros, such as
    `train-003.tar`; a set with leading zeros may begin with any number.

    Args:
        paths: Paths of the files of a folder or a pattern. Others may be among them.
        flag: The flag of the files, for the error.

    Raises:
        ValueError: If a set lacks a number, or has a number twice.
    """
    sets: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
    counted: dict[tuple[str, str, int], dict[int, str]] = {}
    for path in paths:
        if match := _SHARD.fullmatch(path):
            key = (match[1], match[3], match[4] or "")
            sets.setdefault(key, []).append((int(match[2]), path))
        elif match := _NUMBERED.fullmatch(path):
            others = counted.setdefault((match[1], match[3], len(match[2])), {})
            others[int(match[2])] = path
    for (prefix, ending, width), of_number in counted.items():
        first, last = min(of_number), max(of_number)
        lacking = next((n for n in range(first, last) if n not in of_number), None)
        if lacking is not None and len(str(first)) < width:
            raise ValueError(
                f"{flag} must name whole sets of shards, got {of_number[first]} and "
                f"{of_number[last]} without {prefix}{lacking:0{width}d}{ending}. Copy "
                "the missing files, or name the files of the part that is meant, "
                "without * and ?."
            )
    for (_, count, _), shards in sets.items():
        wrong = wrong_number([shard for shard, _ in shards], int(count))
        if wrong is not None:
            raise ValueError(
                f"{flag} must name whole sets of shards, numbered 0 to "
                f"{int(count) - 1} as {min(shards)[1]} says, once each; got "
                f"{len(shards)}, see number {wrong}. Copy the missing files, move "
                "files of another data set away, or name the files of the part that "
                "is meant, without * and ?."
            )
