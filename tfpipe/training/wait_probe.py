"""Measures within tf.data how long the reader of a dataset waits.

In: a dataset. Out: the same dataset, which adds up how long its reader waited for each
batch, and the sum. `callbacks.LogInput` gets its waiting times from here.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfpipe.stages.basic import as_it_is


class WaitProbe:
    """Measures within tf.data how long the reader of a dataset waits for each batch.

    It serves readers that ask inside a compiled function, where Python sees no request.
    The thread of the reader reads the clock twice, before a batch is requested and when
    the batch is there, in two small functions without Python.

    Args:
        clock: Returns seconds, float64 []; called in a tf.function.
    """

    def __init__(self, *, clock: Callable[[], tf.Tensor] = tf.timestamp) -> None:
        self._clock = clock
        # tf.data's functions run on the host and take no variable from elsewhere.
        with tf.device("/CPU:0"):
            zeros = tf.zeros([2], tf.float64)
            self._sums = tf.Variable(zeros, trainable=False)  # batches, seconds
        self._taken = (0, 0.0)
        self._kept: list[object] = []

    def watch(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the same dataset, watched. Read it directly, with no stage behind it.

        End the given dataset with a prefetch, as every preset does: tf.data does not
        add its own prefetch behind a parallel stage here. The probe must live as long
        as the dataset that it returns.
        """
        ticks = tf.data.Dataset.from_tensors(0).repeat()
        spec = tf.TensorSpec([], tf.float64)
        asked_at = self._map(ticks, lambda _: self._clock(), spec)
        # Zip asks its inputs in turn: the clock is read before the batch is made.
        pairs = tf.data.Dataset.zip((asked_at, dataset))
        watched = self._map(pairs, self._note, dataset.element_spec)
        self._kept.append(dataset)
        options = tf.data.Options()
        # A prefetch behind this stage would request batches for its own buffer.
        options.experimental_optimization.inject_prefetch = False
        return watched.with_options(options)

    def take(self) -> tuple[int, float]:
        """Returns the batches read since the last call, and the seconds waited."""
        num_batches, seconds = self._sums.numpy().tolist()
        before, self._taken = self._taken, (int(num_batches), seconds)
        return self._taken[0] - before[0], seconds - before[1]

    def _note(self, element: tuple[tf.Tensor, Any]) -> Any:
        asked_at, batch = element
        # The clock of the machine may be set back meanwhile.
        wait = tf.maximum(self._clock() - asked_at, 0.0)
        self._sums.assign_add(tf.stack([tf.ones_like(wait), wait]), read_value=False)
        return batch

    def _map(
        self,
        dataset: tf.data.Dataset,
        function: Callable[[Any], Any],
        element_spec: Any,
    ) -> tf.data.Dataset:
        """Maps the dataset in the reader's own thread, to elements of `element_spec`.

        `Dataset.map` hands each call to a pool of threads and waits for the result. The
        wait is longer than these calls, and much longer where all processors are busy.
        """
        spec = dataset.element_spec
        given = tf.nest.flatten(spec)
        if not all(isinstance(part, tf.TensorSpec) for part in given):
            # Only tf.data knows the parts of sparse and ragged tensors.
            return dataset.map(as_it_is(lambda *parts: function(parts)))

        def flat(*parts: tf.Tensor) -> list[tf.Tensor]:
            element = function(tf.nest.pack_sequence_as(spec, parts))
            return list(tf.nest.flatten(element))

        concrete = tf.function(flat, autograph=False).get_concrete_function(*given)
        self._kept.append(concrete)
        variant = tf.raw_ops.MapDataset(
            input_dataset=tf.data.experimental.to_variant(dataset),
            other_arguments=concrete.captured_inputs,
            f=concrete,
            output_types=[output.dtype for output in concrete.outputs],
            output_shapes=[output.shape for output in concrete.outputs],
            use_inter_op_parallelism=False,
            preserve_cardinality=True,
        )
        return tf.data.experimental.from_variant(variant, element_spec)
