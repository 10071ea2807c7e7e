"""A reminder on stderr that batches hold pixels which nobody has normalized.

In: a dataset of batches whose device ops the consumer has to apply. Out: the same
batches; a few batches after the first one, a line on stderr if nobody applied the ops.
"""

import functools
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe.stages.basic import Prefetch, as_it_is

# Batches that are read before the reminder: the first training step was traced by then.
_NUM_BATCHES = 5

# Readers that need no normalized pixels.
_MEASURING = (
    "tfpipe.profiling.",
    "tfpipe.tuner.",
    "tfpipe.training.headspace",
    "tfpipe.view",
)

_TEXT = (
    "tfpipe: these batches hold pixels 0..255 as they were decoded, and nothing has "
    "normalized them so far. Use pipeline.for_keras() with Keras, call "
    "pipeline.on_device(batch) in your training step, or begin the model with "
    'pipeline.device_layer(). A preset with dtype="float32" gives normalized pixels. '
    "If your model normalizes by itself, dataclasses.replace(pipeline, device_ops=()) "
    "ends this reminder."
)


class Reminder:
    """Remembers whether the device ops of a pipeline were used; reminds once.

    A pipeline shares it with the pipelines that are made from it.
    """

    def __init__(self) -> None:
        self._is_settled = False
        self._num_visits = 0
        self._lock = threading.Lock()

    def settle(self) -> None:
        """Notes that the consumer applies the device ops."""
        self._is_settled = True

    def among(self, stages: Sequence[Any]) -> list[Any]:
        """Returns the stages, with the reminder before the last Prefetch."""
        if self._is_settled:
            return [*stages]
        at, num_ahead = len(stages), 0
        if stages and isinstance(stages[-1], Prefetch):
            at, num_ahead = at - 1, max(stages[-1].buffer_size or 0, 0)
        remind = functools.partial(self._within, num_before=_NUM_BATCHES + num_ahead)
        return [*stages[:at], remind, *stages[at:]]

    def _within(self, dataset: tf.data.Dataset, num_before: int) -> tf.data.Dataset:
        """Returns the same batches, with the reminder after `num_before` of them.

        A consumer that reads fewer in an iteration gets it in its next iteration.
        """
        cardinality = int(dataset.cardinality())
        is_long = (
            cardinality == tf.data.INFINITE_CARDINALITY or cardinality > num_before
        )

        def visit() -> np.int64:
            self._visit(1 if is_long else 2)
            return np.int64(0)

        end = tf.data.Dataset.from_tensors(0)
        # Has no element, and the element_spec of `dataset`.
        nothing = end.flat_map(
            as_it_is(lambda _: dataset.take(tf.numpy_function(visit, [], tf.int64)))
        )
        # No function runs for a batch; the numbers only choose what is read next.
        first = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
        second = tf.data.Dataset.from_tensors(tf.constant(1, tf.int64))
        choice = (
            first.repeat(num_before).concatenate(second).concatenate(first.repeat())
        )
        both = tf.data.Dataset.choose_from_datasets(
            [dataset, nothing], choice, stop_on_empty_dataset=False
        )
        if cardinality == tf.data.UNKNOWN_CARDINALITY:
            return both
        return both.apply(tf.data.experimental.assert_cardinality(cardinality))

    def _visit(self, least: int) -> None:
        with self._lock:
            self._num_visits += 1
            if self._is_settled or self._num_visits < least or _is_measured():
                return
            self._is_settled = True
        print(_TEXT, file=sys.stderr, flush=True)


def _is_measured() -> bool:
    """Checks whether a function of this library is what reads batches."""
    return any(
        frame.f_globals.get("__name__", "").startswith(_MEASURING)
        for innermost in sys._current_frames().values()
        for frame, _ in traceback.walk_stack(innermost)
    )
