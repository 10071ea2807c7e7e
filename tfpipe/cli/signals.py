"""Signals: SIGTERM ends the work of a command like Ctrl-C.

In: a block of work that cleans up after KeyboardInterrupt. Out: the block cleans up too
if a scheduler or `kill` ends the process. Never here: absl; every room may import this.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Makes SIGTERM end the block like Ctrl-C, so that the block can clean up.

    Python sets handlers in the main thread only. In another thread nothing changes.

    Raises:
        KeyboardInterrupt: In the block, at SIGTERM.

    Example:
        >>> with terminated_as_interrupted():
        ...     work()
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
