"""Child processes that end with their parent, and find the packages of their parent.

In: a program, or functions of these packages. Out: the `preexec_fn` and the `env` of a
`subprocess.Popen`; the values of the functions. A process that reads from a dead file
server hangs in the kernel: the parent kills the process, leaves it behind and goes on.
"""

import contextlib
import ctypes
import inspect
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from tfpipe import errors

_PR_SET_PDEATHSIG = 1  # prctl(2)
_LAST_SECONDS = 2.0


def end_with_parent() -> Callable[[], None]:
    """Returns a function for a child to call before its program.

    The kernel then sends SIGTERM to the child at the end of the parent, also after
    SIGKILL.
    """
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def call() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        # The parent may be gone before prctl is called.
        if os.getppid() != parent:
            os._exit(1)

    return call


def environment() -> dict[str, str]:
    """Returns the environment of a Python that finds these packages, and no others.

    The current folder may have a package of the same name; the folder stays current,
    because relative paths are relative to it.
    """
    root = str(pathlib.Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    return {**os.environ, **own}


class Child:
    """A process that calls functions, for use in a `with` statement."""

    def __init__(self) -> None:
        self._pipe, end = multiprocessing.Pipe()
        # A pipe may fill up. A process left behind would hold the stderr of the parent.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                pass_fds=[end.fileno()],
                env=environment(),
                # Ctrl-C ends the command, and the command the rest.
                start_new_session=True,
            )

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pipe.close()
        if kind is not None:
            self._process.kill()
        # A process that hangs within the kernel does not die, so the wait is short.
        try:
            self._process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._stderr.close()

    def send(self, function: Callable[..., Any] | None, *arguments: object) -> None:
        """Begins a call; None goes on with the generator of the last call."""
        # The end of the process is an error when the answer is read.
        with contextlib.suppress(ConnectionError):
            self._pipe.send((function, arguments))

    def answer(self, seconds: float) -> Any:
        """Returns the value of the function, or the next value of the generator.

        A failed function and an ended process are an OSError; no answer in time is a
        TimeoutError.
        """
        try:
            if not self._pipe.poll(seconds):
                raise TimeoutError(
                    f"A read did not come back within {seconds:.0f} s. Look at the "
                    "file server or the disk, and at the kernel's log."
                )
            value, error = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise OSError(
                f"A child process has ended before its answer: {self._last_words()}"
            ) from None
        if error:
            raise OSError(error)
        return value

    def _last_words(self) -> str:
        """Returns the last line on stderr, or the exit code of a silent process."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_SECONDS)
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"


def call(function: Callable[..., Any], *arguments: object, seconds: float) -> Any:
    """Calls a function in a child of its own; errors are those of `Child.answer`."""
    with Child() as child:
        child.send(function, *arguments)
        return child.answer(seconds)


def main() -> None:
    """Calls the functions that the parent sends, until the parent ends."""
    pipe = multiprocessing.connection.Connection(int(sys.argv[1]))
    while True:
        try:
            function, arguments = pipe.recv()
            if function is not None:
                value = function(*arguments)
            answer = next(value) if inspect.isgenerator(value) else value, ""
        except EOFError:
            return
        except Exception as error:  # the parent must know of any error
            if isinstance(error, OSError):
                errors.name_file(error)  # tracebacks stay in the child
            answer = None, str(error) or type(error).__name__
        pipe.send(answer)


if __name__ == "__main__":
    main()
