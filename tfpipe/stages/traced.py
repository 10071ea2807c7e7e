"""Traced functions: the graph of a function is made once for all pipelines.

In: a function and the plain values that decide what it does. Out: a `tf.function`, the
same one for equal values. Tracing the ops is most of the time that a build takes. A
traced function never calls Python when it runs, so nothing of a pipeline is kept by it.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Pipelines of a process rarely differ in more. Each one kept is a graph of 100 ops.
_MAX_FUNCTIONS = 64


@functools.lru_cache(maxsize=_MAX_FUNCTIONS)
def traced(function: Callable[..., Any], *values: Any) -> Callable[..., Any]:
    """Returns `function` with its first arguments set, as a graph that is made once.

    A call within the function of a dataset is one op there; TensorFlow puts the ops of
    the graph in its place before they run.

    Args:
        function: Callable of the values and then of tensors. It must do the same for
            equal values, whatever else the process has changed.
        values: Hashable.
    """

    def of_tensors(*tensors: Any) -> Any:
        return function(*values, *tensors)

    made: Callable[..., Any] = tf.function(of_tensors, autograph=False)
    return made
