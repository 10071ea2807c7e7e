"""Ends the iterators of datasets while Python functions can still be called.

A dataset that is read when the interpreter ends calls Python from its own threads. Such
a call does not return once the interpreter is being finalized, and TensorFlow waits for
it when the iterator is deleted: the process hangs (seen in every third one; also with
`tf.data` alone and TensorFlow 2.17). So they are deleted before, as `del` would.

A daemon thread that waits for an element then comes back to an interpreter that is
gone, and takes the process down (SIGSEGV or SIGABRT). So the exit waits until every
such thread has its element; when it asks for the next one, the thread ends.
"""

import atexit
import functools
import gc
import sys
import time
import traceback
from collections.abc import Set
from types import CodeType
from typing import NoReturn

import tensorflow as tf

# A thread that waits for storage that is gone must not keep a process for ever.
_MOST_SECONDS = 30.0
_GLANCE = 0.005


@functools.cache
def end_iterators_at_exit() -> None:
    """Sees to it that `end_iterators` is called when the interpreter ends, once."""
    atexit.register(end_iterators)


def end_iterators() -> None:
    """Deletes what every `tf.data` iterator of the process holds; none goes on.

    Returns when no thread waits for an element any more, after half a minute at most.
    """
    waits = set()
    for found in gc.get_objects():
        # type(), as isinstance() would ask objects that answer by importing modules.
        if issubclass(type(found), tf.data.Iterator):
            waits.add(type(found)._next_internal.__code__)
            found._next_internal = _end_thread
            found._iterator_resource = None
    end = time.monotonic() + _MOST_SECONDS
    while _is_any_in(waits) and time.monotonic() < end:
        time.sleep(_GLANCE)


def _end_thread() -> NoReturn:
    # To a loop it must not look like the end of the data. A thread ends by it silently.
    raise SystemExit("The process ends: no dataset can be read any more.")


def _is_any_in(functions: Set[CodeType]) -> bool:
    """Whether a thread is in one of these functions."""
    return any(
        frame.f_code in functions
        for innermost in sys._current_frames().values()
        for frame, _ in traceback.walk_stack(innermost)
    )
