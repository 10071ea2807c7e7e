"""A Python that has imported TensorFlow and runs programs in forks of itself.

In: the arguments of Python, `-m MODULE ...` or `-c CODE ...`. Out: exit code, stdout
and stderr, as of a new Python. Importing TensorFlow takes seconds of CPU time, so tests
of commands share one import. Tests of the import itself start a Python of their own.
"""

import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]

# A program that takes longer is stuck, and ends with SIGALRM.
MAX_SECONDS = 300


class WarmPython:
    """The process that forks; started by the first program."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def run(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Runs a program from the top folder of the checkout and waits for its end."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [str(argument) for argument in arguments]
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        out, err = ((self._folder / name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(words, code, out, err)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(60)


def main() -> None:
    # Only imported: threads that TensorFlow starts later would be lost in a fork.
    import keras  # noqa: F401
    import tensorflow as tf  # noqa: F401

    folder = pathlib.Path(sys.argv[1])
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(json.loads(line), folder)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(arguments: list[str], folder: pathlib.Path) -> None:
    """Runs a program in this process, whose exit code is then that of the program."""
    signal.alarm(MAX_SECONDS)
    for name, number in (("stdout", 1), ("stderr", 2)):
        with open(folder / name, "wb") as file:
            os.dup2(file.fileno(), number)
    kind, program, *rest = arguments
    sys.argv = [program if kind == "-m" else kind, *rest]
    # Else the fork would read the next program of its parent.
    sys.stdin = open(os.devnull)  # noqa: SIM115
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})


if __name__ == "__main__":
    main()
