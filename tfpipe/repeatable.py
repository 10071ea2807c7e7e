"""Which ops may stand before a cache, and what tells one of them from another.

In: ops, and what the first one takes. Out: what they make of a record, or why it cannot
be kept: it has to be the same in every epoch, and on disk in every process.
"""

import inspect
import pathlib
from collections.abc import Iterable, Sequence

import tensorflow as tf

from tfpipe import index
from tfpipe.stages import Example, Op

# What the window says of a record, and not the record: never kept.
OF_WINDOW = ("record_id", "is_real", "epoch_seed", "seed")


def repeatable(ops: Sequence[Op], spec: Example) -> Example:
    """What the ops make of a record, if it is the same in every epoch but for `seed`.

    Found in the graph: nothing else depends on `epoch_seed`, and TensorFlow draws no
    number of its own.

    Args:
        ops: Those of all maps, in order.
        spec: What the first one takes.

    Raises:
        ValueError: If an op is random, or drops record_id.
    """
    results: list[list[tf.Tensor]] = []
    inputs: list[tf.Tensor] = []

    def trace(example: Example) -> Example:
        inputs.append(example["epoch_seed"])
        for op in ops:
            example = op(example)
            kept = {name: example[name] for name in example if name not in OF_WINDOW}
            results.append(tf.nest.flatten(kept))
        return example

    traced = tf.function(trace).get_concrete_function(spec)
    graph = traced.graph
    for op, tensors in zip(ops, results, strict=True):
        if _reaches(tensors, inputs[-1]):
            raise ValueError(
                f"Cache must come before the first random op, got it after {op!r}, "
                "which would do the same in every epoch. Move Cache before it."
            )
    definition = graph.as_graph_def()
    bodies = [definition.node, *(f.node_def for f in definition.library.function)]
    drawing = {node.op for body in bodies for node in body if "seed2" in node.attr}
    if drawing:
        raise ValueError(
            "Cache must come before the first random op, but an op before it draws "
            f"numbers with {', '.join(sorted(drawing))}. Move Cache before it, and "
            "draw with tf.random.stateless_* from `seed`."
        )
    made: Example = tf.nest.map_structure(
        tf.TensorSpec.from_tensor, traced.structured_outputs
    )
    if "record_id" not in made:
        raise ValueError(
            f"Cache must get record_id, got {', '.join(made)}: name it in Select."
        )
    return made


def _reaches(tensors: Iterable[tf.Tensor], origin: tf.Tensor) -> bool:
    """Whether any of the tensors of a graph is computed from another one."""
    left = [tensor.op for tensor in tensors]
    seen = set()
    while left:
        operation = left.pop()
        if operation.name in seen:
            continue
        seen.add(operation.name)
        left += [tensor.op for tensor in operation.inputs]
        left += operation.control_inputs
    return origin.op.name in seen


def code_digest(op: Op) -> str:
    """Of the file that an op is written in; "" if there is none."""
    try:
        path = inspect.getsourcefile(op if inspect.isroutine(op) else type(op))
        return index.digest(pathlib.Path(path or "").read_text(errors="replace"))
    except (OSError, TypeError):
        return ""


def require_telling(ops: Sequence[Op]) -> None:
    """Checks that each op prints as what it does.

    Raises:
        ValueError: If one prints as a place in memory.
    """
    for op in ops:
        if " at 0x" in repr(op):
            raise ValueError(
                "A cache on disk goes by how the ops before it print, so each must "
                f"print as what it does, got {op!r}. Write it as a frozen dataclass."
            )
