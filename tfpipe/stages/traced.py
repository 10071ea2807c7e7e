"""Traced functions: the graph of a function is made once for all pipelines.

In: a function and the plain values that decide what it does. Out: a `tf.function`, the
same object for equal values. Tracing the ops took two thirds of the time of a build. A
traced function refers to no pipeline: it must not call Python when it runs.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# A process rarely builds more different pipelines. A kept graph has about 100 ops.
_MAX_FUNCTIONS = 64


@functools.lru_cache(maxsize=_MAX_FUNCTIONS)
def traced(function: Callable[..., Any], *values: Any) -> Callable[..., Any]:
    """Returns `function` with its first arguments set; its graph is made once.

    Args:
        function: Callable (*values, *tensors). Its result must depend on its arguments
            alone, never on what else the process has changed.
        values: Hashable values.
    """

    def of_tensors(*tensors: Any) -> Any:
        return function(*values, *tensors)

    made: Callable[..., Any] = tf.function(of_tensors, autograph=False)
    return made
