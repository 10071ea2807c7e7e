"""Output of a command: an answer for people, details, and a line of JSON.

In: lines and the JSON object of a command. Out: stdout.

| stdout       | answer | details               | JSON object, the last line |
|--------------|--------|-----------------------|----------------------------|
| a terminal   | yes    | with --verbose        | with --json                |
| no terminal  | yes    | without --noverbose   | without --nojson           |

horovodrun reads what its ranks print, so that a rank never has a terminal: the stdout
of horovodrun decides in its place. A rank on another host than horovodrun has none.
"""

import contextlib
import contextvars
import fcntl
import io
import json
import os
import struct
import sys
import termios
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tfpipe.cli import flags

# Lines of an answer, with the lines to copy.
MOST_LINES = 7

# Turns lines, which name a command `python -m MODULE`, into the lines that people see.
say: contextvars.ContextVar[Callable[[str], str]] = contextvars.ContextVar(
    "say", default=str
)

_WIDTH = 80
_LABEL = 10  # characters before the text of a row
_PREFIX = len("[0]<stdout>:")  # of horovodrun, before each line of a rank


def show(
    document: Mapping[str, Any],
    answer: Iterable[str],
    *,
    notes: Iterable[str] = (),
    copied: Iterable[str] = (),
    details: Iterable[str] = (),
) -> None:
    """Prints what a command found.

    Args:
        document: The JSON object.
        answer: Lines for people, the most important first. A terminal without
            --verbose gets them cut where they do not fit.
        notes: Lines about what people may want to change. A terminal without --verbose
            gets them as one line below the answer, otherwise they go to stderr.
        copied: Lines that people copy, such as a command. They are never cut.
        details: Lines for people who ask for more.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Standard output may not be able to encode the names of files.
        sys.stdout.reconfigure(errors="backslashreplace")
    as_called, is_whole = say.get(), is_verbose()
    lines, copied, notes, details = (
        list(map(as_called, each)) for each in (answer, copied, notes, details)
    )
    if has_terminal() and not is_whole:
        lines += [" ".join(notes)] if notes else []
        lines = fit(lines, width(), MOST_LINES - len(copied))
    elif notes:
        print(*notes, sep="\n", file=sys.stderr)
    lines += [*copied, *details] if is_whole else copied
    if is_json():
        lines.append(json.dumps(document, separators=(",", ":")))
    if lines:
        print(*lines, sep="\n", flush=True)


def tell(*details: object) -> None:
    """Prints details as soon as they are known, if people ask for details."""
    if is_verbose():
        print(*map(say.get(), map(str, details)), sep="\n", flush=True)


def rows(**texts: str | None) -> list[str]:
    """Returns a line for each text, behind its label.

    Args:
        texts: Texts by label. A label without a text has no line; underscores of a
            label become spaces.

    Example:
        >>> rows(speed="5 MB/s", gate=None)
        ['speed     5 MB/s']
    """
    labels = {label.replace("_", " "): text for label, text in texts.items()}
    return [f"{label:<{_LABEL - 1}} {text}" for label, text in labels.items() if text]


def fit(lines: Sequence[str], columns: int, most: int) -> list[str]:
    """Returns lines that fit a terminal.

    A long line goes on in further lines, as long as there are at most `most` lines in
    all. Otherwise " ..." stands for the rest of the line.

    Args:
        lines: The lines, the most important first.
        columns: Most characters of a line.
        most: Most lines, unless `lines` are more.
    """
    spare, fitting = most - len(lines), []
    indent = " " * _LABEL
    for line in lines:
        first, *more = textwrap.wrap(
            line, columns, subsequent_indent=indent, break_on_hyphens=False
        ) or [""]
        kept = [first, *more[: max(spare, 0)]]
        if len(kept) <= len(more):
            kept[-1] = _cut(f"{kept[-1]} {more[len(kept) - 1].lstrip()}", columns)
        spare -= len(kept) - 1
        fitting += kept
    return fitting


def _cut(line: str, columns: int) -> str:
    short = line[: columns - 3].rpartition(" ")[0].rstrip(" ,;:")
    return f"{short or line[: columns - 4]} ..."


def is_verbose() -> bool:
    """Whether details are printed."""
    asked = flags.VERBOSE.value
    return not has_terminal() if asked is None else bool(asked)


def is_json() -> bool:
    """Whether the JSON object is printed."""
    asked = flags.JSON.value
    return not has_terminal() if asked is None else bool(asked)


def has_terminal() -> bool:
    """Whether people read stdout on a terminal."""
    return _columns() is not None


def width() -> int:
    """Returns the characters of a line of the terminal; 80 without a terminal."""
    return _columns() or _WIDTH


def _columns() -> int | None:
    """Returns the characters of a line of the terminal; None without a terminal."""
    try:
        if sys.stdout.isatty():
            return _columns_of(sys.stdout.fileno())
        if "HOROVOD_RANK" in os.environ and (pid := _launcher()) is not None:
            terminal = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY | os.O_NOCTTY)
            with contextlib.closing(os.fdopen(terminal, "wb", 0)):
                if os.isatty(terminal):
                    return _columns_of(terminal) - _PREFIX
    except (OSError, ValueError):
        pass  # a closed stdout, or the launcher of another user
    return None


def _columns_of(terminal: int) -> int:
    size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))
    columns: int = struct.unpack("4H", size)[1]
    return columns if columns > 2 * _LABEL + _PREFIX else _WIDTH


def _launcher() -> int | None:
    """Returns the process that the user started as horovodrun; None on other hosts."""
    launcher, pid = None, os.getppid()
    while pid > 1:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").split("\0")
        # `horovodrun`, `python .../horovodrun` and `python -m ....horovodrun`.
        programs = [word for word in words[:3] if " " not in word]  # no sh -c "..."
        if any(os.path.basename(w).endswith("horovodrun") for w in programs):
            launcher = pid
        with open(f"/proc/{pid}/stat", "rb") as file:
            pid = int(file.read().rpartition(b")")[2].split()[1])
    return launcher


def fewer(lines: Sequence[str], most: int, more: str) -> list[str]:
    """Returns at most `most` lines; the last one says how many others there are.

    Args:
        lines: All lines.
        most: Most lines to return.
        more: The last line, with {} for the number of the others.
    """
    if len(lines) <= most:
        return list(lines)
    return [*lines[: most - 1], more.format(len(lines) - most + 1)]
