"""Runs the graph of a function as one op, which TensorFlow does not optimize.

In: a function on tensors. Out: its results. TensorFlow optimizes the functions of a
dataset anew for each iteration: 0.03 to 0.1 s of CPU time a function. Without the
native op the function becomes a part of the graph that calls the function.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfpipe.native import op


def can_run() -> bool:
    """Checks whether the native op is built and loads."""
    return op.load()[0] is not None


def graph(function: Callable[..., Any]) -> Any:
    """Returns a `tf.function` for `run`; AutoGraph does not convert the function."""
    return tf.function(function, autograph=False)


def run(
    function: Any, *values: Any, otherwise: Callable[..., Any] | None = None
) -> Any:
    """Returns the results of a function.

    Args:
        function: A result of `graph`. Each of its ops must run on the CPU.
        values: Arguments of the function, nested tensors.
        otherwise: Callable (*values, results) -> results: gives the results if an op
            of the function fails. `results` are their specs, nested. Needs the native
            op.

    Raises:
        tf.errors.OpError: When it runs, if an op fails, of `otherwise` if there is one.
        RuntimeError: With `otherwise`, if the native op is not built.
    """
    module = op.load()[0] if otherwise is None else op.module()
    if module is None:
        return function(*values)
    specs = tf.nest.map_structure(lambda v: tf.TensorSpec(v.shape, v.dtype), values)
    functions = [function.get_concrete_function(*specs)]
    results, outputs = functions[0].structured_outputs, functions[0].outputs
    if otherwise is not None:
        instead = graph(lambda *arguments: otherwise(*arguments, results))
        functions.append(instead.get_concrete_function(*specs))
    flat = module.tfpipe_run(
        values=tf.nest.flatten(values),
        captured=[
            tensor for concrete in functions for tensor in concrete.captured_inputs
        ],
        num_captured=[len(concrete.captured_inputs) for concrete in functions],
        functions=[concrete.function_def.signature.name for concrete in functions],
        library=_library(functions),
        Tout=[output.dtype for output in outputs],
        shapes=[output.shape for output in outputs],
    )
    return tf.nest.pack_sequence_as(results, flat)


def _library(functions: Sequence[Any]) -> bytes:
    """Returns a serialized FunctionDefLibrary of functions and all that they call."""
    library = functions[0].graph.as_graph_def().library
    for other in functions[1:]:
        library.function.extend(other.graph.as_graph_def().library.function)
    library.function.extend(concrete.function_def for concrete in functions)
    serialized: bytes = library.SerializeToString(deterministic=True)
    return serialized
