"""Commands of the product as tests run them: in this process, or in their own."""

import contextlib
import dataclasses
import io
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tfpipe import cli

ROOT = pathlib.Path(__file__).parents[3]
MAX_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code, and what it printed."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout."""
        return self.stdout.splitlines()

    @property
    def result(self) -> Any:
        """The JSON object of the last line of stdout."""
        return json.loads(self.lines[-1])


def flags_of(**values: object) -> list[str]:
    """Returns flags with values: none for None, `--name` or `--noname` for a bool."""
    words = []
    for name, value in values.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no{name}")
        elif isinstance(value, list | tuple):
            words.append(f"--{name}={','.join(map(str, value))}")
        elif value is not None:
            words.append(f"--{name}={value}")
    return words


def answer(
    commands: Sequence[cli.Command],
    *words: object,
    say: Callable[[str], str] = str,
    **values: object,
) -> Ended:
    """Answers a command line in this process: values of flags by name, then words."""
    words = (*flags_of(**values), *words)
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = cli.call(commands, [str(word) for word in words], say=say)
    return Ended(code, out.getvalue(), err.getvalue())


def run(module: str, *arguments: object, **options: Any) -> Ended:
    """Runs `python -m module arguments` and waits for its end.

    Args:
        module: Dotted name of the command.
        arguments: Its arguments and flags.
        options: Options of `subprocess.run`, such as `env`.
    """
    ended = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        **{"cwd": ROOT, "timeout": MAX_SECONDS, "stdin": subprocess.DEVNULL} | options,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
