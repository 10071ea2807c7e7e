"""Runs a page of the documents as a reader does: block after block, in one folder.

In: the Markdown of a page, and a reader. Out: the page with what its blocks print now.

- ```console: lines that begin with "$ " run in a shell on a terminal; the lines below
  are what they print. A line "..." alone stands for lines that are left out.
- ```python: runs in one Python for the whole page. A block that begins with a comment
  such as `# train.py` is a file, which commands run later. The ```text block right
  behind a block is what the block prints.
- <!-- varies --> before a block: its output depends on the host and its load. The first
  two words alone are compared.

Other blocks (```sh for other hosts, ```json) are not run.
"""

import copy
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from tests.support.processes import terminal
from tests.support.processes.warm_python import WarmPython

# A page that the reader sees is as wide as its lines; a terminal of today has these.
COLUMNS = 100
_BLOCK = re.compile(
    r"(?P<varies><!-- varies -->\n\n?)?```(?P<kind>console|python)\n(?P<code>.*?)```\n"
    r"(?:\n```text\n(?P<shown>.*?)```\n)?",
    re.S,
)
# Times, rates, and figures with a decimal point are those of one run on one host.
_UNITS = r"(?:s|ms|us|µs|min|minutes|images/s|img/s|[kMG]B/s|%|cores)"
_MASKED = (
    (re.compile(rf"\b[\d,]+(?:\.\d+)?(?= ?{_UNITS}(?:\W|$))"), "#"),
    (re.compile(r"\b\d+\.\d+(?:e-?\d+)?"), "#"),
    (re.compile(r"(?<=, )\d+(?= [kM]B$)"), "#"),  # a size whose decimals are zeros
    (re.compile(r" +"), " "),
)
# Lines about the load of the host, and about what a compiler or TensorFlow says.
_OF_THE_HOST = re.compile(r"The host was busy|.*\b(I0000|W0000|E0000)\b|tput: ")
_HOROVODRUN = """\
#!{python}
# The program horovodrun without the two imports of TensorFlow for its checks.
from horovod.runner import launch

launch.mpi_built = lambda verbose=False: False
launch.gloo_built = lambda verbose=False: True
if __name__ == "__main__":
    launch.run_commandline()
"""
_KERNEL = """\
import contextlib, functools, io, json, sys, traceback
names = {"__name__": "__main__"}
inputs, answers = sys.stdin, sys.stdout
for line in inputs:
    code, printed = json.loads(line), io.StringIO()
    error = ""
    try:
        with contextlib.redirect_stdout(printed):
            if "keras" in code and "plain" not in names:
                # Without XLA, which takes longer to compile than small models to train.
                import keras
                names["plain"] = functools.partialmethod(
                    keras.Model.compile, jit_compile=False)
                keras.Model.compile = names["plain"]
            exec(compile(code, "page", "exec"), names)
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps([printed.getvalue(), error]), file=answers, flush=True)
"""


class Programs:
    """The PATH of a reader: `python`, `tfpipe` and `horovodrun`.

    Attributes:
        python: The path of `python`.
        environment: The environment of all programs.

    Args:
        folder: An empty folder for the programs.
        warm: The Python that runs them.
        wheel_dir: The installed wheel.
    """

    def __init__(
        self, folder: pathlib.Path, *, warm: WarmPython, wheel_dir: pathlib.Path
    ) -> None:
        self.python = warm.program(folder)
        texts = {
            "tfpipe": f'#!/bin/sh\nexec {self.python} {wheel_dir}/bin/tfpipe "$@"\n',
            "horovodrun": _HOROVODRUN.format(python=sys.executable),
        }
        for name, text in texts.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(wheel_dir),
            "PYTHONUNBUFFERED": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "HOROVOD_CYCLE_TIME": "25",
        }

    def with_environment(self, more: Mapping[str, str]) -> "Programs":
        """Returns the programs with further variables."""
        programs = copy.copy(self)
        programs.environment = self.environment | more
        return programs


class _Kernel:
    """The Python of a page, which begins with the first block."""

    def __init__(self, folder: pathlib.Path, programs: Programs) -> None:
        self.process = subprocess.Popen(
            [programs.python, "-c", _KERNEL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=programs.environment,
            text=True,
        )

    def run(self, code: str) -> str:
        """Returns what a block prints."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        printed, error = json.loads(self.process.stdout.readline())
        assert not error, f"{code}\n{error}"
        return str(printed)

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


class Reader(Protocol):
    """Someone who follows a page. Texts have the words of the page."""

    def python(self, code: str) -> str:
        """Runs a block of Python; returns what the block prints."""

    def shell(self, command: str) -> str:
        """Runs a command; returns what a person sees of it."""

    def save(self, name: str, code: str) -> None:
        """Keeps a block as a file."""


class FreshReader:
    """A reader in a folder, outside of the checkout, with processes of its own.

    Args:
        folder: The folder of the reader.
        programs: The programs of the reader.
        replaced: Words of the page -> what stands for them here, such as a URL.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        programs: Programs,
        replaced: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder, self.programs, self.replaced = folder, programs, replaced
        self.kernel: _Kernel | None = None

    def python(self, code: str) -> str:
        """See `Reader`."""
        self.kernel = self.kernel or _Kernel(self.folder, self.programs)
        return self._on_page(self.kernel.run(self._here(code)))

    def shell(self, command: str) -> str:
        """See `Reader`."""
        code, lines = terminal.on_terminal(
            ["bash", "-c", self._here(command)],
            self.programs.environment,
            self.folder,
            columns=COLUMNS,
        )
        printed = "\n".join(lines)
        assert code == 0, f"{command}exit code {code}\n{printed}"
        return self._on_page(printed)

    def save(self, name: str, code: str) -> None:
        """See `Reader`."""
        (self.folder / name).write_text(self._here(code))

    def close(self) -> None:
        """Ends the Python of the page."""
        if self.kernel:
            self.kernel.close()

    def _here(self, text: str) -> str:
        for word, other in self.replaced.items():
            text = text.replace(word, other)
        return text

    def _on_page(self, text: str) -> str:
        for word, other in self.replaced.items():
            text = text.replace(other, word)
        return text


def check(path: pathlib.Path, reader: Reader) -> None:
    """Asserts that a page shows what its blocks print now.

    With REWRITE_GOLDEN=1 in the environment the page is written first.

    Args:
        path: The page.
        reader: The reader who follows it.
    """
    text = path.read_text()
    now = followed(text, reader)
    if os.environ.get("REWRITE_GOLDEN"):
        path.write_text(now)
        return
    lines = difflib.unified_diff(text.splitlines(), now.splitlines(), lineterm="")
    difference = "\n".join(lines)
    assert not difference, difference


def followed(text: str, reader: Reader) -> str:
    """Returns a page whose outputs are those of now, where they differ.

    Args:
        text: The Markdown of the page.
        reader: The reader who follows it.
    """

    def again(block: re.Match[str]) -> str:
        code, shown, varies = block["code"], block["shown"], bool(block["varies"])
        if block["kind"] == "console":
            now = _console(code, reader, varies=varies)
            return f"{block['varies'] or ''}```console\n{now}```\n"
        if name := re.match(r"# (\w+\.py)\n", code):
            reader.save(name[1], code)
            return block[0]
        printed = reader.python(code)
        if _agree(shown or "", printed, varies=varies):
            return block[0]
        output = f"\n```text\n{printed.strip()}\n```\n" if printed.strip() else ""
        return f"{block['varies'] or ''}```python\n{code}```\n{output}"

    return _BLOCK.sub(again, text)


def _console(block: str, reader: Reader, *, varies: bool) -> str:
    """Runs the commands of a block; returns the block with what they print."""
    head, *parts = re.split(r"^(?=\$ )", block, flags=re.M)
    for part in parts:
        end = re.search(r"(?<!\\)\n", part)
        assert end is not None
        line, shown = part[: end.end()], part[end.end() :]
        printed = reader.shell(line.removeprefix("$ ").replace("\\\n", " "))
        if not _agree(shown, printed, varies=varies):
            shown = f"{printed}\n" if printed else ""
        head += line + shown
    return head


def _agree(shown: str, printed: str, *, varies: bool) -> bool:
    """Whether a page shows what is printed, but for times, rates and left-out lines."""
    expected, now = _lines(shown), _lines(printed)
    if varies:
        starts = [lines[0].split()[:2] if lines else [] for lines in (expected, now)]
        return starts[0] == starts[1]
    pattern = "\n".join(
        r"(?:.*\n)*?.*" if line == "..." else re.escape(line) for line in expected
    )
    return re.fullmatch(pattern, "\n".join(now)) is not None


def _lines(text: str) -> list[str]:
    """Returns the lines of an output, with a mask for what differs between runs.

    A line that goes on, indented below, is joined: its break depends on its figures.
    """
    found = []
    for line in re.sub(r"\n {10}(?=\S)", " ", text.strip()).splitlines():
        for pattern, mask in _MASKED:
            line = pattern.sub(mask, line)
        if line.strip() and not _OF_THE_HOST.match(line):
            found.append(line.strip())
    return found
