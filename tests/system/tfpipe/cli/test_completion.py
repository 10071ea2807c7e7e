"""Tab in bash, zsh and fish: each shell runs on a terminal of its own."""

import os
import pathlib
import pty
import re
import select
import shutil
import time
from collections.abc import Iterator

import pytest

from tfpipe.cli import completion

MAX_SECONDS = 20

# The command that each shell runs at Enter prints its words.
SHELLS = {
    "bash": (
        ("bash", "--norc", "--noprofile", "-i"),
        'source {script}; tfpipe() {{ echo "GOT[$*]"; }}',
    ),
    "zsh": (
        ("zsh", "-f", "-i"),
        "autoload -Uz compinit; compinit -u -D; source {script}; "
        'tfpipe() {{ print -r "GOT[$*]" }}',
    ),
    "fish": (
        ("fish", "--no-config", "-i"),
        'source {script}; function tfpipe; echo "GOT[$argv]"; end',
    ),
}
# What a user types before Tab -> the words of the command line after it.
LINES = {
    "tfpipe stor": "storage",
    "tfpipe convert web": "convert webdataset",
    "tfpipe completion fi": "completion fish",
    "tfpipe storage --max": "storage --max_parallel",
    "tfpipe storage --for_model=vg": "storage --for_model=vgg16",
    "tfpipe storage --for_model=tiny,vg": "storage --for_model=tiny,vgg16",
    "tfpipe storage wa": "storage warm",
    "tfpipe storage warm --cache_max": "storage warm --cache_max_gb",
    "tfpipe storage pho": "storage photos",
    "tfpipe storage --report_dir=pho": "storage --report_dir=photos",
}


class Terminal:
    """A shell on a terminal.

    Args:
        command: The shell and its arguments.
        folder: Folder in which it runs, and its home.
    """

    def __init__(self, command: tuple[str, ...], folder: pathlib.Path) -> None:
        self._child, self._terminal = pty.fork()
        if self._child == 0:
            os.chdir(folder)
            os.environ.update(TERM="dumb", HOME=str(folder))
            os.execvp(command[0], command)

    def type(self, text: str) -> None:
        """Types a text; Tab and Enter are characters of it."""
        os.write(self._terminal, text.encode())

    def wait_for(self, pattern: str) -> str:
        """Returns the last match of a pattern in what the shell shows next."""
        shown, end = "", time.monotonic() + MAX_SECONDS
        while time.monotonic() < end:
            if select.select([self._terminal], [], [], 0.1)[0]:
                shown += os.read(self._terminal, 65536).decode(errors="replace")
                if matches := re.findall(pattern, shown):
                    return str(matches[-1])
        raise AssertionError(f"No {pattern} in {MAX_SECONDS} s: {shown!r}")

    def close(self) -> None:
        """Ends the shell, as the end of its terminal does."""
        os.close(self._terminal)
        os.waitpid(self._child, 0)


@pytest.fixture(params=SHELLS)
def terminal(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> Iterator[Terminal]:
    shell = request.param
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed: apt-get install -y {shell}")
    script = tmp_path / "script"
    script.write_text(completion.script([shell]))
    (tmp_path / "photos").mkdir()
    command, setup = SHELLS[shell]
    terminal = Terminal(command, tmp_path)
    terminal.type(f'{setup.format(script=script)}; echo REA""DY\n')
    terminal.wait_for("READY\r")
    yield terminal
    terminal.close()


def test_tab_completes_commands_flags_choices_and_paths(terminal: Terminal) -> None:
    completed = {}
    for line in LINES:
        terminal.type(f"{line}\t\n")
        words = terminal.wait_for(r"GOT\[(.*)\]")
        completed[line] = words.rstrip("/= ")  # zsh and fish drop them at Enter

    assert completed == LINES
