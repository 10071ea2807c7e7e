"""Ends the iterators of datasets while Python functions can still be called.

While the interpreter ends, a dataset may still call Python from its own threads.
Such a call never returns once the interpreter is being finalized. TensorFlow waits for
the call when the iterator is deleted, so the process hangs. (Every third process hung,
also with `tf.data` alone and TensorFlow 2.17.) The module therefore deletes the
iterators before, as `del` would.

A daemon thread with a wait for an element would then return to an interpreter that is
gone, and end the process with SIGSEGV or SIGABRT. So the exit waits until every such
thread has its element. A thread that asks for a further element ends.
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

# The exit does not wait longer: a thread may wait for lost storage.
_MAX_WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.005


@functools.cache
def end_iterators_at_exit() -> None:
    """Registers `end_iterators` to be called when the interpreter ends, once."""
    atexit.register(end_iterators)


def end_iterators() -> None:
    """Deletes the resources of every `tf.data` iterator of the process.

    No iterator can be read afterwards. The function returns when no thread waits for an
    element any more, after half a minute at most.
    """
    waits = set()
    for item in gc.get_objects():
        # isinstance() would ask the object, and some objects then import modules.
        if issubclass(type(item), tf.data.Iterator):
            waits.add(type(item)._next_internal.__code__)
            item._next_internal = _end_thread
            item._iterator_resource = None
    end = time.monotonic() + _MAX_WAIT_SECONDS
    while _is_any_in(waits) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)


def _end_thread() -> NoReturn:
    # StopIteration would look like the end of the data. SystemExit ends a thread
    # silently.
    raise SystemExit("The process ends: no dataset can be read any more.")


def _is_any_in(functions: Set[CodeType]) -> bool:
    """Checks whether a thread is in one of these functions."""
    return any(
        frame.f_code in functions
        for innermost in sys._current_frames().values()
        for frame, _ in traceback.walk_stack(innermost)
    )
