"""The images of one folder by name, and what is left out of it and why.

In: a folder and the endings of the names to look for. Out: a `Listing`. Files are
listed, not opened: what they really are is decided from their bytes, later. Nothing
that a folder can hold is an error here but what cannot be looked at at all.
"""

import collections
import errno
import os
import pathlib
import stat
from collections.abc import Sequence
from typing import NamedTuple

JPEG_SUFFIXES = (".jpeg", ".jpg")
IMAGE_SUFFIXES = (*JPEG_SUFFIXES, ".bmp", ".gif", ".png", ".webp")

OTHER_NAME = "other_name"
NOT_A_FILE = "not_a_file"
DANGLING_LINK = "dangling_link"

# macOS writes these beside files on foreign disks and into tars; they hold no image.
_APPLE_DOUBLE_PREFIX = "._"


class Listing(NamedTuple):
    """What a folder holds, everything by name.

    Attributes:
        files: Name and bytes of each file with one of the endings.
        folders: Names of the folders.
        names: All names with one of the endings, also of what is no file.
        ignored: How many names are in neither `files` nor `folders`, by reason.
    """

    files: Sequence[tuple[str, int]]
    folders: Sequence[str]
    names: Sequence[str]
    ignored: collections.Counter[str]


def has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a file name, in upper or lower case, has one of the endings."""
    return name.lower().endswith(suffixes) and not name.startswith(_APPLE_DOUBLE_PREFIX)


def scan(folder: pathlib.Path, suffixes: tuple[str, ...]) -> Listing:
    """Lists a folder; links are followed.

    A folder whose name has one of the endings, and a hidden one, is left out.

    Raises:
        OSError: If the folder, or the target of a link in it, cannot be looked at.
    """
    files, folders, names = [], [], []
    ignored: collections.Counter[str] = collections.Counter()
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        named = has_suffix(entry.name, suffixes)
        if named:
            names.append(entry.name)
        elif entry.name.startswith("."):
            ignored[OTHER_NAME] += 1
            continue
        status = _status(entry)
        if status is None:
            ignored[DANGLING_LINK] += 1
        elif stat.S_ISDIR(status.st_mode) and not named:
            folders.append(entry.name)
        elif not named:
            ignored[OTHER_NAME] += 1
        elif stat.S_ISREG(status.st_mode):
            files.append((entry.name, status.st_size))
        else:
            ignored[NOT_A_FILE] += 1
    return Listing(files, folders, names, ignored)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What the entry, or its target, is; None for a link to nowhere or to itself."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
