"""Traced functions: the graph of a function is made once for all pipelines.

In: a function and the plain values that decide its work, or ops. Out: a `tf.function`,
the same object for equal values; the ops, of which AutoGraph converts only the ops of
users. Tracing the ops took two thirds of the time of a build. A traced function refers
to no pipeline, and neither must the Python functions that it calls.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfpipe.native.run import graph
from tfpipe.stages.basic import Example, as_it_is

Op = Callable[[Example], Example]

# A process rarely builds more different pipelines. A kept graph has about 100 ops.
_MAX_FUNCTIONS = 64


@functools.lru_cache(maxsize=_MAX_FUNCTIONS)
def traced(function: Callable[..., Any], *values: Any) -> Callable[..., Any]:
    """Returns `function` with its first arguments set; its graph is made once.

    Args:
        function: Callable (*values, *tensors). Its result must depend on its arguments
            alone, never on other state of the process.
        values: Hashable values.
    """

    def call(*tensors: Any) -> Any:
        return function(*values, *tensors)

    once: Callable[..., Any] = graph(call)
    return once


def as_they_are(ops: Sequence[Op]) -> list[Op]:
    """Returns the ops for a map; AutoGraph converts only the ops of users.

    A dataset lets AutoGraph convert the mapped function and all functions that the
    mapped function calls. For the functions of tfpipe the conversion would take seconds
    of the first build. Maps of tfpipe therefore use `as_it_is`:

    | op        | AutoGraph                                    |
    |-----------|----------------------------------------------|
    | of tfpipe | does not look at the op                      |
    | of a user | converts the op, even within such a map      |
    """
    return [as_it_is(op) if is_fixed([op]) else _converted(op) for op in ops]


def _converted(op: Op) -> Op:
    """Returns the op of a user with a conversion by AutoGraph around it.

    Outside of a graph Python's control flow works, and errors are TensorFlow's own.
    """
    autograph = tf.__internal__.autograph
    context = autograph.control_status_ctx()
    enabled = type(context)(status=type(context.status).ENABLED)

    def apply(example: Example) -> Example:
        if tf.executing_eagerly():
            return op(example)
        with enabled:
            result: Example = autograph.tf_convert(op, enabled)(example)
        return result

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
    values = (v if isinstance(v, tuple) else (v,) for v in vars(op).values())
    return [value for value in itertools.chain(*values) if callable(value)]
