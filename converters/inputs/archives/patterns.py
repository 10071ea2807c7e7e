"""The files of patterns, by split: on a disk or in an object store.

In: words such as `train=shards-{000..099}.tar`, `s3://bucket/*.tar` or a folder. Out:
the files in order, with their sizes. Braces are expanded as a shell does, `*`, `?` and
`[]` stand for names of files. Each file has one split.
"""

import fnmatch
import glob
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from converters.inputs.files import paths_below_one
from converters.inputs.meaning import Meaning
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location, shown, written_scheme
from tfpipe.shards import missing_index
from tfpipe.shards.scan import natural
from tfpipe.shards.split_names import SPLITS, require_whole_sets

_MAX_FILES = 1_000_000
_SPLIT = re.compile(rf"({'|'.join(SPLITS)})=(.*)", re.DOTALL)
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)")
_WILDCARDS = "*?["


class Archive(NamedTuple):
    """A file of images.

    Attributes:
        split: Split of its images.
        file: Its absolute path or its URL.
        num_bytes: Its size.
    """

    split: str
    file: str
    num_bytes: int


class Kind(NamedTuple):
    """The files of a command.

    Attributes:
        what: Description of the files in a folder, for errors.
        is_one: Whether a file in a folder belongs to the kind, by its name.
    """

    what: str
    is_one: Callable[[str], bool]


def find(words: Sequence[str], kind: Kind, meaning: Meaning) -> list[Archive]:
    """Finds the files of the values of --input.

    Args:
        words: Patterns, with a split and "=" before a pattern or not. Without a split,
            the name of the file or of a folder says the split, or else train.
        kind: Kind of the files.
        meaning: What a user says about splits.

    Raises:
        ValueError: If a pattern is wrong or names no file, or a file is named twice.
    """
    archives: dict[str, Archive] = {}
    for word in words:
        split, pattern = split_of(word)
        count = 0
        for archive in _matching(pattern, kind):
            count += 1
            file = archive.file
            if file in archives:
                raise ValueError(
                    f"--input must name each file once, got {shown(file)} in two "
                    "patterns. Take it out of one of them."
                )
            archives[file] = archive._replace(split=split or "")
        if not count:
            raise ValueError(
                f"--input must name at least one file, got none for "
                f"{shown(pattern)}. Name files, a pattern of them, or a folder "
                f"with {kind.what}.{missing_index.other_converter(pattern, '')}"
            )
    below = paths_below_one(list(archives))
    return [
        archive if archive.split else archive._replace(split=split)
        for archive, split in zip(
            archives.values(), meaning.splits_of_files(below), strict=True
        )
    ]


def split_of(word: str) -> tuple[str | None, str]:
    """Returns the split at the start of a value of --input, if any, and the rest."""
    match = _SPLIT.fullmatch(word)
    return (match[1], match[2]) if match else (None, word)


def expand_braces(pattern: str) -> list[str]:
    """Returns the names of `{000..099}` and `{a,b}` in a pattern.

    A range counts up or down, with the number of digits of its first number.

    Raises:
        ValueError: If braces do not match, or stand for too many names.
    """
    # Texts outside of braces, and between these the text inside.
    parts = _BRACES.split(pattern)
    if any(brace in part for part in parts[::2] for brace in "{}"):
        raise _wrong_braces(pattern, "none of them inside another, got")
    choices = [_choices(pattern, text) for text in parts[1::2]]
    if math.prod(map(len, choices)) > _MAX_FILES:
        raise ValueError(
            f"--input must name at most {_MAX_FILES:,} files, got more for "
            f"{shown(pattern)}."
        )
    texts = ([text] for text in parts[::2])
    lists = itertools.chain(*itertools.zip_longest(texts, choices, fillvalue=[""]))
    return ["".join(words) for words in itertools.product(*lists)]


def _choices(pattern: str, text: str) -> Sequence[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        if "," not in text:
            inside = "others" if "://" in pattern else f"{{{text}}}"
            raise _wrong_braces(pattern, f"got {inside} in")
        return text.split(",")
    first, last = int(match[1]), int(match[2])
    step = 1 if first <= last else -1
    numbers = range(first, last + step, step)
    # More than enough for the error about too many files.
    return [f"{n:0{len(match[1])}d}" for n in numbers[: _MAX_FILES + 1]]


def _wrong_braces(pattern: str, wrong: str) -> ValueError:
    return ValueError(
        f"--input must have braces such as {{000..099}} or {{a,b}}, {wrong} "
        f"{shown(pattern)}."
    )


def _matching(pattern: str, kind: Kind) -> Iterator[Archive]:
    """Yields the files of a pattern, without their split."""
    if not pattern:
        raise ValueError("--input must be a file, a pattern or a URL, got nothing.")
    if written_scheme(pattern):
        for url in expand_braces(pattern):
            yield from _matching_urls(url, kind)
        return
    if "://" in pattern:
        raise ValueError(
            "--input must be a path or a URL, or a split, = and one of them, where the "
            f"split is one of {', '.join(SPLITS)}. The one with :// is none "
            "of these, and is not shown here because it may hold a secret."
        )
    path = os.path.abspath(os.path.expanduser(pattern))
    # A path may hold braces and stars of its own.
    for name in [path] if os.path.lexists(path) else expand_braces(path):
        if os.path.isdir(name):
            found = [entry.path for entry in os.scandir(name) if not entry.is_dir()]
            found = [file for file in found if _is_archive(file, kind)]
        elif os.path.lexists(name) or not any(sign in name for sign in _WILDCARDS):
            found = [name]  # a missing file is an error that names it
        else:
            found = glob.glob(name, recursive=True)
            found = [file for file in found if not os.path.isdir(file)]
        if found != [name]:
            require_whole_sets(found, "--input")
        for file in sorted(found, key=natural):
            yield Archive("", file, os.stat(file).st_size)


def _is_archive(path: str, kind: Kind) -> bool:
    """Whether a file in a folder is taken without a pattern."""
    name = path.rpartition("/")[2]
    return not name.startswith(".") and kind.is_one(name)


def _matching_urls(url: str, kind: Kind) -> Iterator[Archive]:
    before = re.split(r"[*?\[]", url, maxsplit=1)[0]
    folder = before.rstrip("/") if before == url else before.rpartition("/")[0]
    location = Location.from_user("--input", folder)
    if before == url and not url.endswith("/"):
        server, name = location.split()
        try:
            yield Archive("", location.text, Files(server).size(name))
            return
        except errors.MissingFileError:
            if location.is_web_server:
                raise
            # It may be a folder.
    if "?" in url:
        raise ValueError(
            "--input must be a URL without a query (?), and is not shown here because "
            "it may hold a secret. Write * for any characters."
        )
    if location.is_web_server:
        raise ValueError(
            f"--input must name each file of a web server, which cannot list them, got "
            f"{shown(url)}. Write {{000..099}} for numbers."
        )
    sizes, pattern = Files(location).names(), url.removeprefix(f"{folder}/")
    if before == url:
        wanted = [n for n in sizes if "/" not in n and kind.is_one(n)]
    else:
        # One star does not match a slash; two stars do.
        depth = None if "**" in pattern else pattern.count("/")
        wanted = [n for n in sizes if depth in (None, n.count("/"))]
        wanted = [n for n in wanted if fnmatch.fnmatchcase(n, pattern)]
    require_whole_sets(wanted, "--input")
    for name in sorted(wanted, key=natural):
        yield Archive("", (location / name).text, sizes[name])


def relative_to_one(
    archives: Sequence[Archive],
) -> tuple[Location, list[Archive]]:
    """Returns the folder of all files, and the files relative to the folder.

    Files by URL keep their URL. If all files are URLs, the folder is a URL, too.
    """
    paths = [item.file for item in archives if "://" not in item.file]
    if not paths:
        return Location(archives[0].file).split()[0], list(archives)
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    return Location(folder), [
        item
        if "://" in item.file
        else item._replace(file=os.path.relpath(item.file, folder))
        for item in archives
    ]
