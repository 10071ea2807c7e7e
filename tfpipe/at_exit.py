"""Ends the iterators of datasets while Python functions can still be called.

A dataset that is read when the interpreter ends calls Python from its own threads. Such
a call does not return once the interpreter is being finalized, and TensorFlow waits for
it when the iterator is deleted: the process hangs (seen in every third one; also with
`tf.data` alone and TensorFlow 2.17). So they are deleted before, as `del` would.
"""

import atexit
import functools
import gc

import tensorflow as tf


@functools.cache
def end_iterators_at_exit() -> None:
    """Sees to it that `end_iterators` is called when the interpreter ends, once."""
    atexit.register(end_iterators)


def end_iterators() -> None:
    """Deletes what every `tf.data` iterator of the process holds; none goes on."""
    for found in gc.get_objects():
        # type(), as isinstance() would ask objects that answer by importing modules.
        if issubclass(type(found), tf.data.Iterator):
            found._iterator_resource = None
