"""Signals: SIGTERM ends the work of a command like Ctrl-C.

In: a block of work that cleans up after KeyboardInterrupt. Out: the block cleans up too
if a scheduler or `kill` ends the process. Never here: absl; every room may import this.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Makes SIGTERM end the block like Ctrl-C, so that the block can clean up.

    Raises:
        KeyboardInterrupt: In the block, at SIGTERM.

    Example:
        >>> with terminated_as_interrupted():
        ...     work()
    """
    with sigterm_handled(signal.default_int_handler):
        yield


@contextlib.contextmanager
def sigterm_handled(handler: Callable[..., object]) -> Iterator[bool]:
    """Lets SIGTERM call a function while the block runs, and do nothing else.

    Python sets handlers in the main thread only. In another thread nothing changes.

    Yields:
        Whether the thread is the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield True
    finally:
        signal.signal(signal.SIGTERM, before)
