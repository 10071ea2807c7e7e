"""The files of patterns, by split: on a disk or in an object store.

In: words such as `train=shards-{000..099}.tar`, `s3://bucket/*.tar` or a folder. Out:
the files in order, with their sizes. Braces are expanded as a shell does, `*`, `?` and
`[]` stand for names of files. Each file has one split.
"""

import fnmatch
import glob
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from converters.inputs.files import paths_below_one
from converters.inputs.meaning import Meaning
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location, shown, written_scheme
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
                f"with {kind.what}."
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
    parts: list[list[str]] = []
    position = count = 0
    for match in _BRACES.finditer(pattern):
        parts.append([pattern[position : match.start()]])
        parts.append(_choices(pattern, match[1]))
        position, count = match.end(), max(count, 1) * len(parts[-1])
        if count > _MAX_FILES:
            raise _too_many(pattern)
    parts.append([pattern[position:]])
    if any(brace in part[0] for part in parts[::2] for brace in "{}"):
        raise ValueError(
            f"--input must have braces such as {{000..099}} or {{a,b}}, none of them "
            f"inside another, got {shown(pattern)}."
        )
    return ["".join(words) for words in itertools.product(*parts)]


def _choices(pattern: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        if "," not in text:
            raise ValueError(
                f"--input must have braces such as {{000..099}} or {{a,b}}, got "
                f"{'others' if '://' in pattern else f'{{{text}}}'} in "
                f"{shown(pattern)}."
            )
        return text.split(",")
    first, last = int(match[1]), int(match[2])
    if abs(last - first) >= _MAX_FILES:
        raise _too_many(pattern)
    step = 1 if first <= last else -1
    width = len(match[1])
    return [f"{number:0{width}d}" for number in range(first, last + step, step)]


def _too_many(pattern: str) -> ValueError:
    return ValueError(
        f"--input must name at most {_MAX_FILES:,} files, got more for "
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
    names = [path] if os.path.lexists(path) else expand_braces(path)
    for name in names:
        yield from _matching_paths(name, kind)


def _matching_paths(path: str, kind: Kind) -> Iterator[Archive]:
    if os.path.isdir(path):
        found = [entry.path for entry in os.scandir(path)]
        found = [name for name in found if _is_archive(name, kind)]
        require_whole_sets(found, "--input")
    elif os.path.lexists(path) or not any(sign in path for sign in _WILDCARDS):
        found = [path]  # a missing file is an error that names it
    else:
        found = [name for name in glob.glob(path, recursive=True) if _is_file(name)]
        require_whole_sets(found, "--input")
    for name in sorted(found, key=natural):
        yield Archive("", name, os.stat(name).st_size)


def _is_file(path: str) -> bool:
    return not os.path.isdir(path)


def _is_archive(path: str, kind: Kind) -> bool:
    name = os.path.basename(path)
    return _is_file(path) and not name.startswith(".") and kind.is_one(name)


def _matching_urls(url: str, kind: Kind) -> Iterator[Archive]:
    before = re.split(r"[*?\[]", url, maxsplit=1)[0]
    folder = before.rstrip("/") if before == url else before.rpartition("/")[0]
    location = Location.from_user("--input", folder)
    is_web = location.is_web_server
    if before == url and not url.endswith("/"):
        server, name = location.split()
        try:
            yield Archive("", location.text, Files(server).size(name))
            return
        except errors.MissingFileError:
            if is_web:
                raise
            # It may be a folder.
    if "?" in url:
        raise ValueError(
            "--input must be a URL without a query (?), and is not shown here because "
            "it may hold a secret. Write * for any characters."
        )
    if is_web:
        raise ValueError(
            f"--input must name each file of a web server, which cannot list them, got "
            f"{shown(url)}. Write {{000..099}} for numbers."
        )
    names = Files(location).names()
    pattern = url.removeprefix(f"{folder}/") if before != url else ""
    wanted = [
        name
        for name in sorted(names, key=natural)
        if (
            _same_depth(name, pattern) and fnmatch.fnmatchcase(name, pattern)
            if pattern
            else "/" not in name and kind.is_one(name)
        )
    ]
    require_whole_sets(wanted, "--input")
    for name in wanted:
        yield Archive("", (location / name).text, names[name])


def _same_depth(name: str, pattern: str) -> bool:
    """Whether a star has not matched a slash; two stars may."""
    return "**" in pattern or name.count("/") == pattern.count("/")


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
