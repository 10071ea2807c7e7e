"""The end of a training by SIGTERM: all ranks save and end after the same step.

In: SIGTERM at any rank, from a scheduler, a launcher or `kill`. Out: `Stop.is_asked`. A
rank tells the others with the averages of its next step, so that all ranks learn of the
signal in the same step; `StoppedError` then ends the training on each.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator

import tfpipe

# EX_TEMPFAIL of sysexits.h: the same command may succeed later.
EXIT_CODE = 75


class StoppedError(Exception):
    """A training ended by SIGTERM.

    Attributes:
        error: Why no checkpoint could be written; None if a checkpoint was written.
    """

    def __init__(self, state: tfpipe.State, error: str | None = None) -> None:
        super().__init__(f"SIGTERM ended epoch {state.epoch} after step {state.step}.")
        self.state, self.error = state, error


class Stop:
    """Whether SIGTERM has come to this rank.

    Attributes:
        is_asked: True from the first SIGTERM on, while `listening`.
    """

    def __init__(self) -> None:
        self.is_asked = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Lets SIGTERM set `is_asked` while the block runs, and do nothing else.

        Python sets handlers in the main thread only. In another thread nothing changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(*_: object) -> None:
            self.is_asked = True

        before = signal.signal(signal.SIGTERM, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
