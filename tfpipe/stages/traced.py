"""Traced functions: the graph of a function is made once for all pipelines.

In: a function and the plain values that decide what it does, or ops. Out: a
`tf.function`, the same object for equal values; the ops such that AutoGraph converts
those of users alone. Tracing the ops took two thirds of the time of a build. A traced
function refers to no pipeline: Python that it calls must not either.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfpipe.stages.basic import Example, as_it_is

Op = Callable[[Example], Example]

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


def as_they_are(ops: Sequence[Op]) -> list[Op]:
    """Returns the ops such that AutoGraph converts those of users, and nothing else.

    A dataset lets AutoGraph convert the function that it maps with all functions that
    this one calls. For tfpipe's own that would take seconds of the first build. They
    are therefore mapped by `as_it_is`, and the ops of users are converted within them.
    """
    return [as_it_is(op) if is_fixed([op]) else _converted(op) for op in ops]


def _converted(op: Op) -> Op:
    """Returns an op that AutoGraph converts, also where it converts nothing else.

    Outside of a graph Python's control flow works, and errors are TensorFlow's own.
    """
    autograph = tf.__internal__.autograph
    context = autograph.control_status_ctx()
    enabled = type(context)(status=type(context.status).ENABLED)

    def apply(example: Example) -> Example:
        if tf.executing_eagerly():
            return op(example)
        with enabled:
            made: Example = autograph.tf_convert(op, enabled)(example)
        return made

    return apply


def is_fixed(ops: Iterable[object]) -> bool:
    """Checks whether equal ops always do the same.

    The ops of tfpipe do; an op of a user may change between two builds.
    """
    return all(
        type(op).__module__.startswith("tfpipe.") and is_fixed(_ops_within(op))
        for op in ops
    )


def _ops_within(op: object) -> list[object]:
    """Returns the ops that an op applies, alone or in a tuple of ops."""
    found: list[object] = []
    for value in vars(op).values():
        found += value if isinstance(value, tuple) else [value]
    return [value for value in found if callable(value)]
