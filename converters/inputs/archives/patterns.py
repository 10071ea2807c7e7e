"""The files of patterns, by split: on a disk or in an object store.

In: words such as `train=shards-{000..099}.tar`, `s3://bucket/*.tar` or a folder. Out:
the files in order, with their sizes. Braces are expanded as a shell does, `*`, `?` and
`[]` stand for names of files. Each file has one split.
"""

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Sequence
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
    """A file of images: its split, its absolute path or its URL, its size in bytes."""

    split: str
    file: str
    num_bytes: int


class Kind(NamedTuple):
    """The files of a command: a description for errors, and a rule about names."""

    what: str
    is_one: Callable[[str], bool]


def find(words: Sequence[str], kind: Kind, meaning: Meaning) -> list[Archive]:
    """Finds the files of the values of --input.

    Before a pattern may be a split and "=". Without a split, the name of the file or of
    a folder says the split, or else train.
    """
    split_of_file: dict[str, str | None] = {}
    sizes: dict[str, int] = {}
    for word in words:
        split, pattern = split_of(word)
        here = _matching(pattern, kind)
        if not here:
            raise ValueError(
                f"--input must name at least one file, got none for "
                f"{shown(pattern)}. Name files, a pattern of them, or a folder "
                f"with {kind.what}.{missing_index.other_converter(pattern, '')}"
            )
        if twice := here.keys() & sizes.keys():
            raise ValueError(
                f"--input must name each file once, got {shown(min(twice))} in two "
                "patterns. Take it out of one of them."
            )
        split_of_file |= dict.fromkeys(here, split)
        sizes |= here
    said = meaning.splits_of_files(paths_below_one(list(sizes)))
    return [
        Archive(split_of_file[file] or split, file, num_bytes)
        for (file, num_bytes), split in zip(sizes.items(), said, strict=True)
    ]


def split_of(word: str) -> tuple[str | None, str]:
    """Returns the split at the start of a value of --input, if any, and the rest."""
    match = _SPLIT.fullmatch(word)
    return (match[1], match[2]) if match else (None, word)


def expand_braces(pattern: str) -> list[str]:
    """Returns the names of `{000..099}` and `{a,b}` in a pattern.

    A range counts up or down, with the number of digits of its first number.
    """
    names = [""]
    # Texts outside of braces, and between these the text inside.
    for index, text in enumerate(_BRACES.split(pattern)):
        choices, wrong = [text], ""
        if index % 2 == 0:
            wrong = "none of them inside another, got" if {*text} & {*"{}"} else ""
        elif match := _RANGE.fullmatch(text):
            first, last = int(match[1]), int(match[2])
            step = 1 if first <= last else -1
            # More than enough for the error about too many files.
            numbers = range(first, last + step, step)[: _MAX_FILES + 1]
            choices = [f"{n:0{len(match[1])}d}" for n in numbers]
        elif "," in text:
            choices = text.split(",")
        else:
            wrong = f"got {'others' if '://' in pattern else f'{{{text}}}'} in"
        if wrong:
            raise ValueError(
                f"--input must have braces such as {{000..099}} or {{a,b}}, {wrong} "
                f"{shown(pattern)}."
            )
        if len(names) * len(choices) > _MAX_FILES:
            raise ValueError(
                f"--input must name at most {_MAX_FILES:,} files, got more for "
                f"{shown(pattern)}."
            )
        names = [name + choice for name in names for choice in choices]
    return names


def _matching(pattern: str, kind: Kind) -> dict[str, int]:
    """Returns the files of a value of --input in order, with their sizes."""
    if not pattern:
        raise ValueError("--input must be a file, a pattern or a URL, got nothing.")
    is_url = bool(written_scheme(pattern))
    if "://" in pattern and not is_url:
        raise ValueError(
            "--input must be a path or a URL, or a split, = and one of them, where the "
            f"split is one of {', '.join(SPLITS)}. The one with :// is none "
            "of these, and is not shown here because it may hold a secret."
        )
    path = pattern if is_url else os.path.abspath(os.path.expanduser(pattern))
    # A path may hold braces and stars of its own.
    is_there = not is_url and os.path.lexists(path)
    matching: dict[str, int] = {}
    for name in [path] if is_there else expand_braces(path):
        sizes = _at_url(name, kind) if is_url else _on_disk(name, kind)
        if [*sizes] != [name]:
            require_whole_sets(sizes, "--input")
        matching |= {file: sizes[file] for file in sorted(sizes, key=natural)}
    return matching


def _on_disk(path: str, kind: Kind) -> dict[str, int]:
    if os.path.isdir(path):
        names = [entry.name for entry in os.scandir(path) if not entry.is_dir()]
        names = [n for n in names if not n.startswith(".") and kind.is_one(n)]
        files = [os.path.join(path, name) for name in names]
    elif os.path.lexists(path) or not any(sign in path for sign in _WILDCARDS):
        files = [path]  # a missing file is an error that names it
    else:
        files = glob.glob(path, recursive=True)
        files = [file for file in files if not os.path.isdir(file)]
    return {file: os.stat(file).st_size for file in files}


def _at_url(url: str, kind: Kind) -> dict[str, int]:
    before = re.split(r"[*?\[]", url, maxsplit=1)[0]
    folder = before.rstrip("/") if before == url else before.rpartition("/")[0]
    location = Location.from_user("--input", folder)
    if before == url and not url.endswith("/"):
        server, name = location.split()
        try:
            return {location.text: Files(server).size(name)}
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
    return {(location / name).text: sizes[name] for name in wanted}


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
