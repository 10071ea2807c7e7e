"""Child processes that end with their parent.

In: nothing. Out: the `preexec_fn` of a `subprocess.Popen`.
"""

import ctypes
import os
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
