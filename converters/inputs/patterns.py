"""The files of patterns, by split: on a disk or in an object store.

In: words such as `train=shards-{000..099}.tar`, `s3://bucket/*.tar` or a folder. Out:
the files in order, with their sizes. Braces are expanded as a shell does, `*`, `?` and
`[]` stand for names of files. Each file has one split.
"""

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from converters.inputs.listing import is_hidden
from converters.inputs.meaning import Meaning
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location, shown, written_scheme
from tfpipe.shards import missing_index
from tfpipe.shards.index import DALI_DIR_NAME
from tfpipe.shards.split_names import SPLITS, natural, require_whole_sets

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
    """The files of a command.

    Attributes:
        what: A description for errors.
        is_one: Whether a file in or below a folder is such a file, by its base name.
    """

    what: str
    is_one: Callable[[str], bool]

    def below(self, folder: str, names: Iterable[str]) -> list[str]:
        """Returns the names of such files in a folder, which the names begin with."""
        found = []
        for name in filter(lambda name: self.is_one(name.rpartition("/")[2]), names):
            parts = name.removeprefix(folder).split("/")
            if not (DALI_DIR_NAME in parts or any(map(is_hidden, parts))):
                found.append(name)
        return found


def find(
    words: Sequence[str], kind: Kind, meaning: Meaning
) -> tuple[list[Archive], list[Location]]:
    """Finds the files of the values of --input, and the folder in each value.

    Before a pattern may be a split and "=". Without a split, the name of the file or of
    a folder says the split, or else train.
    """
    split_of_file: dict[str, str] = {}
    sizes: dict[str, int] = {}
    folders = []
    for word in words:
        split, pattern = split_of(word)
        path = pattern
        if pattern and "://" not in pattern:
            path = os.path.abspath(os.path.expanduser(pattern))
        here = matching("--input", path, kind)
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
        split_of_file |= dict.fromkeys(here, split) if split else {}
        sizes |= here
        folders.append(folder_in(path, here))
    others = [file for file in sizes if file not in split_of_file]
    split_of_file |= meaning.splits_of_files(others, folders)
    return [Archive(split_of_file[f], f, n) for f, n in sizes.items()], folders


def folder_in(pattern: str, files: Collection[str]) -> Location:
    """Returns the folder of a pattern above all files.

    >>> folder_in("/a/x*/b.tar", ["/a/x1/b.tar"]).text
    '/a'
    >>> folder_in("/a/x", ["/a/x/b.tar"]).text
    '/a/x'
    """
    path = pattern.rstrip("/")
    if all(file.startswith(f"{path}/") for file in files):
        return Location(path)
    before = path if path in files else re.split(r"[*?\[{]", path, maxsplit=1)[0]
    above, slash, _ = before.rpartition("/")
    return Location(above or slash or ".")


def split_of(word: str) -> tuple[str | None, str]:
    """Returns the split at the start of a value of --input, if any, and the rest."""
    match = _SPLIT.fullmatch(word)
    return (match[1], match[2]) if match else (None, word)


def expand_braces(pattern: str, *, flag: str = "--input") -> list[str]:
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
                f"{flag} must have braces such as {{000..099}} or {{a,b}}, {wrong} "
                f"{shown(pattern)}."
            )
        if len(names) * len(choices) > _MAX_FILES:
            raise ValueError(
                f"{flag} must name at most {_MAX_FILES:,} files, got more for "
                f"{shown(pattern)}."
            )
        names = [name + choice for name in names for choice in choices]
    return names


def matching(flag: str, pattern: str, kind: Kind) -> dict[str, int]:
    """Returns the files of a path, a pattern, a folder or a URL, with their sizes.

    The order is that of the names, with numbers by value. Nothing of the name of a file
    that exists is a pattern. `kind` has the files to take from a folder.
    """
    if not pattern:
        raise ValueError(f"{flag} must be a file, a pattern or a URL, got nothing.")
    is_url = bool(written_scheme(pattern))
    if "://" in pattern and not is_url:
        raise ValueError(
            f"{flag} must be a path or a URL, or a split, = and one of them, where the "
            f"split is one of {', '.join(SPLITS)}. The one with :// is none "
            "of these, and is not shown here because it may hold a secret."
        )
    # A path may hold braces and stars of its own.
    is_there = not is_url and os.path.lexists(pattern)
    files: dict[str, int] = {}
    for name in [pattern] if is_there else expand_braces(pattern, flag=flag):
        sizes = _at_url(flag, name, kind) if is_url else _on_disk(name, kind)
        if [*sizes] != [name]:
            require_whole_sets(sizes, flag)
        files |= {file: sizes[file] for file in sorted(sizes, key=natural)}
    return files


def _on_disk(path: str, kind: Kind) -> dict[str, int]:
    if os.path.isdir(path):
        folder = os.path.join(path, "")
        files = glob.glob(f"{glob.escape(folder)}**", recursive=True)
        files = kind.below(folder, files)
    elif os.path.lexists(path) or not any(sign in path for sign in _WILDCARDS):
        return {path: os.stat(path).st_size}  # a missing file is an error that names it
    else:
        files = glob.glob(path, recursive=True)
    return {file: os.stat(file).st_size for file in files if not os.path.isdir(file)}


def _at_url(flag: str, url: str, kind: Kind) -> dict[str, int]:
    before = re.split(r"[*?\[]", url, maxsplit=1)[0]
    folder = before.rstrip("/") if before == url else before.rpartition("/")[0]
    location = Location.from_user(flag, folder)
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
            f"{flag} must be a URL without a query (?), and is not shown here because "
            "it may hold a secret. Write * for any characters."
        )
    if location.is_web_server:
        raise ValueError(
            f"{flag} must name each file of a web server, which cannot list them, got "
            f"{shown(url)}. Write {{000..099}} for numbers."
        )
    sizes, pattern = Files(location).names(), url.removeprefix(f"{folder}/")
    if before == url:
        wanted = kind.below("", sizes)
    else:
        # One star does not match a slash; two stars do.
        depth = None if "**" in pattern else pattern.count("/")
        wanted = [n for n in sizes if depth in (None, n.count("/"))]
        wanted = [n for n in wanted if fnmatch.fnmatchcase(n, pattern)]
    return {(location / name).text: sizes[name] for name in wanted}


def relative_to_one(archives: Sequence[Archive]) -> tuple[Location, list[Archive]]:
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
