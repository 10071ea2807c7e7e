"""Checks of the ops before a cache, and the identity of each.

In: ops, and the element_spec for the first op. Out: the element_spec of the
results, or an error that says why they cannot be kept. A result must be the same in
every epoch and for padding as for a real record; on disk it must also be the same in
every process.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tfpipe.ops import identity
from tfpipe.stages.basic import Example
from tfpipe.stages.traced import Op, as_they_are, is_fixed

# Features that come from the window and not from the record: never kept.
OF_WINDOW = ("record_id", "is_real", "epoch_seed", "seed", "mask")

# Ops of TensorFlow without a change of the value.
_SAME = ("Identity", "EnsureShape")

# TensorFlow calls them stateful, but they neither draw numbers nor keep a state.
_HARMLESS = {"Assert", "Print", "PrintV2"}
_CALLS = {"StatefulPartitionedCall", "If", "While", "Case"}
_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


def repeatable(ops: Sequence[Op], spec: Example) -> Example:
    """Checks that ops give the same result for a record in every epoch.

    The check looks at the graph of the ops. No kept feature may depend on
    `epoch_seed` or `is_real`. No op may call Python, or an op of TensorFlow that has a
    state, such as a random generator. An op whose attribute `repeatable` is true is
    trusted to give the same result each time.

    Args:
        ops: Ops of all maps, in order.
        spec: Specs of the features for the first op.

    Returns:
        Specs of the features from the last op.

    Raises:
        ValueError: If an op is random, depends on more than the record, or changes or
            drops record_id, is_real, epoch_seed, seed or mask.
    """
    specs = tuple(spec.items())
    find = _traced_once if is_fixed(ops) else _repeatable
    return dict(find(tuple(ops), specs))


def _repeatable(
    ops: tuple[Op, ...], specs: tuple[tuple[str, tf.TypeSpec], ...]
) -> Example:
    inputs: Example = {}
    results: list[Example] = []
    num_nodes: list[int] = []

    def trace(example: Example) -> Example:
        graph = tf.compat.v1.get_default_graph()
        inputs.update(example)
        for op in as_they_are(ops):
            num_nodes.append(len(graph.get_operations()))
            example = op(example)
            results.append(dict(example))
        return example

    traced = tf.function(trace, autograph=False).get_concrete_function(dict(specs))
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


_traced_once = functools.lru_cache(maxsize=64)(_repeatable)


def _require_stateless(
    op: Op, nodes: Iterable[Any], functions: Mapping[str, Any]
) -> None:
    if getattr(op, "repeatable", False):
        return
    used = _names_of_ops(nodes, functions)
    if python := used & _PYTHON:
        raise ValueError(
            f"Cache must not come after an op that calls Python, got it after {op!r}, "
            f"which uses {', '.join(sorted(python))}: the result of Python may "
            "differ in each epoch. Move Cache before it, or give the op the attribute "
            "`repeatable = True` if it gives the same result for a record each time."
        )
    stateful = {name for name in used - _HARMLESS - _CALLS if _is_stateful(name)}
    if stateful:
        raise ValueError(
            "Cache must come before the first random op and before any with a state, "
            f"got it after {op!r}, which uses {', '.join(sorted(stateful))}. Move "
            "Cache before it, draw with tf.random.stateless_* from `seed`, or give the "
            "op the attribute `repeatable = True` if it gives the same result for a "
            "record each time."
        )


def _names_of_ops(nodes: Iterable[Any], functions: Mapping[str, Any]) -> set[str]:
    """Returns the names of TensorFlow's ops in nodes and in functions they call."""
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
    """Checks that the result of an op depends on the record alone."""
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
            f"got it after {op!r}: one result is kept, for padding and real records. "
            "Move Cache before it."
        )


def _passed_on(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor from which ops only passed a value on."""
    while tensor.op.type in _SAME:
        tensor = tensor.op.inputs[0]
    return tensor


def _is_seed(tensor: tf.Tensor, inputs: Example) -> bool:
    """Checks whether a tensor is tf.stack([epoch_seed, record_id], -1) of `Parse`."""
    operation = _passed_on(tensor).op
    parts = [_passed_on(part) for part in operation.inputs]
    wanted = [inputs["epoch_seed"], inputs["record_id"]]
    return operation.type == "Pack" and all(
        part is one for part, one in zip(parts, wanted, strict=True)
    )


def _is_mask(tensor: tf.Tensor, inputs: Example) -> bool:
    """Checks whether a tensor is `is_real` cast to numbers, as of `Parse`."""
    tensor = _passed_on(tensor)
    while tensor.op.type == "Cast":
        tensor = _passed_on(tensor.op.inputs[0])
    return tensor is inputs["is_real"]


def _reaches(tensors: Iterable[tf.Tensor], origin: tf.Tensor) -> bool:
    """Checks whether any of some tensors is computed from `origin`."""
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
    """Returns the identity of an op, for the fingerprint of a cache.

    It holds the values and the code of the op. An op with an attribute `version` must
    change the attribute with its result: the code of the op is then left out.
    """
    version = getattr(op, "version", None)
    made_of = {"op": repr(op), "content": identity.content(op)}
    return made_of | ({"version": version} if version else identity.code(op))


def require_telling(ops: Sequence[Op]) -> None:
    """Checks that the text of each op says what the op does.

    Raises:
        ValueError: If the text of an op holds an address in memory.
    """
    for op in ops:
        if " at 0x" in repr(op):
            raise ValueError(
                "A cache on disk goes by how the ops before it print, so each must "
                f"print as what it does, got {op!r}. Write it as a frozen dataclass."
            )
