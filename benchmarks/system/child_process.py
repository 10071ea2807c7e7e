"""Child processes that end with their parent, and find the packages of their parent.

In: nothing. Out: the `preexec_fn` and the `env` of a `subprocess.Popen`.
"""

import ctypes
import os
import pathlib
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # prctl(2)


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

    The current folder may have a package of the same name; it stays the current folder,
    because relative paths are relative to it.
    """
    root = str(pathlib.Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    return {**os.environ, **own}
