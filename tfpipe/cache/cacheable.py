"""Which ops may stand before a cache, and what tells one of them from another.

In: ops, and what the first one takes. Out: what they make of a record, or why it cannot
be kept: it has to be the same in every epoch, for padding as for a real record, and on
disk in every process.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tfpipe.ops import identity
from tfpipe.stages.basic import Example
from tfpipe.stages.map import Op

# What the window says of a record, and not the record: never kept.
OF_WINDOW = ("record_id", "is_real", "epoch_seed", "seed", "mask")

# What an op may pass on, and which of TensorFlow's ops leave a value as it is.
_SAME = ("Identity", "EnsureShape")

# Stateful for TensorFlow, but they draw nothing and remember nothing.
_HARMLESS = {"Assert", "Print", "PrintV2"}
_CALLS = {"StatefulPartitionedCall", "If", "While", "Case"}
_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


def repeatable(ops: Sequence[Op], spec: Example) -> Example:
    """What the ops make of a record, if it is the same in every epoch but for `seed`.

    Found in the graph: nothing that is kept depends on `epoch_seed` or `is_real`, and
    no op calls Python or something of TensorFlow that has a state, as its random
    generators have. An op with an attribute `repeatable` that is true says itself that
    it makes the same of a record each time.

    Args:
        ops: Those of all maps, in order.
        spec: What the first one takes.

    Raises:
        ValueError: If an op is random, depends on what is not of the record, or changes
            or drops record_id, is_real, epoch_seed, seed or mask.
    """
    inputs: Example = {}
    results: list[Example] = []
    num_nodes: list[int] = []

    def trace(example: Example) -> Example:
        graph = tf.compat.v1.get_default_graph()
        inputs.update(example)
        for op in ops:
            num_nodes.append(len(graph.get_operations()))
            example = op(example)
            results.append(dict(example))
        return example

    traced = tf.function(trace).get_concrete_function(spec)
    definition = traced.graph.as_graph_def()
    functions = {f.signature.name: f.node_def for f in definition.library.function}
    bounds = itertools.pairwise([*num_nodes, None])
    for op, result, (start, stop) in zip(ops, results, bounds, strict=True):
        nodes = traced.graph.get_operations()[start:stop]
        _require_stateless(op, [node.node_def for node in nodes], functions)
        _require_of_record(op, result, inputs)
    made: Example = tf.nest.map_structure(
        tf.TensorSpec.from_tensor, traced.structured_outputs
    )
    if "record_id" not in made:
        raise ValueError(
            f"Cache must get record_id, got {', '.join(made)}: name it in Select."
        )
    return made


def _require_stateless(
    op: Op, nodes: Iterable[Any], functions: Mapping[str, Any]
) -> None:
    if getattr(op, "repeatable", False):
        return
    used = _names_of_ops(nodes, functions)
    if python := used & _PYTHON:
        raise ValueError(
            f"Cache must not come after an op that calls Python, got it after {op!r}, "
            f"which does with {', '.join(sorted(python))}: what Python does may differ "
            "in each epoch. Move Cache before it, or give the op the attribute "
            "`repeatable = True` if it makes the same of a record each time."
        )
    stateful = {name for name in used - _HARMLESS - _CALLS if _is_stateful(name)}
    if stateful:
        raise ValueError(
            "Cache must come before the first random op and before any with a state, "
            f"got it after {op!r}, which uses {', '.join(sorted(stateful))}. Move "
            "Cache before it, draw with tf.random.stateless_* from `seed`, or give the "
            "op the attribute `repeatable = True` if it makes the same of a record "
            "each time."
        )


def _names_of_ops(nodes: Iterable[Any], functions: Mapping[str, Any]) -> set[str]:
    """Names of TensorFlow's ops in some nodes and in the functions that they call."""
    names: set[str] = set()
    called: set[str] = set()
    left = [*nodes]
    while left:
        node = left.pop()
        names.add(node.op)
        for attribute in node.attr.values():
            inner = [attribute.func.name, *(f.name for f in attribute.list.func)]
            for name in {*inner} & {*functions} - called:
                called.add(name)
                left += functions[name]
    return names


def _is_stateful(name: str) -> bool:
    definition = op_def_registry.get(name)
    return definition is not None and bool(definition.is_stateful)


def _require_of_record(op: Op, result: Example, inputs: Example) -> None:
    """Checks that a cache can tell what the op gives from the record alone."""
    for name, value in result.items():
        if name in inputs and name in OF_WINDOW:
            is_right = _passed_on(value) is inputs[name]
        elif name == "seed":
            is_right = _is_seed(value, inputs)
        elif name == "mask":
            is_right = _is_mask(value, inputs)
        else:
            _require_kept(op, value, inputs)
            continue
        if not is_right:
            raise ValueError(
                f"Cache must not come after an op that changes {name}, got it after "
                f"{op!r}. A cache gives each record the {name} that the source says, "
                "whatever an op before it does. Move Cache before the op, or use "
                "another name."
            )


def _require_kept(op: Op, value: tf.Tensor, inputs: Example) -> None:
    tensors = tf.nest.flatten(value)
    if _reaches(tensors, inputs["epoch_seed"]):
        raise ValueError(
            f"Cache must come before the first random op, got it after {op!r}, "
            "which would do the same in every epoch. Move Cache before it."
        )
    if _reaches(tensors, inputs["is_real"]):
        raise ValueError(
            "Cache must come before the first op that computes from mask or is_real, "
            f"got it after {op!r}: a record is kept once, for padding and for real. "
            "Move Cache before it."
        )


def _passed_on(tensor: tf.Tensor) -> tf.Tensor:
    """Where a value comes from that ops only pass on."""
    while tensor.op.type in _SAME:
        tensor = tensor.op.inputs[0]
    return tensor


def _is_seed(tensor: tf.Tensor, inputs: Example) -> bool:
    """Whether it is tf.stack([epoch_seed, record_id], -1), as `Parse` makes it."""
    operation = _passed_on(tensor).op
    parts = [_passed_on(part) for part in operation.inputs]
    wanted = [inputs["epoch_seed"], inputs["record_id"]]
    return operation.type == "Pack" and all(
        part is one for part, one in zip(parts, wanted, strict=True)
    )


def _is_mask(tensor: tf.Tensor, inputs: Example) -> bool:
    """Whether it is `is_real` as numbers, as `Parse` makes it."""
    tensor = _passed_on(tensor)
    while tensor.op.type == "Cast":
        tensor = _passed_on(tensor.op.inputs[0])
    return tensor is inputs["is_real"]


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


def made_by(op: Op) -> dict[str, Any]:
    """All that decides what an op does, for the fingerprint of a cache.

    An op with an attribute `version` says itself when it does something else: then its
    code is not looked at.
    """
    version = getattr(op, "version", None)
    made_of = {"op": repr(op), "content": identity.content(op)}
    return made_of | ({"version": version} if version else identity.code(op))


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
