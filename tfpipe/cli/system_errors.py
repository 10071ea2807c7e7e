"""Errors of the system in words: the flag, its value, what is wrong, what to do.

In: an OSError, the flags of a command, and their values. Out: a sentence or two in
place of "[Errno 2] No such file or directory: 'train.tar'".
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from tfpipe import errors
from tfpipe.cli.fields import Option

_PATTERN = re.compile(r"[*?\[{]")
_REMEDIES = {
    errno.ENOENT: "Check the name and its folder.",
    errno.ENOTDIR: "A part of the path is a file, where a folder must be.",
    errno.EISDIR: "A folder is there, where a file must be.",
    errno.EACCES: "Give this user the right to read and write, or name another path.",
    errno.EPERM: "Give this user the right to read and write, or name another path.",
    errno.EROFS: "Nothing can be written there: name another path.",
    errno.ENOSPC: "Make room on the disk, or name a path on another one.",
    errno.EDQUOT: "Make room in the quota of this user, or name a path elsewhere.",
    errno.EMFILE: errors.OPEN_FILES,
}


def text(error: OSError, flags: Iterable[Option], options: Any) -> str:
    """Returns the message of an error.

    Args:
        error: The error. An error with a message of its own keeps the message.
        flags: The flags of the command.
        options: The options, which hold the values of the flags.

    Example:
        >>> text(FileNotFoundError(2, "No such file or directory", "a.tar"), ...)
        '--input=a.tar cannot be used: No such file or directory. Check the name ...'
    """
    if error.errno is None or not str(error).startswith("[Errno "):
        return str(error)
    why, remedy = error.strerror, _REMEDIES.get(error.errno, "")
    errors.name_file(error)
    # shutil.rmtree gives a Path, and some calls of open files a number.
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return f"{why}. {remedy}".rstrip()
    named = os.fsdecode(error.filename)
    path = os.path.abspath(named)
    starts = [
        (label, start)
        for flag in flags
        for label, start in _paths(flag, options)
        if f"{path}/".startswith(start)
    ]
    if not starts:
        return f"{named} cannot be used: {why}. {remedy}".rstrip()
    label, above = max(starts, key=lambda pair: len(pair[1]))
    where = "" if above == f"{path}/" else f": {named}"
    return f"{label} cannot be used: {why}{where}. {remedy}".rstrip()


def _paths(flag: Option, options: Any) -> Iterator[tuple[str, str]]:
    """Yields the values of a flag as they are typed, and how their paths begin."""
    value = options
    for name in (*flag.path, flag.field):
        value = getattr(value, name, None)
    for each in value if isinstance(value, tuple | list) else (value,):
        if not isinstance(each, str | os.PathLike) or not os.fspath(each):
            continue
        typed = str(each)
        label = f"{flag.label}={typed}" if flag.label.startswith("--") else typed
        # A source of a merge is NAME=PLACE, and tars may be a-{000..009}.tar.
        for path in filter(None, (typed, typed.partition("=")[2])):
            start = _PATTERN.split(path)[0]
            folder, name = os.path.split(start)
            pattern = os.path.join(os.path.abspath(folder), name)
            yield label, f"{os.path.abspath(path)}/" if start == path else pattern
