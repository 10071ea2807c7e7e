"""A program on a real terminal, as a person runs it.

In: the words of a command, its environment and its folder. Out: the exit code, and the
lines that a person sees at the end.
"""

import fcntl
import os
import pathlib
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence

from tests.support.processes.warm_python import MAX_SECONDS

COLUMNS = 80


def terminal(*, columns: int = COLUMNS) -> tuple[int, int]:
    """Returns both ends of a terminal; programs get the second one."""
    other, own = pty.openpty()
    fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    return other, own


def on_terminal(
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: pathlib.Path,
    *,
    columns: int = COLUMNS,
) -> tuple[int, list[str]]:
    """Returns the exit code, and the lines after the progress bar."""
    other, own = terminal(columns=columns)
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=own,
        stderr=own,
    ) as process:
        os.close(own)
        timer = threading.Timer(MAX_SECONDS, process.kill)
        timer.start()
        text = _all_of(other, process)
        timer.cancel()
    lines = [line.rstrip("\r") for line in text.split("\n")]
    last_of_bar = max((i for i, line in enumerate(lines) if "\r" in line), default=-1)
    return process.returncode, [line for line in lines[last_of_bar + 1 :] if line]


def _all_of(end: int, process: "subprocess.Popen[bytes]") -> str:
    """Returns all that a program prints; a service gets Ctrl-C when it serves."""
    parts = []
    try:
        while part := os.read(end, 65536):
            parts.append(part)
            if b"tfpipe.Service(" in part:
                process.send_signal(signal.SIGINT)
    except OSError:
        pass  # the last program has closed the terminal
    os.close(end)
    return b"".join(parts).decode(errors="replace")
