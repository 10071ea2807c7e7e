"""Workers of a tf.data service: they read windows, and apply stages to them.

In: a source, and the stages before `Service`. Out: a dataset without calls of Python,
whose elements name the records of the epoch that they hold.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe.location import direct
from tfpipe.ops.parse import Parse
from tfpipe.reading.source import TFRecordSource
from tfpipe.service import epoch_windows
from tfpipe.service.epoch_windows import Tensors
from tfpipe.shard_cache.settings import ShardCache
from tfpipe.stages.basic import AssertCardinality, Batch, Example, Prefetch, as_it_is
from tfpipe.stages.interleave import Interleave, read_extents
from tfpipe.stages.map import Map, apply_ops
from tfpipe.stages.traced import as_they_are, traced

Stage = Callable[[tf.data.Dataset], tf.data.Dataset]

# The feature of an element with the positions of its records in the epoch.
POSITION = "service/position"

# Examples in a message, if `Batch` comes after the service. A message of 5 MB, as 32
# images of 224 pixels are, costs little beside its bytes.
_CHUNK_LENGTH = 32


@dataclasses.dataclass(frozen=True)
class OnWorkers:
    """The work of the workers: to read windows of a source, and to apply stages."""

    source: Any
    stages: Sequence[Any]

    def check(self) -> None:
        """Checks that a worker can do all stages.

        Raises:
            ValueError: If a worker cannot.
        """
        if not isinstance(self.source, TFRecordSource):
            raise ValueError(f"Service needs a TFRecordSource, got {self.source!r}.")
        if isinstance(self.source.shard_cache, ShardCache):
            raise ValueError(
                "Workers do not read through the shard cache of a trainer: with a "
                "Service, data_dir must be a URL, or a folder that all workers have "
                f"mounted, without a ShardCache; got {self.source.data_dir} with "
                f"{self.source.shard_cache!r}."
            )
        location = self.source.split_index.storage.location
        if not location.is_local:
            direct.require_scheme(location)
        if not self.stages or not isinstance(self.stages[0], Interleave):
            raise ValueError(f"Service must come after Interleave, got {self.stages}.")
        for stage in self.stages:
            _require_remote(stage)
        size = int(np.prod([s.batch_size for s in self.stages if isinstance(s, Batch)]))
        if self.source.window_size % size:
            raise ValueError(
                "TFRecordSource.window_size must be a multiple of the batch size "
                f"{size} if Batch comes before Service, so that a worker makes whole "
                f"batches; got {self.source.window_size}. Change it, or move Batch "
                "after Service."
            )
        nothing = {
            name: tf.zeros([n or 0 for n in spec.shape], spec.dtype)
            for name, spec in epoch_windows.ARRAYS.items()
        }
        dataset = self.windows(nothing)
        for position, stage in enumerate(self.stages, start=1):
            dataset = _on_worker(stage)(dataset)
            if _calls_python(dataset):
                raise ValueError(
                    f"Stage {position} before Service must not call Python, which "
                    f"workers do not run: {stage!r}. Move such an op after Service, or "
                    "write it with TensorFlow's ops."
                )

    def windows(self, arrays: Tensors) -> tf.data.Dataset:
        """Returns the windows of the arrays of an epoch."""
        order = self.source.order
        return epoch_windows.dataset(
            arrays,
            self._paths,
            is_shuffled=order.shuffle != "none",
            has_copies=order.expected_copies is not None,
        )

    @property
    def _paths(self) -> list[str]:
        """The path or URL of each shard; no path of a cache of the trainer."""
        paths: list[str] = self.source.split_index.origins
        if not self.source.split_index.storage.location.is_local:
            return paths
        # Workers have another working folder than the trainer.
        return [os.path.abspath(path) for path in paths]

    def elements(self, arrays: Tensors) -> tf.data.Dataset:
        """Returns the batches or chunks of examples from a worker."""
        dataset = self.windows(arrays)
        for stage in self.stages:
            dataset = _on_worker(stage)(dataset)
        if not self.has_batch:
            shapes = [item.shape for item in tf.nest.flatten(dataset.element_spec)]
            is_static = all(shape.is_fully_defined() for shape in shapes)
            dataset = dataset.batch(_CHUNK_LENGTH if is_static else 1)
        options = tf.data.Options()
        options.deterministic = True
        return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)

    @property
    def has_batch(self) -> bool:
        """Whether workers make batches."""
        return any(isinstance(stage, Batch) for stage in self.stages)

    def cardinality(self) -> int | None:
        """Returns the number of elements if a stage states it; -1 is endless."""
        count = None
        for stage in self.stages:
            if isinstance(stage, AssertCardinality):
                count = stage.num_elements
            elif count is not None and count > 0:
                count = stage.num_out(count)
        return count


def _require_remote(stage: Any) -> None:
    if not isinstance(stage, (Interleave, Map, Batch, AssertCardinality, Prefetch)):
        raise ValueError(
            "Only Interleave, Map, Batch, AssertCardinality and Prefetch may stand "
            f"before Service, got {stage!r}. Move it after Service, or write it as an "
            "op of Map."
        )
    faults = getattr(stage, "faults", None)
    if faults is not None and faults.max_faults:
        raise ValueError(
            "Workers cannot count damaged records: before Service the source must have "
            f'on_error="raise", and a FaultLog max_faults=0; got {stage!r}.'
        )


def _on_worker(stage: Any) -> Stage:
    """Returns the stage of a worker: without Python, and with `POSITION`."""
    if isinstance(stage, Interleave):
        read = functools.partial(
            _read, stage.num_parallel_reads, stage.read_buffer_bytes
        )
        return lambda dataset: dataset.map(as_it_is(read)).prefetch(1).unbatch()
    if isinstance(stage, Map):
        ops = [
            dataclasses.replace(op, data_name=None) if isinstance(op, Parse) else op
            for op in stage.ops
        ]
        apply = as_it_is(functools.partial(_apply, as_they_are(ops)))
        calls = stage.num_parallel_calls
        return lambda dataset: dataset.map(apply, num_parallel_calls=calls)
    if isinstance(stage, AssertCardinality):
        return lambda dataset: dataset  # a worker has only a part of the elements
    unchanged: Stage = stage
    return unchanged


def _read(
    num_parallel_reads: int | None, read_buffer_bytes: int | None, window: Example
) -> Example:
    """Returns the records to pass on from a window, [take] of every feature."""
    read = traced(read_extents, num_parallel_reads, read_buffer_bytes)
    records = read(window)
    is_whole = tf.size(records["record"], tf.int64) == tf.reduce_sum(
        window["num_records"]
    )
    message = (
        "A worker of the tf.data service cannot read all records of a window. Each "
        "worker must reach the shards under the paths or URLs that the trainer uses; "
        "python -m converters.verify names damaged records. The first shards of the "
        "window:"
    )
    with tf.control_dependencies(
        [tf.debugging.Assert(is_whole, [message, window["path"]])]
    ):
        wanted = window["skip"] + tf.range(window["take"])
    last = window["num_real"] - 1
    passed_on = {
        name: tf.gather(value, tf.minimum(wanted, last))
        for name, value in records.items()
    }
    return passed_on | {
        "is_real": tf.logical_and(window["is_real"], wanted <= last),
        "epoch_seed": window["epoch_seed"],
        POSITION: window["start"] + tf.range(window["take"]),
    }


def _apply(ops: Sequence[Any], example: Example) -> Example:
    """Applies ops to an example; its position goes past the ops."""
    position = example[POSITION]
    example = {n: value for n, value in example.items() if n != POSITION}
    return apply_ops(ops, example) | {POSITION: position}


def _calls_python(dataset: tf.data.Dataset) -> bool:
    """Checks whether the graph of a dataset has an op that calls Python."""
    variant = tf.data.experimental.to_variant(dataset)
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy()
    graph = tf.compat.v1.GraphDef.FromString(text)
    functions = (function.node_def for function in graph.library.function)
    return any("PyFunc" in node.op for node in itertools.chain(graph.node, *functions))
