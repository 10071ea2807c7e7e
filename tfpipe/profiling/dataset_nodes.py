"""The datasets of a stage in tf.data: their parallel calls and buffers.

In: a dataset, or an iterator in use. Out: parallelism and buffer sizes. The choices
of AUTOTUNE are known from TensorFlow 2.17 on.
"""

import dataclasses
import difflib
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfpipe.profiling.limits import Kind
from tfpipe.tuning import AUTOTUNE


def chosen_parallelism(iterator: tf.data.Iterator) -> dict[str, dict[str, float]]:
    """Returns the parallelism and the buffer sizes of AUTOTUNE so far.

    Example:
        >>> from tfpipe.profiling import dataset_nodes
        >>> dataset = tf.data.Dataset.range(9).map(abs, num_parallel_calls=2)
        >>> iterator = iter(dataset.prefetch(1))
        >>> _ = next(iterator)
        >>> chosen = dataset_nodes.chosen_parallelism(iterator)

    Args:
        iterator: `iter(dataset)`, after its first elements.

    Returns:
        For each node of the dataset with a knob, by its name and number, as in
        `ParallelMapV2(id:3)`: `parallelism` (calls), `buffer_size` (elements), and
        `buffered_bytes`. An element passes the node with the highest number first.

    Raises:
        NotImplementedError: On TensorFlow 2.16, which does not tell.
        ValueError: If the dataset has AUTOTUNE switched off.
    """
    chosen = {}
    for node in _chain(iterator):
        if node.parameters:
            values = {item.name: float(item.value) for item in node.parameters}
            values["buffered_bytes"] = float(node.buffered_bytes)
            chosen[f"{node.name}(id:{node.id})"] = values
    return chosen


def can_tell_buffers() -> bool:
    """Checks whether TensorFlow tells the buffers of a dataset in use: from 2.17 on."""
    return hasattr(tf.data.experimental, "get_model_proto")


def buffered_bytes(
    iterator: tf.data.Iterator, stages: Sequence[Sequence[tf.data.Dataset]]
) -> list[int]:
    """Returns the bytes in the buffers of each stage now.

    Args:
        iterator: The iterator of the dataset of the stages.
        stages: The datasets of each stage, in the order of the data.

    Raises:
        NotImplementedError: On TensorFlow 2.16, which does not tell.
    """
    # tf.data adds, fuses and drops nodes, so the two chains are aligned by name.
    chain = _chain(iterator)[::-1]
    made = [(_kind(d), number) for number, all_ in enumerate(stages) for d in all_]
    matcher = difflib.SequenceMatcher(
        None, [kind for kind, _ in made], [_plain(n.name) for n in chain], False
    )
    held = [0] * len(stages)
    for _, a, _, first, last in matcher.get_opcodes():
        for offset, node in enumerate(chain[first:last]):
            number = made[min(a + offset, len(made) - 1)][1]
            held[number] += int(node.buffered_bytes)
    return held


@dataclasses.dataclass(frozen=True)
class Concurrency:
    """How a stage runs.

    Attributes:
        calls: Elements in work at the same time.
        kind: See `limits.StageCost`.
    """

    calls: int
    kind: Kind


def concurrency(
    stage: object, added: Sequence[tf.data.Dataset], num_threads: int
) -> Concurrency:
    """Tells how a stage with every knob set runs, from its knob or its datasets.

    AUTOTUNE counts as a call for each thread. So does a `Dataset.map` of plain ops
    without num_parallel_calls: tf.data makes it parallel, by
    Options.experimental_optimization.map_parallelization.
    """
    if (known := concurrency_of_knob(stage, num_threads)) is not None:
        return known
    fixed = [getattr(dataset, "_num_parallel_calls", None) for dataset in added]
    calls = [int(number) for number in fixed if number is not None]
    if calls or any(map(_is_made_parallel, added)):
        chosen = [number for number in calls if number != AUTOTUNE]
        return Concurrency(min(chosen, default=num_threads), "parallel")
    is_buffered = any(_kind(dataset) == "Prefetch" for dataset in added)
    return Concurrency(1, "buffered" if is_buffered else "serial")


def concurrency_of_knob(stage: object, num_threads: int) -> Concurrency | None:
    """Tells how a stage runs from its knob; None for a stage without a knob."""
    knobs: dict[str, Kind] = {
        "num_parallel_calls": "parallel",
        "num_parallel_reads": "reader",
    }
    for name, kind in knobs.items():
        if (value := getattr(stage, name, None)) is not None:
            return Concurrency(num_threads if value == AUTOTUNE else value, kind)
    return None


def added(
    before: tf.data.Dataset | None, after: tf.data.Dataset
) -> list[tf.data.Dataset]:
    """Returns the datasets after `before` up to `after`, in the order of the data.

    The chain follows tf.data's list of inputs, as long as a dataset has a single input.

    Args:
        before: The dataset to begin after; None begins with the source.
        after: The last dataset, made from `before`.
    """
    found: list[tf.data.Dataset] = []
    while after is not before:
        found.append(after)
        inputs = after._inputs()
        if len(inputs) != 1:
            break
        after = inputs[0]
    return found[::-1]


def has_growing_buffer(dataset: tf.data.Dataset) -> bool:
    """Checks whether there is a prefetch whose depth AUTOTUNE sets.

    AUTOTUNE doubles the depth whenever the buffer was full and then is empty. tf.data
    adds such a prefetch to a dataset that does not end in one
    (Options.experimental_optimization.inject_prefetch).
    """
    chain = [each for each in added(None, dataset) if _kind(each) != "Options"]
    depths = [int(d._buffer_size) for d in chain if _kind(d) == "Prefetch"]
    return AUTOTUNE in depths or _kind(chain[-1]) != "Prefetch"


def _is_made_parallel(dataset: tf.data.Dataset) -> bool:
    if type(dataset).__name__ != "_MapDataset":
        return False
    operations = dataset._map_func.function.graph.get_operations()
    return not any(operation.op_def.is_stateful for operation in operations)


def _kind(dataset: tf.data.Dataset) -> str:
    return _plain(re.sub(r"^_|Dataset$", "", type(dataset).__name__))


def _plain(name: str) -> str:
    """Returns the name of a node without its version and without "Parallel"."""
    return re.sub(r"V\d+$", "", name).removeprefix("Parallel")


def _chain(iterator: tf.data.Iterator) -> list[Any]:
    """Returns the nodes of a running dataset from its end to its source."""
    if not can_tell_buffers():
        raise NotImplementedError(
            "What AUTOTUNE chose is known from TensorFlow 2.17 on, this is "
            f"{tf.__version__}. Give num_parallel_calls and buffer sizes as numbers."
        )
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except tf.errors.NotFoundError as error:
        raise ValueError(
            "chosen_parallelism needs a dataset with Options.autotune.enabled, got "
            "one without."
        ) from error
    chain, number = [], model.output
    while number in model.nodes:
        chain.append(model.nodes[number])
        # Further inputs belong to an element of an interleave.
        number = next(iter(model.nodes[number].inputs), 0)
    return chain
